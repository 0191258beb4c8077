"""What FGN is compared with: laws that every network keeps, and PyG's own layers."""

import pytest
import torch
from helpers import as_batch, as_sparse
from torch.nn.functional import cross_entropy, layer_norm, relu

from evergraph.feature_graph import Packed, condense
from evergraph.graph import Neighbors, SparseRows
from evergraph.nn import baseline
from evergraph.nn.baselines import KINDS

OWNER = torch.tensor([0, 0, 0, 1, 2, 2])


def items(seed=0, density=0.4):
    """Four items, of which the last has no neighbors."""
    generator = torch.Generator().manual_seed(seed)

    def rows(count):
        values = torch.rand(count, 1, 12, generator=generator)
        return values * (torch.rand(count, 1, 12, generator=generator) < density)

    return rows(4), Neighbors(rows(6), OWNER)


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_receives_a_gradient(kind):
    x, neighbors = items()
    model = baseline(kind, 12, 4)
    cross_entropy(model(as_batch(x, neighbors)), torch.tensor([0, 1, 3, 2])).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name


@pytest.mark.parametrize("kind", KINDS)
def test_order_of_neighbors_form_of_features_and_company_do_not_matter(kind):
    x, neighbors = items()
    model = baseline(kind, 12, 4).eval()
    logits = model(as_batch(x, neighbors))
    order = torch.tensor([2, 0, 1, 3, 5, 4])
    shuffled = Neighbors(neighbors.features[order], neighbors.owner[order])
    assert torch.allclose(model(as_batch(x, shuffled)), logits, atol=1e-6)
    assert torch.allclose(model(as_batch(*as_sparse(x, neighbors))), logits, atol=1e-6)
    alone = Neighbors(neighbors.features[3:4], torch.tensor([0]))
    assert torch.allclose(model(as_batch(x[1:2], alone)), logits[1:2], atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_growing_keeps_old_logits_and_one_item_can_be_learned(kind):
    x, neighbors = items()
    model = baseline(kind, 12, 2).eval()
    before = model(as_batch(x, neighbors))
    model.head.grow(5)
    after = model(as_batch(x, neighbors))
    assert after.shape == (4, 5)
    assert torch.allclose(after[:, :2], before)
    assert model(as_batch(x, neighbors).select(torch.arange(0))).shape == (0, 5)
    model.train()
    alone = Neighbors(neighbors.features[:0], neighbors.owner[:0])
    assert model(as_batch(x[:1], alone)).isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hidden", [(6,), (6, 5)])
def test_stored_means_give_the_same_numbers_where_a_model_says_so(kind, hidden):
    x, neighbors = items()
    weighed = neighbors.with_weight(torch.rand(6))
    model = baseline(kind, 12, 4, hidden=hidden).eval()
    assert model.requires.condensable == (
        kind == "mlp" or (kind in ("gcn", "sage") and not hidden[1:])
    )
    if model.requires.condensable:
        logits = model(as_batch(x, weighed))
        assert torch.allclose(model(as_batch(x, condense(weighed, 4))), logits, atol=1e-6)


def star(neighbors):
    """Every neighbor points at its item, and at itself: its own neighbors are unknown."""
    around = torch.arange(len(neighbors)) + 4
    edges = torch.stack([around, neighbors.owner])
    return torch.cat([edges, torch.stack([around, around])], dim=1)


def shares(neighbors):
    """The weight of each edge of a star in the mean that it belongs to."""
    count = torch.bincount(neighbors.owner)[neighbors.owner]
    given = torch.ones(6) if neighbors.weight is None else neighbors.weight
    return torch.cat([given / count, torch.ones(6)])


def convolution(kind, model, number):
    """PyG's layer with the parameters of ours: maps nodes `(N, F)` over weighted edges."""
    from torch_geometric.nn import GATConv, GCNConv, SAGEConv

    weight = model.blocks[number].layer.weight.detach()  # (out, planes and own, in)
    size = weight.shape[2], weight.shape[0]
    with torch.no_grad():
        if kind == "gcn":
            conv = GCNConv(*size, bias=False, normalize=False, add_self_loops=False)
            conv.lin.weight.copy_(weight[:, 0])
            return conv
        if kind == "sage":
            conv = SAGEConv(*size, aggr="mean", bias=False)
            conv.lin_l.weight.copy_(weight[:, 0])
            conv.lin_r.weight.copy_(weight[:, 1])
            return lambda h, edges, share: conv(h, edges)
        conv = GATConv(size[0], size[0], bias=False, add_self_loops=False)
        conv.lin.weight.copy_(torch.eye(size[0]))  # ours scores nodes before the map
        attention = model.attentions[number]
        conv.att_src.copy_(attention.neighbor.view(1, 1, -1))
        conv.att_dst.copy_(attention.center.view(1, 1, -1))
        return lambda h, edges, share: conv(h, edges) @ weight[:, 0].T


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighed", [False, True])
def test_the_whole_network_is_made_of_pygs_layers(kind, weighed):
    """On the star graph of each item, layer after layer, to the logits."""
    from torch_geometric.nn import APPNP

    x, neighbors = items()
    if weighed and kind in ("gcn", "mlp"):
        neighbors = neighbors.with_weight(torch.rand(6))
    model = baseline(kind, 12, 3, hidden=(8, 5)).eval()
    edges, share = star(neighbors), shares(neighbors)
    h = torch.cat([x, neighbors.features]).flatten(1)
    for number, block in enumerate(model.blocks):
        if kind in ("mlp", "appnp"):
            h = h @ block.layer.weight[:, 0].T
        else:
            h = convolution(kind, model, number)(h, edges, share)
        h = relu(layer_norm(h, h.shape[1:]))
    if kind == "appnp":
        h = APPNP(K=1, alpha=0.1, add_self_loops=False, normalize=False)(h, edges, share)
    expected = h[:4] @ model.head.weight[:, 0] + model.head.bias
    assert torch.allclose(model(as_batch(x, neighbors)), expected, atol=1e-5)


def test_attention_weights_are_those_of_gatconv():
    from torch_geometric.nn import GATConv

    x, neighbors = items()
    model = baseline("gat", 12, 3, hidden=(8,))
    attention = model.attentions[0]
    found = attention(x, neighbors.features, Packed(neighbors, 4, 1))
    conv = GATConv(12, 12, bias=False, add_self_loops=False)
    with torch.no_grad():
        conv.lin.weight.copy_(torch.eye(12))  # ours scores nodes before the map
        conv.att_src.copy_(attention.neighbor.view(1, 1, -1))
        conv.att_dst.copy_(attention.center.view(1, 1, -1))
    h, edges = torch.cat([x, neighbors.features]).flatten(1), star(neighbors)[:, :6]
    _, (_, expected) = conv(h, edges, return_attention_weights=True)
    assert torch.allclose(found, expected.squeeze(-1), atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_vector_weights_have_a_mean_each(kind):
    x, neighbors = items()
    both = neighbors.with_weight(torch.rand(6, 2))
    model = baseline(kind, 12, 4, edge_components=2).eval()
    assert model(as_batch(x, both)).isfinite().all()
    if kind in ("gcn", "sage", "gat"):
        graph = model.graph(x, both.features, Packed(both, 4, 1), 0)
        for component in range(2):
            one = baseline(kind, 12, 4)
            one.load_state_dict(
                {k: v for k, v in model.state_dict().items() if "blocks" not in k}, strict=False
            )
            single = neighbors.with_weight(both.weight[:, component])
            alone = one.graph(x, single.features, Packed(single, 4, 1), 0)
            assert torch.allclose(graph.mean[:, component], alone.mean[:, 0], atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("components", [1, 2])
def test_sparse_rows_give_the_numbers_of_dense_features(kind, hops, components):
    """Rows are mapped before the message is sent: the same logits and gradients."""
    x, neighbors = items()
    hop = torch.randint(1, hops + 1, (6,))
    weight = torch.rand(6, components) if components > 1 else torch.rand(6)
    dense = Neighbors(neighbors.features, neighbors.owner, hop, weight)
    rows = SparseRows.from_dense(neighbors.features.squeeze(1))
    model = baseline(kind, 12, 3, hops=hops, hidden=(8, 5), edge_components=components)
    sparse = as_batch(SparseRows.from_dense(x.squeeze(1)), dense.with_features(rows))
    found, expected = model(sparse), model(as_batch(x, dense))
    assert torch.allclose(found, expected, atol=1e-5)
    parameters = [p for p in model.parameters() if p.requires_grad]
    for loss, other in ((found, expected),):
        g = torch.autograd.grad(loss.square().sum(), parameters, allow_unused=True)
        h = torch.autograd.grad(other.square().sum(), parameters, allow_unused=True)
        for one, two in zip(g, h, strict=True):
            assert (one is None) == (two is None)
            assert one is None or torch.allclose(one, two, atol=1e-4)


def test_bad_input_is_named():
    x, neighbors = items()
    with pytest.raises(ValueError, match="kind must be one of"):
        baseline("gin", 12, 4)
    with pytest.raises(ValueError, match=r"x must have shape \(B, 1, 9\) .* got \(4, 1, 12\)"):
        baseline("gcn", 9, 4)(as_batch(x, neighbors))

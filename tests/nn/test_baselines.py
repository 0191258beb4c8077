"""What FGN is compared with: laws that every network keeps, and GCN against a plain loop."""

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch_geometric.nn import SAGEConv

from evergraph.feature_graph import Neighbors, condense, neighborhood_mean
from evergraph.graph.rows import SparseRows
from evergraph.nn.baselines import KINDS, Baseline, star_edges


def batch(seed=0, density=0.4):
    generator = torch.Generator().manual_seed(seed)

    def rows(count):
        values = torch.rand(count, 1, 12, generator=generator)
        return values * (torch.rand(count, 1, 12, generator=generator) < density)

    return rows(3), Neighbors(rows(6), torch.tensor([0, 0, 0, 1, 2, 2]))


def sparse(features):
    return SparseRows.from_dense(features.squeeze(1))


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_receives_a_gradient(kind):
    x, neighbors = batch()
    model = Baseline(kind, 12, 4)
    cross_entropy(model(x, neighbors), torch.tensor([0, 1, 3])).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name


@pytest.mark.parametrize("kind", KINDS)
def test_order_of_neighbors_form_of_features_and_company_do_not_matter(kind):
    x, neighbors = batch()
    model = Baseline(kind, 12, 4).eval()
    logits = model(x, neighbors)
    order = torch.tensor([2, 0, 1, 3, 5, 4])
    shuffled = Neighbors(neighbors.features[order], neighbors.owner[order])
    assert torch.allclose(model(x, shuffled), logits, atol=1e-6)
    in_rows = Neighbors(sparse(neighbors.features), neighbors.owner)
    assert torch.allclose(model(sparse(x), in_rows), logits, atol=1e-6)
    alone = Neighbors(neighbors.features[3:4], torch.tensor([0]))
    assert torch.allclose(model(x[1:2], alone), logits[1:2], atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_growing_keeps_old_logits_and_one_item_can_be_learned(kind):
    x, neighbors = batch()
    model = Baseline(kind, 12, 2).eval()
    before = model(x, neighbors)
    model.grow(5)
    after = model(x, neighbors)
    assert after.shape == (3, 5)
    assert torch.allclose(after[:, :2], before)
    model.train()
    alone = Neighbors(neighbors.features[:0], neighbors.owner[:0])
    assert model(x[:1], alone).isfinite().all()


def test_gcn_is_the_plain_loop():
    x, neighbors = batch()
    model = Baseline("gcn", 12, 4).eval()
    h = torch.cat([x, neighbors.features]).flatten(1)
    size = len(h)
    dense = torch.eye(size)
    for source, target in star_edges(3, neighbors.owner).T.tolist():
        dense[target, source] = 1
    scale = dense.sum(1).rsqrt()
    maps = (model.project.weight, model.layers[1].lin.weight.T)
    for layer, norm, weight in zip(model.layers, model.norms, maps, strict=True):
        mixed = scale[:, None] * dense * scale @ h @ weight + layer.bias
        centered = mixed - mixed.mean(1, keepdim=True)
        centered = centered / (centered.square().mean(1, keepdim=True) + norm.eps).sqrt()
        h = torch.relu(centered * norm.weight + norm.bias)
    expected = h[:3] @ model.readout.weight[0] + model.readout.bias
    assert torch.allclose(model(x, neighbors), expected, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_condensed_neighbors_are_the_weighted_means(kind):
    x, neighbors = batch()
    weighed = neighbors.with_weight(torch.rand(6))
    model = Baseline(kind, 12, 4, condensed=True).eval()
    logits = model(x, weighed)
    means = neighborhood_mean(weighed, num_items=3)[:, 0]
    star = Baseline(kind, 12, 4).eval()
    star.load_state_dict(model.state_dict())
    assert torch.allclose(logits, star(x, Neighbors(means, torch.arange(3))), atol=1e-6)
    assert torch.allclose(logits, model(x, condense(weighed, 3)), atol=1e-6)


def test_sage_starts_as_pyg_does():
    x, neighbors = batch()
    model = Baseline("sage", 12, 4, hidden=(5, 3))
    h = torch.cat([x, neighbors.features]).flatten(1)
    edges = star_edges(3, neighbors.owner)
    plain = SAGEConv(12, 5)
    with torch.no_grad():
        plain.lin_l.weight.copy_(model.project.weight[:, :5].T)
        plain.lin_r.weight.copy_(model.project.weight[:, 5:].T)
        plain.lin_l.bias.copy_(model.layers[0].bias)
    ours = model.layers[0](model.project(h), edges)
    assert torch.allclose(ours, plain(h, edges), atol=1e-6)


def test_bad_input_is_named():
    x, neighbors = batch()
    with pytest.raises(ValueError, match="kind must be one of"):
        Baseline("gin", 12, 4)
    with pytest.raises(ValueError, match="must have 9 features"):
        Baseline("gcn", 9, 4)(x, neighbors)

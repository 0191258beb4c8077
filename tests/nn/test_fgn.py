"""FGN: forms agree, every parameter learns, and the equations give the same numbers."""

import pytest
import torch
from helpers import as_batch, as_sparse, ragged_batch
from torch.autograd import gradcheck
from torch.nn.functional import batch_norm, cross_entropy, softsign

from evergraph.feature_graph import (
    Packed,
    build,
    feature_adjacency,
    neighborhood_mean,
    normalize,
    propagate,
)
from evergraph.graph import Neighbors
from evergraph.graph.neighbors import Linked
from evergraph.nn import FGN, baseline

TARGET = torch.tensor([0, 2, 1, 1])


def logits_and_gradients(model, x, neighbors, monkeypatch, form):
    original = build.build

    def forced(x, *arguments):
        return original(x, *arguments[:5], form if x.shape[1:] == (1, 70) else "auto")

    with monkeypatch.context() as patch:
        if form != "auto":
            patch.setattr("evergraph.nn.fgn.build", forced)
            patch.setattr("evergraph.nn.fgn.fixed_support", lambda *arguments: None)
        logits = model(as_batch(x, neighbors))
    names, parameters = zip(*model.named_parameters(), strict=True)
    gradients = torch.autograd.grad(cross_entropy(logits, TARGET), parameters)
    return {"logits": logits, **dict(zip(names, gradients, strict=True))}


def randomize(model):
    """Batch norm at its initial scale and shift would hide errors in both."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5)
        for name, buffer in model.named_buffers():
            buffer.copy_(torch.rand_like(buffer) + 0.5 * name.endswith("var"))
    return model


CONFIGURATIONS = {
    "plain": {},
    "uncentered": {"centered": False},
    "directed": {"directed": True},
    "row": {"normalization": "row"},
    "attention": {"attention": "softmax"},
    "concatenated": {"concatenate": True, "hops": 2},
    "two hops": {"hops": 2, "edge_components": 2},
    "gain": {"gain": 0.1},
    "one layer": {"channels": (3,)},
    "three layers": {"channels": (2, 3, 4)},
    "transform": {"channels": (4, 8), "features": (6, 2), "concatenate": True},
    "transform with attention": {"channels": (4, 8), "features": (6, 2), "attention": "softmax"},
    "gate": {"attention": "gate"},
    "attention to vectors": {"attention": "softmax", "hops": 2, "edge_components": 2},
    "directed transform": {"channels": (4,), "features": (6,), "directed": True},
}


def batch_of(settings, density=0.1):
    """Items that a configuration can read; weights are a prior of attention, which has no sign."""
    components, hops = settings.get("edge_components", 1), settings.get("hops", 1)
    x, neighbors = ragged_batch(70, 1, hops, components, density=density)
    if settings.get("attention") == "softmax":
        neighbors = neighbors.with_weight(neighbors.weight.abs())
    return x, neighbors


@pytest.mark.parametrize("name", CONFIGURATIONS)
@pytest.mark.parametrize("training", [True, False])
def test_all_forms_give_the_same_logits_and_gradients(name, training, monkeypatch):
    settings = CONFIGURATIONS[name]
    x, neighbors = batch_of(settings)
    model = randomize(FGN(70, 3, **settings).double()).train(training)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    results, statistics = [], []
    for form in ("dense", "auto", "support", "support-torch"):
        model.load_state_dict(state)
        results.append(logits_and_gradients(model, x, neighbors, monkeypatch, form))
        statistics.append({k: v.clone() for k, v in model.named_buffers()})
    for other in results[1:] + statistics[1:]:
        expected = results[0] if "logits" in other else statistics[0]
        for key, value in expected.items():
            assert torch.allclose(other[key], value, atol=1e-10), key


def plain_logits(model, x, neighbors):
    """A broadcast FGN with a plain linear head, straight from the equations, F × F and all."""
    if model.attentions:
        layout = Packed(neighbors, len(x), model.hops)
        neighbors = neighbors.with_weight(model.attentions[0](x, neighbors.features, layout))
    mean = neighborhood_mean(neighbors, len(x), model.hops)
    adjacency = normalize(feature_adjacency(x, mean, model.directed), model.normalization)
    z = x
    for block in model.blocks:
        norm = block.norm
        z = torch.einsum("bcf,cd->bdf", propagate(adjacency, z), block.layer.weight)
        statistics = (norm.running_mean.clone(), norm.running_var.clone())
        z = batch_norm(z, *statistics, *norm.affine, model.training, norm.momentum, norm.eps)
        z = softsign(z)
        adjacency = adjacency.flatten(1, 2).unsqueeze(2)  # every one acts on every channel
    return torch.einsum("bcf,fck->bk", z, model.head.weight) + model.head.bias


@pytest.mark.parametrize("density", [0.1, 1.0])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "settings", [{}, {"attention": "softmax", "gain": 0.2}, {"hops": 2, "in_channels": 2}]
)
def test_the_equations_give_the_same_numbers(density, training, settings):
    channels, hops = settings.get("in_channels", 1), settings.get("hops", 1)
    x, neighbors = ragged_batch(70, channels, hops, density=density)
    model = randomize(FGN(70, 3, centered=False, **settings).double()).train(training)
    results = []
    for logits in (plain_logits(model, x, neighbors), model(as_batch(x, neighbors))):
        gradients = torch.autograd.grad(cross_entropy(logits, TARGET), list(model.parameters()))
        results.append((logits, *gradients))
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, atol=1e-10)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("centered", [True, False])
def test_gradcheck_of_the_fused_network(training, centered):
    x, neighbors = ragged_batch(70, density=0.1)
    model = randomize(FGN(70, 2, channels=(2, 2), centered=centered, attention="softmax").double())
    model.train(training)
    names = [name for name, _ in model.named_parameters() if "head.weight" not in name]

    def run(*parameters):
        return torch.func.functional_call(
            model, dict(zip(names, parameters, strict=True)), (as_batch(x, neighbors),)
        )

    parameters = tuple(p for n, p in model.named_parameters() if n in names)
    assert gradcheck(run, parameters, atol=1e-6)


@pytest.mark.parametrize("name", CONFIGURATIONS)
@pytest.mark.parametrize("density", [0.1, 1.0])
def test_every_parameter_receives_a_gradient(name, density):
    settings = CONFIGURATIONS[name]
    x, neighbors = batch_of(settings, density)
    model = FGN(70, 3, **settings).double()
    cross_entropy(model(as_batch(x, neighbors)), TARGET).backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        # softmax of one item's neighbors does not feel a common shift: x and bias act only
        # through the kink of the LeakyReLU
        if "attentions" not in key or "neighbor" in key:
            assert parameter.grad.any(), key


def test_attention_parameters_feel_the_kink():
    x, neighbors = ragged_batch(70, density=0.5)
    model = FGN(70, 3, attention="softmax").double()
    with torch.no_grad():
        model.attentions[0].neighbor.mul_(10)
    cross_entropy(model(as_batch(x, neighbors)), TARGET).backward()
    assert all(parameter.grad.any() for parameter in model.attentions.parameters())


@pytest.mark.parametrize("name", CONFIGURATIONS)
@pytest.mark.parametrize("density", [0.1, 1.0])
def test_laws_of_every_configuration(name, density):
    settings = CONFIGURATIONS[name]
    x, neighbors = batch_of(settings, density)
    model = FGN(70, 3, **settings).double().eval()
    logits = model(as_batch(x, neighbors))
    order = torch.randperm(len(neighbors))
    shuffled = Neighbors(*(part[order] for part in vars(neighbors).values()))
    assert torch.allclose(model(as_batch(x, shuffled)), logits, atol=1e-12)
    for item in range(4):  # a batch of one equals a row of the batch
        mine = neighbors.owner == item
        alone = Neighbors(*(part[mine] for part in vars(neighbors).values()))
        alone = Neighbors(alone.features, alone.owner * 0, alone.hop, alone.weight)
        assert torch.allclose(
            model(as_batch(x[item : item + 1], alone))[0], logits[item], atol=1e-12
        )
    copy = FGN(70, 3, **settings).double().eval()
    copy.load_state_dict(model.state_dict())
    assert torch.equal(copy(as_batch(x, neighbors)), logits)
    logits.sum().backward()
    assert model(as_batch(x, neighbors)).dtype == torch.float64


@pytest.mark.parametrize("name", CONFIGURATIONS)
@pytest.mark.parametrize("density", [0.1, 1.0])
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_a_batch_of_nothing_has_no_outputs(name, density, form):
    settings = CONFIGURATIONS[name]
    x, neighbors = batch_of(settings, density)
    given = as_sparse(x, neighbors) if form == "sparse" else (x, neighbors)
    model = FGN(70, 3, **settings).double().eval()
    nothing = as_batch(*given).select(torch.arange(0))
    assert model(nothing).shape == (0, 3)


def test_dropout_is_reproducible_and_learns_the_same_on_average():
    x, neighbors = ragged_batch(70, density=0.1)
    model = FGN(70, 3, dropout=0.5).double()
    torch.manual_seed(1)
    first = model(as_batch(x, neighbors))
    torch.manual_seed(1)
    assert torch.equal(model(as_batch(x, neighbors)), first)
    assert not torch.equal(model(as_batch(x, neighbors)), first)
    cross_entropy(first, TARGET).backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_gradcheck_of_the_fused_network_with_dropout():
    x, neighbors = ragged_batch(70, density=0.1)
    model = randomize(FGN(70, 2, channels=(2, 2), dropout=0.4).double())
    names = [name for name, _ in model.named_parameters() if name.startswith("blocks")]

    def run(*parameters):
        torch.manual_seed(3)
        changed = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(model, changed, (as_batch(x, neighbors),))

    assert gradcheck(run, tuple(p for n, p in model.named_parameters() if n in names), atol=1e-6)


@pytest.mark.parametrize("nodes", [None, 2])
@pytest.mark.parametrize("settings", [{}, {"features": (4, 4)}, {"layer": "residual"}], ids=str)
def test_items_of_several_nodes(nodes, settings):
    """Neighbors packed for each node, or given as places; the mean has no order, places do."""
    x, neighbors = ragged_batch(9, 5)
    pair = x.view(2, 2, 5, 9)
    model = FGN(9, 3, in_channels=5, channels=(8, 8), nodes=nodes, **settings).double().eval()
    logits = model(as_batch(pair, neighbors))
    assert logits.shape == (2, 3)
    turned = Neighbors(neighbors.features, neighbors.owner ^ 1, neighbors.hop)
    swapped = model(as_batch(pair.flip(1), turned))
    assert torch.allclose(swapped, logits) == (nodes is None)
    logits.sum().backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("attention", [None, "softmax"])
@pytest.mark.parametrize("nodes", [None, 2])
def test_sparse_nodes_of_an_item_are_read_together(nodes, attention, training, monkeypatch):
    """Dense input with few nonzeros takes the support form: the same logits as without it."""
    x, neighbors = ragged_batch(70, density=0.1)
    batch = as_batch(x.view(2, 2, 1, 70), neighbors)
    model = randomize(FGN(70, 3, nodes=nodes, attention=attention).double()).train(training)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = model(batch)
    model.load_state_dict(state)
    with monkeypatch.context() as patch:
        patch.setattr("evergraph.feature_graph.build._mostly_zero", lambda *arguments: False)
        expected = model(batch)
    assert found.shape == (2, 3)
    assert torch.allclose(found, expected, atol=1e-10)


def test_pairs_have_no_direction():
    x, neighbors = ragged_batch(9, 5)
    pair = x.view(2, 2, 5, 9)
    model = FGN(9, 3, in_channels=5, head="pairs").double().eval()
    scores = model(as_batch(pair, neighbors))
    assert scores.shape == (2, 3)
    turned = Neighbors(neighbors.features, neighbors.owner ^ 1, neighbors.hop)
    assert torch.allclose(model(as_batch(pair.flip(1), turned)), scores)
    scores.sum().backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("training", [True, False])
def test_pairs_on_the_support_equal_dense_ones(training, monkeypatch):
    """Logits and gradients of two sparse rows per item and of `(B, 2, 1, F)`."""
    x, neighbors = ragged_batch(70, density=0.1)
    model = randomize(FGN(70, 3, head="pairs").double()).train(training)
    sparse = model(as_batch(*as_sparse(x, neighbors), nodes=2))
    with monkeypatch.context() as patch:
        patch.setattr("evergraph.feature_graph.build._mostly_zero", lambda *arguments: False)
        dense = model(as_batch(x.view(2, 2, 1, 70), neighbors))
    results = [
        (out, *torch.autograd.grad(out.square().sum(), list(model.parameters())))
        for out in (sparse, dense)
    ]
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, atol=1e-10)


@pytest.mark.parametrize("density", [0.1, 1.0])
def test_embeddings_have_unit_length(density):
    """So that nothing is nearer to a node than itself."""
    x, neighbors = ragged_batch(70, density=density)
    model = FGN(70, head="embedding").double()
    found = model(as_batch(x, neighbors))
    assert found.shape == (4, 10 * 70)
    near = found @ found.T
    assert torch.allclose(near.diagonal(), torch.ones(4, dtype=torch.float64))
    assert (near <= 1 + 1e-12).all()
    found[:, 0].sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_embed_is_what_the_classifier_reads():
    x, neighbors = ragged_batch(70, density=0.1)
    model = FGN(70, 3, centered=False).double().eval()
    embedding = model.embed(as_batch(x, neighbors))
    assert embedding.shape == (4, 10, 70)
    expected = torch.einsum("bcf,fck->bk", embedding, model.head.weight) + model.head.bias
    assert torch.allclose(model(as_batch(x, neighbors)), expected)


@pytest.mark.parametrize("form", ["packed", "sparse", "places", "linked"])
@pytest.mark.parametrize("settings", [{}, {"features": (4, 3)}], ids=str)
def test_embed_keeps_the_nodes_of_items_apart(form, settings):
    x, neighbors = ragged_batch(70, density=0.1)
    pair, shape = x.view(2, 2, 1, 70), (2, 2)
    places = torch.ones(1, 2, 2, dtype=torch.bool) if form == "places" else None
    model = FGN(70, 3, nodes=2, centered=False, places=places, **settings).double().eval()
    if form == "sparse":
        model = FGN(70, 3, head="pairs", **settings).double().eval()
        batch = as_batch(*as_sparse(x, neighbors), nodes=2)
    elif form == "linked":
        model, shape = FGN(70, 3, centered=False, **settings).double().eval(), (4,)
        index = torch.tensor([[1, 2], [0, 3], [3, 3], [0, 1]])
        batch = as_batch(x, Linked(index, torch.ones(4, 2, dtype=torch.float64)))
    else:
        batch = as_batch(pair, neighbors)
    found = model.embed(batch)
    assert found.shape[:-2] == shape
    if form != "sparse":
        assert torch.allclose(model.head(found, torch.zeros(1)), model(batch))


def test_sparse_gradients_train_the_same_network():
    x, neighbors = ragged_batch(70, density=0.1)
    models = [FGN(70, 3, sparse_gradient=s).double() for s in (False, True)]
    models[1].load_state_dict(models[0].state_dict())
    for model in models:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            cross_entropy(model(as_batch(x, neighbors)), TARGET).backward()
            optimizer.step()
    assert models[1].head.weight.grad.is_sparse
    for one, other in zip(*(m.parameters() for m in models), strict=True):
        assert torch.allclose(one, other)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_input_of_any_precision(dtype):
    x, neighbors = ragged_batch(70, 1, density=0.1, dtype=dtype)
    model = FGN(70, 3)
    assert model(as_batch(x, neighbors)).dtype == torch.float32
    assert model.double()(as_batch(x, neighbors)).dtype == torch.float64


def test_presets_are_the_papers():
    arxiv = FGN.preset("arxiv", 128, 40)
    assert sum(p.numel() for p in arxiv.parameters()) == 21_872  # the paper's parameter table
    citation = FGN.preset("citation", 1433, 7, dropout=0.2)
    assert len(citation.blocks) == 2
    assert citation.layer == "broadcast"
    with pytest.raises(ValueError, match="one of citation, arxiv, got 'cora'"):
        FGN.preset("cora", 1433, 7)


@pytest.mark.parametrize(
    ("settings", "shape", "message"),
    [
        ({}, (4, 1, 8), r"x must have shape \(B, 1, 7\) for this model, got \(4, 1, 8\)"),
        ({}, (4, 2, 7), r"x must have shape \(B, 1, 7\)"),
        ({}, (2, 2, 1, 7), r"must have 1 nodes each, x of shape \(B, C, F\).*got \(2, 2, 1, 7\)"),
        ({"nodes": None}, (4, 1, 7), r"several nodes each, x of shape \(B, S, C, F\)"),
        ({"nodes": None}, (2, 2, 1, 8), r"x must have shape \(B, S, 1, 7\) for this model"),
        ({"nodes": 3}, (2, 2, 1, 7), r"must have 3 nodes each, x of shape \(B, 3, C, F\)"),
        ({"head": "pairs"}, (4, 1, 7), r"must have 2 nodes each.*got \(4, 1, 7\)"),
        ({"edge_components": 2}, (4, 1, 7), r"edge weights must have 2 components"),
    ],
)
def test_wrong_input_is_told_what_is_right(settings, shape, message):
    owner = torch.tensor([0, 1, 3])
    neighbors = Neighbors(torch.rand(3, *shape[-2:]), owner)
    model = FGN(7, 3, **settings)
    with pytest.raises(ValueError, match=message):
        model(as_batch(torch.rand(shape), neighbors))


@pytest.mark.parametrize("part", ["x", "neighbors"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("inference", [False, True])
def test_a_batch_that_has_changed_is_checked_again(part, sparse, inference):
    with torch.inference_mode(inference):
        x, neighbors = ragged_batch(7, 1, 1, 1)
        x, neighbors = as_sparse(x, neighbors) if sparse else (x, neighbors)
        batch, model = as_batch(x, neighbors), FGN(7, 3).double()
        assert torch.equal(model.eval()(batch), model(batch))
        features = x if part == "x" else neighbors.features
        (features.values if sparse else features).view(-1)[-1] = torch.nan
        with pytest.raises(ValueError, match="must be finite"):
            model(batch)


def test_negative_weights_are_no_prior():
    x, neighbors = ragged_batch(7, 1, 1, 1)
    batch = as_batch(x, neighbors)
    with pytest.raises(ValueError, match=r"not be negative .* got -[\d.]+; use attention='gate'"):
        FGN(7, 3, attention="softmax").double()(batch)
    assert FGN(7, 3, attention="gate").double()(batch).isfinite().all()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"layer": "dense"}, "layer must be one of broadcast, transform, convolution, residual"),
        ({"message": "max"}, "message must be one of feature-graph, shared, mean, identity, none"),
        ({"norm": "group"}, "norm must be one of batch, layer, none, got 'group'"),
        ({"activation": "elu"}, "activation must be one of softsign, relu, leaky_relu, none"),
        ({"head": "edges"}, "head must be one of items, pairs, embedding, got 'edges'"),
        ({"attention": "max"}, "attention must be one of softmax, gate, got 'max'"),
        ({"message": "mean"}, "broadcast layers collect from a feature graph.* use layer='trans"),
        ({"kernels": (3,)}, "kernels must name one number per layer, got 1 for 2 layers"),
        ({"kernels": (3, 3, 3), "channels": (2, 2, 2)}, "3 layers need more than 7 features"),
    ],
)
def test_wrong_settings_are_told_what_is_right(setting, message):
    with pytest.raises(ValueError, match=message):
        FGN(7, 3, **setting)


def test_layers_and_features_must_match():
    with pytest.raises(ValueError, match="features must name one number per layer, got 1"):
        FGN(7, 3, channels=(2, 2), features=(3,))


def test_sparse_rows_go_in_directly():
    x, neighbors = ragged_batch(70, density=0.1)
    model = FGN(70, 3).double().eval()
    expected = model(as_batch(x, neighbors))
    assert torch.equal(model(as_batch(*as_sparse(x, neighbors))), expected)


@pytest.mark.parametrize(
    "settings",
    [
        {"layer": "residual"},
        {"layer": "residual", "message": "mean"},
        {"layer": "transform", "message": "mean", "features": (5, 4)},
        {"layer": "transform", "message": "identity", "features": (5, 4)},
        {"kernels": (3,), "channels": (4,)},
    ],
    ids=str,
)
def test_layers_that_need_all_nodes_make_sparse_rows_dense(settings):
    x, neighbors = ragged_batch(70, density=0.1, dtype=torch.float32)
    for dtype in (torch.float32, torch.float64):
        model = FGN(70, 3, **settings).to(dtype).eval()
        expected = model(as_batch(x, neighbors))
        assert expected.dtype == dtype
        assert torch.allclose(model(as_batch(*as_sparse(x, neighbors))), expected, atol=1e-6)


def test_convolutions_do_not_map_packed_neighbors():
    x, neighbors = ragged_batch(8, dtype=torch.float32)
    with pytest.raises(ValueError, match=r"packed neighbors.* got 2 layers; give places"):
        FGN(8, 3, kernels=(3, 3))(as_batch(x, neighbors))


@pytest.mark.parametrize("channels", [1, 2])
def test_broadcast_on_places_equals_packed_neighbors(channels):
    """A ring of three nodes as places, and the same neighbors packed for every node."""
    places = torch.tensor([[[0, 1, 1], [1, 0, 1], [1, 1, 0]]], dtype=torch.bool)
    x = torch.randn(2, 3, channels, 5, dtype=torch.float64)
    around = torch.stack([x[b, n] for b in range(2) for s in range(3) for n in range(3) if n != s])
    owner = torch.arange(6).repeat_interleave(2)
    packed = FGN(5, 3, in_channels=channels, channels=(2, 3), nodes=3).double()
    placed = FGN(5, 3, in_channels=channels, channels=(2, 3), nodes=3, places=places).double()
    placed.load_state_dict(packed.state_dict())
    results = []
    for model in (packed, placed):
        logits = model(as_batch(x, Neighbors(around, owner)))
        gradients = torch.autograd.grad(logits.square().sum(), list(model.parameters()))
        results.append((logits, *gradients))
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, atol=1e-10)


def test_training_learns_something():
    """Two kinds of nodes that differ only in which features go together with their neighbors'."""
    torch.manual_seed(0)
    model = FGN(8, 2, channels=(8, 8), features=(8, 8), concatenate=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)

    def batch():
        target = torch.randint(0, 2, (64,))
        x = torch.randn(64, 1, 8)
        y = torch.where(target.view(-1, 1, 1) == 1, x, x.flip(-1)) + 0.3 * torch.randn(64, 1, 8)
        return x, Neighbors(y, torch.arange(64)), target

    for _ in range(150):
        x, neighbors, target = batch()
        optimizer.zero_grad()
        cross_entropy(model(as_batch(x, neighbors)), target).backward()
        optimizer.step()
    x, neighbors, target = batch()
    accuracy = (model.eval()(as_batch(x, neighbors)).argmax(-1) == target).double().mean()
    assert accuracy > 0.9


def test_a_network_without_layers_is_a_linear_map_of_sparse_and_dense_nodes():
    torch.manual_seed(0)
    x, neighbors = ragged_batch(dtype=torch.float32)
    model = baseline("mlp", 7, 3, hidden=())
    weight = model.head.weight.squeeze(1)
    expected = x.squeeze(1) @ weight + model.head.bias
    for batch in (as_batch(x, neighbors), as_batch(*as_sparse(x, neighbors))):
        assert torch.allclose(model(batch), expected, atol=1e-6)

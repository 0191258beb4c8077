"""The compiled path against the readable layers, one by one, on the dense form."""

import copy
import gc
from dataclasses import replace
from weakref import ref

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from evergraph.datasets import generate
from evergraph.datasets.generate import PRESETS
from evergraph.feature_graph import Packed, build, feature_graph
from evergraph.feature_graph import fused as fused_module
from evergraph.feature_graph.build import fixed_support
from evergraph.feature_graph.equations import NORMALIZATIONS
from evergraph.nn import FGN, blocks
from evergraph.nn.model import frozen
from evergraph.stream import node_continuum

FEATURES = 120
OPTIONS = {
    "plain": {},
    "uncentered": {"centered": False},
    "concatenated": {"concatenate": True},
    "small gain": {"gain": 0.1},
    "three layers": {"channels": (2, 3, 4)},
    "attention": {"attention": "softmax"},
    "attention, concatenated": {"attention": "softmax", "concatenate": True},
    "many channels": {"channels": (18, 33), "concatenate": True},
    "one layer": {"channels": (3,)},
    "many outputs": {"num_outputs": 35},
    "dropout": {"dropout": 0.4},
    "dropout, concatenated": {"dropout": 0.4, "concatenate": True, "channels": (3, 18, 4)},
    "dropout, two hidden layers": {"dropout": 0.4, "channels": (4, 5, 6)},
    "dropout, uncentered": {"dropout": 0.4, "centered": False},
    "dropout, more outputs than channels": {"dropout": 0.4, "num_outputs": 7},
    "dropout, attention": {"dropout": 0.4, "attention": "softmax"},
}


@pytest.fixture(scope="module")
def data():
    growth = replace(PRESETS["citation"], nodes=200, classes=3, features=FEATURES, words=12)
    return generate(growth)


def by_the_layers(model, batch):
    """Encoder-free broadcast layers as `evergraph.nn.blocks` writes them, then the head."""
    neighbors = batch.neighbors
    if model.attentions:
        layout = Packed(neighbors, len(batch), model.hops)
        weight = model.attentions[0](batch.x, neighbors.features, layout)
        neighbors = neighbors.with_weight(weight)
    graph = feature_graph(
        batch.x,
        neighbors,
        hops=model.hops,
        normalization=model.normalization,
        dtype=torch.float64,
        form="dense",
    )
    y, absent = graph.nodes, None
    for block in model.blocks:
        y, absent = block(y, graph, absent)
        graph = graph.across_channels()
    return model.head(y, absent)


def logits_and_gradients(model, logits, target):
    names, parameters = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad(cross_entropy(logits, target), parameters)
    return {"logits": logits, **dict(zip(names, found, strict=True)), **dict(model.named_buffers())}


def as_dropout(masks, graph, items):
    """The masks of the compiled path as functions for dense features, layer by layer."""
    item = np.repeat(np.arange(items), np.diff(graph.ptr))
    for bits in masks:
        dense = torch.zeros(items, bits.shape[1] * 16, FEATURES, dtype=torch.float64)
        kept = (bits[..., None] >> np.arange(16) & 1).reshape(len(bits), -1)
        dense[item, :, graph.feature] = torch.from_numpy(kept).double()
        assert 0.3 < 1 - kept.mean() < 0.5
        yield lambda y, rate, kept=dense: y * kept[:, : y.shape[1]] / (1 - rate)


def compare(batch, training, monkeypatch, **settings):
    torch.manual_seed(1)
    values = {"num_outputs": 3, "channels": (3, 4), **settings}
    fused = FGN(FEATURES, **values).double().train(training)
    with torch.no_grad():
        for tensor in fused.state_dict().values():
            tensor.copy_(torch.rand_like(tensor) + 0.2)
    readable = copy.deepcopy(fused)
    calls, original = [], blocks.broadcast_network
    drawn, draw = [], fused_module._masks
    with monkeypatch.context() as patch:
        patch.setattr(blocks, "broadcast_network", lambda *a: calls.append(a[1]) or original(*a))
        patch.setattr(fused_module, "_masks", lambda *a: drawn.append(draw(*a)) or drawn[-1])
        found = logits_and_gradients(fused, fused(batch), batch.target)
    (graph,) = calls  # the compiled path was taken
    dropped = iter(as_dropout(drawn[0], graph, len(batch)))
    with monkeypatch.context() as patch:
        patch.setattr("evergraph.feature_graph.ops.supports", lambda *tensors: False)
        patch.setattr(blocks, "dropout", lambda y, rate: next(dropped)(y, rate))
        expected = logits_and_gradients(readable, by_the_layers(readable, batch), batch.target)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-11, msg=name)
        assert name == "logits" or not training or value.any(), name


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("how", NORMALIZATIONS)
def test_the_compiled_network_equals_its_layers(data, training, hops, how, monkeypatch):
    batch = next(iter(node_continuum(data, scenario="data", hops=hops)))
    compare(batch, training, monkeypatch, hops=hops, normalization=how)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", OPTIONS)
def test_with_every_option_of_the_layers(data, training, name, monkeypatch):
    batch = next(iter(node_continuum(data, scenario="data")))
    compare(batch, training, monkeypatch, **OPTIONS[name])


def test_diffusion_weights_and_batches_of_one(data, monkeypatch):
    stream = node_continuum(data, scenario="data", hops=2, diffusion=True)
    batch = next(iter(stream))
    compare(batch, True, monkeypatch, hops=2)
    compare(next(iter(batch)), True, monkeypatch, hops=2)


def test_feature_nodes_that_are_alike_are_computed_once(data):
    batch = next(iter(node_continuum(data, scenario="data")))
    graph = fixed_support(batch.x, batch.neighbors, 1, "symmetric", torch.float64)
    assert len(graph.values) < 0.5 * len(graph.feature)
    assert graph.size.sum() == len(graph.feature)


def test_a_prediction_and_a_step_share_the_support_until_items_change(data, monkeypatch):
    batch = next(iter(node_continuum(data, scenario="data")))
    model, made, original = FGN(FEATURES, 3), [], build.fixed_arrays
    monkeypatch.setattr(build, "fixed_arrays", lambda *a: made.append(a) or original(*a))
    with torch.no_grad():
        predicted = frozen(model)(batch)
    model.eval()
    assert torch.equal(model(batch), predicted)
    assert len(made) == 1
    FGN(FEATURES, 3, normalization="row")(batch)
    assert len(made) == 2
    model(batch)
    batch.x.values.mul_(2)
    assert not torch.equal(model(batch), predicted)
    assert len(made) == 4
    other = replace(batch, x=replace(batch.x, values=batch.x.values / 2))
    torch.testing.assert_close(model(other), predicted)


def test_a_support_is_not_kept_longer_than_its_items(data):
    batch = next(iter(node_continuum(data, scenario="data")))
    FGN(FEATURES, 3)(batch)
    ((_, _, found),) = build._RECENT._held.values()
    kept = ref(found.hat)
    del found
    del batch
    gc.collect()
    assert not build._RECENT._held
    assert kept() is None

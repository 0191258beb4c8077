"""Eqs. (7)-(9) against loops, and the laws that every layer keeps."""

import itertools
import math

import pytest
import torch
from helpers import as_sparse, ragged_batch
from torch.autograd import gradcheck

from evergraph.feature_graph import Packed, feature_graph
from evergraph.graph import Neighbors, SparseRows
from evergraph.nn import FeatureAttention, FeatureBroadcast, FeatureNorm, FeatureTransform, Readout
from evergraph.nn.blocks import BroadcastBlock, TransformBlock
from evergraph.nn.layers import _bag


def attend(attention, x, neighbors, hops=1):
    """The edge weights of four items with packed neighbors."""
    return attention(x, neighbors.features, Packed(neighbors, 4, hops))


def test_broadcast_equals_eq_7():
    x, neighbors = ragged_batch(4, 2, 2)
    graph = feature_graph(x, neighbors, hops=2)
    layer = FeatureBroadcast(2, 3, planes=2).double()
    out = layer(x, graph)
    for b, d, i in itertools.product(range(4), range(3), range(4)):
        total = sum(
            graph.adjacency[b, k, c, i, j] * x[b, c, j] * layer.weight[k * 2 + c, d]
            for k, c, j in itertools.product(range(2), range(2), range(4))
        )
        assert torch.isclose(out[b, d, i], total)


@pytest.mark.parametrize("concatenate", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_transform_equals_eq_8(concatenate, directed):
    x, neighbors = ragged_batch(4, 2)
    graph = feature_graph(x, neighbors, directed=directed)
    layer = FeatureTransform(2, 4, 3, 5, concatenate).double()
    own, around = layer.with_neighbors(graph)
    assert torch.equal(layer(graph), own)
    weight = layer.weight.view(3, 5, -1, 4)

    def expected(value, owner, d, g):
        total = 0
        for c, i in itertools.product(range(2), range(4)):
            propagated = sum(graph.adjacency[owner, 0, c, i, j] * value[c, j] for j in range(4))
            total = total + weight[d, g, c, i] * propagated
            if concatenate:
                total = total + weight[d, g, 2 + c, i] * value[c, i]
        return total

    for d, g in itertools.product(range(3), range(5)):
        for b in range(4):
            assert torch.isclose(own[b, d, g], expected(x[b], b, d, g))
        for n, owner in enumerate(neighbors.owner):
            assert torch.isclose(
                around[n, d, g], expected(neighbors.features[n], owner, d, g), atol=1e-12
            )


@pytest.mark.parametrize("concatenate", [False, True])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("form", ["support", "support-torch"])
@pytest.mark.parametrize("how", ["row", "column"])
def test_transform_on_the_support_equals_the_dense_one(concatenate, directed, form, how):
    x, neighbors = ragged_batch(70, 1, 2, 2, density=0.1)
    layer = FeatureTransform(1, 70, 3, 5, concatenate, planes=4).double()
    results = []
    for chosen in ("dense", form):
        graph = feature_graph(
            x, neighbors, hops=2, directed=directed, normalization=how, form=chosen
        )
        out = layer.with_neighbors(graph)
        assert torch.equal(layer(graph), out[0])
        grad = torch.autograd.grad(sum(t.square().sum() for t in out), layer.weight)
        results.append((*out, *grad))
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("compressed", [False, True])
def test_attention_equals_eq_9(compressed):
    x, neighbors = ragged_batch(6, 1, 2, density=0.6)
    attention = FeatureAttention(1, 6).double()
    torch.nn.init.normal_(attention.bias)
    weight = attend(attention, *(as_sparse(x, neighbors) if compressed else (x, neighbors)), hops=2)

    def score(n):
        own, y = x[neighbors.owner[n]].flatten(), neighbors.features[n].flatten()
        e = (own @ attention.center[:, 0] + y @ attention.neighbor[:, 0] + attention.bias).item()
        return e if e > 0 else 0.2 * e

    for n in range(len(neighbors)):
        same = [
            other
            for other in range(len(neighbors))
            if neighbors.owner[other] == neighbors.owner[n]
            and neighbors.hop[other] == neighbors.hop[n]
        ]
        expected = math.exp(score(n)) / sum(math.exp(score(other)) for other in same)
        assert float(weight[n].detach()) == pytest.approx(expected, rel=1e-12)


def test_attention_survives_large_scores():
    x, neighbors = ragged_batch(6)
    attention = FeatureAttention(1, 6).double()
    with torch.no_grad():
        attention.neighbor.mul_(1e4)
    weight = attend(attention, x, neighbors)
    assert weight.shape == (len(neighbors),)
    total = torch.zeros(4, dtype=torch.float64).index_add(0, neighbors.owner, weight)
    assert torch.allclose(total, torch.tensor([1.0, 0, 1, 1], dtype=torch.float64))


def test_given_weights_are_a_prior_of_the_softmax_and_a_factor_of_the_gate():
    x, neighbors = ragged_batch(6, 1, 1, 1)
    given = neighbors.weight.abs()
    neighbors = neighbors.with_weight(given)
    plain = Neighbors(neighbors.features, neighbors.owner, neighbors.hop)
    softmax, gate = (FeatureAttention(1, 6, kind).double() for kind in ("softmax", "gate"))
    assert torch.allclose(attend(gate, x, neighbors), attend(gate, x, plain) * given)
    prior = attend(softmax, x, plain) * (given + 1e-3)
    total = torch.zeros(4, dtype=torch.float64).index_add(0, neighbors.owner, prior)
    assert torch.allclose(attend(softmax, x, neighbors), prior / total[neighbors.owner])
    with pytest.raises(ValueError, match="attention must be one of softmax, gate, got 'mean'"):
        FeatureAttention(1, 6, "mean")


@pytest.mark.parametrize("form", ["dense", "support", "support-torch"])
@pytest.mark.parametrize("directed", [False, True])
def test_attention_learns_through_every_form(form, directed):
    x, neighbors = ragged_batch(70, density=0.1)
    attention = FeatureAttention(1, 70).double()

    def run(*parameters):
        names = ("center", "neighbor", "bias")
        weight = torch.func.functional_call(
            attention,
            dict(zip(names, parameters, strict=True)),
            (x, neighbors.features, Packed(neighbors, 4, 1)),
        )
        graph = feature_graph(x, neighbors.with_weight(weight), directed=directed, form=form)
        return graph.propagate(graph.nodes)

    assert gradcheck(run, tuple(attention.parameters()), atol=1e-6)
    run(*attention.parameters()).square().sum().backward()
    assert attention.center.grad.any()
    assert attention.neighbor.grad.any()


def test_layers_take_any_leading_dimensions():
    x, neighbors = ragged_batch(5, 2)
    cube = x.view(2, 2, 2, 5)
    flat, graph = feature_graph(x, neighbors), feature_graph(cube, neighbors)
    broadcast = FeatureBroadcast(2, 3).double()
    transform = FeatureTransform(2, 5, 3, 4, concatenate=True).double()
    assert torch.equal(broadcast(cube, graph).view(4, 3, 5), broadcast(x, flat))
    own, around = transform.with_neighbors(graph)
    assert own.shape == (2, 2, 3, 4)
    expected = transform.with_neighbors(flat)
    assert torch.equal(own.view(4, 3, 4), expected[0])
    assert torch.equal(around, expected[1])
    single = feature_graph(x[0], Neighbors(x[1:3], owner=torch.tensor([0, 0])))
    assert broadcast(x[0], single).shape == (3, 5)


@pytest.mark.parametrize("training", [True, False])
def test_norm_equals_torch_and_counts_absent_nodes(training):
    dense = torch.randn(4, 3, 10, dtype=torch.float64)
    dense[:, :, 6:] = 0
    reference = torch.nn.BatchNorm1d(3).double().train(training)
    norm = FeatureNorm(3, gain=0.5).double().train(training)
    for module in (reference, norm):
        with torch.no_grad():
            module.weight.copy_(torch.tensor([0.5, 1.0, 2.0]))
            module.bias.copy_(torch.tensor([0.1, -0.2, 0.3]))
            module.running_mean.fill_(0.3)
    expected = 0.5 * reference(dense)
    packed = dense[:, :, :6].movedim(1, 0).flatten(1)  # (C, N): only what is there
    out, absent = norm(packed, num_nodes=40)
    assert torch.allclose(out.view(3, 4, 6).movedim(0, 1), expected[:, :, :6])
    assert torch.allclose(absent.expand(4, 4, 3).mT, expected[:, :, 6:])
    assert torch.allclose(norm.running_mean, reference.running_mean)
    assert torch.allclose(norm.running_var, reference.running_var)


def test_sparse_gradients_need_a_centered_readout():
    with pytest.raises(ValueError, match="sparse_gradient needs centered=True"):
        Readout(2, 5, 3, centered=False, sparse_gradient=True)


@pytest.mark.parametrize("centered", [True, False])
def test_readout_equals_a_linear_layer(centered):
    x, neighbors = ragged_batch(70, density=0.1)
    support = feature_graph(x, neighbors).support
    readout = Readout(2, 70, 3, centered=centered).double()
    torch.nn.init.normal_(readout.bias)
    values = torch.randn(2, len(support.feature), dtype=torch.float64)
    absent = torch.tensor([0.3, -0.7], dtype=torch.float64)
    dense = support.to_dense(values, absent)
    base = absent.unsqueeze(-1) if centered else 0.0
    weight = readout.weight.permute(2, 1, 0).flatten(1)
    expected = torch.nn.functional.linear((dense - base).flatten(1), weight, readout.bias)
    for out in (readout(values, absent, support), readout(dense, absent)):
        assert torch.allclose(out, expected)


def test_dropout_makes_nodes_absent_and_keeps_the_mean():
    x, neighbors = ragged_batch(70, density=0.1)
    graph = feature_graph(x, neighbors)
    block = BroadcastBlock(FeatureBroadcast(1, 2), dropout=0.5).double().eval()
    plain, absent = block(graph.nodes, graph)
    block.train()
    block.norm.momentum = 0.0
    dropped, absent = block(graph.nodes, graph)
    gone = dropped == absent.unsqueeze(-1)
    assert 0.3 < gone.double().mean() < 0.7
    block.dropout = 0.0
    full, _ = block(graph.nodes, graph)
    kept = ~gone
    base = absent.unsqueeze(-1)
    assert torch.allclose((dropped - base)[kept], 2 * (full - base)[kept])
    assert not torch.equal(plain, full)


def test_transform_block_normalizes_nodes_and_neighbors_together():
    x, neighbors = ragged_batch(5, 2)
    block = TransformBlock(FeatureTransform(2, 5, 3, 4), channels=3).double()
    graph = feature_graph(x, neighbors)
    own, around, _ = block(graph, neighbors.features)
    linear = torch.cat(block.layer.with_neighbors(graph))
    unit = torch.nn.functional.batch_norm(linear, None, None, training=True)
    together = torch.cat([own, around])
    assert torch.allclose(together, torch.nn.functional.softsign(unit))


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5])
def test_rows_are_mapped_alike_whether_or_not_they_are_sparse(share):
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(6, 200, generator=rng).double()
    x = x * (torch.rand(6, 200, generator=rng) < share)
    weight = torch.rand(5, 200, generator=rng).double().requires_grad_()
    rows = SparseRows.from_dense(x)
    found = _bag(rows, weight)
    assert torch.allclose(found, x @ weight.T, atol=1e-12)
    (gradient,) = torch.autograd.grad(found.square().sum(), weight)
    expected = 2 * (x @ weight.T).T @ x
    assert torch.allclose(gradient, expected.detach(), atol=1e-12)

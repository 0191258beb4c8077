"""Eqs. (3)-(6) against the dumbest loops, and all exact forms against each other."""

import itertools
import math

import pytest
import torch
from helpers import ragged_batch
from torch.autograd import gradcheck

from evergraph.feature_graph import (
    DenseGraph,
    RankOneGraph,
    SupportGraph,
    condense,
    feature_adjacency,
    feature_graph,
    neighborhood_mean,
    normalize,
    ops,
    propagate,
    sgnroot,
)
from evergraph.feature_graph.embedding import fixed_embedding
from evergraph.feature_graph.equations import NORMALIZATIONS
from evergraph.graph import Neighbors, SparseRows

FORMS = ("dense", "support", "support-torch")


def loop_root(value):
    return math.copysign(math.sqrt(abs(value)), value) if value else 0.0


def loop_adjacency(x, neighbors, hops, directed):
    """Eqs. (4)-(5), one number at a time: (B, K * W, C, F, F)."""
    items, channels, features = x.shape
    components = neighbors.edge_components
    out = torch.zeros(items, hops * components, channels, features, features, dtype=x.dtype)
    for b, k, w, c, i, j in itertools.product(
        range(items), range(hops), range(components), *map(range, (channels, features, features))
    ):
        total, count = 0.0, 0
        for n in range(len(neighbors)):
            if neighbors.owner[n] != b or neighbors.hop[n] != k + 1:
                continue
            weight = 1.0
            if neighbors.weight is not None:
                weight = float(neighbors.weight.reshape(len(neighbors), -1)[n, w])
            y = neighbors.features[n, c]
            term = float(x[b, c, i] * y[j])
            if not directed:
                term += float(y[i] * x[b, c, j])
            total += weight * term
            count += 1
        out[b, k * components + w, c, i, j] = loop_root(total / count) if count else 0.0
    return out


def loop_normalize(a, how):
    size = a.shape[0]
    rows = [sum(abs(float(a[i, j])) for j in range(size)) for i in range(size)]
    columns = [sum(abs(float(a[i, j])) for i in range(size)) for j in range(size)]
    out = torch.zeros_like(a)
    for i, j in itertools.product(range(size), range(size)):
        if a[i, j] != 0:
            divisor = {
                "none": 1,
                "row": rows[i],
                "column": columns[j],
                "symmetric": math.sqrt(rows[i] * columns[j]),
            }[how]
            out[i, j] = a[i, j] / divisor
    return out


def test_sgnroot_is_the_signed_root():
    values = torch.tensor([-4.0, -0.25, 0.0, 1e-30, 9.0], dtype=torch.float64)
    expected = [loop_root(float(v)) for v in values]
    assert torch.equal(sgnroot(values), torch.tensor(expected, dtype=torch.float64))


def test_sgnroot_has_no_nan_gradient_at_zero():
    x = torch.tensor([0.0, 4.0, -4.0], requires_grad=True)
    sgnroot(x).sum().backward()
    assert torch.allclose(x.grad, torch.tensor([0.0, 0.25, 0.25]))


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize(("hops", "components"), [(1, None), (2, 1), (1, 3), (2, 2)])
@pytest.mark.parametrize("channels", [1, 2])
def test_adjacency_of_eq_4_and_5_equals_the_loop(directed, hops, components, channels):
    x, neighbors = ragged_batch(4, channels, hops, components)
    graph = feature_graph(x, neighbors, hops=hops, directed=directed, normalization="none")
    expected = loop_adjacency(x, neighbors, hops, directed)
    assert torch.allclose(graph.adjacency.expand_as(expected), expected, atol=1e-12)


def test_the_default_adjacency_is_undirected_and_equals_the_loop():
    """`feature_adjacency` itself, entry by entry, with two planes and two channels."""
    x = torch.randn(3, 2, 4, dtype=torch.float64)
    mean = torch.randn(3, 2, 2, 4, dtype=torch.float64)
    found, told = feature_adjacency(x, mean), feature_adjacency(x, mean, directed=False)
    one_way = feature_adjacency(x, mean, directed=True)
    assert found.shape == (3, 2, 2, 4, 4)
    for b, p, c, i, j in itertools.product(*map(range, found.shape)):
        forward = float(x[b, c, i]) * float(mean[b, p, c, j])
        backward = float(mean[b, p, c, i]) * float(x[b, c, j])
        assert float(found[b, p, c, i, j]) == pytest.approx(loop_root(forward + backward))
        assert float(one_way[b, p, c, i, j]) == pytest.approx(loop_root(forward))
    assert torch.equal(found, told)


@pytest.mark.parametrize("how", NORMALIZATIONS)
def test_normalize_equals_the_loop(how):
    a = torch.randn(5, 5, dtype=torch.float64)
    a[1] = 0
    a[:, 3] = 0
    assert torch.allclose(normalize(a, how), loop_normalize(a, how), atol=1e-14)


def test_symmetric_normalization_keeps_symmetry_and_bounds_the_norm():
    x, neighbors = ragged_batch(9)
    adjacency = feature_graph(x, neighbors).adjacency
    assert torch.allclose(adjacency, adjacency.mT)
    assert torch.linalg.matrix_norm(adjacency, 2).max() <= 1 + 1e-12


def test_propagate_equals_the_loop():
    adjacency = torch.randn(2, 3, 2, 4, 4, dtype=torch.float64)
    z = torch.randn(2, 2, 4, dtype=torch.float64)
    out = propagate(adjacency, z)
    shared = propagate(adjacency[:, :, :1], z)
    for b, p, c, i in itertools.product(range(2), range(3), range(2), range(4)):
        own = sum(adjacency[b, p, c, i, j] * z[b, c, j] for j in range(4))
        one = sum(adjacency[b, p, 0, i, j] * z[b, c, j] for j in range(4))
        assert torch.isclose(out[b, p * 2 + c, i], own)
        assert torch.isclose(shared[b, p * 2 + c, i], one)


def test_figure_1_of_the_paper():
    """x_a = [1, 0, 0, 1] with N(a) = {a, b, c, d, e}: four feature nodes, worked by hand."""
    neighbors = torch.tensor(
        [[1, 0, 0, 1], [0, 1, 0, 1], [1, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0]], dtype=torch.float64
    )
    x = neighbors[:1].unsqueeze(1)
    packed = Neighbors(neighbors.unsqueeze(1), owner=torch.zeros(5, dtype=torch.long))
    directed = feature_graph(x, packed, directed=True, normalization="none").adjacency[0, 0, 0]
    # mean = [3, 2, 1, 2] / 5; rows 1 and 4 are its root, the absent features 2 and 3 have none
    row = torch.tensor([3, 2, 1, 2], dtype=torch.float64).div(5).sqrt()
    empty = torch.zeros(4, dtype=torch.float64)
    assert torch.allclose(directed, torch.stack([row, empty, empty, row]))
    undirected = feature_graph(x, packed, normalization="none").adjacency[0, 0, 0]
    fifths = torch.tensor([[6, 2, 1, 5], [2, 0, 0, 2], [1, 0, 0, 1], [5, 2, 1, 4]])
    assert torch.allclose(undirected.square() * 5, fifths.double())


@pytest.mark.parametrize("how", NORMALIZATIONS)
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize(("hops", "components"), [(1, None), (2, 2)])
def test_all_forms_have_the_same_adjacency_and_product(how, directed, hops, components):
    x, neighbors = ragged_batch(70, 1, hops, components, density=0.1)
    settings = {"hops": hops, "directed": directed, "normalization": how}
    graphs = [feature_graph(x, neighbors, form=form, **settings) for form in FORMS]
    expected = normalize(loop_free_adjacency(x, neighbors, hops, directed), how)
    z = torch.randn(4, 3, 70, dtype=torch.float64)
    for graph in graphs:
        assert torch.allclose(graph.adjacency, expected, atol=1e-12)
        if graph.support is None:
            out = graph.propagate(z)
        else:
            packed = z[graph.support.item, :, graph.support.feature].T
            out = graph.support.to_dense(graph.propagate(packed))
        assert torch.allclose(out, propagate(expected, z), atol=1e-12)


def loop_free_adjacency(x, neighbors, hops, directed):
    """The dense definition, which the loop test above has proven."""
    form = "dense"
    graph = feature_graph(
        x, neighbors, hops=hops, directed=directed, normalization="none", form=form
    )
    return graph.adjacency


def test_the_form_is_picked_from_the_data():
    sparse, dense = ragged_batch(70, density=0.1), ragged_batch(70)
    assert isinstance(feature_graph(*sparse), SupportGraph)
    assert isinstance(feature_graph(*dense), DenseGraph)
    assert isinstance(feature_graph(*sparse, directed=True), RankOneGraph)
    assert feature_graph(*sparse, directed=True).support is not None
    assert feature_graph(*dense, directed=True).support is None
    x, neighbors = sparse
    assert isinstance(feature_graph(x.requires_grad_(), neighbors), DenseGraph)


@pytest.mark.parametrize("how", NORMALIZATIONS)
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_gradcheck_of_every_form(how, directed, form):
    """Zeros stay zeros, negative features included: perturb the weights and the product."""
    x, neighbors = ragged_batch(6, 1, 2, 2, density=0.6)
    weight = neighbors.weight.requires_grad_()
    z = torch.randn(3, 24, dtype=torch.float64, requires_grad=True)

    def run(weight, z):
        graph = feature_graph(
            x,
            neighbors.with_weight(weight),
            hops=2,
            directed=directed,
            normalization=how,
            form=form,
        )
        if graph.support is None:
            return graph.propagate(z.view(4, 3, 6))
        return graph.propagate(z[:, : graph.nodes.shape[1]])

    assert gradcheck(run, (weight, z))


@pytest.mark.parametrize("how", NORMALIZATIONS)
def test_compiled_adjacency_gradients_reach_x_and_m(how):
    x, neighbors = ragged_batch(9, density=0.5)
    support = feature_graph(x, neighbors, form="support").support
    n = len(support.feature)
    values = (torch.randn(n, dtype=torch.float64) + 0.1).requires_grad_()
    m = torch.randn(2, n, dtype=torch.float64).requires_grad_()
    layout = (support.ptr, support.width, support.offset)

    def run(values, m):
        return ops.normalized_adjacency(values, m, layout, how)

    assert gradcheck(run, (values, m))


@pytest.mark.parametrize("how", NORMALIZATIONS)
@pytest.mark.parametrize("op", [ops.product, ops.adjoint])
def test_compiled_products_pass_gradcheck(op, how):
    """With respect to what the adjacency is made of: the adjoint relies on its symmetry."""
    x, neighbors = ragged_batch(9, 1, 2, 1, density=0.5)
    graph = feature_graph(x, neighbors, hops=2, form="support")
    n, layout = graph.nodes.shape[1], graph.layout
    m = torch.randn(2, n, dtype=torch.float64, requires_grad=True)
    shape = (3, n) if op is ops.product else (2, 3, n)
    z = torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    def run(m, z):
        return op(ops.normalized_adjacency(graph.nodes[0], m, layout, how), layout, z)

    assert gradcheck(run, (m, z))


def test_adjoint_is_the_transpose():
    x, neighbors = ragged_batch(70, density=0.1)
    for directed, form in itertools.product((False, True), ("support", "support-torch")):
        graph = feature_graph(x, neighbors, directed=directed, normalization="row", form=form)
        z, g = torch.randn(2, 3, graph.nodes.shape[1], dtype=torch.float64)
        assert torch.isclose((graph.propagate(z) * g).sum(), (graph.adjoint(g) * z).sum())


@pytest.mark.parametrize(("hops", "components"), [(1, None), (2, 1), (2, 3)])
@pytest.mark.parametrize("sparse", [False, True])
def test_one_neighbor_per_plane_stands_for_all(hops, components, sparse):
    x, neighbors = ragged_batch(70, 1, hops, components, density=0.1)
    expected = feature_graph(x, neighbors, hops=hops).adjacency
    if sparse:
        x = SparseRows.from_dense(x.squeeze(1))
        rows = SparseRows.from_dense(neighbors.features.squeeze(1))
        neighbors = Neighbors(rows, neighbors.owner, neighbors.hop, neighbors.weight)
    small = condense(neighbors, 4, hops)
    assert len(small) == 4 * hops * (components or 1)
    assert torch.allclose(feature_graph(x, small, hops=hops).adjacency, expected, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_permuting_neighbors_changes_nothing(form):
    x, neighbors = ragged_batch(70, 1, 2, 2, density=0.1)
    order = torch.randperm(len(neighbors))
    shuffled = Neighbors(*(part[order] for part in vars(neighbors).values()))
    first, second = (
        feature_graph(x, n, hops=2, form=form).adjacency for n in (neighbors, shuffled)
    )
    assert torch.allclose(first, second, atol=1e-14)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", [0, 1, 500])
@pytest.mark.parametrize("features", [1, 100])
def test_extreme_neighborhoods(form, count, features):
    x = torch.ones(1, 1, features)
    y = torch.rand(count, 1, features)
    owner = torch.zeros(count, dtype=torch.long)
    graph = feature_graph(x, Neighbors(y, owner), form=form)
    assert torch.isfinite(graph.propagate(graph.nodes)).all()
    assert bool(graph.adjacency.any()) == (count > 0)


def test_neighbors_without_hops_are_at_hop_one():
    y, owner = torch.rand(3, 1, 4), torch.tensor([0, 1, 1])
    ones = torch.ones(3, dtype=torch.long)
    mean, said = (neighborhood_mean(Neighbors(y, owner, hop), 2, hops=2) for hop in (None, ones))
    assert torch.equal(mean, said)
    assert torch.equal(mean[1, 0], y[1:].mean(0))
    assert not mean[:, 1].any()


@pytest.mark.parametrize("hops", [1, 2])
def test_no_items_have_no_means(hops):
    nobody = torch.zeros(0, dtype=torch.long)
    neighbors = Neighbors(torch.zeros(0, 1, 5), owner=nobody, hop=nobody)
    assert neighborhood_mean(neighbors, 0, hops).shape == (0, hops, 1, 5)
    assert len(condense(neighbors, 0, hops)) == 0


def test_an_all_zero_batch_is_an_empty_graph():
    x, y = torch.zeros(2, 1, 100), torch.zeros(3, 1, 100)
    graph = feature_graph(x, Neighbors(y, owner=torch.tensor([0, 1, 1])))
    assert isinstance(graph, SupportGraph)
    assert graph.nodes.shape == (1, 0)
    assert not graph.adjacency.any()


def test_half_precision_input_is_computed_in_single():
    x, neighbors = ragged_batch(70, density=0.1, dtype=torch.float32)
    half = Neighbors(neighbors.features.half(), neighbors.owner)
    graph = feature_graph(x.half(), half)
    assert graph.nodes.dtype == torch.float32
    expected = feature_graph(x.half().float(), Neighbors(half.features.float(), half.owner))
    assert torch.equal(graph.adjacency, expected.adjacency)
    assert sgnroot(torch.tensor([4.0]).half()).dtype == torch.float16


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_bad_feature_is_named(value, sparse):
    x, neighbors = ragged_batch(70, density=0.1)
    rows = SparseRows.from_dense if sparse else torch.Tensor.unsqueeze
    bad_x, bad_y = x.squeeze(1).clone(), neighbors.features.squeeze(1).clone()
    bad_x[3, 17], bad_y[3, 5] = value, value
    shaped = (lambda t: SparseRows.from_dense(t)) if sparse else (lambda t: rows(t, 1))
    good = Neighbors(shaped(neighbors.features.squeeze(1)), neighbors.owner)
    with pytest.raises(ValueError, match=rf"finite, got {value} at feature 17 of item 3"):
        feature_graph(shaped(bad_x), good)
    with pytest.raises(ValueError, match=r"at feature 5 of neighbor 3 of item 2"):
        feature_graph(shaped(x.squeeze(1)), Neighbors(shaped(bad_y), neighbors.owner))


def test_a_bad_feature_in_a_subgraph_is_named():
    x = torch.zeros(2, 3, 1, 4)
    x[1, 2, 0, 3] = math.nan
    neighbors = Neighbors(torch.zeros(1, 1, 4), owner=torch.tensor([0]))
    with pytest.raises(ValueError, match=r"at feature 3 of item 5"):
        feature_graph(x, neighbors)


def test_large_finite_features_are_not_taken_for_infinite():
    x = torch.full((1, 1, 4), 3e38)
    feature_graph(x, Neighbors(torch.ones(1, 1, 4), owner=torch.tensor([0])))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.rand(4)}, r"x must have shape \(\*, C, F\), got \(4,\)"),
        ({"features": torch.rand(9, 7)}, r"\(N, C, F\), got \(9, 7\)"),
        ({"features": torch.rand(9, 1, 6)}, r"shape \(N, 1, 7\).*got \(9, 1, 6\)"),
        ({"owner": torch.zeros(8, dtype=torch.long)}, r"owner must have shape \(N,\) with N = 9"),
        ({"owner": torch.full((9,), 4)}, r"owner must lie in 0\.\.3 for 4 items, got 4\.\.4"),
        ({"owner": torch.full((9,), -1)}, r"owner must lie in 0\.\.3"),
        ({"hop": torch.full((9,), 2)}, r"hop must lie in 1\.\.1, got 2\.\.2; set hops=2"),
        ({"weight": torch.rand(9, 2, 2)}, r"weight must have shape \(N,\) or \(N, W\)"),
        ({"weight": torch.full((9,), math.nan)}, r"edge weights must be finite"),
        ({"normalization": "rows"}, r"one of none, row, column, symmetric, got 'rows'"),
    ],
)
def test_wrong_input_is_told_what_is_right(change, message):
    x, neighbors = ragged_batch(7)
    fields = vars(neighbors) | {k: v for k, v in change.items() if k in vars(neighbors)}
    normalization = change.get("normalization", "symmetric")
    with pytest.raises(ValueError, match=message):
        feature_graph(change.get("x", x), Neighbors(**fields), normalization=normalization)


def test_dense_and_sparse_do_not_mix():
    x, neighbors = ragged_batch(7)
    with pytest.raises(ValueError, match="both be dense or both be sparse"):
        feature_graph(SparseRows.from_dense(x.squeeze(1)), neighbors)


def test_inputs_are_not_changed():
    x, neighbors = ragged_batch(70, 1, 2, 2, density=0.1)
    before = [t.clone() for t in (x, *vars(neighbors).values())]
    for form in FORMS:
        feature_graph(x, neighbors, hops=2, form=form)
    after = (x, *vars(neighbors).values())
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_embeddings_of_half_precision(dtype):
    x, y = torch.rand(2, 1, 6), torch.rand(5, 1, 6)
    owner = torch.tensor([0, 0, 0, 1, 1])
    exact = fixed_embedding(x.to(dtype).float(), Neighbors(y.to(dtype).float(), owner))
    found = fixed_embedding(x.to(dtype), Neighbors(y.to(dtype), owner))
    assert torch.allclose(found, exact, atol=1e-2)

"""The separable support form against the one that stores every pair, and what it stores."""

import itertools

import numpy as np
import pytest
import torch

from evergraph.feature_graph import ops
from evergraph.feature_graph.compiled import support as loops
from evergraph.feature_graph.compiled.collect import vector_product
from evergraph.feature_graph.compiled.twins import twins
from evergraph.feature_graph.equations import NORMALIZATIONS
from tests.feature_graph import stored_pairs as oracle

SIZES = ((5, 9), (0, 4), (3, 3), (1, 6), (4, 0), (0, 0))  # of supp(x), and of what only m has


@pytest.fixture
def packed():
    """Signed x and two planes of m, with zeros in m and a stored zero in x."""
    rng = np.random.default_rng(3)
    width = np.array([inside for inside, _ in SIZES])
    ptr = np.concatenate([[0], np.cumsum([sum(pair) for pair in SIZES])])
    x, m = rng.standard_normal(ptr[-1]), rng.standard_normal((2, ptr[-1]))
    for begin, inside, end in zip(ptr, width, ptr[1:], strict=False):
        x[begin + inside : end] = 0
    x[2] = 0
    m[:, ::4] = 0
    return x, m, ptr, width


def both(packed, how):
    x, m, ptr, width = packed
    results = []
    for form in (loops, oracle):
        offset = form.offsets(ptr, width)
        hat, degree = np.empty((len(m), offset[-1])), np.zeros_like(m)
        alone = (np.ones_like(x),) if form is loops else ()
        form.adjacency(x, m, *alone, ptr, width, offset, how, hat, degree)
        results.append((offset, hat, degree))
    return results


@pytest.mark.parametrize("how", range(len(NORMALIZATIONS)))
def test_products_and_degrees_are_those_of_all_pairs(packed, how):
    _, m, ptr, width = packed
    rng = np.random.default_rng(4)
    z, g = rng.standard_normal((3, m.shape[1])), rng.standard_normal((2, 3, m.shape[1]))
    (offset, hat, ours), (all_pairs, pairs, theirs) = both(packed, how)
    out, back = np.zeros_like(g), np.zeros_like(z)
    oracle.product(pairs, ptr, width, all_pairs, z, out)
    oracle.adjoint(pairs, ptr, width, all_pairs, g, back)
    stored, layout = torch.from_numpy(hat), tuple(map(torch.from_numpy, (ptr, width, offset)))
    forth = ops.product(stored, layout, torch.from_numpy(z))
    adjoint = ops.adjoint(stored, layout, torch.from_numpy(g))
    one = np.empty((2, m.shape[1]))
    inside = z[0] * (packed[0] != 0)
    vector_product(hat, ptr, width, offset, inside, one)
    alone = np.zeros((2, 1, m.shape[1]))
    oracle.product(pairs, ptr, width, all_pairs, inside[None], alone)
    found = ((ours, theirs), (forth, out), (adjoint, back), (one, alone[:, 0]))
    for mine, expected in found:
        np.testing.assert_allclose(mine, expected, rtol=1e-12, atol=1e-12)
        assert np.abs(expected).max() > 0.1


@pytest.mark.parametrize("how", range(len(NORMALIZATIONS)))
def test_gradients_are_those_of_all_pairs(packed, how):
    """Of Σ g · Âz with respect to x, on its support, and m; through what each form stores."""
    x, m, ptr, width = packed
    z, g = (torch.randn(shape, dtype=torch.float64) for shape in ((3, len(x)), (2, 3, len(x))))
    offset, _, _ = both(packed, how)[0]
    layout = tuple(map(torch.from_numpy, (ptr, width, offset)))
    leaves = [torch.from_numpy(part).requires_grad_() for part in (x, m)]
    hat = ops.normalized_adjacency(*leaves, layout, NORMALIZATIONS[how])
    ((ops.product(hat, layout, z)) * g).sum().backward()

    offset, _, degree = both(packed, how)[1]
    of_pairs, gx, gm = np.zeros((2, offset[-1])), np.zeros_like(x), np.zeros_like(m)
    for b, k in enumerate(width):
        part = slice(ptr[b], ptr[b + 1])
        full = torch.einsum("pci,cj->pij", g[..., part], z[:, part]).numpy()
        for i in range(k):
            run = np.concatenate([full[:, i], full[:, k:, i]], 1)
            of_pairs[:, offset[b] + i * run.shape[1] : offset[b] + (i + 1) * run.shape[1]] = run
    oracle.adjacency_backward(x, m, ptr, width, offset, how, degree, of_pairs, gx, gm)
    inside = x != 0
    np.testing.assert_allclose(leaves[0].grad.numpy()[inside], gx[inside], rtol=1e-10, atol=1e-10)
    there = m != 0
    np.testing.assert_allclose(leaves[1].grad.numpy()[there], gm[there], rtol=1e-10, atol=1e-10)


def test_what_is_stored_does_not_grow_with_the_product_of_supports():
    """A node of 18 words whose neighbors have 268: 860 numbers, where all pairs were 9,324."""
    ptr, width = np.array([0, 268]), np.array([18])
    assert loops.offsets(ptr, width)[-1] == 18**2 + 2 * 268 == 860
    assert oracle.offsets(ptr, width)[-1] == 9_324


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_twins_are_the_nodes_of_an_item_with_the_same_x_and_m(dtype):
    rng = np.random.default_rng(5)
    ptr, width = np.array([0, 40, 40, 45, 100]), np.array([30, 0, 0, 55])
    x = rng.integers(-1, 2, 100).astype(dtype)
    for begin, inside, end in zip(ptr, width, ptr[1:], strict=False):
        x[begin + inside : end] = 0
    m = rng.integers(0, 2, (2, 100)).astype(dtype) / 3
    number, start, inside, example, size = twins(x, m, ptr, width)
    for b, (first, last) in enumerate(itertools.pairwise(ptr)):
        keys = [(i < first + width[b], x[i], *m[:, i]) for i in range(first, last)]
        distinct = list(dict.fromkeys(keys))
        assert number[first:last].tolist() == [start[b] + distinct.index(key) for key in keys]
        assert inside[b] == sum(key[0] for key in distinct)
        assert start[b + 1] - start[b] == len(distinct)
    assert np.array_equal(np.bincount(number), size)
    assert np.array_equal(number[example], np.arange(len(size)))
    assert len(size) < 40


@pytest.mark.parametrize("how", range(len(NORMALIZATIONS)))
def test_a_node_stands_for_its_twins(packed, how):
    """Degrees and products of an adjacency with sizes are those of the same nodes repeated."""
    x, m, ptr, width = packed
    size = np.random.default_rng(6).integers(1, 4, len(x)).astype(float)
    many = size.astype(int)
    z = np.random.default_rng(7).standard_normal((1, len(x)))
    offset = loops.offsets(ptr, width)
    hat, degree = np.empty((2, offset[-1])), np.zeros_like(m)
    loops.adjacency(x, m, size, ptr, width, offset, how, hat, degree)
    layout = tuple(map(torch.from_numpy, (ptr, width, offset)))
    few = ops.product(torch.from_numpy(hat), layout, torch.from_numpy(z * size))[:, 0].numpy()

    wide = [many[a : a + k].sum() for a, k in zip(ptr, width, strict=False)]
    long = np.concatenate([[0], np.cumsum(many)])[ptr]
    repeated = np.repeat(x, many), np.repeat(m, many, axis=1), long, np.array(wide)
    (offset, hat, all_degrees), _ = both(repeated, how)
    layout = tuple(map(torch.from_numpy, (long, repeated[3], offset)))
    z = torch.from_numpy(np.repeat(z, many, 1))
    all_of_them = ops.product(torch.from_numpy(hat), layout, z).numpy()
    np.testing.assert_allclose(np.repeat(degree, many, 1), all_degrees, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(np.repeat(few, many, 1), all_of_them[:, 0], rtol=1e-12, atol=1e-12)

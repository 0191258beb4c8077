"""The separable support form against the one that stores every pair, and what it stores."""

import numpy as np
import pytest
import torch

from evergraph.feature_graph import ops
from evergraph.feature_graph.compiled import support as loops
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
        form.adjacency(x, m, ptr, width, offset, how, hat, degree)
        results.append((offset, hat, degree))
    return results


@pytest.mark.parametrize("how", range(len(NORMALIZATIONS)))
def test_products_and_degrees_are_those_of_all_pairs(packed, how):
    _, m, ptr, width = packed
    rng = np.random.default_rng(4)
    z, g = rng.standard_normal((3, m.shape[1])), rng.standard_normal((2, 3, m.shape[1]))
    found = []
    for form, (offset, hat, degree) in zip((loops, oracle), both(packed, how), strict=True):
        out, back = np.zeros_like(g), np.zeros_like(z)
        form.product(hat, ptr, width, offset, z, out)
        form.adjoint(hat, ptr, width, offset, g, back)
        found.append((degree, out, back))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    assert np.abs(found[0][1]).max() > 0.1


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
    """A node of 18 words whose neighbors have 268: 1,128 numbers, where all pairs were 9,324."""
    ptr, width = np.array([0, 268]), np.array([18])
    assert loops.offsets(ptr, width)[-1] == 18**2 + 3 * 268 == 1_128
    assert oracle.offsets(ptr, width)[-1] == 9_324

"""Compiled loops: products with the stored adjacency, the channels of a node side by side.

See `compiled.support` for what is stored. Nodes are rows of `L` channels, a multiple of `LANES`.
"""

from __future__ import annotations

import numpy as np

from evergraph.feature_graph.compiled import loop
from evergraph.feature_graph.compiled.support import stored
from evergraph.feature_graph.compiled.vector import LANES, load, splat, store, total


@loop
def block_times(block, z, out):
    """out[i] = Σ_j block[i, j] z[j], four rows at a time; `block.T` gives the transpose."""
    k = block.shape[0]
    fours = k - k % 4
    for v in range(0, z.shape[1], LANES):
        for i in range(0, fours, 4):
            a0, a1, a2, a3 = splat(z, 0), splat(z, 0), splat(z, 0), splat(z, 0)
            for j in range(k):
                zj = load(z, j, v)
                a0 += block[i, j] * zj
                a1 += block[i + 1, j] * zj
                a2 += block[i + 2, j] * zj
                a3 += block[i + 3, j] * zj
            store(out, i, v, a0)
            store(out, i + 1, v, a1)
            store(out, i + 2, v, a2)
            store(out, i + 3, v, a3)
        for i in range(fours, k):
            a0 = splat(z, 0)
            for j in range(k):
                a0 += block[i, j] * load(z, j, v)
            store(out, i, v, a0)


@loop
def weighted(weight, first, last, z, v):
    """Σ_i weight[i] z[i] from first to last, of the lanes that begin at v."""
    even, odd = splat(z, 0), splat(z, 0)
    for i in range(first, last - 1, 2):
        even += weight[i] * load(z, i, v)
        odd += weight[i + 1] * load(z, i + 1, v)
    if (last - first) % 2:
        even += weight[last - 1] * load(z, last - 1, v)
    return even + odd


@loop
def add_multiples(weight, first, last, lanes, v, out):
    """out[i] += weight[i] lanes from first to last."""
    for i in range(first, last):
        store(out, i, v, load(out, i, v) + weight[i] * lanes)


@loop
def product(hat, ptr, width, offset, z, out):
    """out[p] = Â_p z for every plane p: z `(N, L)` into out `(P, N, L)`."""
    for p in range(hat.shape[0]):
        for b in range(width.shape[0]):
            n0, n1, k = ptr[b], ptr[b + 1], width[b]
            block, left, right = stored(hat[p], offset[b], k, n1 - n0)
            _item_times(block, left, right, z[n0:n1], out[p, n0:n1])


@loop
def adjoint(hat, ptr, width, offset, g, out):
    """Fill out = Σ_p Â_pᵀ g[p]: g `(P, N, L)` into out `(N, L)`; the transpose of `product`."""
    out[:] = 0
    found = np.empty_like(out)
    for p in range(hat.shape[0]):
        for b in range(width.shape[0]):
            n0, n1, k = ptr[b], ptr[b + 1], width[b]
            block, left, right = stored(hat[p], offset[b], k, n1 - n0)
            _item_times(block.T, right, left, g[p, n0:n1], found[n0:n1])
        out += found


@loop
def _item_times(block, left, right, z, out):
    k, size = block.shape[0], z.shape[0]
    block_times(block, z, out)
    out[k:] = 0
    for v in range(0, z.shape[1], LANES):
        add_multiples(left, 0, k, weighted(right, k, size, z, v), v, out)
        add_multiples(left, k, size, weighted(right, 0, k, z, v), v, out)


@loop
def pair_gradient(hat, ptr, width, offset, g, z, out):
    """Gradient of `product` with respect to hat: out `(P, E)` is added to."""
    for p in range(hat.shape[0]):
        for b in range(width.shape[0]):
            n0, n1, k = ptr[b], ptr[b + 1], width[b]
            _, left, right = stored(hat[p], offset[b], k, n1 - n0)
            block, g_left, g_right = stored(out[p], offset[b], k, n1 - n0)
            gb, zb = g[p, n0:n1], z[n0:n1]
            for v in range(0, z.shape[1], LANES):
                for i in range(k):
                    gi = load(gb, i, v)
                    for j in range(k):
                        block[i, j] += total(gi * load(zb, j, v))
                _factor_gradient(right, k, gb, zb, v, g_left)
                _factor_gradient(left, k, zb, gb, v, g_right)


@loop
def _factor_gradient(other, k, g, z, v, out):
    """Of `Σ_i factor[i] g[i] · Σ_j other[j] z[j]`, i and j on different sides of k."""
    size = g.shape[0]
    inner, outer = weighted(other, 0, k, z, v), weighted(other, k, size, z, v)
    for i in range(k):
        out[i] += total(load(g, i, v) * outer)
    for i in range(k, size):
        out[i] += total(load(g, i, v) * inner)


@loop
def vector_product(hat, ptr, width, offset, z, out):
    """The same as `product` for one channel: z `(N,)`, which is 0 beyond supp(x), into `(P, N)`."""
    for p in range(hat.shape[0]):
        for b in range(width.shape[0]):
            n0, n1, k = ptr[b], ptr[b + 1], width[b]
            block, left, right = stored(hat[p], offset[b], k, n1 - n0)
            zb, to, inner = z[n0:n1], out[p, n0:n1], z.dtype.type(0)
            for i in range(k):
                row, found = block[i], z.dtype.type(0)
                for j in range(k):
                    found += row[j] * zb[j]
                to[i] = found
                inner += right[i] * zb[i]
            for j in range(k, n1 - n0):
                to[j] = left[j] * inner

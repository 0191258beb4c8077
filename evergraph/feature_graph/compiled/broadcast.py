"""Compiled loops: Eq. (7) on the support, the first layer and later ones.

With S = Σ right z over supp(x), a node beyond it collects left · S: what it adds to the mixture
p = Q W is left · (S W), and needs no product of its own.
"""

from __future__ import annotations

import numpy as np

from evergraph.feature_graph.compiled import loop
from evergraph.feature_graph.compiled.collect import add_multiples, block_times, weighted
from evergraph.feature_graph.compiled.mixing import add_mixed, outer, padded, transposed
from evergraph.feature_graph.compiled.norm import activate, drop_backward, through_moments
from evergraph.feature_graph.compiled.support import stored
from evergraph.feature_graph.compiled.vector import LANES, load, splat, store, total


@loop
def first_layer(q, mixing, p):
    """Mix the rows of q, which have one channel: p[n] = Σ_s q[s, n] mixing[s]."""
    for v in range(0, p.shape[1], LANES):
        for n in range(p.shape[0]):
            found = splat(p, 0)
            for s in range(q.shape[0]):
                found += q[s, n] * load(mixing, s, v)
            store(p, n, v, found)


@loop
def first_layer_backward(graph, first, gp, weight, gw, g_hat):
    """Gradients of the first layer to its weight, and to hat if it is wanted."""
    for v in range(0, gp.shape[1], LANES):
        for s in range(first.shape[0]):
            store(gw, s, v, weighted(first[s], 0, gp.shape[0], gp, v))
    if g_hat.shape[0]:
        start, width, offset, hat = graph.start, graph.width, graph.offset, graph.hat
        z, mixing = graph.values * graph.size, padded(weight, gp.shape[1])
        g = np.zeros_like(z)
        for p in range(hat.shape[0]):
            g[:] = 0
            for v in range(0, gp.shape[1], LANES):
                for n in range(g.shape[0]):
                    g[n] += total(load(gp, n, v) * load(mixing, p, v))
            for b in range(width.shape[0]):
                n0, n1, k = start[b], start[b + 1], width[b]
                _, left, right = stored(hat[p], offset[b], k, n1 - n0)
                block, g_left, g_right = stored(g_hat[p], offset[b], k, n1 - n0)
                zb, gb = z[n0:n1], g[n0:n1]
                inner, outer = z.dtype.type(0), z.dtype.type(0)
                for i in range(k):
                    inner += right[i] * zb[i]
                    for j in range(k):
                        block[i, j] += gb[i] * zb[j]
                for j in range(k, n1 - n0):
                    g_left[j] += gb[j] * inner
                    outer += left[j] * gb[j]
                for i in range(k):
                    g_right[i] += outer * zb[i]


@loop
def longest(start):
    """The largest number of rows of an item, at least 1."""
    most = 1
    for b in range(start.shape[0] - 1):
        most = max(most, start[b + 1] - start[b])
    return most


@loop
def collect(graph, level, before, moments, layer, masks, scaling, channels, mixing, kept, sizes):
    """Eqs. (6)-(7) of a later layer: Q = Â (z + absent), beside z if it concatenates; p = Q W.

    z is made of `before`, the p of the layer before.
    """
    start, width, offset, size, hat = graph.start, graph.width, graph.offset, graph.size, graph.hat
    up, share, begin, _ = level
    planes, lanes = hat.shape[0], kept.shape[1]
    q, sums, p = _kept(kept, planes, sizes)
    own = mixing.shape[0] // channels > planes
    z = np.empty((longest(begin), lanes), kept.dtype)
    given, beyond = np.empty((longest(start), lanes), z.dtype), np.empty((1, lanes), z.dtype)
    made = np.empty_like(given)
    x0 = 0
    for b in range(width.shape[0]):
        n0, n1, k, r0, r1 = start[b], start[b + 1], width[b], begin[b], begin[b + 1]
        activate(before, moments, up, layer == 0, masks, layer, scaling, r0, r1, z)
        _gather(z, up, share, r0, r1, n0, n1, size, moments, given)
        made[: n1 - n0] = 0
        for s in range(planes):
            block, left, right = stored(hat[s], offset[b], k, n1 - n0)
            qb = q[s, x0 : x0 + k]
            block_times(block, given, qb)
            for v in range(0, lanes, LANES):
                add_multiples(left, 0, k, weighted(right, k, n1 - n0, given, v), v, qb)
                store(sums[s], b, v, weighted(right, 0, k, given, v))
            add_mixed(qb, mixing, s * channels, channels, made[:k])
            beyond[:] = 0
            add_mixed(sums[s, b : b + 1], mixing, s * channels, channels, beyond)
            for v in range(0, lanes, LANES):
                add_multiples(left, k, n1 - n0, load(beyond, 0, v), v, made)
        for v in range(0, lanes, LANES):
            for r in range(r0, r1):
                store(p, r, v, load(made, up[r] - n0, v))
        if own:
            add_mixed(z, mixing, planes * channels, channels, p[r0:r1])
        x0 += k


@loop
def _kept(kept, planes, sizes):
    """Views of what a later layer keeps: Q of supp(x), S and p."""
    _, _, collected, sums = sizes
    lanes, end = kept.shape[1], collected + sums
    q = kept[:collected].reshape(planes, collected // planes, lanes)
    return q, kept[collected:end].reshape(planes, sums // planes, lanes), kept[end:]


@loop
def _gather(z, up, share, first, last, n0, n1, size, moments, out):
    """Σ (z + absent) over the twins of every number from n0 to n1."""
    for v in range(0, z.shape[1], LANES):
        gone = load(moments, 0, v)
        for n in range(n0, n1):
            store(out, n - n0, v, size[n] * gone)
        for r in range(first, last):
            n = up[r] - n0
            store(out, n, v, load(out, n, v) + share[r] * load(z, r - first, v))


@loop
def collect_backward(graph, level, before, moments, layer, masks, scaling, channels, weight, kept,
                      sizes, g, after, found, g_before, gw, g_absent, g_hat):  # fmt: skip
    """Gradients of `collect` to the weight, to absent, and to hat if it is wanted.

    g comes from `activate_backward`, with its `found`, and the moments `after` of p. That to the
    activation of the layer before goes into g_before, which may be g.
    """
    start, width, offset, size, hat = graph.start, graph.width, graph.offset, graph.size, graph.hat
    up, share, begin, _ = level
    planes, lanes, depth = hat.shape[0], g.shape[1], weight.shape[1]
    q, sums, p = _kept(kept, planes, sizes)
    own = weight.shape[0] // channels > planes
    back = transposed(weight, channels, lanes)
    z = np.empty((longest(begin), lanes), g.dtype)
    gz, g_made = np.empty_like(z), np.empty((longest(start), lanes), g.dtype)
    g_given, gq, given = np.empty_like(g_made), np.empty_like(g_made), np.empty_like(g_made)
    g_sum, g_mixed = np.empty((1, lanes), g.dtype), np.empty((1, lanes), g.dtype)
    gone = g_absent.reshape(1, -1)
    x0 = 0
    for b in range(width.shape[0]):
        n0, n1, k, r0, r1 = start[b], start[b + 1], width[b], begin[b], begin[b + 1]
        nodes, gp = n1 - n0, g[r0:r1]
        activate(before, moments, up, layer == 0, masks, layer, scaling, r0, r1, z)
        through_moments(p, after, found, share, r0, r1, g)
        g_made[:nodes] = 0
        for v in range(0, lanes, LANES):
            for r in range(r0, r1):
                n = up[r] - n0
                store(g_made, n, v, load(g_made, n, v) + load(g, r, v))
        g_given[:nodes] = 0
        if g_hat.shape[0]:
            _gather(z, up, share, r0, r1, n0, n1, size, moments, given)
        for s in range(planes):
            block, left, right = stored(hat[s], offset[b], k, nodes)
            for v in range(0, lanes, LANES):
                store(g_mixed, 0, v, weighted(left, k, nodes, g_made, v))
            last = nodes if g_hat.shape[0] else k
            g_sum[:] = 0
            gq[:last] = 0
            add_mixed(g_mixed, back, s * depth, depth, g_sum)
            add_mixed(g_made, back, s * depth, depth, gq[:last])
            outer(q[s, x0 : x0 + k], g_made[:k], gw, s * channels, channels)
            outer(sums[s, b : b + 1], g_mixed, gw, s * channels, channels)
            if g_hat.shape[0]:
                _hat_backward(hat[s], g_hat[s], offset[b], k, nodes, given, sums[s], b, gq, g_sum)
            _adjoint(block, left, right, nodes, gq, g_sum, g_given)
        for v in range(0, lanes, LANES):
            total_gone = load(gone, 0, v)
            for n in range(n0, n1):
                total_gone += size[n] * load(g_given, n - n0, v)
            store(gone, 0, v, total_gone)
            for r in range(r0, r1):
                store(gz, r - r0, v, share[r] * load(g_given, up[r] - n0, v))
        if own:
            add_mixed(gp, back, planes * depth, depth, gz[: r1 - r0])
            outer(z, gp, gw, planes * channels, channels)
        made = gz[: r1 - r0]
        drop_backward(made, up, layer == 0, masks, layer, scaling, r0, g_before, g_absent)
        x0 += k


@loop
def _adjoint(block, left, right, nodes, gq, g_sum, out):
    """Add Âᵀ of the gradient of Q: gq on supp(x), and that of S, which stands for the rest."""
    k = block.shape[0]
    back = np.empty((k, gq.shape[1]), gq.dtype)
    block_times(block.T, gq, back)
    for v in range(0, gq.shape[1], LANES):
        for i in range(k):
            store(out, i, v, load(out, i, v) + load(back, i, v))
        add_multiples(right, 0, k, load(g_sum, 0, v), v, out)
        add_multiples(right, k, nodes, weighted(left, 0, k, gq, v), v, out)


@loop
def _hat_backward(hat, g_hat, begin, k, nodes, given, sums, b, gq, g_sum):
    """Add the gradient to what is stored of Â."""
    _, left, right = stored(hat, begin, k, nodes)
    block, g_left, g_right = stored(g_hat, begin, k, nodes)
    for v in range(0, gq.shape[1], LANES):
        inner, outer = load(g_sum, 0, v), weighted(left, 0, k, gq, v)
        beyond = weighted(right, k, nodes, given, v)
        for i in range(k):
            gi = load(gq, i, v)
            for j in range(k):
                block[i, j] += total(gi * load(given, j, v))
            g_left[i] += total(gi * beyond)
            g_right[i] += total(load(given, i, v) * inner)
        for j in range(k, nodes):
            g_left[j] += total(load(gq, j, v) * load(sums, b, v))
            g_right[j] += total(load(given, j, v) * outer)

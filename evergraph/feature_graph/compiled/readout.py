"""Compiled loops: the classifier on the feature nodes that are present, and its gradients."""

from __future__ import annotations

import numpy as np

from evergraph.feature_graph.compiled import loop
from evergraph.feature_graph.compiled.norm import add_absent
from evergraph.feature_graph.compiled.vector import (
    LANES,
    keep,
    load,
    load_first,
    magnitude,
    prefetch,
    splat,
    store,
    store_at,
    total,
)

SMALL = 8192  # rows of the classifier, one for each feature and output, that stay in the cache
SEVERAL = 2  # nodes for each feature
AHEAD = 16  # nodes between one that is worked on and one that is fetched into the cache


@loop
def base_logits(weight, bias, absent, centered, items):
    """What all items share, `(B, K)`: the bias, and absent · Σ_f weight[f] if not centered.

    The sums `(C, K)` are returned too.
    """
    channels, outputs = weight.shape[1:]
    column = np.zeros((channels, outputs), weight.dtype)
    if not centered:
        flat, rows = column.reshape(-1), weight.reshape(weight.shape[0], -1)
        for f in range(rows.shape[0]):
            row = rows[f]
            for j in range(row.shape[0]):
                flat[j] += row[j]
    out = np.empty((items, outputs), weight.dtype)
    for k in range(outputs):
        level = bias[k]
        for c in range(channels):
            level += absent[c] * column[c, k]
        out[:, k] = level
    return out, column


@loop
def small(weight, nodes):
    """Whether the classifier is read by rows of channels: few outputs, all of it in the cache.

    Or so many nodes that making those rows, one pass over all features, costs less than it saves.
    """
    num_features, channels, outputs = weight.shape
    fits = num_features * outputs <= SMALL or nodes >= SEVERAL * num_features
    return outputs <= channels and fits


@loop
def by_channels(weight, lanes):
    """Rows of channels, padded: row f K + k has weight[f, :, k]."""
    num_features, channels, outputs = weight.shape
    out = np.zeros((num_features * outputs, lanes), weight.dtype)
    for f in range(num_features):
        for c in range(channels):
            for k in range(outputs):
                out[f * outputs + k, c] = weight[f, c, k]
    return out


@loop
def readout_by_channels(z, feature, rows, out):
    """The same as `readout` of an item whose nodes are the rows of z and feature."""
    outputs = out.shape[0]
    last = feature.shape[0] - feature.shape[0] % 2
    for k in range(outputs):
        even, odd = splat(z, 0), splat(z, 0)
        for v in range(0, z.shape[1], LANES):
            for i in range(0, last, 2):
                even += load(z, i, v) * load(rows, feature[i] * outputs + k, v)
                odd += load(z, i + 1, v) * load(rows, feature[i + 1] * outputs + k, v)
            for i in range(last, feature.shape[0]):
                even += load(z, i, v) * load(rows, feature[i] * outputs + k, v)
        out[k] += total(even + odd)


@loop
def readout(z, at, shift, feature, first, last, weight, out):
    """Add Σ_i Σ_c z[at[i] - shift, c] weight[feature[i], c] of an item to its logits `(K,)`.

    z are nodes less the value of absent ones. Two at a time: sums do not wait for each other.
    """
    _, channels, outputs = weight.shape
    flat, found = weight.reshape(-1), np.empty((1, LANES), z.dtype)
    pairs, size = last - (last - first) % 2, channels * outputs
    for v in range(0, outputs, LANES):
        count = min(LANES, outputs - v)
        even, odd = splat(z, 0), splat(z, 0)
        for i in range(first, pairs, 2):
            one, other = at[i] - shift, at[i + 1] - shift
            here, there = feature[i] * size + v, feature[i + 1] * size + v
            for c in range(channels):
                even += z[one, c] * load_first(flat, here + c * outputs, count)
                odd += z[other, c] * load_first(flat, there + c * outputs, count)
        for i in range(pairs, last):
            here = feature[i] * size + v
            for c in range(channels):
                even += z[at[i] - shift, c] * load_first(flat, here + c * outputs, count)
        store(found, 0, 0, even + odd)
        for k in range(count):
            out[v + k] += found[0, k]


@loop
def common_gradient(column, absent, g, centered, lanes):
    """What the base of all logits gives: to absent `(L,)`, to each row of weights, to the bias."""
    outputs, channels = g.shape[1], column.shape[0]
    g_absent, g_bias = np.zeros_like(absent), np.zeros(lanes, g.dtype)
    common = np.zeros((channels, lanes), g.dtype)
    for b in range(g.shape[0]):
        for k in range(outputs):
            g_bias[k] += g[b, k]
    if not centered:
        for c in range(channels):
            for k in range(outputs):
                common[c, k] = absent[c] * g_bias[k]
                g_absent[c] += column[c, k] * g_bias[k]
    return g_absent, common, g_bias


@loop
def last_backward(p, moments, masks, layer, scaling, feature, ptr, weight, column, g, centered,
                  count, training, gp):  # fmt: skip
    """Gradients of the last activation, its dropout and the classifier in one pass over the nodes.

    For a classifier that is `small`, and nodes that have a row each. Fills gp as
    `activate_backward`; returns what that does, the gradients to weight and bias.
    """
    num_features, channels, outputs = weight.shape
    lanes, one = p.shape[1], p.dtype.type(1)
    g_absent, common, g_bias = common_gradient(column, moments[0], g, centered, outputs)
    rows, found = by_channels(weight, lanes), np.zeros((4, lanes), p.dtype)
    g_rows, gone = np.zeros_like(rows), g_absent.reshape(1, -1)
    for v in range(0, lanes, LANES):
        level, tilt, away = splat(p, 0), splat(p, 0), load(gone, 0, v)
        absent, center = load(moments, 0, v), load(moments, 1, v)
        rate, base = load(moments, 3, v), load(moments, 4, v)
        for b in range(g.shape[0]):
            for n in range(ptr[b], ptr[b + 1]):
                pn, bits, first = load(p, n, v), masks[layer, n, v // LANES], feature[n] * outputs
                u = pn * rate + base
                d = one / (one + magnitude(u))
                z, gz = keep((u * d - absent) * scaling, bits), splat(p, 0)
                for k in range(outputs):
                    gk = g[b, k]
                    gz += gk * load(rows, first + k, v)
                    store(g_rows, first + k, v, load(g_rows, first + k, v) + gk * z)
                gz = keep(gz * scaling, bits)
                away = away - gz
                gz = gz * (d * d)
                store(gp, n, v, gz)
                level += gz
                tilt += gz * (pn - center)
        store(gone, 0, v, away)
        store(found, 0, v, tilt)
        store(found, 1, v, level)
    add_absent(moments, g_absent, count, training, found)
    g_weight = np.empty_like(weight)
    for f in range(num_features):
        for c in range(channels):
            for k in range(outputs):
                g_weight[f, c, k] = g_rows[f * outputs + k, c] + common[c, k]
    return found, g_weight, g_bias


@loop
def by_feature(feature, num_features):
    """Positions sorted by feature, and where each feature begins among them, `(F + 1,)`."""
    begin = np.zeros(num_features + 1, np.int64)
    for f in feature:
        begin[f + 1] += 1
    for f in range(num_features):
        begin[f + 1] += begin[f]
    place, order = begin[:-1].copy(), np.empty_like(feature)
    for i in range(feature.shape[0]):
        order[place[feature[i]]] = i
        place[feature[i]] += 1
    return order, begin


@loop
def readout_backward(z, at, feature, ptr, weight, absent, column, g, head):
    """Gradients of `readout` to z, absent, weight and bias; and which rows of weight, if sparse.

    Feature by feature, so that a row of weights and its gradient stay in the cache.
    """
    centered, sparse = head
    num_features, channels, outputs = weight.shape
    gz = np.zeros_like(z)
    wide = -(-outputs // LANES) * LANES
    given = np.zeros((g.shape[0], wide), z.dtype)
    given[:, :outputs] = g
    g_absent, common, g_bias = common_gradient(column, absent, g, centered, wide)
    item = np.empty(feature.shape[0], np.int64)
    for b in range(g.shape[0]):
        item[ptr[b] : ptr[b + 1]] = b
    order, begin = by_feature(feature, num_features)
    most, size = min(feature.shape[0], num_features) if sparse else num_features, channels * outputs
    gw, present = np.empty(most * size + LANES, z.dtype), np.empty(most, np.int64)
    row, found = np.zeros((outputs, z.shape[1]), z.dtype), np.empty_like(common)
    plain, rows = np.zeros((-(-size // LANES), LANES), z.dtype), 0
    plain.reshape(-1)[:size] = common[:, :outputs].copy().reshape(-1)
    for f in range(num_features):
        if begin[f + 1] > begin[f]:
            for k in range(outputs):
                for c in range(channels):
                    row[k, c] = weight[f, c, k]
            _copy(common, found)
            first, last = begin[f], begin[f + 1]
            _feature_backward(z, at, order, first, last, item, given, channels, row, found, gz)
            _put(found, outputs, gw, rows * size)
        elif sparse:
            continue
        else:
            _put(plain, LANES, gw, rows * size)
        present[rows] = f
        rows += 1
    g_weight = gw[: rows * size].reshape(rows, channels, outputs)
    return gz, g_absent, g_weight, g_bias[:outputs].copy(), present[:rows]


@loop
def _copy(source, out):
    for v in range(0, out.shape[1], LANES):
        for c in range(out.shape[0]):
            store(out, c, v, load(source, c, v))


@loop
def _put(found, outputs, out, start):
    """Write the first columns of found, row after row; up to LANES numbers behind are lost."""
    for c in range(found.shape[0]):
        for v in range(0, found.shape[1], LANES):
            store_at(out, start + c * outputs + v, load(found, c, v))


@loop
def _feature_backward(z, at, order, first, last, item, g, channels, row, found, gz):
    """What the nodes of a feature add to their own gradients and to its weights', two at a time."""
    even, outputs = last - (last - first) % 2, row.shape[0]
    for e in range(first, even, 2):
        i, j = order[e], order[e + 1]
        here, there, b, d = at[i], at[j], item[i], item[j]
        for v in range(0, z.shape[1], LANES):
            for ahead in range(e + AHEAD, min(e + AHEAD + 2, order.shape[0])):
                prefetch(z, at[order[ahead]], v)
                prefetch(gz, at[order[ahead]], v)
            g0, g1 = splat(z, 0), splat(z, 0)
            for k in range(outputs):
                w = load(row, k, v)
                g0 += g[b, k] * w
                g1 += g[d, k] * w
            store(gz, here, v, load(gz, here, v) + g0)
            store(gz, there, v, load(gz, there, v) + g1)
        for v in range(0, g.shape[1], LANES):
            g0, g1 = load(g, b, v), load(g, d, v)
            for c in range(channels):
                store(found, c, v, load(found, c, v) + (z[here, c] * g0 + z[there, c] * g1))
    for e in range(even, last):
        n, b = at[order[e]], item[order[e]]
        for v in range(0, z.shape[1], LANES):
            g0 = load(gz, n, v)
            for k in range(outputs):
                g0 += g[b, k] * load(row, k, v)
            store(gz, n, v, g0)
        for v in range(0, g.shape[1], LANES):
            g0 = load(g, b, v)
            for c in range(channels):
                store(found, c, v, load(found, c, v) + z[n, c] * g0)

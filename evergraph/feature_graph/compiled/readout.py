"""Compiled loops: the classifier on the feature nodes that are present, and its gradients."""

from __future__ import annotations

import numpy as np

from evergraph.feature_graph.compiled import loop
from evergraph.feature_graph.compiled.vector import LANES, load, load_first, prefetch, splat, store

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
    gz, g_absent = np.zeros_like(z), np.zeros_like(absent)
    g_bias, common = np.zeros(outputs, z.dtype), np.zeros((channels, outputs), z.dtype)
    for b in range(g.shape[0]):
        for k in range(outputs):
            g_bias[k] += g[b, k]
    if not centered:  # every row of weight receives the same
        for c in range(channels):
            for k in range(outputs):
                common[c, k] = absent[c] * g_bias[k]
                g_absent[c] += column[c, k] * g_bias[k]
    item = np.empty(feature.shape[0], np.int64)
    for b in range(g.shape[0]):
        item[ptr[b] : ptr[b + 1]] = b
    order, begin = by_feature(feature, num_features)
    most = min(feature.shape[0], num_features) if sparse else num_features
    gw, present = np.empty((most, channels, outputs), z.dtype), np.empty(most, np.int64)
    row, found = np.zeros((outputs, z.shape[1]), z.dtype), np.empty((outputs, z.shape[1]), z.dtype)
    rows = 0
    for f in range(num_features):
        there = begin[f + 1] > begin[f]
        if sparse and not there:
            continue
        used, into = weight[f], gw[rows]
        present[rows] = f
        rows += 1
        found[:] = 0
        if there:
            for k in range(outputs):
                for c in range(channels):
                    row[k, c] = used[c, k]
            _feature_backward(z, at, order, begin[f], begin[f + 1], item, g, row, found, gz)
        for k in range(outputs):
            for c in range(channels):
                into[c, k] = common[c, k] + found[k, c]
    return gz, g_absent, gw[:rows], g_bias, present[:rows]


@loop
def _feature_backward(z, at, order, first, last, item, g, row, found, gz):
    """What the nodes of a feature add to their own gradients and to its weights', two at a time."""
    even = last - (last - first) % 2
    for v in range(0, z.shape[1], LANES):
        for e in range(first, even, 2):
            for ahead in range(e + AHEAD, min(e + AHEAD + 2, order.shape[0])):
                prefetch(z, at[order[ahead]], v)
                prefetch(gz, at[order[ahead]], v)
            i, j = order[e], order[e + 1]
            here, there, b, d = at[i], at[j], item[i], item[j]
            z0, z1, g0, g1 = load(z, here, v), load(z, there, v), splat(z, 0), splat(z, 0)
            for k in range(g.shape[1]):
                w = load(row, k, v)
                g0 += g[b, k] * w
                g1 += g[d, k] * w
                store(found, k, v, load(found, k, v) + (g[b, k] * z0 + g[d, k] * z1))
            store(gz, here, v, load(gz, here, v) + g0)
            store(gz, there, v, load(gz, there, v) + g1)
        for e in range(even, last):
            n, b = at[order[e]], item[order[e]]
            z0, g0 = load(z, n, v), load(gz, n, v)
            for k in range(g.shape[1]):
                g0 += g[b, k] * load(row, k, v)
                store(found, k, v, load(found, k, v) + g[b, k] * z0)
            store(gz, n, v, g0)

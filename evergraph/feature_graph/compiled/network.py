"""Compiled loops: a whole stack of broadcast layers on the support, classifier included."""

from __future__ import annotations

import numpy as np

from evergraph.feature_graph.compiled import loop
from evergraph.feature_graph.compiled.activation import (
    activate,
    activate_backward,
    mix,
    mix_backward,
)
from evergraph.feature_graph.compiled.support import adjoint, pair_gradient, product


@loop
def forward(graph, layers, masks, readout, bias, centered, momentum, eps, count, training):
    """Logits, and what the way back needs of every layer: rows `(R, N)`, moments `(3, ΣD)`.

    Row 0 is the input; every layer adds the rows q = Â z (beside z, if it concatenates), their
    mixture p = q W of Eq. (7), and the activation y, which is z for the next.
    """
    feature, ptr, width, offset, values, _, hat = graph
    nodes, number_of_rows, channels = values.shape[0], 1, 0
    for layer in layers:
        number_of_rows += layer[0].shape[0] + 2 * layer[0].shape[1]
        channels += layer[0].shape[1]
    rows = np.empty((number_of_rows, nodes), values.dtype)
    moments = np.empty((3, channels), values.dtype)
    rows[0] = values
    z, absent = rows[:1], np.zeros(1, values.dtype)
    row, channel = 1, 0
    for layer in layers:
        weight, scale, shift, running_mean, running_var = layer
        wide, depth = weight.shape
        q, p = rows[row : row + wide], rows[row + wide : row + wide + depth]
        y = rows[row + wide + depth : row + wide + 2 * depth]
        _collect(hat, ptr, width, offset, z, absent, q)
        mix(_one(q), weight, _one(p))
        found = np.empty((3, depth), values.dtype)
        activate(
            _one(p), scale, shift, running_mean, running_var, momentum, eps, count, training,
            _one(y), found,
        )  # fmt: skip
        moments[:, channel : channel + depth] = found
        z, absent = y, found[0]
        for d in range(depth if masks.shape[0] else 0):
            for i in range(nodes):  # a dropped node looks like an absent one
                y[d, i] = absent[d] + masks[channel + d, i] * (y[d, i] - absent[d])
        row, channel = row + wide + 2 * depth, channel + depth
    logits, column = _readout(z, absent, feature, ptr, readout, bias, centered)
    return logits, rows, moments, column


@loop
def backward(
    graph, layers, masks, readout, rows, moments, column, g, centered, sparse, eps, count,
    training, g_hat, g_layers,
):  # fmt: skip
    """Gradients to the classifier and its bias; fills those to the layers and to hat."""
    feature, ptr, width, offset, _, _, hat = graph
    nodes, row, channel = rows.shape[1], rows.shape[0], moments.shape[1]
    depth = layers[-1][0].shape[1]
    gz, g_absent, g_readout, g_bias = _readout_backward(
        rows[row - depth :], moments[0, channel - depth :], feature, ptr, readout, column, g,
        centered, sparse,
    )  # fmt: skip
    for n in range(len(layers) - 1, -1, -1):
        weight, scale = layers[n][0], layers[n][1]
        g_weight, g_scale, g_shift = g_layers[n]
        wide, depth = weight.shape
        row, channel = row - wide - 2 * depth, channel - depth
        for d in range(depth if masks.shape[0] else 0):
            g_absent[d] += _dropped(masks[channel + d], gz[d])
        q, p = rows[row : row + wide], rows[row + wide : row + wide + depth]
        gp, gq = np.empty((1, depth, nodes), p.dtype), np.empty((1, wide, nodes), p.dtype)
        found = moments[:, channel : channel + depth].copy()
        activate_backward(
            _one(p), scale, found, eps, count, training, _one(gz), g_absent, gp, g_scale, g_shift,
        )  # fmt: skip
        mix_backward(_one(q), weight, gp, gq, g_weight)
        z = rows[row - (layers[n - 1][0].shape[1] if n else 1) : row]
        gz, g_absent = np.zeros_like(z), np.zeros(z.shape[0], z.dtype)
        _collect_backward(hat, ptr, width, offset, z, gq[0], gz, g_absent, n == 0, g_hat)
    return g_readout, g_bias


@loop
def _dropped(mask, g):
    """Apply a mask to a gradient; returns what goes to the value of absent nodes."""
    total = g.dtype.type(0)
    for i in range(g.shape[0]):
        given = g[i]
        g[i] = given * mask[i]
        total += given - g[i]
    return total


@loop
def _one(rows):
    """`(D, n)` as the `(1, D, n)` of one batch."""
    return rows.reshape(1, rows.shape[0], rows.shape[1])


@loop
def _collect(hat, ptr, width, offset, z, absent, q):
    """Q = Â z of Eq. (7), `(P * C, N)`; if q has C rows more, they get z - absent."""
    channels, nodes = z.shape
    mixed = hat.shape[0] * channels
    q[:mixed] = 0
    product(hat, ptr, width, offset, z, q[:mixed].reshape(hat.shape[0], channels, nodes))
    for c in range(q.shape[0] - mixed):
        for i in range(nodes):
            q[mixed + c, i] = z[c, i] - absent[c]


@loop
def _collect_backward(hat, ptr, width, offset, z, gq, gz, g_absent, first, g_hat):
    """Gradients of `_collect` to z and absent (not of the first layer) and to hat, if wanted."""
    channels, nodes = z.shape
    mixed = hat.shape[0] * channels
    planes = gq[:mixed].reshape(hat.shape[0], channels, nodes)
    if not first:
        adjoint(hat, ptr, width, offset, planes, gz)
        for c in range(gq.shape[0] - mixed):
            given, to, total = gq[mixed + c], gz[c], gz.dtype.type(0)
            for i in range(nodes):
                to[i] += given[i]
                total += given[i]
            g_absent[c] -= total
    if g_hat.shape[0]:
        pair_gradient(hat, ptr, width, offset, planes, z, g_hat)


@loop
def _readout(y, absent, feature, ptr, weight, bias, centered):
    """Σ_i Σ_c (y[c, i] - absent[c]) weight[feature[i], c] + bias for every item: `(B, K)`.

    If not centered, absent · Σ_f weight[f] comes back; the sums are returned too.
    """
    channels, outputs = weight.shape[1], weight.shape[2]
    pairs = channels - channels % 2
    column = np.zeros((channels, outputs), y.dtype)
    if not centered:
        flat = column.reshape(-1)
        rows = weight.reshape(weight.shape[0], -1)
        for f in range(rows.shape[0]):
            row = rows[f]
            for j in range(row.shape[0]):
                flat[j] += row[j]
    level = bias.copy()
    for c in range(channels):
        for k in range(outputs):
            level[k] += absent[c] * column[c, k]
    out = np.empty((ptr.shape[0] - 1, outputs), y.dtype)
    for b in range(ptr.shape[0] - 1):
        logit = out[b]
        logit[:] = level
        for i in range(ptr[b], ptr[b + 1]):
            rows = weight[feature[i]]
            for c in range(0, pairs, 2):
                v0, v1, r0, r1 = (
                    y[c, i] - absent[c],
                    y[c + 1, i] - absent[c + 1],
                    rows[c],
                    rows[c + 1],
                )
                for k in range(outputs):
                    logit[k] += v0 * r0[k] + v1 * r1[k]
            for c in range(pairs, channels):
                v, row = y[c, i] - absent[c], rows[c]
                for k in range(outputs):
                    logit[k] += v * row[k]
    return out, column


@loop
def _readout_backward(y, absent, feature, ptr, weight, column, g, centered, sparse):
    """Gradients of `_readout` to y, absent, weight (or only its rows in use, if sparse), bias."""
    channels, outputs = weight.shape[1], weight.shape[2]
    gy, g_absent, g_bias = np.empty_like(y), np.zeros_like(absent), np.zeros(outputs, y.dtype)
    shape = (feature.shape[0] if sparse else weight.shape[0], channels, outputs)
    for b in range(g.shape[0]):
        for k in range(outputs):
            g_bias[k] += g[b, k]
    common = np.zeros((channels, outputs), y.dtype)  # what every row of weight receives
    if not centered:
        for c in range(channels):
            for k in range(outputs):
                common[c, k] = absent[c] * g_bias[k]
                g_absent[c] += column[c, k] * g_bias[k]
    gw = np.empty(shape, y.dtype)
    flat, rows_of = common.reshape(-1), gw.reshape(shape[0], -1)
    for f in range(shape[0]):
        row = rows_of[f]
        for j in range(flat.shape[0]):
            row[j] = flat[j]
    for b in range(ptr.shape[0] - 1):
        gb = g[b]
        for i in range(ptr[b], ptr[b + 1]):
            rows, into = weight[feature[i]], gw[i if sparse else feature[i]]
            for c in range(channels):
                v, row, target = y[c, i] - absent[c], rows[c], into[c]
                total = y.dtype.type(0)
                for k in range(outputs):
                    total += gb[k] * row[k]
                    target[k] += v * gb[k]
                gy[c, i] = total
    for c in range(channels):
        total, given = y.dtype.type(0), gy[c]
        for i in range(given.shape[0]):
            total += given[i]
        g_absent[c] -= total
    return gy, g_absent, gw, g_bias


@loop
def masks(seed, rate, channels, nodes):
    """0 for a share of all nodes, `1 / (1 - rate)` for the others, `(channels, nodes)`.

    A node's number is hashed to 32 bits: all at once, by vector instructions.
    """
    out = np.empty(channels * nodes, np.float32)
    z = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    low, high = np.uint32(z >> np.uint64(32)), np.uint32(z)
    limit, kept = np.uint32(round(rate * 2**32)), np.float32(1 / (1 - rate))
    for i in range(out.shape[0]):  # sums of 32 bits have 64 for numba
        n = np.uint32(np.uint32(i) + low)
        n = np.uint32((n ^ (n >> np.uint32(16))) * np.uint32(0x7FEB352D) + high)
        n = np.uint32((n ^ (n >> np.uint32(15))) * np.uint32(0x846CA68B))
        n = np.uint32(n ^ (n >> np.uint32(16)))
        out[i] = np.float32(0) if n < limit else kept
    return out.reshape(channels, nodes)

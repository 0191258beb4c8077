"""Compiled loops: a whole stack of broadcast layers on the support, classifier included.

Nodes are rows of L channels, see `compiled.vector`. Twins (`compiled.support`) share one row until
dropout tells them apart: the first layer has a row for each number of twins, and so have all others
without dropout. Later layers keep M rows, and row r collects with number `up[r]`, for which
`share[r]` of its twins stand. Layers hand on z, the activation less the value of absent nodes.
"""

from __future__ import annotations

import numpy as np

from evergraph.feature_graph.compiled import loop
from evergraph.feature_graph.compiled.broadcast import (
    collect,
    collect_backward,
    first_layer,
    first_layer_backward,
    longest,
)
from evergraph.feature_graph.compiled.collect import vector_product
from evergraph.feature_graph.compiled.mixing import padded
from evergraph.feature_graph.compiled.norm import (
    activate,
    activate_backward,
    drop_backward,
    follow,
    measure,
    normalization,
    through_moments,
)
from evergraph.feature_graph.compiled.readout import (
    base_logits,
    by_channels,
    last_backward,
    readout,
    readout_backward,
    readout_by_channels,
    small,
)
from evergraph.feature_graph.compiled.vector import LANES


@loop
def forward(graph, layers, masks, scaling, weight, bias, settings, centered):
    """Logits, and what the way back needs: rows, moments, the first product and column sums.

    What follows from p is made again on the way back, item by item, and not kept.
    """
    ptr, start, width, size, values = graph.ptr, graph.start, graph.width, graph.size, graph.values
    momentum, eps, count, training = settings
    level = _level(graph, masks)
    up, share, begin, at = level
    lanes, sizes = _lanes(layers), _sizes(graph, up)
    rows = np.empty((_place(len(layers), sizes), lanes), values.dtype)
    moments = np.zeros((len(layers), 6, lanes), values.dtype)
    first = np.empty((layers[0][0].shape[0], values.shape[0]), values.dtype)
    planes = graph.hat.shape[0]
    vector_product(graph.hat, start, width, graph.offset, values * size, first[:planes])
    first[planes:] = values  # if it concatenates
    p = rows[: values.shape[0]]
    first_layer(first, padded(layers[0][0], lanes), p)
    for n in range(len(layers)):
        _, scale, shift, running_mean, running_var = layers[n]
        if training:
            measure(p, share if n else size, count, moments[n])
            follow(moments[n], momentum, count, running_mean, running_var)
        else:
            moments[n, 1, : running_mean.shape[0]] = running_mean
            moments[n, 2, : running_var.shape[0]] = running_var
        normalization(scale, shift, eps, moments[n])
        if n + 1 < len(layers):
            kept = rows[_place(n + 1, sizes) : _place(n + 2, sizes)]
            channels, mixing = layers[n][0].shape[1], padded(layers[n + 1][0], lanes)
            collect(graph, level, p, moments[n], n, masks, scaling, channels, mixing, kept, sizes)
            p = kept[kept.shape[0] - up.shape[0] :]
    logits, column = base_logits(weight, bias, moments[-1, 0], centered, width.shape[0])
    z, last = np.empty((longest(begin), lanes), p.dtype), len(layers) - 1
    narrow = masks.shape[0] > 0 and small(weight, up.shape[0])
    by_rows = by_channels(weight, lanes) if narrow else z
    for b in range(width.shape[0]):
        r0, r1 = begin[b], begin[b + 1]
        activate(p, moments[last], up, last == 0, masks, last, scaling, r0, r1, z)
        if narrow:
            readout_by_channels(z, graph.feature[r0:r1], by_rows, logits[b])
        else:
            readout(z, at, r0, graph.feature, ptr[b], ptr[b + 1], weight, logits[b])
    return logits, rows, moments, first, column


@loop
def backward(graph, layers, masks, scaling, weight, rows, moments, first, column, g, settings, head,
             g_hat, g_layers):  # fmt: skip
    """Gradients to the classifier, its rows in use and its bias; fills those to layers and hat."""
    _, _, count, training = settings
    level = _level(graph, masks)
    up, _, _, at = level
    sizes, lanes, last = _sizes(graph, up), rows.shape[1], len(layers) - 1
    p = rows[rows.shape[0] - up.shape[0] :] if last else rows
    centered, sparse = head
    gp = np.zeros_like(p)
    g_absent, present = np.zeros(lanes, p.dtype), np.empty(0, np.int64)
    if last > 0 and masks.shape[0] and not sparse and small(weight, up.shape[0]):
        found, g_weight, g_bias = last_backward(
            p, moments[last], masks, last, scaling, graph.feature, graph.ptr, weight, column, g,
            centered, count, training, gp,
        )  # fmt: skip
    else:
        z = np.empty((up.shape[0], lanes), p.dtype)
        activate(p, moments[last], up, last == 0, masks, last, scaling, 0, up.shape[0], z)
        gz, g_absent, g_weight, g_bias, present = readout_backward(
            z, at, graph.feature, graph.ptr, weight, moments[last, 0], column, g, head
        )
        drop_backward(gz, up, last == 0, masks, last, scaling, 0, gp, g_absent)
        found = activate_backward(p, moments[last], g_absent, count, training, gp)
    for n in range(last, -1, -1):
        mixing, (g_mixing, g_scale, g_shift) = layers[n][0], g_layers[n]
        wide, depth = mixing.shape
        kept = rows[_place(n, sizes) : _place(n + 1, sizes)]
        g_scale[:], g_shift[:] = found[0, :depth], found[1, :depth]
        gw = np.zeros((wide, lanes), p.dtype)
        if n:
            before = rows[_place(n - 1, sizes) : _place(n, sizes)]
            p = before[before.shape[0] - up.shape[0] :] if n > 1 else before
            channels, given = layers[n - 1][0].shape[1], gp
            gp = np.zeros_like(p) if n == 1 else gp
            g_absent = np.zeros(lanes, p.dtype)
            collect_backward(
                graph, level, p, moments[n - 1], n - 1, masks, scaling, channels, mixing, kept,
                sizes, given, moments[n], found, gp, gw, g_absent, g_hat,
            )  # fmt: skip
            found = activate_backward(p, moments[n - 1], g_absent, count, training, gp)
        else:
            through_moments(kept, moments[0], found, graph.size, 0, kept.shape[0], gp)
            first_layer_backward(graph, first, gp, mixing, gw, g_hat)
        g_mixing[:] = gw[:, :depth]
    return g_weight, g_bias, present


@loop
def _level(graph, masks):
    """What rows after the first layer stand for: up, share, where items begin, rows of nodes."""
    if masks.shape[0]:
        nodes = graph.number.shape[0]
        return graph.number, np.ones(nodes, graph.size.dtype), graph.ptr, np.arange(nodes)
    return np.arange(graph.size.shape[0]), graph.size, graph.start, graph.number


@loop
def _lanes(layers):
    most = 1
    for layer in layers:
        most = max(most, layer[0].shape[1])
    return -(-most // LANES) * LANES


@loop
def _sizes(graph, up):
    """V, M and how many rows of collected channels and of sums a layer keeps."""
    planes, width = graph.hat.shape[0], graph.width
    return graph.size.shape[0], up.shape[0], planes * width.sum(), planes * width.shape[0]


@loop
def _place(n, sizes):
    """Where what is kept of layer n begins: Q of supp(x), S, and p. Of layer 0, only p."""
    nodes, rows, collected, sums = sizes
    return nodes + (n - 1) * (rows + collected + sums) if n else 0

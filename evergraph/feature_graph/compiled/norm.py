"""Compiled loops: batch normalization, softsign and dropout of rows of channels.

`moments` has six rows of L: absent, mean, variance, and what follows from them, slope, base and
1 / deviation.
"""

from __future__ import annotations

import numpy as np

from evergraph.feature_graph.compiled import loop
from evergraph.feature_graph.compiled.collect import weighted
from evergraph.feature_graph.compiled.vector import (
    LANES,
    bits_from,
    keep,
    load,
    magnitude,
    splat,
    store,
)


@loop
def measure(p, share, count, moments):
    """Mean and variance of every channel over `count` nodes; those that are not there are 0."""
    count = max(count, 1)
    nodes = p.dtype.type(0)
    for n in range(p.shape[0]):
        nodes += share[n]
    missing = (count - nodes) / count
    for v in range(0, p.shape[1], LANES):
        level = splat(p, 0)
        for first in range(0, p.shape[0], 256):
            level += weighted(share, first, min(first + 256, p.shape[0]), p, v)
        mean = level / count
        spread = splat(p, 0)
        for first in range(0, p.shape[0], 256):
            part = splat(p, 0)
            for n in range(first, min(first + 256, p.shape[0])):
                apart = load(p, n, v) - mean
                part += share[n] * (apart * apart)
            spread += part
        store(moments, 1, v, mean)
        store(moments, 2, v, spread / count + missing * (mean * mean))


@loop
def follow(moments, momentum, count, running_mean, running_var):
    """Update the running statistics in place."""
    for d in range(running_mean.shape[0]):
        unbiased = moments[2, d] * count / max(count - 1, 1)
        running_mean[d] += momentum * (moments[1, d] - running_mean[d])
        running_var[d] += momentum * (unbiased - running_var[d])


@loop
def normalization(scale, shift, eps, moments):
    """From mean and variance: absent, then slope, base and 1 / deviation of batch normalization."""
    absent, mean, var, slope, base, inverse = moments
    for d in range(scale.shape[0]):
        inverse[d] = 1 / np.sqrt(var[d] + eps)
        slope[d] = scale[d] * inverse[d]
        base[d] = shift[d] - mean[d] * slope[d]
        absent[d] = base[d] / (1 + np.abs(base[d]))


@loop
def activate(p, moments, up, twins, masks, layer, scaling, first, last, z):
    """Fill z = dropout(softsign(slope p + base) - absent) of the rows from first to last.

    p has a row for every row of z, or one for all twins.
    """
    one = z.dtype.type(1)
    for v in range(0, z.shape[1], LANES):
        gone, slope, base = load(moments, 0, v), load(moments, 3, v), load(moments, 4, v)
        for r in range(first, last):
            u = load(p, up[r] if twins else r, v) * slope + base
            y = u / (one + magnitude(u)) - gone
            if masks.shape[0]:
                y = keep(y * scaling, masks[layer, r, v // LANES])
            store(z, r - first, v, y)


@loop
def drop_backward(gz, up, twins, masks, layer, scaling, first, gp, g_absent):
    """Gradient of the activation from that of z, whose rows begin at first.

    It goes into gp; twins that share a row of it add theirs up.
    """
    level = g_absent.reshape(1, -1)
    for v in range(0, gz.shape[1], LANES):
        gone = load(level, 0, v)
        for r in range(first, first + gz.shape[0]):
            g = load(gz, r - first, v)
            if masks.shape[0]:
                g = keep(g * scaling, masks[layer, r, v // LANES])
            gone = gone - g
            if twins:
                store(gp, up[r], v, load(gp, up[r], v) + g)
            else:
                store(gp, r, v, g)
        store(level, 0, v, gone)


@loop
def activate_backward(p, moments, g_absent, count, training, gp):
    """In place: the gradient of softsign(batch_norm(p)) before `through_moments`.

    Returns what that needs, and the gradients to scale and shift, `(4, L)`.
    """
    one = p.dtype.type(1)
    found = np.zeros((4, p.shape[1]), p.dtype)
    for v in range(0, p.shape[1], LANES):
        center, rate, base = load(moments, 1, v), load(moments, 3, v), load(moments, 4, v)
        level, tilt = splat(p, 0), splat(p, 0)
        for n in range(p.shape[0]):
            pn = load(p, n, v)
            u = one + magnitude(pn * rate + base)
            g = load(gp, n, v) / (u * u)
            store(gp, n, v, g)
            level += g
            tilt += g * (pn - center)
        store(found, 0, v, tilt)
        store(found, 1, v, level)
    add_absent(moments, g_absent, count, training, found)
    return found


@loop
def add_absent(moments, g_absent, count, training, found):
    """From the sums over the nodes that are there, tilt and level, to those over all nodes.

    Rows 0 and 1 become the gradients to scale and shift, 2 and 3 what `through_moments` takes off.
    """
    one = found.dtype.type(1)
    gone = g_absent.reshape(1, -1)
    for v in range(0, found.shape[1], LANES):
        center, rstd = load(moments, 1, v), load(moments, 5, v)
        flat = one - magnitude(load(moments, 0, v))
        g0 = load(gone, 0, v) * flat * flat
        level = load(found, 1, v) + g0
        tilt = (load(found, 0, v) - g0 * center) * rstd
        store(found, 0, v, tilt)
        store(found, 1, v, level)
        if training:
            store(found, 2, v, tilt * rstd / count)
            store(found, 3, v, level / count)


@loop
def through_moments(p, moments, found, share, first, last, gp):
    """Go on to the gradient of p, of the rows from first to last: mean and variance have theirs."""
    for v in range(0, p.shape[1], LANES):
        center, rate = load(moments, 1, v), load(moments, 3, v)
        tilt, level = load(found, 2, v), load(found, 3, v)
        for n in range(first, last):
            away = level + tilt * (load(p, n, v) - center)
            store(gp, n, v, rate * (load(gp, n, v) - share[n] * away))


@loop
def masks(seed, rate, layers, nodes, lanes):
    """One bit for every channel of every node after every layer, 0 for a share of them.

    `(layers, nodes, lanes / 16)`. A node's number is hashed to 32 bits for two channels.
    """
    words = lanes // LANES
    rows = layers * nodes * words
    noise = np.empty(rows * LANES // 2, np.uint32)
    z = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    low, high = np.uint32(z >> np.uint64(32)), np.uint32(z)
    for i in range(noise.shape[0]):  # sums of 32 bits have 64 for numba
        n = np.uint32(np.uint32(i) + low)
        n = np.uint32((n ^ (n >> np.uint32(16))) * np.uint32(0x7FEB352D) + high)
        n = np.uint32((n ^ (n >> np.uint32(15))) * np.uint32(0x846CA68B))
        noise[i] = np.uint32(n ^ (n >> np.uint32(16)))
    halves, limit = (
        noise.view(np.uint16).reshape(rows, LANES),
        np.uint16(min(round(rate * 2**16), 2**16 - 1)),
    )
    out = np.empty(rows, np.uint16)
    for r in range(rows):
        out[r] = bits_from(halves, r, limit)
    return out.reshape(layers, nodes, words)

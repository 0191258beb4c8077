"""Compiled loops: softsign(batch_norm(z W)) in one go, counting the nodes that are not there.

Every number has the type of the arrays: one double among floats would halve the speed. The loops
fill what they are given; `moments` has three rows of D: absent, mean, variance.
"""

from __future__ import annotations

import numpy as np

from evergraph.feature_graph.compiled import loop

PIECE = 1024  # nodes that are mapped at a time


@loop
def activate(
    p, scale, shift, running_mean, running_var, momentum, eps, count, training,
    y, moments,
):  # fmt: skip
    """From p `(B, D, n)`: y `(B, D, n)` and moments `(3, D)`."""
    number = p.dtype.type
    one = number(1)
    for d in range(p.shape[1]):
        mean, var = running_mean[d], running_var[d]
        if training:
            mean, var = _moments(p, d, count)
            unbiased = var * count / max(count - 1, 1)
            running_mean[d] += momentum * (mean - running_mean[d])
            running_var[d] += momentum * (unbiased - running_var[d])
        slope = number(scale[d] / np.sqrt(var + eps))
        base = number(shift[d] - mean * slope)
        moments[0, d] = base / (one + abs(base))
        moments[1, d], moments[2, d] = mean, var
        for b in range(p.shape[0]):
            source, target = p[b, d], y[b, d]
            for i in range(source.shape[0]):
                u = source[i] * slope + base
                target[i] = u / (one + abs(u))


@loop
def _moments(p, d, count):
    """Mean and variance of channel d over `count` nodes; all but the stored ones are zero."""
    number = p.dtype.type
    total = number(0)
    for b in range(p.shape[0]):
        row = p[b, d]
        for i in range(row.shape[0]):
            total += row[i]
    count = max(count, 1)
    mean = number(total / count)
    square = number(0)
    for b in range(p.shape[0]):
        row = p[b, d]
        for i in range(row.shape[0]):
            square += (row[i] - mean) * (row[i] - mean)
    missing = count - p.shape[0] * p.shape[2]
    return mean, number((square + missing * mean * mean) / count)


@loop
def activate_backward(p, scale, moments, eps, count, training, gy, g_absent, gp, g_scale, g_shift):
    """Gradients of `activate` to p, scale and shift."""
    number = p.dtype.type
    one = number(1)
    for d in range(p.shape[1]):
        gone, center = moments[0, d], moments[1, d]
        rstd = number(1 / np.sqrt(moments[2, d] + eps))
        slope = scale[d] * rstd
        base = gone / (one - abs(gone))  # softsign backwards
        total, along = number(0), number(0)
        for b in range(p.shape[0]):
            source, given, target = p[b, d], gy[b, d], gp[b, d]
            for i in range(source.shape[0]):
                u = one + abs(source[i] * slope + base)
                g = given[i] / (u * u)
                target[i] = g
                total += g
                along += g * (source[i] - center)
        g0 = g_absent[d] * (one - abs(gone)) * (one - abs(gone))
        g_shift[d] = total + g0
        g_scale[d] = (along - g0 * center) * rstd
        level, tilt = number(0), number(0)
        if training:
            level, tilt = number(g_shift[d] / count), number(g_scale[d] * rstd / count)
        for b in range(p.shape[0]):
            source, target = p[b, d], gp[b, d]
            for i in range(source.shape[0]):
                target[i] = slope * (target[i] - level - tilt * (source[i] - center))


@loop
def mix(q, weight, p):
    """Map the channels: p[b, d] = Σ_c weight[c, d] q[b, c], for q `(B, C, n)`.

    Piece by piece, so that what is read often stays in the cache, and four channels at a time.
    """
    wide, depth = weight.shape
    fours = wide - wide % 4
    for b in range(q.shape[0]):
        for start in range(0, q.shape[2], PIECE):
            part = slice(start, min(start + PIECE, q.shape[2]))
            for d in range(depth):
                target = p[b, d, part]
                target[:] = 0
                for c in range(0, fours, 4):
                    w0, w1, w2, w3 = (
                        weight[c, d],
                        weight[c + 1, d],
                        weight[c + 2, d],
                        weight[c + 3, d],
                    )
                    s0, s1, s2, s3 = (
                        q[b, c, part],
                        q[b, c + 1, part],
                        q[b, c + 2, part],
                        q[b, c + 3, part],
                    )
                    for i in range(target.shape[0]):
                        target[i] += w0 * s0[i] + w1 * s1[i] + w2 * s2[i] + w3 * s3[i]
                for c in range(fours, wide):
                    w, source = weight[c, d], q[b, c, part]
                    for i in range(target.shape[0]):
                        target[i] += w * source[i]


@loop
def mix_backward(q, weight, gp, gq, gw):
    """Gradients of `mix`: fills gq, and adds to gw."""
    wide, depth = weight.shape
    pairs = depth - depth % 2
    for b in range(q.shape[0]):
        for start in range(0, q.shape[2], PIECE):
            part = slice(start, min(start + PIECE, q.shape[2]))
            for c in range(wide):
                source, target = q[b, c, part], gq[b, c, part]
                target[:] = 0
                for d in range(0, pairs, 2):
                    w0, w1, g0, g1 = (
                        weight[c, d],
                        weight[c, d + 1],
                        gp[b, d, part],
                        gp[b, d + 1, part],
                    )
                    inner0, inner1 = q.dtype.type(0), q.dtype.type(0)
                    for i in range(target.shape[0]):
                        target[i] += w0 * g0[i] + w1 * g1[i]
                    for i in range(target.shape[0]):
                        inner0 += source[i] * g0[i]
                        inner1 += source[i] * g1[i]
                    gw[c, d] += inner0
                    gw[c, d + 1] += inner1
                for d in range(pairs, depth):
                    w, given, inner = weight[c, d], gp[b, d, part], q.dtype.type(0)
                    for i in range(target.shape[0]):
                        target[i] += w * given[i]
                    for i in range(target.shape[0]):
                        inner += source[i] * given[i]
                    gw[c, d] += inner

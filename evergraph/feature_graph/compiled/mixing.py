"""Compiled loops: rows of channels times a small matrix, and its gradient."""

from __future__ import annotations

import numpy as np

from evergraph.feature_graph.compiled import loop
from evergraph.feature_graph.compiled.vector import LANES, load, store


@loop
def padded(weight, lanes):
    """A matrix with zeros up to so many columns."""
    out = np.zeros((weight.shape[0], lanes), weight.dtype)
    out[:, : weight.shape[1]] = weight
    return out


@loop
def transposed(weight, channels, lanes):
    """Row s D + d has the weights from all channels of part s of Q to channel d."""
    wide, depth = weight.shape
    out = np.zeros((wide // channels * depth, lanes), weight.dtype)
    for w in range(wide):
        for d in range(depth):
            out[w // channels * depth + d, w % channels] = weight[w, d]
    return out


@loop
def add_mixed(z, mixing, row, channels, out):
    """out[n] += Σ_c z[n, c] mixing[row + c] for every node of out, four at a time."""
    last = out.shape[0]
    fours = last - last % 4
    for v in range(0, out.shape[1], LANES):
        for n in range(0, fours, 4):
            a0, a1 = load(out, n, v), load(out, n + 1, v)
            a2, a3 = load(out, n + 2, v), load(out, n + 3, v)
            for c in range(channels):
                w = load(mixing, row + c, v)
                a0 += z[n, c] * w
                a1 += z[n + 1, c] * w
                a2 += z[n + 2, c] * w
                a3 += z[n + 3, c] * w
            store(out, n, v, a0)
            store(out, n + 1, v, a1)
            store(out, n + 2, v, a2)
            store(out, n + 3, v, a3)
        for n in range(fours, last):
            a0 = load(out, n, v)
            for c in range(channels):
                a0 += z[n, c] * load(mixing, row + c, v)
            store(out, n, v, a0)


@loop
def outer(z, g, gw, row, channels):
    """gw[row + c] += Σ_n z[n, c] g[n] for every node of g, four at a time."""
    last = g.shape[0]
    fours = last - last % 4
    for v in range(0, g.shape[1], LANES):
        for n in range(0, fours, 4):
            g0, g1, g2, g3 = load(g, n, v), load(g, n + 1, v), load(g, n + 2, v), load(g, n + 3, v)
            for c in range(channels):
                even = z[n, c] * g0 + z[n + 1, c] * g1
                odd = z[n + 2, c] * g2 + z[n + 3, c] * g3
                store(gw, row + c, v, load(gw, row + c, v) + (even + odd))
        for n in range(fours, last):
            gn = load(g, n, v)
            for c in range(channels):
                store(gw, row + c, v, load(gw, row + c, v) + z[n, c] * gn)

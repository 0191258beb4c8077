"""Compiled loops: `Â x` of many small dense feature graphs, without ever storing Â.

All rows (one channel of one node) have the same few features, so that `LANES` rows are worked on
side by side and every arithmetic step is a vector instruction. The symmetric adjacency is made
once per pair of features, in a buffer that stays in the processor's cache. Arrays that belong
together share one buffer, side by side (`[x | m]`): the compiler proves that two buffers do not
overlap before it uses vector instructions, and gives up on more than a few.

Serial and without the GIL, like the other compiled loops of this package.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from evergraph.feature_graph.compiled.support import JIT

Array = np.ndarray[Any, Any]

LANES = 128


@njit(**JIT)  # type: ignore[untyped-decorator]
def _load(source: Array, first: int, count: int, to: Array, shift: int) -> None:
    """Rows `first...` of source `(R, F)` into lanes `shift...` of to; spare lanes are 0."""
    for lane in range(count):
        row = source[first + lane]
        for i in range(source.shape[1]):
            to[i, shift + lane] = row[i]
    for i in range(source.shape[1]):
        to[i, shift + count : shift + LANES] = 0


@njit(**JIT)  # type: ignore[untyped-decorator]
def _store(source: Array, shift: int, to: Array, first: int, count: int) -> None:
    """Lanes `shift...` of source into rows `first...` of to `(R, F)`."""
    for lane in range(count):
        row = to[first + lane]
        for i in range(to.shape[1]):
            row[i] = source[i, shift + lane]


@njit(**JIT)  # type: ignore[untyped-decorator]
def _adjacency(xm: Array, roots: Array, diagonal: Array, scale: Array) -> None:
    """Eq. (4), lane by lane, from `[x | m]`.

    Fills A for all pairs i < j, the diagonal of A, and the degrees to the power of -½.
    """
    features, one = xm.shape[0], xm.dtype.type(1)
    scale[:] = 0
    along = np.empty(LANES, xm.dtype)
    k = 0
    for i in range(features):
        here, own, middle = xm[i], scale[i], diagonal[i]
        along[:] = 0
        for j in range(i + 1, features):
            there, other, row = xm[j], scale[j], roots[k]
            for lane in range(LANES):
                a = here[lane] * there[lane + LANES] + here[lane + LANES] * there[lane]
                v = np.sqrt(np.abs(a))
                row[lane] = v if a >= 0 else -v
            for lane in range(LANES):
                v = np.abs(row[lane])
                along[lane] += v
                other[lane] += v
            k += 1
        for lane in range(LANES):
            a = here[lane] * here[lane + LANES]
            v = np.sqrt(np.abs(a + a))
            middle[lane] = v if a >= 0 else -v
            degree = own[lane] + along[lane] + v
            own[lane] = one / np.sqrt(degree) if degree > 0 else one


@njit(**JIT)  # type: ignore[untyped-decorator]
def _product(roots: Array, diagonal: Array, z: Array, out: Array) -> None:
    """`out = A z`, lane by lane, for one z."""
    features = z.shape[0]
    for i in range(features):
        here, to, middle = z[i], out[i], diagonal[i]
        for lane in range(LANES):
            to[lane] = middle[lane] * here[lane]
    k = 0
    for i in range(features):
        here, to = z[i], out[i]
        for j in range(i + 1, features):
            there, other, row = z[j], out[j], roots[k]
            for lane in range(LANES):
                to[lane] += row[lane] * there[lane]
                other[lane] += row[lane] * here[lane]
            k += 1


@njit(**JIT)  # type: ignore[untyped-decorator]
def propagate(x: Array, m: Array, out: Array) -> None:
    """`Â x` for x `(R, F)` and m `(P, R, F)`, with symmetric normalization, into `(P, R, F)`."""
    rows, features = x.shape
    xm = np.empty((features, 2 * LANES), x.dtype)
    roots = np.empty((features * (features - 1) // 2, LANES), x.dtype)
    small = np.empty((4, features, LANES), x.dtype)
    diagonal, scale, z, y = small[0], small[1], small[2], small[3]
    for first in range(0, rows, LANES):
        count = min(LANES, rows - first)
        _load(x, first, count, xm, 0)
        for p in range(m.shape[0]):
            _load(m[p], first, count, xm, LANES)
            _adjacency(xm, roots, diagonal, scale)
            for i in range(features):
                here, s, to = xm[i], scale[i], z[i]
                for lane in range(LANES):
                    to[lane] = here[lane] * s[lane]
            _product(roots, diagonal, z, y)
            for i in range(features):
                here, s = y[i], scale[i]
                for lane in range(LANES):
                    here[lane] *= s[lane]
            _store(y, 0, out[p], first, count)


@njit(**JIT)  # type: ignore[untyped-decorator]
def _adjacency_backward(xm: Array, roots: Array, diagonal: Array, zhd: Array, gxm: Array) -> None:
    """Through Eq. (4): from `[z | h | d]` to `[gx | gm]`.

    h is the gradient of `A z` and d that of the degrees. Overwrites A by its gradient.
    """
    features = xm.shape[0]
    zero, half = xm.dtype.type(0), xm.dtype.type(0.5)
    two = 2 * LANES
    k = 0
    for i in range(features):
        here = zhd[i]
        for j in range(i + 1, features):
            there, row = zhd[j], roots[k]
            for lane in range(LANES):
                g = here[lane] * there[lane + LANES] + here[lane + LANES] * there[lane]
                d = here[lane + two] + there[lane + two]
                size = np.abs(row[lane])
                g += d if row[lane] >= 0 else -d
                row[lane] = half * g / size if size > 0 else zero
            k += 1
    k = 0
    for i in range(features):
        here, to = xm[i], gxm[i]
        for j in range(i + 1, features):
            there, other, row = xm[j], gxm[j], roots[k]
            for lane in range(LANES):
                to[lane] += row[lane] * there[lane + LANES]
                to[lane + LANES] += row[lane] * there[lane]
                other[lane] += row[lane] * here[lane + LANES]
                other[lane + LANES] += row[lane] * here[lane]
            k += 1
    for i in range(features):
        here, given, middle, to = xm[i], zhd[i], diagonal[i], gxm[i]
        for lane in range(LANES):
            size = np.abs(middle[lane])
            d = given[lane + two]
            g = given[lane] * given[lane + LANES] + (d if middle[lane] >= 0 else -d)
            g = g / size if size > 0 else zero  # ½, and twice because a_ii = 2 x_i m_i
            to[lane] += g * here[lane + LANES]
            to[lane + LANES] += g * here[lane]


@njit(**JIT)  # type: ignore[untyped-decorator]
def propagate_backward(x: Array, m: Array, grad: Array, gx: Array, gm: Array) -> None:
    """Gradients of `propagate`: from grad `(P, R, F)` to gx `(R, F)` and gm `(P, R, F)`."""
    rows, features = x.shape
    half = x.dtype.type(0.5)
    xm, gxm = np.empty((features, 2 * LANES), x.dtype), np.empty((features, 2 * LANES), x.dtype)
    zhd = np.empty((features, 3 * LANES), x.dtype)
    roots = np.empty((features * (features - 1) // 2, LANES), x.dtype)
    small = np.empty((7, features, LANES), x.dtype)
    diagonal, scale, z, h = small[0], small[1], small[2], small[3]
    y, gz, given = small[4], small[5], small[6]
    for first in range(0, rows, LANES):
        count = min(LANES, rows - first)
        _load(x, first, count, xm, 0)
        gxm[:] = 0
        for p in range(m.shape[0]):
            _load(m[p], first, count, xm, LANES)
            _load(grad[p], first, count, given, 0)
            _adjacency(xm, roots, diagonal, scale)
            for i in range(features):
                for lane in range(LANES):
                    z[i, lane] = xm[i, lane] * scale[i, lane]
                    h[i, lane] = given[i, lane] * scale[i, lane]
            _product(roots, diagonal, z, y)
            _product(roots, diagonal, h, gz)
            for i in range(features):
                for lane in range(LANES):
                    s = scale[i, lane]
                    gs = gz[i, lane] * xm[i, lane] + given[i, lane] * y[i, lane]
                    zhd[i, lane] = z[i, lane]
                    zhd[i, lane + LANES] = h[i, lane]
                    zhd[i, lane + 2 * LANES] = -half * gs * s * s * s
                    gxm[i, lane] += gz[i, lane] * s
                    gxm[i, lane + LANES] = 0
            _adjacency_backward(xm, roots, diagonal, zhd, gxm)
            _store(gxm, LANES, gm[p], first, count)
        _store(gxm, 0, gx, first, count)

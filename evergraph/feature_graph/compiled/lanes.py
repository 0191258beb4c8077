"""Compiled loops: `Â z` of many small dense feature graphs, without ever storing Â.

All rows (one channel of one item) have the same few features, so that `LANES` rows are worked on
side by side and every arithmetic step is a vector instruction. The symmetric adjacency is made
once per pair of features, in a buffer that stays in the processor's cache. Arrays that belong
together share one buffer, side by side (`[x | m]`): the compiler proves that two buffers do not
overlap before it uses vector instructions, and gives up on more than a few.

Axes: P planes, R rows, F features, at least 4. An array with planes is given as all its rows
`(P * R, F)`, and with them a triple, its place: how many rows follow each other (the channels of an
item), how many lie from one item to the next, and how many from one plane to the next.

`normalization` is 0 none, 1 row, 2 column, 3 symmetric, and Â = diag(l) A diag(r) with l and r from
the degrees of A, which is symmetric. Serial and without the GIL, like the other compiled loops of
this package.
"""

from __future__ import annotations

import numpy as np

from evergraph.feature_graph.compiled import loop

LANES = 128
FEWEST = 4  # features that the loops take


@loop
def _copy_four(source, at, to, k):
    """Four numbers in a row: the compiler has a vector instruction for a known width.

    Unsigned indices spare it the question whether they count from the end.
    """
    at, k = np.uint64(at), np.uint64(k)
    one, two, three = np.uint64(1), np.uint64(2), np.uint64(3)
    v0, v1, v2, v3 = source[at], source[at + one], source[at + two], source[at + three]
    to[k] = v0
    to[k + one] = v1
    to[k + two] = v2
    to[k + three] = v3


@loop
def _row_numbers(count, place):
    """Where the rows of the first plane are, `(R,)`."""
    channels, step, _ = place
    out = np.empty(count, np.int64)
    for item in range(count // channels):
        for c in range(channels):
            out[item * channels + c] = item * step + c
    return out


@loop
def _load(source, where, begin, tile, to, shift):
    """Rows `begin + where` of source into lanes `shift...` of to; spare lanes are 0.

    Four features at a time by way of the tile, `(4 LANES,)`; the last four may have been among
    those before.
    """
    features, flat, count = source.shape[1], source.reshape(-1), where.shape[0]
    tile[4 * count :] = 0
    for start in range(0, features, 4):
        i = min(start, features - 4)
        base = begin * features + i
        for n in range(count):
            _copy_four(flat, where[n] * features + base, tile, 4 * n)
        t0, t1, t2, t3 = to[i], to[i + 1], to[i + 2], to[i + 3]
        for lane in range(LANES):
            t0[shift + lane] = tile[4 * lane]
            t1[shift + lane] = tile[4 * lane + 1]
            t2[shift + lane] = tile[4 * lane + 2]
            t3[shift + lane] = tile[4 * lane + 3]


@loop
def _store(source, shift, tile, to, where, begin):
    """Lanes `shift...` of source into rows `begin + where` of to: `_load` in reverse."""
    features, flat = to.shape[1], to.reshape(-1)
    for start in range(0, features, 4):
        i = min(start, features - 4)
        s0, s1, s2, s3 = source[i], source[i + 1], source[i + 2], source[i + 3]
        for lane in range(LANES):
            tile[4 * lane] = s0[shift + lane]
            tile[4 * lane + 1] = s1[shift + lane]
            tile[4 * lane + 2] = s2[shift + lane]
            tile[4 * lane + 3] = s3[shift + lane]
        base = begin * features + i
        for n in range(where.shape[0]):
            _copy_four(tile, 4 * n, flat, where[n] * features + base)


@loop
def _scale(source, factor, to):
    """`to = source * factor`, lane by lane."""
    for i in range(to.shape[0]):
        here, s, there = source[i], factor[i], to[i]
        for lane in range(LANES):
            there[lane] = here[lane] * s[lane]


@loop
def _adjacency(xm, normalization, roots, diagonal, scale):
    """Eq. (4), lane by lane, from `[x | m]`.

    Fills A for all pairs i < j and the diagonal of A. The scale becomes the degrees to the power
    of -½ for symmetric normalization, of -1 for that of rows or columns, and stays without.
    """
    features, one = xm.shape[0], xm.dtype.type(1)
    if normalization:
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
            if normalization:
                for lane in range(LANES):
                    v = np.abs(row[lane])
                    along[lane] += v
                    other[lane] += v
            k += 1
        for lane in range(LANES):
            a = here[lane] * here[lane + LANES]
            v = np.sqrt(np.abs(a + a))
            middle[lane] = v if a >= 0 else -v
            along[lane] += v
        if normalization == 3:
            for lane in range(LANES):
                degree = own[lane] + along[lane]
                own[lane] = one / np.sqrt(degree) if degree > 0 else one
        elif normalization:
            for lane in range(LANES):
                degree = own[lane] + along[lane]
                own[lane] = one / degree if degree > 0 else one


@loop
def _product(roots, diagonal, z, out):
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


@loop
def _plain(xm, zy):
    """From `[x | m]` and z to y = A z in `[z | y]`, lane by lane: A is used as it is made."""
    features = xm.shape[0]
    for i in range(features):
        here, to = xm[i], zy[i]
        for lane in range(LANES):
            a = here[lane] * here[lane + LANES]
            v = np.sqrt(np.abs(a + a))
            to[lane + LANES] = (v if a >= 0 else -v) * to[lane]
    for i in range(features):
        here, to = xm[i], zy[i]
        for j in range(i + 1, features):
            there, other = xm[j], zy[j]
            for lane in range(LANES):
                a = here[lane] * there[lane + LANES] + here[lane + LANES] * there[lane]
                v = np.sqrt(np.abs(a))
                v = v if a >= 0 else -v
                to[lane + LANES] += v * other[lane]
                other[lane + LANES] += v * to[lane]


@loop
def propagate(x, m, m_place, z, own, normalization, planes, out, out_place):
    """`Â z` for x and z `(R, F)` and the planes of m into those of out.

    With `own`, z is x, whatever is given in its place.
    """
    count, features = x.shape
    rows = np.arange(count)
    m_rows, out_rows = _row_numbers(count, m_place), _row_numbers(count, out_place)
    xm, zy = np.empty((features, 2 * LANES), x.dtype), np.empty((features, 2 * LANES), x.dtype)
    roots = np.empty((features * (features - 1) // 2, LANES), x.dtype)
    small = np.empty((5, features, LANES), x.dtype)
    diagonal, scale, ones, right, y = small[0], small[1], small[2], small[3], small[4]
    tile = np.empty(4 * LANES, x.dtype)
    ones[:] = 1
    left_scale = scale if normalization == 1 or normalization == 3 else ones
    right_scale = scale if normalization >= 2 else ones
    for first in range(0, count, LANES):
        block = slice(first, first + LANES)
        _load(x, rows[block], 0, tile, xm, 0)
        if own:
            zy[:, :LANES] = xm[:, :LANES]
        else:
            _load(z, rows[block], 0, tile, zy, 0)
        for p in range(planes):
            _load(m, m_rows[block], p * m_place[2], tile, xm, LANES)
            if normalization == 0:
                _plain(xm, zy)
                _store(zy, LANES, tile, out, out_rows[block], p * out_place[2])
                continue
            _adjacency(xm, normalization, roots, diagonal, scale)
            _scale(zy, right_scale, right)
            _product(roots, diagonal, right, y)
            _scale(y, left_scale, right)
            _store(right, 0, tile, out, out_rows[block], p * out_place[2])


@loop
def _adjacency_backward(xm, roots, diagonal, zhd, gxm):
    """Through Eq. (4): from `[z | h | d]` to `[gx | gm]`, which it adds to.

    z is what A is multiplied with, h the gradient of `A z` and d that of the degrees. Overwrites
    A by its gradient.
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


@loop
def propagate_backward(x, m, m_place, z, own, normalization, planes, grad, out_place, gx, gm, gz):
    """Gradients of `propagate`, from the planes of grad: gx and gz `(R, F)` and the planes of gm.

    With `own`, gx is the gradient to x in both places and gz is left as it is.
    """
    count, features = x.shape
    half, rows = x.dtype.type(0.5), np.arange(count)
    m_rows, out_rows = _row_numbers(count, m_place), _row_numbers(count, out_place)
    xm, gxm = np.empty((features, 2 * LANES), x.dtype), np.empty((features, 2 * LANES), x.dtype)
    zhd = np.empty((features, 3 * LANES), x.dtype)
    roots = np.empty((features * (features - 1) // 2, LANES), x.dtype)
    small = np.empty((10, features, LANES), x.dtype)
    tile = np.empty(4 * LANES, x.dtype)
    diagonal, scale, ones, given, right = small[0], small[1], small[2], small[3], small[4]
    y, h, gr, arriving, total = small[5], small[6], small[7], small[8], small[9]
    ones[:] = 1
    scales_left, scales_right = normalization == 1 or normalization == 3, normalization >= 2
    left_scale, right_scale = scale if scales_left else ones, scale if scales_right else ones
    for first in range(0, count, LANES):
        block = slice(first, first + LANES)
        _load(x, rows[block], 0, tile, xm, 0)
        if own:
            given[:] = xm[:, :LANES]
        else:
            _load(z, rows[block], 0, tile, given, 0)
        gxm[:] = 0
        total[:] = 0
        for p in range(planes):
            _load(m, m_rows[block], p * m_place[2], tile, xm, LANES)
            _load(grad, out_rows[block], p * out_place[2], tile, arriving, 0)
            _adjacency(xm, normalization, roots, diagonal, scale)
            _scale(given, right_scale, right)
            _scale(arriving, left_scale, h)
            if scales_left:  # where l depends on the degrees
                _product(roots, diagonal, right, y)
            _product(roots, diagonal, h, gr)
            for i in range(features):
                zhd[i, :LANES] = right[i]
                zhd[i, LANES : 2 * LANES] = h[i]
                gxm[i, LANES:] = 0
                for lane in range(LANES):
                    total[i, lane] += gr[i, lane] * right_scale[i, lane]
                d, s = zhd[i, 2 * LANES :], scale[i]
                if normalization == 0:
                    d[:] = 0
                elif normalization == 1:
                    for lane in range(LANES):
                        d[lane] = -arriving[i, lane] * y[i, lane] * s[lane] * s[lane]
                elif normalization == 2:
                    for lane in range(LANES):
                        d[lane] = -gr[i, lane] * given[i, lane] * s[lane] * s[lane]
                else:
                    for lane in range(LANES):
                        gs = gr[i, lane] * given[i, lane] + arriving[i, lane] * y[i, lane]
                        d[lane] = -half * gs * s[lane] * s[lane] * s[lane]
            _adjacency_backward(xm, roots, diagonal, zhd, gxm)
            _store(gxm, LANES, tile, gm, m_rows[block], p * m_place[2])
        if own:
            for i in range(features):
                for lane in range(LANES):
                    gxm[i, lane] += total[i, lane]
        else:
            _store(total, 0, tile, gz, rows[block], 0)
        _store(gxm, 0, tile, gx, rows[block], 0)

"""Âx of one item after the other, in a fixed order of operations, and sums and products."""

from __future__ import annotations

import numpy as np

from evergraph.feature_graph.compiled import exact_loop, loop

STRIP = 32  # rows that are mirrored together
SPREAD = 512  # rows that are written out with their zeros at a time


@exact_loop
def propagated(ptr, feature, x_ptr, x_feature, x_value, m_ptr, m_feature, m_value):
    """Eq. (7) with the undirected Â of Eq. (4), columns divided by their absolute sums.

    `feature` holds the features of x and m, sorted, of each item. Values are integers.
    """
    out = np.zeros(feature.shape[0], np.int64)
    for b in range(ptr.shape[0] - 1):
        start, size = ptr[b], ptr[b + 1] - ptr[b]
        x, m = np.zeros(size), np.zeros(size)
        for values, source_ptr, source_feature, source in (
            (x, x_ptr, x_feature, x_value),
            (m, m_ptr, m_feature, m_value),
        ):
            at = 0
            for e in range(source_ptr[b], source_ptr[b + 1]):
                while feature[start + at] != source_feature[e]:
                    at += 1
                values[at] = source[e]
        total = np.zeros(size)
        column = np.empty(size)
        for j in range(size):
            if x[j] == 0:
                continue
            absolute = 0.0
            for i in range(size):
                product = x[i] * m[j] + m[i] * x[j]
                column[i] = np.sign(product) * np.sqrt(abs(product))
                absolute += abs(column[i])
            if absolute > 0:
                for i in range(size):
                    total[i] += column[i] / absolute * x[j]
        for i in range(size):
            out[start + i] = np.int64(np.rint(total[i]))
    return out


@exact_loop
def scatter(indptr, indices, values, out):
    """Add sparse rows to the rows of a matrix."""
    for r in range(out.shape[0]):
        row = out[r]
        for e in range(indptr[r], indptr[r + 1]):
            row[indices[e]] += values[e]


@exact_loop
def add_tile(half, size, tile, top, start, sign):
    """Add integers in float64 to one half of a symmetric matrix, row by row from its diagonal on.

    The tile begins at (top, start); what it has below the diagonal is left out.
    """
    for i in range(tile.shape[0]):
        r = top + i
        first = max(r, start)
        begin = r * size - r * (r - 1) // 2 - r
        row, given = half[begin + first : begin + start + tile.shape[1]], tile[i, first - start :]
        for j in range(row.shape[0]):
            row[j] += sign * np.int64(given[j])


@exact_loop
def add_outer(half, size, indptr, indices, values, sign):
    """Add the outer products of sparse rows of integers to one half of a symmetric matrix.

    A row holds each feature once, in any order. One row of the matrix after the other, so that it
    stays in the cache: for every item with its feature, that feature times those that follow.
    """
    entries = indices.shape[0]
    column = np.zeros(size + 1, np.int64)
    for e in range(entries):
        column[indices[e] + 1] += 1
    column = np.cumsum(column)
    owner, own, place = np.empty(entries, np.int64), np.empty(entries, np.int64), column.copy()
    for r in range(indptr.shape[0] - 1):
        for e in range(indptr[r], indptr[r + 1]):
            k = place[indices[e]]
            place[indices[e]] += 1
            owner[k], own[k] = r, np.int64(values[e])
    feature, number = np.empty(entries, np.int64), np.empty(entries, np.int64)
    first, following = np.empty(entries, np.int64), indptr.copy()
    for f in range(size):  # rows again, sorted by feature
        for k in range(column[f], column[f + 1]):
            e = following[owner[k]]
            following[owner[k]] += 1
            feature[e], number[e], first[k] = f, own[k], e
    for f in range(size):
        row = half[f * size - f * (f - 1) // 2 : (f + 1) * size - f * (f + 1) // 2]
        for k in range(column[f], column[f + 1]):
            v = sign * own[k]
            for e in range(first[k], indptr[owner[k] + 1]):
                row[feature[e] - f] += v * number[e]


@loop
def add_spread(half, size, indptr, indices, values, sign):
    """The same for longer rows: what follows a feature is added with its zeros, in lanes.

    Rows hold integers up to 2^20, as all rows of embeddings do.
    """
    column = np.empty(size + 1, np.int64)
    for top in range(0, indptr.shape[0] - 1, SPREAD):
        rows = min(SPREAD, indptr.shape[0] - 1 - top)
        spread = np.zeros((rows, size), np.int32)
        owner = np.empty(indptr[top + rows] - indptr[top], np.int64)
        column[:] = 0
        for r in range(rows):
            row = spread[r]
            for e in range(indptr[top + r], indptr[top + r + 1]):
                row[indices[e]] = np.int32(values[e])
                column[indices[e] + 1] += 1
        column = np.cumsum(column)
        place = column.copy()
        for r in range(rows):
            for e in range(indptr[top + r], indptr[top + r + 1]):
                owner[place[indices[e]]] = r
                place[indices[e]] += 1
        for f in range(size):
            if column[f] < column[f + 1]:
                begin = f * size - f * (f - 1) // 2
                mine = owner[column[f] : column[f + 1]]
                _add_multiples(spread, mine, f, sign, half[begin : begin + size - f])


@loop
def _add_multiples(rows, owner, f, sign, to):
    """Add `sign * row[f] * row[f:]` of some rows, four at a time."""
    fours = owner.shape[0] - owner.shape[0] % 4
    for k in range(0, fours, 4):
        a, b = rows[owner[k], f:], rows[owner[k + 1], f:]
        c, d = rows[owner[k + 2], f:], rows[owner[k + 3], f:]
        va, vb = _signed(a[0], sign), _signed(b[0], sign)
        vc, vd = _signed(c[0], sign), _signed(d[0], sign)
        for j in range(to.shape[0]):
            to[j] += va * a[j] + vb * b[j] + vc * c[j] + vd * d[j]
    for k in range(fours, owner.shape[0]):
        row = rows[owner[k], f:]
        v = _signed(row[0], sign)
        for j in range(to.shape[0]):
            to[j] += v * row[j]


@loop
def _signed(number, sign):
    """A number of 32 bits, so that its products are made in lanes."""
    return np.int64(np.int32(sign * number))


@exact_loop
def add_by_class(totals, place, indptr, indices, values):
    """Add sparse rows of integers to the sums of their classes, which are rows of a matrix."""
    for r in range(place.shape[0]):
        total = totals[place[r]]
        for e in range(indptr[r], indptr[r + 1]):
            total[indices[e]] += np.int64(values[e])


@exact_loop
def both_halves(half, size):
    """The symmetric matrix `(size, size)` of one half of it."""
    out = np.empty((size, size), half.dtype)
    for top in range(0, size, STRIP):
        for r in range(top, min(top + STRIP, size)):
            begin = r * size - r * (r - 1) // 2 - r
            out[r, r:] = half[begin + r : begin + size]
        for j in range(top, size):
            for r in range(top, min(top + STRIP, j)):
                out[j, r] = out[r, j]
    return out


@exact_loop
def products(ptr, feature, value, point_ptr, point, point_value, out):
    """Add the products of sparse rows with sparse columns, given by feature, to a dense `out`."""
    for b in range(ptr.shape[0] - 1):
        row = out[b]
        for e in range(ptr[b], ptr[b + 1]):
            own = value[e]
            for k in range(point_ptr[feature[e]], point_ptr[feature[e] + 1]):
                row[point[k]] += own * point_value[k]

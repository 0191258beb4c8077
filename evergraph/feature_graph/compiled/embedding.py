"""Compiled loops: copies and sums of sparse rows, and the fixed embedding of sparse items."""

from __future__ import annotations

import numpy as np

from evergraph.feature_graph.compiled import loop
from evergraph.feature_graph.compiled.support import (
    accumulate,
    adjacency,
    product,
    union_support,
)

OFTEN = 8  # features are scanned, and not sorted, if one in so many is there


@loop
def copy_runs(first, start, source, out):
    """out[start[r]:start[r + 1]] = as many numbers of source, from first[r] on."""
    for r in range(first.shape[0]):
        to = out[start[r] : start[r + 1]]
        run = source[first[r] : first[r] + to.shape[0]]  # indices from 0 on: numbers in lanes
        for i in range(to.shape[0]):
            to[i] = run[i]


@loop
def find_runs(start, index):
    """Where the runs of some rows begin in their table, and one after the other in a copy."""
    first = np.empty(index.shape[0], np.int64)
    copied = np.zeros(index.shape[0] + 1, np.int64)
    for i in range(index.shape[0]):
        first[i] = start[index[i]]
        copied[i + 1] = copied[i] + start[index[i] + 1] - first[i]
    return first, copied


@loop
def pool(indptr, indices, values, group, scale, num_groups, num_features):
    """Row g * W + w of the result is the sum of `scale[r, w] * row r` with `group[r] == g`.

    Returns indptr, indices, sorted within rows, and values.
    """
    rows, components = scale.shape
    first = np.zeros(num_groups + 1, np.int64)
    for r in range(rows):
        first[group[r] + 1] += 1
    first = np.cumsum(first)
    order, place = np.empty(rows, np.int64), first.copy()
    for r in range(rows):
        order[place[group[r]]] = r
        place[group[r]] += 1
    ptr = np.zeros(num_groups * components + 1, np.int64)
    feature = np.empty(indices.shape[0] * components, np.int64)
    out = np.empty(feature.shape[0], values.dtype)
    total, seen = np.zeros(num_features, values.dtype), np.zeros(num_features, np.bool_)
    n = 0
    for g in range(num_groups):
        for w in range(components):
            begin = n
            for i in range(first[g], first[g + 1]):
                r = order[i]
                s = scale[r, w]
                for e in range(indptr[r], indptr[r + 1]):
                    f = indices[e]
                    if not seen[f]:
                        seen[f] = True
                        feature[n] = f
                        n += 1
                    total[f] += s * values[e]
            _sort(feature[begin:n], seen)
            for i in range(begin, n):
                f = feature[i]
                out[i] = total[f]
                total[f] = 0
                seen[f] = False
            ptr[g * components + w + 1] = n
    return ptr, feature[:n].copy(), out[:n].copy()


@loop
def _sort(feature, seen):
    """Bring the features of a row in order."""
    if feature.shape[0] * OFTEN < seen.shape[0]:
        feature.sort()
        return
    n = 0
    for f in range(seen.shape[0]):
        if seen[f]:
            feature[n] = f
            n += 1


@loop
def embedding(
    x_indptr, x_indices, x_values, y_indptr, y_indices, y_values, owner, hop, weight, hops,
    components, num_features, normalization, blocks,
):  # fmt: skip
    """The sum of x, m and Âx, each of unit length; `blocks` says which of the three.

    Returns indptr, indices in the order of the support, and values of unit length.
    """
    found = union_support(x_indptr, x_indices, x_values, y_indptr, y_indices, owner, num_features)
    feature, ptr, width, offset, values, position = found
    m = np.zeros((hops * components, feature.shape[0]), values.dtype)
    accumulate(position, y_values, y_indptr, owner, hop, weight, hops, components, m)
    largest = 0
    for b in range(width.shape[0]):
        largest = max(largest, offset[b + 1] - offset[b])
    hat = np.empty((1, largest), values.dtype)
    out = np.zeros_like(values)
    for b in range(width.shape[0]):
        part = slice(ptr[b], ptr[b + 1])
        x, to, size = values[part], out[part], ptr[b + 1] - ptr[b]
        if blocks[0]:
            _add_unit(x, to)
        for p in range(m.shape[0] if blocks[1] else 0):
            _add_unit(m[p, part], to)
        for p in range(m.shape[0] if blocks[2] else 0):
            mean, degree = m[p, part].copy().reshape(1, size), np.zeros((1, size), x.dtype)
            layout = np.array([0, size]), width[b : b + 1], np.array([0])
            adjacency(x, mean, *layout, normalization, hat, degree)
            y = np.zeros((1, 1, size), x.dtype)
            product(hat, *layout, x.reshape(1, size), y)
            _add_unit(y[0, 0], to)
        unit = np.zeros_like(to)
        _add_unit(to, unit)
        to[:] = unit
    return ptr, feature, out


@loop
def _add_unit(row, to):
    """Add a row, brought to unit length; nothing if it is 0."""
    square = row.dtype.type(0)
    for i in range(row.shape[0]):
        square += row[i] * row[i]
    if square > 0:
        length = np.sqrt(square)
        for i in range(row.shape[0]):
            to[i] += row[i] / length

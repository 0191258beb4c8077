"""Compiled loops: copies and sums of sparse rows, and the fixed embedding of sparse items."""

from __future__ import annotations

import numpy as np

from evergraph.feature_graph.compiled import loop
from evergraph.feature_graph.compiled.support import _root, _scales, accumulate, union_support

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
def pool(indptr, indices, values, which, group, weight, num_groups, num_features):
    """Row g * W + w is the mean of `weight[r, w] * row which[r]` over all r with `group[r] == g`.

    `weight (N, W)` may be empty (all 1). Returns indptr, indices, sorted within rows, and values.
    """
    rows, components = which.shape[0], weight.shape[1]
    first, entries = np.zeros(num_groups + 1, np.int64), np.zeros(num_groups, np.int64)
    for r in range(rows):
        first[group[r] + 1] += 1
        entries[group[r]] += indptr[which[r] + 1] - indptr[which[r]]
    first = np.cumsum(first)
    order, place = np.empty(rows, np.int64), first.copy()
    for r in range(rows):
        order[place[group[r]]] = r
        place[group[r]] += 1
    ptr = np.zeros(num_groups * components + 1, np.int64)
    feature = np.empty(np.minimum(entries, num_features).sum() * components, np.int64)
    out = np.empty(feature.shape[0], values.dtype)
    total, seen = np.zeros(num_features, values.dtype), np.zeros(num_features, np.bool_)
    n = 0
    for g in range(num_groups):
        for w in range(components):
            begin = n
            many = entries[g] * OFTEN >= num_features
            count = values.dtype.type(first[g + 1] - first[g])
            for i in range(first[g], first[g + 1]):
                r = which[order[i]]
                scale = (weight[order[i], w] if weight.shape[0] else weight.dtype.type(1)) / count
                start, stop = indptr[r], indptr[r + 1]
                n = _add(start, stop, indices, values, scale, total, seen, many, feature, n)
            if many:
                for f in range(num_features):
                    if seen[f]:
                        feature[n] = f
                        n += 1
            else:
                feature[begin:n].sort()
            for i in range(begin, n):
                f = feature[i]
                out[i] = total[f]
                total[f] = 0
                seen[f] = False
            ptr[g * components + w + 1] = n
    return ptr, feature[:n].copy(), out[:n].copy()


@loop
def pool_dense(x, which, group, weight, num_groups):
    """The same of rows of a matrix, none negative; groups are sorted, weights positive."""
    components, num_features = weight.shape[1], x.shape[1]
    ptr = np.zeros(num_groups * components + 1, np.int64)
    feature = np.empty(ptr.shape[0] * num_features, np.int64)
    out = np.empty(feature.shape[0], x.dtype)
    total = np.empty(num_features, x.dtype)
    n, begin = 0, 0
    for g in range(num_groups):
        end = begin
        while end < group.shape[0] and group[end] == g:
            end += 1
        for w in range(components):
            total[:] = 0
            count = x.dtype.type(end - begin)
            for r in range(begin, end):
                scale = (weight[r, w] if weight.shape[0] else weight.dtype.type(1)) / count
                row = x[which[r]]
                for f in range(num_features):
                    total[f] += scale * row[f]
            for f in range(num_features):
                feature[n] = f
                out[n] = total[f]
                n += total[f] > 0
            ptr[g * components + w + 1] = n
        begin = end
    return ptr, feature[:n].copy(), out[:n].copy()


@loop
def _add(start, stop, indices, values, scale, total, seen, many, feature, n):
    """Add a row to a sum; with few features, those that are new are noted from place n on."""
    if many:
        for e in range(start, stop):
            seen[indices[e]] = True
            total[indices[e]] += scale * values[e]
        return n
    for e in range(start, stop):
        f = indices[e]
        if not seen[f]:
            seen[f] = True
            feature[n] = f
            n += 1
        total[f] += scale * values[e]
    return n


@loop
def embedding(
    x_indptr, x_indices, x_values, y_indptr, y_indices, y_values, owner, hop, weight, hops,
    components, num_features, normalization, blocks,
):  # fmt: skip
    """The sum of x, m and Âx, each of unit length; `blocks` says which of the three.

    Returns indptr, indices in the order of the support, and values of unit length.
    """
    found = union_support(x_indptr, x_indices, x_values, y_indptr, y_indices, owner, num_features)
    feature, ptr, width, _, values, position = found
    m = np.zeros((hops * components, feature.shape[0]), values.dtype)
    accumulate(position, y_values, y_indptr, owner, hop, weight, hops, components, m)
    k, size = 0, 0
    for b in range(width.shape[0]):
        k, size = max(k, width[b]), max(size, ptr[b + 1] - ptr[b])
    half = np.empty(k * (k + 1) // 2 if blocks[2] else 0, values.dtype)
    work = np.empty((5, size), values.dtype)
    out = np.zeros_like(values)
    for b in range(width.shape[0]):
        part = slice(ptr[b], ptr[b + 1])
        x, to, size = values[part], out[part], ptr[b + 1] - ptr[b]
        if blocks[0]:
            _add_unit(x, to)
        for p in range(m.shape[0] if blocks[1] else 0):
            _add_unit(m[p, part], to)
        for p in range(m.shape[0] if blocks[2] else 0):
            y = work[4, :size]
            _propagate(x, m[p, part], width[b], normalization, half, work, y)
            _add_unit(y, to)
        y = work[4, :size]
        y[:] = 0
        _add_unit(to, y)
        to[:] = y
    return ptr, feature, out


@loop
def _propagate(x, m, k, normalization, half, work, out):
    """Eq. (7) with the undirected Â of Eqs. (4)-(6): out = Âx of one item.

    x and m are given on the support of both, the k features of x first. A is symmetric: `half`
    gets its block of supp(x) from the diagonal on. Beyond that block A is of rank one, and x is 0.
    """
    size = m.shape[0]
    degree, z, left, right = work[0, :size], work[1, :size], work[2, :size], work[3, :size]
    inner, outer, at = x.dtype.type(0), x.dtype.type(0), 0
    degree[:k] = 0
    for i in range(k):
        inner += np.sqrt(np.abs(x[i]))
    for j in range(k, size):
        out[j] = _root(m[j])
    for j in range(k, size):
        outer += np.abs(out[j])
    for j in range(k, size):
        degree[j] = np.abs(out[j]) * inner
    for i in range(k):
        xi, mi, total = x[i], m[i], x.dtype.type(0)
        row, xs, ms, sums = half[at : at + k - i], x[i:k], m[i:k], degree[i:k]
        for j in range(k - i):
            a = xi * ms[j] + mi * xs[j]
            v = np.sqrt(np.abs(a))
            row[j] = v if a >= 0 else -v
            sums[j] += v
        for j in range(k - i):
            total += np.abs(row[j])
        degree[i] += total - np.abs(row[0]) + np.sqrt(np.abs(xi)) * outer
        at += k - i
    _scales(degree, normalization, left, right)
    at, far = 0, x.dtype.type(0)
    for i in range(k):
        z[i] = x[i] * right[i]
        out[i] = 0
    for i in range(k):
        far += _root(x[i]) * z[i]
    for i in range(k):
        zi, total = z[i], x.dtype.type(0)
        row, zs, to = half[at : at + k - i], z[i:k], out[i:k]
        for j in range(1, k - i):
            total += row[j] * zs[j]
        for j in range(1, k - i):
            to[j] += row[j] * zi
        out[i] += total + row[0] * zi
        at += k - i
    for i in range(k):
        out[i] *= left[i]
    for j in range(k, size):
        out[j] *= far * left[j]


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

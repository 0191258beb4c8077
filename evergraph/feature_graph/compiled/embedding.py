"""Compiled loops: copies, sums and checks of sparse rows, and their fixed embedding."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, extending, types
from numba.np.arrayobj import make_array

from evergraph.feature_graph.compiled import exact_loop, loop
from evergraph.feature_graph.compiled.support import _root, _scales, accumulate, union_support

intrinsic: Any = extending.intrinsic  # the context that it adds is not for callers
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
    feature = np.empty(np.minimum(entries, num_features).sum() * components + 1, np.int64)
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
            n = _drain(many, begin, n, total, seen, feature, out)
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
def _drain(many, begin, n, total, seen, feature, out):
    """Move a sum to the places from `begin` on, sorted by feature; the next one begins with 0."""
    if many:
        for f in range(seen.shape[0]):
            feature[n] = f  # written over if f is not there
            n += seen[f]
    else:
        feature[begin:n].sort()
    for i in range(begin, n):
        f = feature[i]
        out[i] = total[f]
        total[f] = 0
        seen[f] = False
    return n


@intrinsic
def fetch(typingctx, array, place):
    """Let the processor bring a number of an array into its cache, while it goes on."""
    sig = types.void(array, types.intp)

    def codegen(context, builder, signature, args):
        kind = signature.args[0]
        found = make_array(kind)(context, builder, args[0])
        item = cgutils.get_item_pointer(context, builder, kind, found, [args[1]])
        byte, whole = builder.bitcast(item, cgutils.voidptr_t), cgutils.int32_t
        shape = ir.FunctionType(ir.VoidType(), [byte.type, whole, whole, whole])
        call = cgutils.get_or_insert_function(builder.module, shape, "llvm.prefetch.p0i8")
        builder.call(call, [byte, *(whole(k) for k in (0, 3, 1))])  # to read, to stay, data
        return context.get_dummy_value()

    return sig, codegen


@loop
def items(start, target, nodes, self_loops, indptr, indices, values, num_features):
    """The rows of some nodes of a graph, and the means of their neighbors' rows.

    Node i has the neighbors `target[start[i]:start[i + 1]]`, and with `self_loops` (0 or 1) itself
    before them. Returns indptr, indices and values of the rows, then of the means.
    """
    count, space = nodes.shape[0], 0
    own_ptr, ptr = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    entries = np.zeros(count, np.int64)
    for b in range(count):
        i = nodes[b]
        size = indptr[i + 1] - indptr[i]
        own_ptr[b + 1] = own_ptr[b] + size
        entries[b] = self_loops * size
        for e in range(start[i], start[i + 1]):
            first = indptr[target[e]]
            entries[b] += indptr[target[e] + 1] - first
            fetch(indices, first)
            fetch(values, first)
        space += min(entries[b], num_features)
    own_feature = np.empty(own_ptr[-1], np.int64)
    own_value = np.empty(own_ptr[-1], values.dtype)
    feature, out = np.empty(space + 1, np.int64), np.empty(space, values.dtype)
    total, seen = np.zeros(num_features, values.dtype), np.zeros(num_features, np.bool_)
    one, n = values.dtype.type(1), 0
    for b in range(count):
        i, begin, many = nodes[b], n, entries[b] * OFTEN >= num_features
        first, last = indptr[i], indptr[i + 1]
        own_feature[own_ptr[b] : own_ptr[b + 1]] = indices[first:last]
        own_value[own_ptr[b] : own_ptr[b + 1]] = values[first:last]
        scale = one / values.dtype.type(self_loops + start[i + 1] - start[i])
        if self_loops:
            n = _add(first, last, indices, values, scale, total, seen, many, feature, n)
        for e in range(start[i], start[i + 1]):
            first, last = indptr[target[e]], indptr[target[e] + 1]
            n = _add(first, last, indices, values, scale, total, seen, many, feature, n)
        n = _drain(many, begin, n, total, seen, feature, out)
        ptr[b + 1] = n
    return own_ptr, own_feature, own_value, ptr, feature[:n].copy(), out[:n].copy()


@loop
def _largest(bits):
    """The largest of floating point numbers without their signs, as bits: NaN, infinity, finite."""
    found, sign = bits.dtype.type(0), bits.dtype.type(1) << bits.dtype.type(8 * bits.itemsize - 1)
    for i in range(bits.shape[0]):
        found = max(found, bits[i] & ~sign)
    return found


@loop
def _in_order(indptr, indices, num_features):
    """Whether sparse rows are one after the other, with features that are there."""
    last, right = indptr.shape[0] - 1, True
    for r in range(last):
        right &= indptr[r] <= indptr[r + 1]
    for e in range(indices.shape[0]):
        right &= (indices[e] >= 0) & (indices[e] < num_features)
    return right and indptr[0] == 0 and indptr[last] == indices.shape[0]


@loop
def extent(
    x_indptr, x_indices, x_bits, y_indptr, y_indices, y_bits, owner, hop, num_features, hops
):  # fmt: skip
    """The bits of the largest feature of a batch, its sign apart; all ones if parts do not fit.

    Features come as bits, since NaN and infinity are the largest of them.
    """
    right = _in_order(x_indptr, x_indices, num_features)
    right &= _in_order(y_indptr, y_indices, num_features)
    count = y_indptr.shape[0] - 1
    right &= owner.shape[0] == count and (hop.shape[0] == count or hop.shape[0] == 0)
    for n in range(owner.shape[0]):
        right &= (owner[n] >= 0) & (owner[n] < x_indptr.shape[0] - 1)
    for n in range(hop.shape[0]):
        right &= (hop[n] >= 1) & (hop[n] <= hops)
    return max(_largest(x_bits), _largest(y_bits)) if right else ~x_bits.dtype.type(0)


@loop
def count_sizes(bits, every, shift, bias, low, counts):
    """Count the numbers of every n-th row by column and power of two, which are bits of a number.

    The first and the last place of `counts` also get what is beyond them.
    """
    bins = counts.shape[1]
    sign = bits.dtype.type(1) << bits.dtype.type(8 * bits.itemsize - 1)
    for r in range(0, bits.shape[0], every):
        for c in range(bits.shape[1]):
            size = bits[r, c] & ~sign
            if size:
                power = np.int64(size >> bits.dtype.type(shift)) - bias - low
                counts[c, min(max(power, 0), bins - 1)] += 1


@exact_loop
def integers(values, one):
    """Numbers in units of 1 / one, rounded to the nearest integer: up to 2^24 in float32."""
    out = np.empty(values.shape[0], np.float32)
    for i in range(values.shape[0]):
        out[i] = np.rint(np.float64(values[i]) * one)
    return out


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

"""Compiled loops behind the support form.

They work on *packed support* arrays. Item b owns the positions `ptr[b]:ptr[b + 1]`; the first
`width[b]` of them are the support of x, the rest is what only m has. Outside of supp(x) × supp(x)
the symmetric adjacency is of rank one: `A[i, j] = w[i] w[j]` for i in supp(x) and j in the rest and
for its mirror, where w is sgnroot(x) or sgnroot(m), and 0 within the rest. So an item with S
positions, k of them in supp(x), stores `k² + 2 S` numbers of Â = diag(l) A diag(r):

    Â[i, j] of supp(x), row by row   then   left = l w   then   right = w r

Feature nodes of an item with the same x and the same m are *twins*: they have the same rows and
columns. A fixed graph keeps one of them and how many there are, `size`: on bags of words, where x
is 0 or 1 and m counts neighbors, few are left. `twins` says who stands for whom.
"""

from __future__ import annotations

import numpy as np

from evergraph.feature_graph.compiled import loop
from evergraph.feature_graph.compiled.twins import twins


@loop
def offsets(ptr, width):
    """Where the adjacency of each item begins among all stored numbers, `(B + 1,)`."""
    out = np.zeros(ptr.shape[0], np.int64)
    for b in range(width.shape[0]):
        out[b + 1] = out[b] + width[b] * width[b] + 2 * (ptr[b + 1] - ptr[b])
    return out


@loop
def union_support(x_indptr, x_indices, x_values, y_indptr, y_indices, owner, num_features):
    """Lay out supp(x), then what the neighbors add, for every item.

    Neighbors are sorted by owner. Returns feature `(N,)`, ptr `(B + 1,)`, width `(B,)`, offset
    `(B + 1,)`, the values of x `(N,)` and, for every entry of the neighbors, its position.
    """
    num_items = x_indptr.shape[0] - 1
    capacity = x_indices.shape[0] + y_indices.shape[0]
    feature = np.empty(capacity, np.int64)
    values = np.zeros(capacity, x_values.dtype)
    position = np.empty(y_indices.shape[0], np.int64)
    ptr = np.zeros(num_items + 1, np.int64)
    width = np.empty(num_items, np.int64)
    seen = np.zeros(num_features, np.int64)  # 1 + position of a feature within this item, or 0
    n = 0
    last = 0  # the next neighbor
    for b in range(num_items):
        start = n
        for e in range(x_indptr[b], x_indptr[b + 1]):
            f = x_indices[e]
            if seen[f] == 0:
                feature[n] = f
                seen[f] = n + 1
                n += 1
            values[seen[f] - 1] += x_values[e]
        width[b] = n - start
        while last < owner.shape[0] and owner[last] == b:
            for e in range(y_indptr[last], y_indptr[last + 1]):
                f = y_indices[e]
                if seen[f] == 0:
                    feature[n] = f
                    n += 1
                    seen[f] = n
                position[e] = seen[f] - 1
            last += 1
        for i in range(start, n):
            seen[feature[i]] = 0
        ptr[b + 1] = n
    return feature[:n].copy(), ptr, width, offsets(ptr, width), values[:n].copy(), position


@loop
def accumulate(position, values, y_indptr, owner, hop, weight, hops, components, out):
    """Eq. (5) on the support: `out[p, i] += w / |N_k| * y` over all entries of all neighbors.

    `hop (N,)` may be empty (all at hop 1) and so may `weight (N, W)` (all 1).
    """
    count = np.zeros((owner[-1] + 1 if owner.shape[0] else 0, hops), np.int64)
    for n in range(owner.shape[0]):
        count[owner[n], hop[n] - 1 if hop.shape[0] else 0] += 1
    for n in range(owner.shape[0]):
        k = hop[n] - 1 if hop.shape[0] else 0
        share = out.dtype.type(1) / count[owner[n], k]
        for w in range(components):
            scale = share * weight[n, w] if weight.shape[0] else share
            for e in range(y_indptr[n], y_indptr[n + 1]):
                out[k * components + w, position[e]] += scale * values[e]


@loop
def _root(a):
    r = np.sqrt(np.abs(a))
    return r if a >= 0 else -r


@loop
def _scales(degree, normalization, left, right):
    """Fill l and r of Â = diag(l) A diag(r); 0 none, 1 row, 2 column, 3 symmetric."""
    for i in range(degree.shape[0]):
        left[i] = 1
        right[i] = 1
        if degree[i] > 0:
            if normalization == 1:
                left[i] = 1 / degree[i]
            elif normalization == 2:
                right[i] = 1 / degree[i]
            elif normalization == 3:
                left[i] = 1 / np.sqrt(degree[i])
                right[i] = left[i]


@loop
def stored(hat, begin, k, size):
    """The block `(k, k)` of one item, then left and right, `(S,)` each."""
    middle, end = begin + k * k, begin + k * k + size
    return hat[begin:middle].reshape(k, k), hat[middle:end], hat[end : end + size]


@loop
def _roots(x, m, size, k, out):
    """Fill w; returns the sums of |w| over supp(x) and over the rest."""
    inner, outer = x.dtype.type(0), x.dtype.type(0)
    for i in range(k):
        out[i] = _root(x[i])
    for j in range(k, m.shape[0]):
        out[j] = _root(m[j])
    for i in range(k):
        inner += np.abs(out[i]) * size[i]
    for j in range(k, m.shape[0]):
        outer += np.abs(out[j]) * size[j]
    return inner, outer


@loop
def adjacency(x, m, size, ptr, width, offset, normalization, hat, degree):
    """Eqs. (4)-(6) on the support: x and size `(N,)`, m `(P, N)` into hat `(P, E)`.

    A node stands for `size` twins. Fills degree `(P, N)`.
    """
    scales = np.empty((2, x.shape[0]), x.dtype)
    for p in range(m.shape[0]):
        for b in range(width.shape[0]):
            n0, n1, k = ptr[b], ptr[b + 1], width[b]
            xb, mb, db, sb = x[n0:n1], m[p, n0:n1], degree[p, n0:n1], size[n0:n1]
            lb, rb = scales[0, n0:n1], scales[1, n0:n1]
            block, left, right = stored(hat[p], offset[b], k, n1 - n0)
            inner, outer = _roots(xb, mb, sb, k, left)
            for i in range(k):
                row, xi, mi = block[i], xb[i], mb[i]
                total = x.dtype.type(0)
                for j in range(k):
                    a = xi * mb[j] + mi * xb[j]
                    v = np.sqrt(np.abs(a))
                    row[j] = v if a >= 0 else -v
                for j in range(k):
                    total += np.abs(row[j]) * sb[j]
                db[i] = total + np.abs(left[i]) * outer
            for j in range(k, n1 - n0):
                db[j] = np.abs(left[j]) * inner
            _scales(db, normalization, lb, rb)
            for i in range(k):
                row, li = block[i], lb[i]
                for j in range(k):
                    row[j] *= li * rb[j]
            for n in range(n1 - n0):
                right[n] = left[n] * rb[n]
                left[n] *= lb[n]


@loop
def adjacency_backward(x, m, ptr, width, offset, normalization, degree, grad, gx, gm):
    """Gradient of `adjacency`: from grad `(P, E)` into gx `(N,)` and gm `(P, N)`, both zeroed.

    x is 0 beyond its support, and stays 0: it gets no gradient there. Nodes have no twins here,
    which need not have the same gradient.
    """
    half = x.dtype.type(0.5)
    work, ones = np.empty((5, x.shape[0]), x.dtype), np.ones_like(x)
    for p in range(m.shape[0]):
        for b in range(width.shape[0]):
            n0, n1, k = ptr[b], ptr[b + 1], width[b]
            size = n1 - n0
            xb, mb, db = x[n0:n1], m[p, n0:n1], degree[p, n0:n1]
            gxb, gmb = gx[n0:n1], gm[p, n0:n1]
            lb, rb, gl, gr = work[0, n0:n1], work[1, n0:n1], work[2, n0:n1], work[3, n0:n1]
            w = work[4, n0:n1]
            g, g_left, g_right = stored(grad[p], offset[b], k, size)
            inner, outer = _roots(xb, mb, ones, k, w)
            _scales(db, normalization, lb, rb)
            for n in range(size):
                gl[n] = g_left[n] * w[n]
                gr[n] = g_right[n] * w[n]
            for i in range(k):
                for j in range(k):
                    v = _root(xb[i] * mb[j] + mb[i] * xb[j])
                    gl[i] += g[i, j] * v * rb[j]
                    gr[j] += g[i, j] * v * lb[i]
            _to_degrees(db, normalization, lb, rb, gl, gr)
            g_inner, g_outer = x.dtype.type(0), x.dtype.type(0)
            for i in range(k):
                g_outer += gl[i] * np.abs(w[i])
            for j in range(k, size):
                g_inner += gl[j] * np.abs(w[j])
            for i in range(k):
                for j in range(k):
                    a = xb[i] * mb[j] + mb[i] * xb[j]
                    if a == 0:
                        continue
                    gv = g[i, j] * lb[i] * rb[j] + (gl[i] if a > 0 else -gl[i])
                    ga = gv * half / np.sqrt(np.abs(a))
                    gxb[i] += ga * mb[j]
                    gxb[j] += ga * mb[i]
                    gmb[j] += ga * xb[i]
                    gmb[i] += ga * xb[j]
            for n in range(size):
                if w[n] == 0:
                    continue
                own = gl[n] * outer + g_inner if n < k else gl[n] * inner + g_outer
                gw = g_left[n] * lb[n] + g_right[n] * rb[n] + (own if w[n] > 0 else -own)
                into = gxb if n < k else gmb
                into[n] += gw * half / np.abs(w[n])


@loop
def _to_degrees(degree, normalization, left, right, g_left, g_right):
    """From the gradients of the scales to that of the degrees, which takes the place of g_left."""
    half = degree.dtype.type(0.5)
    for i in range(degree.shape[0]):
        if degree[i] <= 0 or normalization == 0:
            g_left[i] = 0
        elif normalization == 1:
            g_left[i] *= -left[i] * left[i]
        elif normalization == 2:
            g_left[i] = -g_right[i] * right[i] * right[i]
        else:
            g_left[i] = -half * (g_left[i] + g_right[i]) * left[i] / degree[i]


@loop
def fixed_graph(
    x_indptr, x_indices, x_values, y_indptr, y_indices, y_values, owner, hop, weight, hops,
    components, num_features, normalization,
):  # fmt: skip
    """Layout, mean and adjacency of a batch with fixed edge weights, in one go.

    Returns feature `(N,)` and ptr `(B + 1,)` of all nodes, then the number of each among those
    without twins, and of these where items begin, width, offset, size, values and hat.
    """
    found = union_support(x_indptr, x_indices, x_values, y_indptr, y_indices, owner, num_features)
    feature, ptr, width, _, values, position = found
    m = np.zeros((hops * components, feature.shape[0]), x_values.dtype)
    accumulate(position, y_values, y_indptr, owner, hop, weight, hops, components, m)
    number, start, inside, example, size = twins(values, m, ptr, width)
    values, offset = values[example], offsets(start, inside)
    means = np.empty((m.shape[0], example.shape[0]), m.dtype)
    for p in range(m.shape[0]):
        means[p] = m[p][example]
    hat = np.empty((m.shape[0], offset[-1]), m.dtype)
    adjacency(values, means, size, start, inside, offset, normalization, hat, np.zeros_like(means))
    return feature, ptr, number, start, inside, offset, size, values, hat

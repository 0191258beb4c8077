"""Compiled loops behind the support form: serial, without the GIL, cached on disk.

They work on *packed support* arrays. Item b owns the positions `ptr[b]:ptr[b + 1]`; the first
`width[b]` of them are the support of x, the rest is what only m has. An item's symmetric
adjacency is nonzero only in the rows of x and their mirror, so that it is stored, for every row
i of x, as one run of `S + R` numbers (S positions, R of them beyond x):

    Â[i, 0..S)   then   Â[rest, i]

Serial on purpose: numba's parallel mode kills forked data-loader workers.
"""

from __future__ import annotations

import numpy as np
from numba import njit

JIT = {
    "nogil": True,
    "cache": True,
    "fastmath": {"reassoc", "contract", "arcp", "nsz"},
    "error_model": "numpy",
}


@njit(**JIT)
def offsets(ptr, width):
    """Where the adjacency of each item begins among all stored numbers, `(B + 1,)`."""
    out = np.zeros(ptr.shape[0], np.int64)
    for b in range(width.shape[0]):
        out[b + 1] = out[b] + width[b] * (2 * (ptr[b + 1] - ptr[b]) - width[b])
    return out


@njit(**JIT)
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


@njit(**JIT)
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


@njit(**JIT)
def _root(a):
    r = np.sqrt(np.abs(a))
    return r if a >= 0 else -r


@njit(**JIT)
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


@njit(**JIT)
def adjacency(x, m, ptr, width, offset, normalization, hat, degree):
    """Eqs. (4)-(6) on the support: x `(N,)`, m `(P, N)` into hat `(P, E)`, degree `(P, N)`."""
    left = np.empty_like(x)
    right = np.empty_like(x)
    for p in range(m.shape[0]):
        for b in range(width.shape[0]):
            n0, n1, k = ptr[b], ptr[b + 1], width[b]
            xb, mb, db = x[n0:n1], m[p, n0:n1], degree[p, n0:n1]
            size = n1 - n0
            run = 2 * size - k
            for i in range(k):
                row = hat[p, offset[b] + i * run : offset[b] + i * run + size]
                xi, mi = xb[i], mb[i]
                total = x.dtype.type(0)
                for j in range(size):
                    a = xi * mb[j] + mi * xb[j]
                    v = np.sqrt(np.abs(a))
                    total += v
                    row[j] = v if a >= 0 else -v
                db[i] = total
                for j in range(k, size):
                    db[j] += np.abs(row[j])
            lb, rb = left[n0:n1], right[n0:n1]
            _scales(db, normalization, lb, rb)
            for i in range(k):
                base = offset[b] + i * run
                row = hat[p, base : base + size]
                mirror = hat[p, base + size : base + run]
                for j in range(k, size):
                    mirror[j - k] = lb[j] * row[j] * rb[i]
                for j in range(size):
                    row[j] *= lb[i] * rb[j]


@njit(**JIT)
def adjacency_backward(x, m, ptr, width, offset, normalization, degree, grad, gx, gm):
    """Gradient of `adjacency`: from grad `(P, E)` into gx `(N,)` and gm `(P, N)`, both zeroed."""
    left = np.empty_like(x)
    right = np.empty_like(x)
    g_left = np.empty_like(x)
    g_right = np.empty_like(x)
    half = x.dtype.type(0.5)
    for p in range(m.shape[0]):
        for b in range(width.shape[0]):
            n0, n1, k = ptr[b], ptr[b + 1], width[b]
            xb, mb, db = x[n0:n1], m[p, n0:n1], degree[p, n0:n1]
            gxb, gmb = gx[n0:n1], gm[p, n0:n1]
            lb, rb, glb, grb = left[n0:n1], right[n0:n1], g_left[n0:n1], g_right[n0:n1]
            size = n1 - n0
            run = 2 * size - k
            _scales(db, normalization, lb, rb)
            glb[:] = 0
            grb[:] = 0
            for i in range(k):
                g = grad[p, offset[b] + i * run : offset[b] + (i + 1) * run]
                for j in range(size):
                    v = _root(xb[i] * mb[j] + mb[i] * xb[j])
                    glb[i] += g[j] * v * rb[j]
                    grb[j] += g[j] * v * lb[i]
                    if j >= k:
                        h = g[size + j - k]
                        glb[j] += h * v * rb[i]
                        grb[i] += h * v * lb[j]
            for i in range(size):  # from the scales to the degree, kept in glb
                if db[i] <= 0 or normalization == 0:
                    glb[i] = 0
                elif normalization == 1:
                    glb[i] = -glb[i] * lb[i] * lb[i]
                elif normalization == 2:
                    glb[i] = -grb[i] * rb[i] * rb[i]
                else:
                    glb[i] = -half * (glb[i] + grb[i]) * lb[i] / db[i]
            for i in range(k):
                g = grad[p, offset[b] + i * run : offset[b] + (i + 1) * run]
                for j in range(size):
                    a = xb[i] * mb[j] + mb[i] * xb[j]
                    if a == 0:
                        continue
                    sign = 1 if a > 0 else -1
                    gv = g[j] * lb[i] * rb[j] + glb[i] * sign
                    if j >= k:
                        gv += g[size + j - k] * lb[j] * rb[i] + glb[j] * sign
                    ga = gv * half / np.sqrt(np.abs(a))
                    gxb[i] += ga * mb[j]
                    gxb[j] += ga * mb[i]
                    gmb[j] += ga * xb[i]
                    gmb[i] += ga * xb[j]


@njit(**JIT)
def fixed_graph(
    x_indptr, x_indices, x_values, y_indptr, y_indices, y_values, owner, hop, weight, hops,
    components, num_features, normalization,
):  # fmt: skip
    """Layout, mean and adjacency of a batch with fixed edge weights, in one go."""
    found = union_support(x_indptr, x_indices, x_values, y_indptr, y_indices, owner, num_features)
    feature, ptr, width, offset, values, position = found
    m = np.zeros((hops * components, feature.shape[0]), x_values.dtype)
    accumulate(position, y_values, y_indptr, owner, hop, weight, hops, components, m)
    hat = np.empty((m.shape[0], offset[-1]), m.dtype)
    adjacency(values, m, ptr, width, offset, normalization, hat, np.zeros_like(m))
    return feature, ptr, width, offset, values, position, hat


@njit(**JIT)
def product(hat, ptr, width, offset, z, out):
    """out[p, c] += Â_p z_c for every plane p and channel c: z `(C, N)` into out `(P, C, N)`.

    Two channels at a time, so that each stored number is loaded half as often.
    """
    channels = z.shape[0]
    for p in range(hat.shape[0]):
        for b in range(width.shape[0]):
            n0, n1, k = ptr[b], ptr[b + 1], width[b]
            size = n1 - n0
            run = 2 * size - k
            for c in range(0, channels, 2):
                d = min(c + 1, channels - 1)
                zc, zd = z[c, n0:n1], z[d, n0:n1]
                oc, od = out[p, c, n0:n1], out[p, d, n0:n1]
                rc, rd = oc[k:], od[k:]
                for i in range(k):
                    base = offset[b] + i * run
                    row = hat[p, base : base + size]
                    mirror = hat[p, base + size : base + run]
                    tc, td = z.dtype.type(0), z.dtype.type(0)
                    for j in range(size):
                        tc += row[j] * zc[j]
                        td += row[j] * zd[j]
                    oc[i] += tc
                    ac, ad = zc[i], zd[i]
                    if d == c:
                        for j in range(size - k):
                            rc[j] += mirror[j] * ac
                    else:
                        od[i] += td
                        for j in range(size - k):
                            rc[j] += mirror[j] * ac
                            rd[j] += mirror[j] * ad


@njit(**JIT)
def adjoint(hat, ptr, width, offset, g, out):
    """out[c] += Σ_p Â_pᵀ g[p, c]: g `(P, C, N)` into out `(C, N)`; the transpose of `product`."""
    channels = out.shape[0]
    for p in range(hat.shape[0]):
        for b in range(width.shape[0]):
            n0, n1, k = ptr[b], ptr[b + 1], width[b]
            size = n1 - n0
            run = 2 * size - k
            for c in range(0, channels, 2):
                d = min(c + 1, channels - 1)
                oc, od = out[c, n0:n1], out[d, n0:n1]
                gc, gd = g[p, c, n0:n1], g[p, d, n0:n1]
                rc, rd = gc[k:], gd[k:]
                for i in range(k):
                    base = offset[b] + i * run
                    row = hat[p, base : base + size]
                    mirror = hat[p, base + size : base + run]
                    ac, ad = gc[i], gd[i]
                    tc, td = g.dtype.type(0), g.dtype.type(0)
                    for j in range(size - k):
                        tc += mirror[j] * rc[j]
                        td += mirror[j] * rd[j]
                    if d == c:
                        for j in range(size):
                            oc[j] += row[j] * ac
                    else:
                        for j in range(size):
                            oc[j] += row[j] * ac
                            od[j] += row[j] * ad
                        od[i] += td
                    oc[i] += tc


@njit(**JIT)
def pair_gradient(ptr, width, offset, g, z, out):
    """Gradient of `product` with respect to hat: out `(P, E)`, zeroed before."""
    for p in range(out.shape[0]):
        for b in range(width.shape[0]):
            n0, n1, k = ptr[b], ptr[b + 1], width[b]
            size = n1 - n0
            run = 2 * size - k
            for i in range(k):
                base = offset[b] + i * run
                row = out[p, base : base + size]
                mirror = out[p, base + size : base + run]
                for c in range(z.shape[0]):
                    gi, zi = g[p, c, n0 + i], z[c, n0 + i]
                    zc, rest = z[c, n0:n1], g[p, c, n0 + k : n1]
                    for j in range(size):
                        row[j] += gi * zc[j]
                    for j in range(size - k):
                        mirror[j] += rest[j] * zi

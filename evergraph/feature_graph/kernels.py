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

_JIT = {
    "nogil": True,
    "cache": True,
    "fastmath": {"reassoc", "contract", "arcp", "nsz"},
    "error_model": "numpy",
}


@njit(**_JIT)
def union_support(x_indptr, x_indices, x_values, y_indptr, y_indices, y_start, num_features):  # type: ignore[no-untyped-def]
    """Lay out supp(x), then what the neighbors add, for every item.

    `y_start[b]:y_start[b + 1]` are the neighbors of item b. Returns feature `(N,)`, ptr
    `(B + 1,)`, width `(B,)`, the values of x `(N,)` and, for every entry of the neighbors, its
    position in the layout.
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
        for e in range(y_indptr[y_start[b]], y_indptr[y_start[b + 1]]):
            f = y_indices[e]
            if seen[f] == 0:
                feature[n] = f
                n += 1
                seen[f] = n
            position[e] = seen[f] - 1
        for i in range(start, n):
            seen[feature[i]] = 0
        ptr[b + 1] = n
    return feature[:n].copy(), ptr, width, values[:n].copy(), position


@njit(**_JIT)
def accumulate(position, values, neighbor, plane, scale, out):  # type: ignore[no-untyped-def]
    """Eq. (5) on the support: `out[p, i] += scale * y` over all entries of all neighbors.

    `scale (N, W)` holds w / |N_k| of each neighbor, `plane (N,)` the first plane of its hop.
    """
    components = scale.shape[1]
    for n in range(neighbor.shape[0] - 1):
        for w in range(components):
            p = plane[n] + w
            s = scale[n, w]
            for e in range(neighbor[n], neighbor[n + 1]):
                out[p, position[e]] += s * values[e]


@njit(**_JIT)
def block_offsets(ptr, width):  # type: ignore[no-untyped-def]
    """Where the adjacency of each item begins among all stored numbers, `(B + 1,)`."""
    out = np.zeros(ptr.shape[0], np.int64)
    for b in range(width.shape[0]):
        size = ptr[b + 1] - ptr[b]
        out[b + 1] = out[b] + width[b] * (2 * size - width[b])
    return out


@njit(**_JIT)
def _root(a):  # type: ignore[no-untyped-def]
    r = np.sqrt(np.abs(a))
    return r if a >= 0 else -r


@njit(**_JIT)
def _scales(degree, normalization, left, right):  # type: ignore[no-untyped-def]
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


@njit(**_JIT)
def adjacency(x, m, ptr, width, offset, normalization, hat, degree):  # type: ignore[no-untyped-def]
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


@njit(**_JIT)
def adjacency_backward(x, m, ptr, width, offset, normalization, degree, grad, gx, gm):  # type: ignore[no-untyped-def]
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


@njit(**_JIT)
def product(hat, ptr, width, offset, z, out):  # type: ignore[no-untyped-def]
    """out[p, c] += Â_p z_c for every plane p and channel c: z `(C, N)` into out `(P, C, N)`."""
    for p in range(hat.shape[0]):
        for b in range(width.shape[0]):
            n0, n1, k = ptr[b], ptr[b + 1], width[b]
            size = n1 - n0
            run = 2 * size - k
            for i in range(k):
                base = offset[b] + i * run
                row = hat[p, base : base + size]
                mirror = hat[p, base + size : base + run]
                for c in range(z.shape[0]):
                    zc = z[c, n0:n1]
                    rest = out[p, c, n0 + k : n1]
                    total = z.dtype.type(0)
                    for j in range(size):
                        total += row[j] * zc[j]
                    out[p, c, n0 + i] += total
                    zi = zc[i]
                    for j in range(size - k):
                        rest[j] += mirror[j] * zi


@njit(**_JIT)
def adjoint(hat, ptr, width, offset, g, out):  # type: ignore[no-untyped-def]
    """out[c] += Σ_p Â_pᵀ g[p, c]: g `(P, C, N)` into out `(C, N)`; the transpose of `product`."""
    for p in range(hat.shape[0]):
        for b in range(width.shape[0]):
            n0, n1, k = ptr[b], ptr[b + 1], width[b]
            size = n1 - n0
            run = 2 * size - k
            for i in range(k):
                base = offset[b] + i * run
                row = hat[p, base : base + size]
                mirror = hat[p, base + size : base + run]
                for c in range(out.shape[0]):
                    target = out[c, n0:n1]
                    gi = g[p, c, n0 + i]
                    for j in range(size):
                        target[j] += row[j] * gi
                    rest = g[p, c, n0 + k : n1]
                    total = g.dtype.type(0)
                    for j in range(size - k):
                        total += mirror[j] * rest[j]
                    target[i] += total


@njit(**_JIT)
def pair_gradient(ptr, width, offset, g, z, out):  # type: ignore[no-untyped-def]
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


@njit(**_JIT)
def mix(q, weight, out):  # type: ignore[no-untyped-def]
    """out[d] += Σ_c weight[c, d] q[c]: the channel map of Eq. (7)."""
    for d in range(out.shape[0]):
        for c in range(q.shape[0]):
            w = weight[c, d]
            for i in range(q.shape[1]):
                out[d, i] += w * q[c, i]


@njit(**_JIT)
def mix_backward(q, weight, g, gq, gw):  # type: ignore[no-untyped-def]
    """Gradients of `mix`: g `(D, N)` into gq `(C, N)` and gw `(C, D)`, both zeroed before."""
    for d in range(g.shape[0]):
        for c in range(q.shape[0]):
            w = weight[c, d]
            total = q.dtype.type(0)
            for i in range(q.shape[1]):
                gq[c, i] += w * g[d, i]
                total += q[c, i] * g[d, i]
            gw[c, d] = total


@njit(**_JIT)
def moments(p, count, mean, var):  # type: ignore[no-untyped-def]
    """Mean and variance of each channel over `count` nodes, of which all but p's are zero."""
    n = p.shape[1]
    for d in range(p.shape[0]):
        total = p.dtype.type(0)
        for i in range(n):
            total += p[d, i]
        mu = total / count
        square = p.dtype.type(0)
        for i in range(n):
            square += (p[d, i] - mu) * (p[d, i] - mu)
        mean[d] = mu
        var[d] = (square + (count - n) * mu * mu) / count


@njit(**_JIT)
def norm_softsign(p, mean, var, gamma, beta, eps, y, absent):  # type: ignore[no-untyped-def]
    """Batch normalization, then σ(u) = u / (1 + |u|); absent gets the value of a zero."""
    for d in range(p.shape[0]):
        scale = gamma[d] / np.sqrt(var[d] + eps)
        shift = beta[d] - mean[d] * scale
        absent[d] = shift / (1 + np.abs(shift))
        for i in range(p.shape[1]):
            u = p[d, i] * scale + shift
            y[d, i] = u / (1 + np.abs(u))


@njit(**_JIT)
def norm_softsign_backward(
    p, mean, var, gamma, eps, count, training, y, absent, gy, g_absent, gp, g_gamma, g_beta
):  # type: ignore[no-untyped-def]
    """Gradient of `norm_softsign` with `moments` behind it (training) or fixed statistics."""
    for d in range(p.shape[0]):
        rstd = 1 / np.sqrt(var[d] + eps)
        slope = 1 - np.abs(absent[d])
        g0 = g_absent[d] * slope * slope
        d_beta = g0
        d_gamma = -g0 * mean[d] * rstd
        for i in range(p.shape[1]):
            slope = 1 - np.abs(y[d, i])
            gu = gy[d, i] * slope * slope
            gp[d, i] = gu
            d_beta += gu
            d_gamma += gu * (p[d, i] - mean[d]) * rstd
        g_beta[d] = d_beta
        g_gamma[d] = d_gamma
        scale = gamma[d] * rstd
        if training:
            for i in range(p.shape[1]):
                unit = (p[d, i] - mean[d]) * rstd
                gp[d, i] = scale * (gp[d, i] - (d_beta + unit * d_gamma) / count)
        else:
            for i in range(p.shape[1]):
                gp[d, i] *= scale


@njit(**_JIT)
def readout(y, absent, feature, ptr, weight, out):  # type: ignore[no-untyped-def]
    """out[b] += Σ_i Σ_c (y[c, i] - absent[c]) weight[feature[i], c]: weight `(F, C, K)`."""
    for b in range(ptr.shape[0] - 1):
        for i in range(ptr[b], ptr[b + 1]):
            f = feature[i]
            for c in range(y.shape[0]):
                value = y[c, i] - absent[c]
                for k in range(out.shape[1]):
                    out[b, k] += value * weight[f, c, k]


@njit(**_JIT)
def readout_backward(y, absent, feature, ptr, weight, g, row, gy, g_absent, gw):  # type: ignore[no-untyped-def]
    """Gradients of `readout`; `gw[row[i]]` collects what weight[feature[i]] receives."""
    for b in range(ptr.shape[0] - 1):
        for i in range(ptr[b], ptr[b + 1]):
            f, r = feature[i], row[i]
            for c in range(y.shape[0]):
                value = y[c, i] - absent[c]
                total = y.dtype.type(0)
                for k in range(g.shape[1]):
                    total += g[b, k] * weight[f, c, k]
                    gw[r, c, k] += value * g[b, k]
                gy[c, i] = total
                g_absent[c] -= total

"""The support form as it was before it became separable: every pair of the support is stored.

An oracle for the compiled loops, in plain numpy. For every row i of x it keeps one run of `S + R`
numbers (S positions, R of them beyond x): `Â[i, 0..S)`, then `Â[rest, i]`.
"""

import numpy as np


def offsets(ptr, width):
    """Where the adjacency of each item begins among all stored numbers, `(B + 1,)`."""
    out = np.zeros(ptr.shape[0], np.int64)
    for b in range(width.shape[0]):
        out[b + 1] = out[b] + width[b] * (2 * (ptr[b + 1] - ptr[b]) - width[b])
    return out


def _root(a):
    r = np.sqrt(np.abs(a))
    return r if a >= 0 else -r


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

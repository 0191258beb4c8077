"""Compiled loops: a whole stack of broadcast layers on the support, classifier included.

Nodes are rows of L channels, see `compiled.vector`. Twins (`compiled.support`) share one row until
dropout tells them apart: the first layer has a row for each number of twins, and so have all others
without dropout. Later layers keep `M` rows, and row r collects with number `up[r]`, for which
`share[r]` of its twins stand. Layers hand on z, the activation less the value of absent nodes.

With S = Σ right z over supp(x), a node beyond it collects left · S: what it adds to the mixture
p = Q W of Eq. (7) is left · (S W), and needs no product of its own.
"""

from __future__ import annotations

import numpy as np

from evergraph.feature_graph.compiled import loop
from evergraph.feature_graph.compiled.collect import (
    add_multiples,
    block_times,
    vector_product,
    weighted,
)
from evergraph.feature_graph.compiled.readout import readout, readout_backward
from evergraph.feature_graph.compiled.support import stored
from evergraph.feature_graph.compiled.vector import (
    LANES,
    bits_from,
    keep,
    load,
    magnitude,
    splat,
    store,
    total,
)


@loop
def forward(graph, layers, masks, scaling, weight, bias, settings, centered):
    """Logits, and what the way back needs: rows, moments, the first product and column sums."""
    feature, ptr, number, start, width, offset, size, values, hat = graph
    momentum, eps, count, training = settings
    up, share, begin, at = _level(graph, masks)
    lanes = _lanes(layers)
    sizes = _sizes(graph, up)
    last = _place(len(layers), sizes)
    rows = np.empty((last + up.shape[0], lanes), values.dtype)
    moments = np.zeros((len(layers), 3, lanes), values.dtype)
    planes = hat.shape[0]
    first = np.empty((layers[0][0].shape[0], values.shape[0]), values.dtype)
    vector_product(hat, start, width, offset, values * size, first[:planes])
    if first.shape[0] > planes:
        first[planes] = values
    p = rows[: values.shape[0]]
    _mix_first(first, _padded(layers[0][0], lanes), p)
    for n in range(len(layers)):
        _, scale, shift, running_mean, running_var = layers[n]
        if training:
            _measure(p, share if n else size, count, moments[n])
            _follow(moments[n], momentum, count, running_mean, running_var)
        else:
            moments[n, 1, : running_mean.shape[0]] = running_mean
            moments[n, 2, : running_var.shape[0]] = running_var
        slope = _slope(scale, shift, eps, moments[n])
        place = _place(n + 1, sizes)
        z = rows[place : place + up.shape[0]]
        _activate(p, slope, moments[n, 0], up, n == 0, masks, n, scaling, z)
        if n + 1 < len(layers):
            channels = layers[n][0].shape[1]
            mixing = _padded(layers[n + 1][0], lanes)
            kept = rows[place : _place(n + 2, sizes)]
            _collect(graph, up, share, begin, z, moments[n, 0], channels, mixing, kept, sizes)
            p = kept[kept.shape[0] - up.shape[0] :]
    z = rows[last:]
    logits, column = readout(z, at, feature, ptr, weight, bias, moments[-1, 0], centered)
    return logits, rows, moments, first, column


@loop
def backward(graph, layers, masks, scaling, weight, rows, moments, first, column, g, settings, head,
             g_hat, g_layers):  # fmt: skip
    """Gradients to the classifier, its rows in use and its bias; fills those to layers and hat."""
    feature, ptr, number, start, width, offset, size, values, hat = graph
    _, eps, count, training = settings
    centered, sparse = head
    up, share, begin, at = _level(graph, masks)
    sizes, lanes = _sizes(graph, up), rows.shape[1]
    place = _place(len(layers), sizes)
    gz, g_absent, g_weight, g_bias, present = readout_backward(
        rows[place:], at, feature, ptr, weight, moments[-1, 0], column, g, centered, sparse
    )
    for n in range(len(layers) - 1, -1, -1):
        layer, (g_mixing, g_scale, g_shift) = layers[n], g_layers[n]
        wide, depth = layer[0].shape
        before = _place(n, sizes)
        p = rows[: values.shape[0]] if n == 0 else rows[place - up.shape[0] : place]
        gp = np.zeros_like(p) if n == 0 else gz
        _drop_backward(gz, up, n == 0, masks, n, scaling, gp, g_absent)
        slope = _slope(layer[1], layer[2], eps, moments[n].copy())
        found = _activate_backward(
            p, slope, moments[n], g_absent, share if n else size, eps, count, training, gp
        )
        g_scale[:], g_shift[:] = found[0, :depth], found[1, :depth]
        gw = np.zeros((wide, lanes), p.dtype)
        if n:
            kept, channels = rows[before:place], layers[n - 1][0].shape[1]
            gz, g_absent = np.empty_like(gp), np.zeros(lanes, p.dtype)
            _collect_backward(
                graph, up, share, begin, moments[n - 1, 0], channels, layer[0], kept, sizes, gp,
                gw, gz, g_absent, g_hat,
            )  # fmt: skip
        else:
            _mix_first_backward(graph, first, gp, layer[0], gw, g_hat)
        g_mixing[:] = gw[:, :depth]
        place = before
    return g_weight, g_bias, present


@loop
def _level(graph, masks):
    """What rows after the first layer stand for: up, share, where items begin, rows of nodes."""
    _, ptr, number, start, _, _, size, values, _ = graph
    if masks.shape[0]:
        nodes = number.shape[0]
        return number, np.ones(nodes, values.dtype), ptr, np.arange(nodes)
    return np.arange(values.shape[0]), size, start, number


@loop
def _lanes(layers):
    most = 1
    for layer in layers:
        most = max(most, layer[0].shape[1])
    return -(-most // LANES) * LANES


@loop
def _sizes(graph, up):
    """V, M and how many rows of collected channels and of sums a layer keeps."""
    width, values, hat = graph[4], graph[7], graph[8]
    return values.shape[0], up.shape[0], hat.shape[0] * width.sum(), hat.shape[0] * width.shape[0]


@loop
def _place(n, sizes):
    """Where the input z of layer n begins: then come Q of supp(x), S, and p. Of layer 0, only p."""
    nodes, rows, collected, sums = sizes
    return nodes + (n - 1) * (2 * rows + collected + sums) if n else 0


@loop
def _padded(weight, lanes):
    out = np.zeros((weight.shape[0], lanes), weight.dtype)
    out[:, : weight.shape[1]] = weight
    return out


@loop
def _transposed(weight, channels, lanes):
    """Row s D + d has the weights from all channels of part s of Q to channel d."""
    wide, depth = weight.shape
    out = np.zeros((wide // channels * depth, lanes), weight.dtype)
    for w in range(wide):
        for d in range(depth):
            out[w // channels * depth + d, w % channels] = weight[w, d]
    return out


@loop
def _add_mixed(z, first, last, mixing, row, channels, out):
    """out[n] += Σ_c z[n, c] mixing[row + c] from first to last, four nodes at a time."""
    fours = last - (last - first) % 4
    for v in range(0, out.shape[1], LANES):
        for n in range(first, fours, 4):
            a0, a1 = load(out, n, v), load(out, n + 1, v)
            a2, a3 = load(out, n + 2, v), load(out, n + 3, v)
            for c in range(channels):
                w = load(mixing, row + c, v)
                a0 += z[n, c] * w
                a1 += z[n + 1, c] * w
                a2 += z[n + 2, c] * w
                a3 += z[n + 3, c] * w
            store(out, n, v, a0)
            store(out, n + 1, v, a1)
            store(out, n + 2, v, a2)
            store(out, n + 3, v, a3)
        for n in range(fours, last):
            a0 = load(out, n, v)
            for c in range(channels):
                a0 += z[n, c] * load(mixing, row + c, v)
            store(out, n, v, a0)


@loop
def _mix_first(q, mixing, p):
    for v in range(0, p.shape[1], LANES):
        for n in range(p.shape[0]):
            found = splat(p, 0)
            for s in range(q.shape[0]):
                found += q[s, n] * load(mixing, s, v)
            store(p, n, v, found)


@loop
def _mix_first_backward(graph, first, gp, weight, gw, g_hat):
    for v in range(0, gp.shape[1], LANES):
        for s in range(first.shape[0]):
            store(gw, s, v, weighted(first[s], 0, gp.shape[0], gp, v))
    if g_hat.shape[0]:
        _, _, _, start, width, offset, size, values, hat = graph
        z, mixing = values * size, _padded(weight, gp.shape[1])
        g = np.zeros(values.shape[0], gp.dtype)
        for p in range(hat.shape[0]):
            g[:] = 0
            for v in range(0, gp.shape[1], LANES):
                for n in range(g.shape[0]):
                    g[n] += total(load(gp, n, v) * load(mixing, p, v))
            for b in range(width.shape[0]):
                n0, n1, k = start[b], start[b + 1], width[b]
                _, left, right = stored(hat[p], offset[b], k, n1 - n0)
                block, g_left, g_right = stored(g_hat[p], offset[b], k, n1 - n0)
                zb, gb = z[n0:n1], g[n0:n1]
                inner, outer = z.dtype.type(0), z.dtype.type(0)
                for i in range(k):
                    inner += right[i] * zb[i]
                    for j in range(k):
                        block[i, j] += gb[i] * zb[j]
                for j in range(k, n1 - n0):
                    g_left[j] += gb[j] * inner
                    outer += left[j] * gb[j]
                for i in range(k):
                    g_right[i] += outer * zb[i]


@loop
def _measure(p, share, count, moments):
    """Mean and variance of every channel over `count` nodes; those that are not there are 0."""
    count = max(count, 1)
    nodes = p.dtype.type(0)
    for n in range(p.shape[0]):
        nodes += share[n]
    missing = (count - nodes) / count
    for v in range(0, p.shape[1], LANES):
        level = splat(p, 0)
        for first in range(0, p.shape[0], 256):
            level += weighted(share, first, min(first + 256, p.shape[0]), p, v)
        mean = level / count
        spread = splat(p, 0)
        for first in range(0, p.shape[0], 256):
            part = splat(p, 0)
            for n in range(first, min(first + 256, p.shape[0])):
                apart = load(p, n, v) - mean
                part += share[n] * (apart * apart)
            spread += part
        store(moments, 1, v, mean)
        store(moments, 2, v, spread / count + missing * (mean * mean))


@loop
def _follow(moments, momentum, count, running_mean, running_var):
    for d in range(running_mean.shape[0]):
        unbiased = moments[2, d] * count / max(count - 1, 1)
        running_mean[d] += momentum * (moments[1, d] - running_mean[d])
        running_var[d] += momentum * (unbiased - running_var[d])


@loop
def _slope(scale, shift, eps, moments):
    """Slope, base and 1 / deviation of batch normalization, `(3, L)`; fills absent in moments."""
    out = np.zeros((3, moments.shape[1]), moments.dtype)
    for d in range(scale.shape[0]):
        out[2, d] = 1 / np.sqrt(moments[2, d] + eps)
        out[0, d] = scale[d] * out[2, d]
        out[1, d] = shift[d] - moments[1, d] * out[0, d]
        moments[0, d] = out[1, d] / (1 + np.abs(out[1, d]))
    return out


@loop
def _activate(p, slope, absent, up, gather, masks, layer, scaling, z):
    """z = dropout(softsign(slope p + base) - absent), row by row; p is that of twins to gather."""
    one, level = z.dtype.type(1), absent.reshape(1, -1)
    for v in range(0, z.shape[1], LANES):
        rate, base, gone = load(slope, 0, v), load(slope, 1, v), load(level, 0, v)
        for r in range(z.shape[0]):
            u = load(p, up[r] if gather else r, v) * rate + base
            y = u / (one + magnitude(u)) - gone
            if masks.shape[0]:
                y = keep(y * scaling, masks[layer, r, v // LANES])
            store(z, r, v, y)


@loop
def _drop_backward(gz, up, gather, masks, layer, scaling, gp, g_absent):
    """Gradient of the activation from that of z: into gp, added up over twins if they gather."""
    level = g_absent.reshape(1, -1)
    for v in range(0, gz.shape[1], LANES):
        gone = load(level, 0, v)
        for r in range(gz.shape[0]):
            g = load(gz, r, v)
            if masks.shape[0]:
                g = keep(g * scaling, masks[layer, r, v // LANES])
            gone = gone - g
            if gather:
                store(gp, up[r], v, load(gp, up[r], v) + g)
            else:
                store(gp, r, v, g)
        store(level, 0, v, gone)


@loop
def _activate_backward(p, slope, moments, g_absent, share, eps, count, training, gp):
    """In place: from the gradient of softsign(batch_norm(p)) to that of p; also to scale, shift."""
    one = p.dtype.type(1)
    gone = g_absent.reshape(1, -1)
    found = np.zeros((2, p.shape[1]), p.dtype)
    for v in range(0, p.shape[1], LANES):
        rate, base, rstd = load(slope, 0, v), load(slope, 1, v), load(slope, 2, v)
        center = load(moments, 1, v)
        level, tilt = splat(p, 0), splat(p, 0)
        for n in range(p.shape[0]):
            pn = load(p, n, v)
            u = one + magnitude(pn * rate + base)
            g = load(gp, n, v) / (u * u)
            store(gp, n, v, g)
            level += g
            tilt += g * (pn - center)
        flat = one - magnitude(load(moments, 0, v))
        g0 = load(gone, 0, v) * flat * flat
        level += g0
        tilt = (tilt - g0 * center) * rstd
        store(found, 0, v, tilt)
        store(found, 1, v, level)
        if training:
            level, tilt = level / count, tilt * rstd / count
            for n in range(p.shape[0]):
                away = level + tilt * (load(p, n, v) - center)
                store(gp, n, v, rate * (load(gp, n, v) - share[n] * away))
        else:
            for n in range(p.shape[0]):
                store(gp, n, v, rate * load(gp, n, v))
    return found


@loop
def _most(start):
    most = 1
    for b in range(start.shape[0] - 1):
        most = max(most, start[b + 1] - start[b])
    return most


@loop
def _collect(graph, up, share, begin, z, absent, channels, mixing, kept, sizes):
    """Eqs. (6)-(7) of a later layer: Q = Â (z + absent), beside z if it concatenates; p = Q W."""
    _, _, _, start, width, offset, size, values, hat = graph
    planes, items = hat.shape[0], width.shape[0]
    q, sums, p = _kept(kept, planes, sizes)
    own = mixing.shape[0] // channels > planes
    given = np.empty((_most(start), z.shape[1]), z.dtype)
    made, beyond = np.empty_like(given), np.empty((1, z.shape[1]), z.dtype)
    x0 = 0
    for b in range(items):
        n0, n1, k = start[b], start[b + 1], width[b]
        _gather(z, up, share, begin[b], begin[b + 1], n0, n1, size, absent, given)
        made[: n1 - n0] = 0
        for s in range(planes):
            block, left, right = stored(hat[s], offset[b], k, n1 - n0)
            qb = q[s, x0 : x0 + k]
            block_times(block, given[:k], qb)
            for v in range(0, z.shape[1], LANES):
                add_multiples(left, 0, k, weighted(right, k, n1 - n0, given, v), v, qb)
                store(sums[s], b, v, weighted(right, 0, k, given, v))
            _add_mixed(qb, 0, k, mixing, s * channels, channels, made)
            beyond[:] = 0
            _add_mixed(sums[s, b : b + 1], 0, 1, mixing, s * channels, channels, beyond)
            for v in range(0, z.shape[1], LANES):
                add_multiples(left, k, n1 - n0, load(beyond, 0, v), v, made)
        for v in range(0, z.shape[1], LANES):
            for r in range(begin[b], begin[b + 1]):
                store(p, r, v, load(made, up[r] - n0, v))
        if own:
            _add_mixed(z, begin[b], begin[b + 1], mixing, planes * channels, channels, p)
        x0 += k


@loop
def _kept(kept, planes, sizes):
    """Views of what a later layer keeps: Q of supp(x), S and p."""
    _, rows, collected, sums = sizes
    lanes, middle = kept.shape[1], rows + collected
    q = kept[rows:middle].reshape(planes, collected // planes, lanes)
    s = kept[middle : middle + sums].reshape(planes, sums // planes, lanes)
    return q, s, kept[middle + sums :]


@loop
def _gather(z, up, share, first, last, n0, n1, size, absent, out):
    """Σ (z + absent) over the twins of every number from n0 to n1."""
    level = absent.reshape(1, -1)
    for v in range(0, z.shape[1], LANES):
        gone = load(level, 0, v)
        for n in range(n0, n1):
            store(out, n - n0, v, size[n] * gone)
        for r in range(first, last):
            n = up[r] - n0
            store(out, n, v, load(out, n, v) + share[r] * load(z, r, v))


@loop
def _outer(z, g, first, last, gw, row, channels):
    """gw[row + c] += Σ_n z[n, c] g[n] from first to last, four nodes at a time."""
    fours = last - (last - first) % 4
    for v in range(0, g.shape[1], LANES):
        for n in range(first, fours, 4):
            g0, g1, g2, g3 = load(g, n, v), load(g, n + 1, v), load(g, n + 2, v), load(g, n + 3, v)
            for c in range(channels):
                even = z[n, c] * g0 + z[n + 1, c] * g1
                odd = z[n + 2, c] * g2 + z[n + 3, c] * g3
                store(gw, row + c, v, load(gw, row + c, v) + (even + odd))
        for n in range(fours, last):
            gn = load(g, n, v)
            for c in range(channels):
                store(gw, row + c, v, load(gw, row + c, v) + z[n, c] * gn)


@loop
def _collect_backward(graph, up, share, begin, absent, channels, weight, kept, sizes, gp, gw, gz,
                      g_absent, g_hat):  # fmt: skip
    """Gradients of `_collect` to the weight, to z, to absent, and to hat if it is wanted."""
    _, _, _, start, width, offset, size, values, hat = graph
    planes, lanes, depth = hat.shape[0], gp.shape[1], weight.shape[1]
    q, sums, _ = _kept(kept, planes, sizes)
    z, own = kept[: up.shape[0]], weight.shape[0] // channels > planes
    back = _transposed(weight, channels, lanes)
    g_made = np.empty((_most(start), lanes), gp.dtype)
    g_given, gq, given = np.empty_like(g_made), np.empty_like(g_made), np.empty_like(g_made)
    g_sum, g_mixed = np.empty((1, lanes), gp.dtype), np.empty((1, lanes), gp.dtype)
    gone = g_absent.reshape(1, -1)
    x0 = 0
    for b in range(width.shape[0]):
        n0, n1, k, r0, r1 = start[b], start[b + 1], width[b], begin[b], begin[b + 1]
        nodes = n1 - n0
        g_made[:nodes] = 0
        for v in range(0, lanes, LANES):
            for r in range(r0, r1):
                n = up[r] - n0
                store(g_made, n, v, load(g_made, n, v) + load(gp, r, v))
        g_given[:nodes] = 0
        if g_hat.shape[0]:
            _gather(z, up, share, r0, r1, n0, n1, size, absent, given)
        for s in range(planes):
            block, left, right = stored(hat[s], offset[b], k, nodes)
            for v in range(0, lanes, LANES):
                store(g_mixed, 0, v, weighted(left, k, nodes, g_made, v))
            g_sum[:] = 0
            gq[:nodes] = 0
            _add_mixed(g_mixed, 0, 1, back, s * depth, depth, g_sum)
            last = nodes if g_hat.shape[0] else k
            _add_mixed(g_made, 0, last, back, s * depth, depth, gq)
            _outer(q[s, x0 : x0 + k], g_made, 0, k, gw, s * channels, channels)
            _outer(sums[s, b : b + 1], g_mixed, 0, 1, gw, s * channels, channels)
            if g_hat.shape[0]:
                _hat_backward(
                    hat[s], g_hat[s], offset[b], k, nodes, given, sums[s], b, gq, g_sum
                )
            _adjoint(block, left, right, k, nodes, gq, g_sum, g_given)
        for v in range(0, lanes, LANES):
            level = load(gone, 0, v)
            for n in range(n0, n1):
                level += size[n] * load(g_given, n - n0, v)
            store(gone, 0, v, level)
            for r in range(r0, r1):
                store(gz, r, v, share[r] * load(g_given, up[r] - n0, v))
        if own:
            _add_mixed(gp, r0, r1, back, planes * depth, depth, gz)
            _outer(z, gp, r0, r1, gw, planes * channels, channels)
        x0 += k


@loop
def _adjoint(block, left, right, k, nodes, gq, g_sum, out):
    """Add Âᵀ of the gradient of Q: gq on supp(x), and that of S, which stands for the rest."""
    back = np.empty((k, gq.shape[1]), gq.dtype)
    block_times(block.T, gq, back)
    for v in range(0, gq.shape[1], LANES):
        for i in range(k):
            store(out, i, v, load(out, i, v) + load(back, i, v))
        add_multiples(right, 0, k, load(g_sum, 0, v), v, out)
        add_multiples(right, k, nodes, weighted(left, 0, k, gq, v), v, out)


@loop
def _hat_backward(hat, g_hat, begin, k, nodes, given, sums, b, gq, g_sum):
    """Add the gradient to what is stored of Â."""
    _, left, right = stored(hat, begin, k, nodes)
    block, g_left, g_right = stored(g_hat, begin, k, nodes)
    for v in range(0, gq.shape[1], LANES):
        inner, outer = load(g_sum, 0, v), weighted(left, 0, k, gq, v)
        beyond = weighted(right, k, nodes, given, v)
        for i in range(k):
            gi = load(gq, i, v)
            for j in range(k):
                block[i, j] += total(gi * load(given, j, v))
            g_left[i] += total(gi * beyond)
            g_right[i] += total(load(given, i, v) * inner)
        for j in range(k, nodes):
            g_left[j] += total(load(gq, j, v) * load(sums, b, v))
            g_right[j] += total(load(given, j, v) * outer)


@loop
def masks(seed, rate, layers, nodes, lanes):
    """One bit for every channel of every node after every layer, 0 for a share of them.

    `(layers, nodes, lanes / 16)`. A node's number is hashed to 32 bits for two channels.
    """
    words = lanes // LANES
    rows = layers * nodes * words
    noise = np.empty(rows * LANES // 2, np.uint32)
    z = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    low, high = np.uint32(z >> np.uint64(32)), np.uint32(z)
    for i in range(noise.shape[0]):  # sums of 32 bits have 64 for numba
        n = np.uint32(np.uint32(i) + low)
        n = np.uint32((n ^ (n >> np.uint32(16))) * np.uint32(0x7FEB352D) + high)
        n = np.uint32((n ^ (n >> np.uint32(15))) * np.uint32(0x846CA68B))
        noise[i] = np.uint32(n ^ (n >> np.uint32(16)))
    halves, limit = noise.view(np.uint16).reshape(rows, LANES), np.uint16(min(round(rate * 2**16), 2**16 - 1))
    out = np.empty(rows, np.uint16)
    for r in range(rows):
        out[r] = bits_from(halves, r, limit)
    return out.reshape(layers, nodes, words)

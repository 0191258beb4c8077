"""A whole stack of broadcast layers on the support, classifier included, as one operator.

Batch normalization needs only sums over the support, since all else is zero; after the
activation, the nodes off the support share one constant per channel. So logits, batch
statistics and all gradients take time that depends on the nonzeros and not on F. The layers in
`evergraph.layers` compute the same in plain torch, one operation after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from evergraph.feature_graph.kernels import JIT, adjoint, pair_gradient, product
from evergraph.feature_graph.support import SupportGraph


@dataclass(frozen=True)
class Block:
    """What one layer needs beyond its parameters.

    Attributes:
        running_mean, running_var: `(D,)`, updated in place in training.
        momentum, eps: of the batch normalization.
        dropout: rate, or 0.
    """

    running_mean: Tensor
    running_var: Tensor
    momentum: float
    eps: float
    dropout: float


@dataclass(frozen=True)
class Network:
    """What the whole stack needs beyond its parameters.

    Attributes:
        blocks: one per layer.
        training: use and follow the statistics of the batch; drop nodes.
        centered, sparse_gradient: of the classifier, see `evergraph.layers.Readout`.
    """

    blocks: tuple[Block, ...]
    training: bool
    centered: bool
    sparse_gradient: bool


@torch.compiler.disable  # type: ignore[untyped-decorator]
def broadcast_network(
    network: Network, graph: SupportGraph, readout: tuple[Tensor, Tensor], *parameters: Tensor
) -> Tensor:
    """Logits `(B, K)` of a batch.

    Args:
        network: settings and running statistics.
        graph: on the support; its adjacency may want a gradient.
        readout: weight `(F, C, K)` and bias `(K,)` of the classifier.
        parameters: weight `(P * C, D)`, scale `(D,)` and shift `(D,)` of every layer in turn.
    """
    out: Tensor = _BroadcastNetwork.apply(network, graph, graph.hat, *readout, *parameters)
    return out


class _BroadcastNetwork(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        network: Network,
        graph: SupportGraph,
        hat: Tensor,
        readout: Tensor,
        bias: Tensor,
        *parameters: Tensor,
    ) -> Tensor:
        support = graph.support
        where = [t.detach().numpy() for t in (hat, *graph.layout)]
        z, kept = graph.nodes.numpy(), []
        for i, block in enumerate(network.blocks):
            weight, scale, shift = (t.detach().numpy() for t in parameters[3 * i : 3 * i + 3])
            mask = _mask(block, network.training, (weight.shape[1], z.shape[1]), hat.dtype)
            statistics = block.running_mean.numpy(), block.running_var.numpy()
            settings = block.momentum, block.eps, support.num_nodes, network.training
            out = _forward(*where, z, weight, scale, shift, *statistics, *settings, mask)
            kept.append((z, weight, scale, mask, *out))
            z, absent = out[:2]
        last = (z, absent, support.feature.numpy(), where[1], readout.detach().numpy())
        logits, column = _readout(*last, bias.detach().numpy(), network.centered)
        ctx.network, ctx.num_nodes, ctx.where = network, support.num_nodes, where
        ctx.kept, ctx.last = kept, (*last, column)
        ctx.save_for_backward(hat, readout, bias, *parameters)
        return torch.from_numpy(logits)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        hat, readout, *_ = ctx.saved_tensors  # raises if a parameter was changed in between
        network: Network = ctx.network
        g = grads[0].contiguous().numpy()
        gz, g_absent, g_readout, g_bias = _readout_backward(
            *ctx.last, g, network.centered, network.sparse_gradient
        )
        wanted = ctx.needs_input_grad[2]
        g_hat = np.zeros(hat.shape if wanted else (0, 0), g.dtype)
        g_parameters: list[Tensor] = []
        for i in reversed(range(len(network.blocks))):
            settings = network.blocks[i].eps, ctx.num_nodes, network.training
            gz, *rest = _backward(*ctx.where, *ctx.kept[i], *settings, gz, g_absent, g_hat, i == 0)
            g_absent = np.zeros(len(gz), g.dtype)  # between layers nobody reads absent nodes
            g_parameters[:0] = [torch.from_numpy(part) for part in rest]
        g_weight = torch.from_numpy(g_readout)
        if network.sparse_gradient:
            index = torch.from_numpy(ctx.last[2]).unsqueeze(0)
            g_weight = torch.sparse_coo_tensor(
                index, g_weight, readout.shape, check_invariants=False
            )
        g_adjacency = torch.from_numpy(g_hat) if wanted else None
        return None, None, g_adjacency, g_weight, torch.from_numpy(g_bias), *g_parameters


def _mask(block: Block, training: bool, shape: tuple[int, int], dtype: torch.dtype) -> Any:
    """Which nodes stay, scaled so that the mean stays too; empty if all do."""
    if not training or block.dropout == 0:
        return np.empty((0, 0), np.float64 if dtype == torch.float64 else np.float32)
    keep = 1 - block.dropout
    return torch.empty(shape, dtype=dtype).bernoulli_(keep).div_(keep).numpy()


# In the loops below every number has the type of the arrays: one double among floats would halve
# the speed.


@njit(**JIT)
def _forward(
    hat, ptr, width, offset, z, weight, scale, shift, running_mean, running_var, momentum, eps,
    count, training, mask,
):  # fmt: skip
    """One block: y `(D, N)`, absent `(D,)`, q = Â z, p = q W, and the statistics used."""
    number = z.dtype.type
    one = number(1)
    nodes, channels = z.shape[1], weight.shape[1]
    planes = np.zeros((hat.shape[0], z.shape[0], nodes), z.dtype)
    product(hat, ptr, width, offset, z, planes)
    q = planes.reshape(-1, nodes)
    p = np.zeros((channels, nodes), z.dtype)
    y = np.empty_like(p)
    absent, mean, var = np.empty_like(shift), np.empty_like(shift), np.empty_like(shift)
    for d in range(channels):
        pd, yd = p[d], y[d]
        for c in range(q.shape[0]):
            w, qc = weight[c, d], q[c]
            for i in range(nodes):
                pd[i] += w * qc[i]
        mean[d], var[d] = running_mean[d], running_var[d]
        if training:
            mean[d], var[d] = _moments(pd, count)
            unbiased = var[d] * count / max(count - 1, 1)
            running_mean[d] += momentum * (mean[d] - running_mean[d])
            running_var[d] += momentum * (unbiased - running_var[d])
        slope = number(scale[d] / np.sqrt(var[d] + eps))
        base = shift[d] - mean[d] * slope
        gone = base / (one + abs(base))
        absent[d] = gone
        for i in range(nodes):
            u = pd[i] * slope + base
            yd[i] = u / (one + abs(u))
        if mask.shape[0]:
            keep = mask[d]
            for i in range(nodes):
                yd[i] = gone + keep[i] * (yd[i] - gone)
    return y, absent, q, p, mean, var


@njit(**JIT)
def _moments(p, count):
    """Mean and variance over `count` nodes, of which all but the stored ones are zero."""
    number = p.dtype.type
    total = number(0)
    for i in range(p.shape[0]):
        total += p[i]
    mean = number(total / count)
    square = number(0)
    for i in range(p.shape[0]):
        square += (p[i] - mean) * (p[i] - mean)
    return mean, number((square + (count - p.shape[0]) * mean * mean) / count)


@njit(**JIT)
def _backward(
    hat, ptr, width, offset, z, weight, scale, mask, y, absent, q, p, mean, var, eps, count,
    training, gy, g_absent, g_hat, first,
):  # fmt: skip
    """Gradients of `_forward` to z (not of the first layer), weight, scale and shift."""
    number = z.dtype.type
    one = number(1)
    nodes, channels = z.shape[1], weight.shape[1]
    gw, g_scale, g_shift = np.empty_like(weight), np.empty_like(scale), np.empty_like(scale)
    planes = np.zeros((hat.shape[0], z.shape[0], nodes), z.dtype)
    gq = planes.reshape(-1, nodes)
    gp = np.empty(nodes, z.dtype)
    for d in range(channels):
        pd, gyd, center = p[d], gy[d], mean[d]
        rstd = number(1 / np.sqrt(var[d] + eps))
        slope = scale[d] * rstd
        base = absent[d] / (one - abs(absent[d]))  # softsign backwards
        g0 = g_absent[d]
        if mask.shape[0]:
            keep = mask[d]
            for i in range(nodes):
                g0 += gyd[i] * (one - keep[i])
                gp[i] = gyd[i] * keep[i]
        else:
            for i in range(nodes):
                gp[i] = gyd[i]
        total, along = number(0), number(0)
        for i in range(nodes):
            u = one + abs(pd[i] * slope + base)
            g = gp[i] / (u * u)
            gp[i] = g
            total += g
            along += g * (pd[i] - center)
        g0 *= (one - abs(absent[d])) * (one - abs(absent[d]))
        g_shift[d] = total + g0
        g_scale[d] = (along - g0 * center) * rstd
        if training:
            level, tilt = number(g_shift[d] / count), number(g_scale[d] * rstd / count)
            for i in range(nodes):
                gp[i] = slope * (gp[i] - level - tilt * (pd[i] - center))
        else:
            for i in range(nodes):
                gp[i] *= slope
        for c in range(q.shape[0]):
            w, qc, gqc = weight[c, d], q[c], gq[c]
            inner = number(0)
            for i in range(nodes):
                gqc[i] += w * gp[i]
                inner += qc[i] * gp[i]
            gw[c, d] = inner
    gz = np.zeros_like(z)
    if not first:
        adjoint(hat, ptr, width, offset, planes, gz)
    if g_hat.shape[0]:
        pair_gradient(ptr, width, offset, planes, z, g_hat)
    return gz, gw, g_scale, g_shift


@njit(**JIT)
def _readout(y, absent, feature, ptr, weight, bias, centered):
    """Σ_i Σ_c (y[c, i] - absent[c]) weight[feature[i], c] + bias for every item: `(B, K)`.

    If not centered, absent · Σ_f weight[f] comes back; the sums are returned too.
    """
    channels, outputs = weight.shape[1], weight.shape[2]
    column = np.zeros((channels, outputs), y.dtype)
    if not centered:
        flat = column.reshape(-1)
        rows = weight.reshape(weight.shape[0], -1)
        for f in range(rows.shape[0]):
            row = rows[f]
            for j in range(row.shape[0]):
                flat[j] += row[j]
    level = bias.copy()
    for c in range(channels):
        for k in range(outputs):
            level[k] += absent[c] * column[c, k]
    out = np.empty((ptr.shape[0] - 1, outputs), y.dtype)
    for b in range(ptr.shape[0] - 1):
        logit = out[b]
        logit[:] = level
        for i in range(ptr[b], ptr[b + 1]):
            rows = weight[feature[i]]
            for c in range(channels):
                v, row = y[c, i] - absent[c], rows[c]
                for k in range(outputs):
                    logit[k] += v * row[k]
    return out, column


@njit(**JIT)
def _readout_backward(y, absent, feature, ptr, weight, column, g, centered, sparse):
    """Gradients of `_readout` to y, absent, weight (or only its rows in use, if sparse), bias."""
    channels, outputs = weight.shape[1], weight.shape[2]
    gy, g_absent, g_bias = np.empty_like(y), np.zeros_like(absent), np.zeros(outputs, y.dtype)
    shape = (feature.shape[0] if sparse else weight.shape[0], channels, outputs)
    for b in range(g.shape[0]):
        for k in range(outputs):
            g_bias[k] += g[b, k]
    common = np.zeros((channels, outputs), y.dtype)  # what every row of weight receives
    if not centered:
        for c in range(channels):
            for k in range(outputs):
                common[c, k] = absent[c] * g_bias[k]
                g_absent[c] += column[c, k] * g_bias[k]
    gw = np.empty(shape, y.dtype)
    flat, rows_of = common.reshape(-1), gw.reshape(shape[0], -1)
    for f in range(shape[0]):
        row = rows_of[f]
        for j in range(flat.shape[0]):
            row[j] = flat[j]
    for b in range(ptr.shape[0] - 1):
        gb = g[b]
        for i in range(ptr[b], ptr[b + 1]):
            rows, into = weight[feature[i]], gw[i if sparse else feature[i]]
            for c in range(channels):
                v, row, target = y[c, i] - absent[c], rows[c], into[c]
                total = y.dtype.type(0)
                for k in range(outputs):
                    total += gb[k] * row[k]
                    target[k] += v * gb[k]
                gy[c, i] = total
    for c in range(channels):
        total = y.dtype.type(0)
        for i in range(gy.shape[1]):
            total += gy[c, i]
        g_absent[c] -= total
    return gy, g_absent, gw, g_bias

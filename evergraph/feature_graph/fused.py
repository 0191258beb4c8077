"""A whole stack of broadcast layers on the support, classifier included, as one operator.

The classifier takes the value of absent nodes times its column sums, or measures from it. So
logits, batch statistics and all gradients take time that depends on the nonzeros and not on F.
The layers in `evergraph.layers` compute the same, one operation after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from evergraph.feature_graph.activation import (
    Statistics,
    activate,
    activate_backward,
    mix,
    mix_backward,
)
from evergraph.feature_graph.kernels import JIT, adjoint, pair_gradient, product
from evergraph.feature_graph.support import SupportGraph

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Network:
    """What the whole stack needs beyond its parameters.

    Attributes:
        statistics: of the batch normalization of each layer.
        dropout: rate after each layer; 0 if not training.
        centered, sparse_gradient: of the classifier, see `evergraph.layers.Readout`.
    """

    statistics: tuple[Statistics, ...]
    dropout: tuple[float, ...]
    centered: bool
    sparse_gradient: bool


@torch.compiler.disable
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
        absent = np.zeros(len(z), z.dtype)
        for i, (s, rate) in enumerate(zip(network.statistics, network.dropout, strict=True)):
            weight, scale, shift = (t.detach().numpy() for t in parameters[3 * i : 3 * i + 3])
            q, p = _linear(*where, z, absent, weight)
            linear = (z, absent, weight, q)
            running = s.running_mean.numpy(), s.running_var.numpy()
            settings = s.momentum, s.eps, s.count, s.training
            y, absent, mean, var = activate(p, scale, shift, *running, *settings)
            mask = _drop(y, absent, rate)
            kept.append((linear, (p, scale, absent, mean, var), mask))
            z = y[0]
        last = (z, absent, support.feature.numpy(), where[1], readout.detach().numpy())
        logits, column = _readout(*last, bias.detach().numpy(), network.centered)
        ctx.network, ctx.where, ctx.kept, ctx.last = network, where, kept, (*last, column)
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
        for i in reversed(range(len(ctx.kept))):
            linear, normed, mask = ctx.kept[i]
            s = network.statistics[i]
            gz, g_absent = _drop_backward(gz, g_absent, mask)
            gp, g_scale, g_shift = activate_backward(
                *normed, s.eps, s.count, s.training, gz[None], g_absent
            )
            gz, g_absent, gw = _linear_backward(*ctx.where, *linear, gp, g_hat, i == 0)
            g_parameters[:0] = [torch.from_numpy(part) for part in (gw, g_scale, g_shift)]
        g_weight = torch.from_numpy(g_readout)
        if network.sparse_gradient:
            index = torch.from_numpy(ctx.last[2]).unsqueeze(0)
            g_weight = torch.sparse_coo_tensor(
                index, g_weight, readout.shape, check_invariants=False
            )
        g_adjacency = torch.from_numpy(g_hat) if wanted else None
        return None, None, g_adjacency, g_weight, torch.from_numpy(g_bias), *g_parameters


def _drop(y: Array, absent: Array, rate: float) -> Array | None:
    """Make a share of the nodes absent, in place; returns the scale of each, or None."""
    if rate == 0:
        return None
    mask: Array = torch.empty(y[0].shape).bernoulli_(1 - rate).numpy().astype(y.dtype)
    mask /= 1 - rate
    base = absent[:, None]
    y[0] = base + mask * (y[0] - base)
    return mask


def _drop_backward(gy: Array, g_absent: Array, mask: Array | None) -> tuple[Array, Array]:
    if mask is None:
        return gy, g_absent
    return gy * mask, g_absent + (gy * (1 - mask)).sum(1)


@njit(**JIT)
def _linear(hat, ptr, width, offset, z, before, weight):
    """Q = Â z and p = q W, the linear part of Eq. (7): `(1, P * C, N)` and `(1, D, N)`.

    If W has C rows more, q is [Â z, z - before], where before is the value of absent nodes.
    """
    channels, nodes = z.shape
    mixed = hat.shape[0] * channels
    q = np.zeros((1, weight.shape[0], nodes), z.dtype)
    planes = q[0, :mixed].reshape(hat.shape[0], channels, nodes)
    product(hat, ptr, width, offset, z, planes)
    if weight.shape[0] > mixed:
        for c in range(channels):
            q[0, mixed + c] = z[c] - before[c]
    return q, mix(q, weight)


@njit(**JIT)
def _linear_backward(hat, ptr, width, offset, z, before, weight, q, gp, g_hat, first):
    """Gradients of `_linear` to z and before (not of the first layer), weight, g_hat if wanted."""
    gq, gw = mix_backward(q, weight, gp)
    channels, nodes = z.shape
    mixed = hat.shape[0] * channels
    planes = gq[0, :mixed].reshape(hat.shape[0], channels, nodes)
    gz, g_before = np.zeros_like(z), np.zeros_like(before)
    if not first:
        adjoint(hat, ptr, width, offset, planes, gz)
        for c in range(weight.shape[0] - mixed):
            gz[c] += gq[0, mixed + c]
            g_before[c] -= gq[0, mixed + c].sum()
    if g_hat.shape[0]:
        pair_gradient(ptr, width, offset, planes, z, g_hat)
    return gz, g_before, gw


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

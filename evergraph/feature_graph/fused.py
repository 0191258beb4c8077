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
        num_nodes: B · F.
        training: use and follow the statistics of the batch; drop nodes.
        sparse_gradient: give the classifier's weight a sparse gradient.
    """

    blocks: tuple[Block, ...]
    num_nodes: int
    training: bool
    sparse_gradient: bool


@torch.compiler.disable
def broadcast_network(
    network: Network,
    layout: tuple[Tensor, Tensor, Tensor, Tensor],
    nodes: Tensor,
    hat: Tensor,
    parameters: list[Tensor],
    readout: Tensor,
) -> tuple[Tensor, Tensor]:
    """Σ_f W_f (y_f - absent) for y after all layers, and the absent value of the last layer.

    Args:
        network: settings and running statistics.
        layout: ptr, width, offset and feature of the support.
        nodes: x on the support, `(1, N)`.
        hat: stored entries of Â, `(P, E)`; may want a gradient.
        parameters: weight `(P * C, D)`, scale `(D,)` and shift `(D,)` of every layer in turn.
        readout: `(F, C, K)`.

    Returns:
        Logits without bias, `(B, K)`, and absent, `(C,)`.
    """
    out: tuple[Tensor, Tensor] = _BroadcastNetwork.apply(
        network, layout, nodes, hat, readout, *parameters
    )
    return out


class _BroadcastNetwork(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        network: Network,
        layout: tuple[Tensor, Tensor, Tensor, Tensor],
        nodes: Tensor,
        hat: Tensor,
        readout: Tensor,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor]:
        ptr, width, offset, feature = (t.numpy() for t in layout)
        where = (hat.detach().numpy(), ptr, width, offset)
        z, kept = nodes.numpy(), []
        for i, block in enumerate(network.blocks):
            weight, scale, shift = (t.detach().numpy() for t in parameters[3 * i : 3 * i + 3])
            mask = _mask(block, network.training, (weight.shape[1], z.shape[1]), nodes.dtype)
            statistics = block.running_mean.numpy(), block.running_var.numpy()
            settings = block.momentum, block.eps, network.num_nodes, network.training
            out = _forward(*where, z, weight, scale, shift, *statistics, *settings, mask)
            kept.append((z, weight, scale, mask, *out))
            z, absent = out[0], out[1]
        logits = _readout(z, absent, feature, ptr, readout.detach().numpy())
        ctx.network, ctx.where, ctx.feature, ctx.kept = network, where, feature, kept
        ctx.save_for_backward(hat, readout, *parameters)
        return torch.from_numpy(logits), torch.from_numpy(absent)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        hat, readout, *_ = ctx.saved_tensors  # raises if a parameter was changed in between
        network: Network = ctx.network
        g_logits, g_absent = (g.contiguous().numpy() for g in grads)
        z, absent = ctx.kept[-1][4], ctx.kept[-1][5]
        sparse, shape = network.sparse_gradient, readout.shape
        g_readout = np.zeros((len(ctx.feature) if sparse else shape[0], *shape[1:]), z.dtype)
        gz, g_absent = _readout_backward(
            z, absent, ctx.feature, ctx.where[1], readout.detach().numpy(), g_logits,
            g_absent, sparse, g_readout,
        )  # fmt: skip
        wanted = ctx.needs_input_grad[3]
        g_hat = np.zeros(hat.shape if wanted else (0, 0), z.dtype)
        g_parameters: list[Tensor] = []
        for block, saved in zip(reversed(network.blocks), reversed(ctx.kept), strict=True):
            settings = block.eps, network.num_nodes, network.training
            first = len(g_parameters) + 3 == 3 * len(network.blocks)
            gz, *rest = _backward(*ctx.where, *saved, *settings, gz, g_absent, g_hat, first)
            g_absent = np.zeros(len(gz), z.dtype)
            g_parameters[:0] = [torch.from_numpy(g) for g in rest]
        g_weight = torch.from_numpy(g_readout)
        if sparse:
            index = torch.from_numpy(ctx.feature).unsqueeze(0)
            g_weight = torch.sparse_coo_tensor(index, g_weight, shape, check_invariants=False)
        return (
            None,
            None,
            None,
            torch.from_numpy(g_hat) if wanted else None,
            g_weight,
            *g_parameters,
        )


def _mask(block: Block, training: bool, shape: tuple[int, int], dtype: torch.dtype) -> Any:
    """Which nodes stay, scaled so that the mean stays too; empty if all do."""
    if not training or block.dropout == 0:
        return np.empty((0, 0), np.float64 if dtype == torch.float64 else np.float32)
    keep = 1 - block.dropout
    return torch.empty(shape, dtype=dtype).bernoulli_(keep).div_(keep).numpy()


@njit(**JIT)
def _forward(
    hat, ptr, width, offset, z, weight, scale, shift, running_mean, running_var, momentum, eps,
    count, training, mask,
):  # type: ignore[no-untyped-def]  # fmt: skip
    """One block: y `(D, N)`, absent `(D,)`, q = Â z, p = q W, and the statistics used."""
    nodes, channels = z.shape[1], weight.shape[1]
    planes = np.zeros((hat.shape[0], z.shape[0], nodes), z.dtype)
    product(hat, ptr, width, offset, z, planes)
    q = planes.reshape(-1, nodes)
    p = np.zeros((channels, nodes), z.dtype)
    y = np.empty_like(p)
    absent, mean, var = np.empty_like(shift), np.empty_like(shift), np.empty_like(shift)
    for d in range(channels):
        for c in range(q.shape[0]):
            w = weight[c, d]
            for i in range(nodes):
                p[d, i] += w * q[c, i]
        mean[d], var[d] = running_mean[d], running_var[d]
        if training:
            mean[d], var[d] = _moments(p[d], count)
            running_mean[d] += momentum * (mean[d] - running_mean[d])
            running_var[d] += momentum * (var[d] * count / max(count - 1, 1) - running_var[d])
        slope = scale[d] / np.sqrt(var[d] + eps)
        base = shift[d] - mean[d] * slope
        absent[d] = base / (1 + np.abs(base))
        for i in range(nodes):
            u = p[d, i] * slope + base
            y[d, i] = u / (1 + np.abs(u))
        if mask.shape[0]:
            for i in range(nodes):
                y[d, i] = absent[d] + mask[d, i] * (y[d, i] - absent[d])
    return y, absent, q, p, mean, var


@njit(**JIT)
def _moments(p, count):  # type: ignore[no-untyped-def]
    """Mean and variance over `count` nodes, of which all but the stored ones are zero."""
    total = p.dtype.type(0)
    for i in range(p.shape[0]):
        total += p[i]
    mean = total / count
    square = p.dtype.type(0)
    for i in range(p.shape[0]):
        square += (p[i] - mean) * (p[i] - mean)
    return mean, (square + (count - p.shape[0]) * mean * mean) / count


@njit(**JIT)
def _backward(
    hat, ptr, width, offset, z, weight, scale, mask, y, absent, q, p, mean, var, eps, count,
    training, gy, g_absent, g_hat, first,
):  # type: ignore[no-untyped-def]  # fmt: skip
    """Gradients of `_forward` to z (not of the first layer), weight, scale and shift."""
    nodes, channels = z.shape[1], weight.shape[1]
    gw, g_scale, g_shift = np.empty_like(weight), np.empty_like(scale), np.empty_like(scale)
    planes = np.zeros((hat.shape[0], z.shape[0], nodes), z.dtype)
    gq = planes.reshape(-1, nodes)
    gp = np.empty(nodes, z.dtype)
    for d in range(channels):
        rstd = 1 / np.sqrt(var[d] + eps)
        slope = scale[d] * rstd
        base = _inverse_softsign(absent[d])
        g0 = g_absent[d]
        total = z.dtype.type(0)
        along = z.dtype.type(0)
        for i in range(nodes):
            g = gy[d, i]
            if mask.shape[0]:
                g0 += g * (1 - mask[d, i])
                g *= mask[d, i]
            u = 1 + np.abs(p[d, i] * slope + base)
            g /= u * u
            gp[i] = g
            total += g
            along += g * (p[d, i] - mean[d])
        g0 *= (1 - np.abs(absent[d])) ** 2
        g_shift[d] = total + g0
        g_scale[d] = (along - g0 * mean[d]) * rstd
        if training:
            for i in range(nodes):
                unit = (p[d, i] - mean[d]) * rstd
                gp[i] = slope * (gp[i] - (g_shift[d] + unit * g_scale[d]) / count)
        else:
            for i in range(nodes):
                gp[i] *= slope
        for c in range(q.shape[0]):
            w = weight[c, d]
            inner = z.dtype.type(0)
            for i in range(nodes):
                gq[c, i] += w * gp[i]
                inner += q[c, i] * gp[i]
            gw[c, d] = inner
    gz = np.zeros_like(z)
    if not first:
        adjoint(hat, ptr, width, offset, planes, gz)
    if g_hat.shape[0]:
        pair_gradient(ptr, width, offset, planes, z, g_hat)
    return gz, gw, g_scale, g_shift


@njit(**JIT)
def _inverse_softsign(absent):  # type: ignore[no-untyped-def]
    """The u with softsign(u) = absent."""
    return absent / (1 - np.abs(absent))


@njit(**JIT)
def _readout(y, absent, feature, ptr, weight):  # type: ignore[no-untyped-def]
    """Σ_i Σ_c (y[c, i] - absent[c]) weight[feature[i], c] for every item: `(B, K)`."""
    out = np.zeros((ptr.shape[0] - 1, weight.shape[2]), y.dtype)
    for b in range(ptr.shape[0] - 1):
        for i in range(ptr[b], ptr[b + 1]):
            rows = weight[feature[i]]
            for c in range(y.shape[0]):
                value = y[c, i] - absent[c]
                for k in range(out.shape[1]):
                    out[b, k] += value * rows[c, k]
    return out


@njit(**JIT)
def _readout_backward(y, absent, feature, ptr, weight, g, g_absent, sparse, gw):  # type: ignore[no-untyped-def]
    """Gradients of `_readout` to y and absent (added to g_absent), and to weight, into gw."""
    gy = np.empty_like(y)
    g_absent = g_absent.copy()
    for b in range(ptr.shape[0] - 1):
        for i in range(ptr[b], ptr[b + 1]):
            rows, into = weight[feature[i]], gw[i if sparse else feature[i]]
            for c in range(y.shape[0]):
                value = y[c, i] - absent[c]
                total = y.dtype.type(0)
                for k in range(g.shape[1]):
                    total += g[b, k] * rows[c, k]
                    into[c, k] += value * g[b, k]
                gy[c, i] = total
                g_absent[c] -= total
    return gy, g_absent

"""softsign(batch_norm(z W)) in one go, counting the nodes that are not there.

Batch normalization needs only sums over the present nodes, since all others are zero; after the
activation, those others share one constant per channel, called *absent*.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from evergraph.feature_graph.compiled.support import JIT


@dataclass(frozen=True)
class Statistics:
    """What batch normalization needs beyond its parameters.

    Attributes:
        running_mean, running_var: `(D,)`, updated in place in training.
        momentum, eps: as in torch.
        count: all nodes of the batch, present or not.
        training: use and follow the statistics of the batch.
    """

    running_mean: Tensor
    running_var: Tensor
    momentum: float
    eps: float
    count: int
    training: bool


@torch.compiler.disable
def norm_softsign(
    z: Tensor, weight: Tensor | None, scale: Tensor, shift: Tensor, statistics: Statistics
) -> tuple[Tensor, Tensor]:
    """Normalize and activate z `(*, D, F)`; also returns absent, `(D,)`.

    With a weight `(C, D)`, the channels of z `(*, C, F)` are mixed before, as in Eq. (7).
    """
    out: tuple[Tensor, Tensor] = _NormSoftsign.apply(statistics, z, weight, scale, shift)
    return out


class _NormSoftsign(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        statistics: Statistics,
        z: Tensor,
        weight: Tensor | None,
        scale: Tensor,
        shift: Tensor,
    ) -> tuple[Tensor, Tensor]:
        q = z.detach().contiguous().numpy().reshape(-1, *z.shape[-2:])
        p = q
        if weight is not None:
            p = np.empty((len(q), weight.shape[1], q.shape[2]), q.dtype)
            mix(q, weight.detach().numpy(), p)
        s = statistics
        parameters = scale.detach().numpy(), shift.detach().numpy()
        running = s.running_mean.numpy(), s.running_var.numpy()
        settings = s.momentum, s.eps, s.count, s.training
        y, moments = np.empty_like(p), np.empty((3, p.shape[1]), p.dtype)
        activate(p, *parameters, *running, *settings, y, moments)
        ctx.statistics, ctx.kept = s, (q, p, moments)
        ctx.save_for_backward(z, scale, shift, *(() if weight is None else (weight,)))
        out = torch.from_numpy(y).view(*z.shape[:-2], *y.shape[1:])
        return out, torch.from_numpy(moments[0])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        z, scale, _, *weight = ctx.saved_tensors  # raises if one was changed in between
        s, (q, p, moments) = ctx.statistics, ctx.kept
        gy, g_absent = (g.contiguous().numpy() for g in grads)
        gy, factor = gy.reshape(p.shape), scale.detach().numpy()
        gp, g_scale, g_shift = np.empty_like(p), np.empty_like(factor), np.empty_like(factor)
        given = p, factor, moments, s.eps, s.count, s.training, gy, g_absent
        activate_backward(*given, gp, g_scale, g_shift)
        g_parameters = torch.from_numpy(g_scale), torch.from_numpy(g_shift)
        if not weight:
            return None, torch.from_numpy(gp).view(z.shape), None, *g_parameters
        gq, gw = z.new_empty(z.shape), torch.zeros_like(weight[0])
        mix_backward(q, weight[0].detach().numpy(), gp, gq.numpy().reshape(q.shape), gw.numpy())
        return None, gq, gw, *g_parameters


# In the loops below every number has the type of the arrays: one double among floats would halve
# the speed. They fill what they are given; `moments` has three rows of D: absent, mean, variance.


@njit(**JIT)
def activate(
    p, scale, shift, running_mean, running_var, momentum, eps, count, training,
    y, moments,
):  # fmt: skip
    """From p `(B, D, n)`: y `(B, D, n)` and moments `(3, D)`."""
    number = p.dtype.type
    one = number(1)
    for d in range(p.shape[1]):
        mean, var = running_mean[d], running_var[d]
        if training:
            mean, var = _moments(p, d, count)
            unbiased = var * count / max(count - 1, 1)
            running_mean[d] += momentum * (mean - running_mean[d])
            running_var[d] += momentum * (unbiased - running_var[d])
        slope = number(scale[d] / np.sqrt(var + eps))
        base = number(shift[d] - mean * slope)
        moments[0, d] = base / (one + abs(base))
        moments[1, d], moments[2, d] = mean, var
        for b in range(p.shape[0]):
            source, target = p[b, d], y[b, d]
            for i in range(source.shape[0]):
                u = source[i] * slope + base
                target[i] = u / (one + abs(u))


@njit(**JIT)
def _moments(p, d, count):
    """Mean and variance of channel d over `count` nodes; all but the stored ones are zero."""
    number = p.dtype.type
    total = number(0)
    for b in range(p.shape[0]):
        row = p[b, d]
        for i in range(row.shape[0]):
            total += row[i]
    count = max(count, 1)
    mean = number(total / count)
    square = number(0)
    for b in range(p.shape[0]):
        row = p[b, d]
        for i in range(row.shape[0]):
            square += (row[i] - mean) * (row[i] - mean)
    missing = count - p.shape[0] * p.shape[2]
    return mean, number((square + missing * mean * mean) / count)


@njit(**JIT)
def activate_backward(p, scale, moments, eps, count, training, gy, g_absent, gp, g_scale, g_shift):
    """Gradients of `activate` to p, scale and shift."""
    number = p.dtype.type
    one = number(1)
    for d in range(p.shape[1]):
        gone, center = moments[0, d], moments[1, d]
        rstd = number(1 / np.sqrt(moments[2, d] + eps))
        slope = scale[d] * rstd
        base = gone / (one - abs(gone))  # softsign backwards
        total, along = number(0), number(0)
        for b in range(p.shape[0]):
            source, given, target = p[b, d], gy[b, d], gp[b, d]
            for i in range(source.shape[0]):
                u = one + abs(source[i] * slope + base)
                g = given[i] / (u * u)
                target[i] = g
                total += g
                along += g * (source[i] - center)
        g0 = g_absent[d] * (one - abs(gone)) * (one - abs(gone))
        g_shift[d] = total + g0
        g_scale[d] = (along - g0 * center) * rstd
        level, tilt = number(0), number(0)
        if training:
            level, tilt = number(g_shift[d] / count), number(g_scale[d] * rstd / count)
        for b in range(p.shape[0]):
            source, target = p[b, d], gp[b, d]
            for i in range(source.shape[0]):
                target[i] = slope * (target[i] - level - tilt * (source[i] - center))


@njit(**JIT)
def mix(q, weight, p):
    """Map the channels: p[b, d] = Σ_c weight[c, d] q[b, c], for q `(B, C, n)`."""
    p[:] = 0
    for b in range(q.shape[0]):
        for d in range(weight.shape[1]):
            target = p[b, d]
            for c in range(q.shape[1]):
                w, source = weight[c, d], q[b, c]
                for i in range(target.shape[0]):
                    target[i] += w * source[i]


@njit(**JIT)
def mix_backward(q, weight, gp, gq, gw):
    """Gradients of `mix`: fills gq, and adds to gw."""
    gq[:] = 0
    for b in range(q.shape[0]):
        for d in range(weight.shape[1]):
            given = gp[b, d]
            for c in range(q.shape[1]):
                w, source, target = weight[c, d], q[b, c], gq[b, c]
                inner = q.dtype.type(0)
                for i in range(given.shape[0]):
                    target[i] += w * given[i]
                    inner += source[i] * given[i]
                gw[c, d] += inner

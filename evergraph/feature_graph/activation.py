"""softsign(batch_norm(z W)) in one go, counting the nodes that are not there.

Batch normalization needs only sums over the present nodes, since all others are zero; after the
activation, those others share one constant per channel, called *absent*.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.feature_graph.compiled.activation import (
    activate,
    activate_backward,
    mix,
    mix_backward,
)


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


def norm_softsign(
    z: Tensor, weight: Tensor | None, scale: Tensor, shift: Tensor, statistics: Statistics
) -> tuple[Tensor, Tensor]:
    """Normalize and activate z `(*, D, F)`; also returns absent, `(D,)`.

    With a weight `(C, D)`, the channels of z `(*, C, F)` are mixed before, as in Eq. (7).
    """
    out: tuple[Tensor, Tensor] = _NormSoftsign.apply(statistics, z, weight, scale, shift)  # type: ignore[no-untyped-call]
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

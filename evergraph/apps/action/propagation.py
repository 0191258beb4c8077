"""`Â x` for windows of sensors: dense, batched, with gradients; equal to the packed form."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from evergraph.apps.action.kernels import propagate, propagate_backward
from evergraph.feature_graph import feature_adjacency, normalize


def propagated(x: Tensor, mean: Tensor) -> Tensor:
    """What every feature collects from its feature graph, Eqs. (4)-(6) and `Â x` of Eq. (8).

    `Â_k = normalize(sgnroot(x m_kᵀ + m_k xᵀ))`, one adjacency per node, channel and hop, with
    symmetric normalization. The F × F matrices are never stored.

    Args:
        x: `(*, C, F)`.
        mean: weighted mean of the neighbors per hop, `(P, *, C, F)`.

    Returns:
        `(P, *, C, F)`.

    Example:
        >>> x, mean = torch.rand(3, 1, 4), torch.rand(2, 3, 1, 4)
        >>> propagated(x, mean).shape
        torch.Size([2, 3, 1, 4])
    """
    if x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64):
        out: Tensor = _Propagated.apply(x, mean)  # type: ignore[no-untyped-call]
        return out
    hat = normalize(feature_adjacency(x, mean.movedim(0, -3)))
    return (hat @ x.unsqueeze(-3).unsqueeze(-1)).squeeze(-1).movedim(-3, 0)


class _Propagated(torch.autograd.Function):
    """The compiled loops with their gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mean: Tensor) -> Tensor:
        x, mean = x.contiguous(), mean.contiguous()
        ctx.save_for_backward(x, mean)
        out = torch.empty_like(mean)
        propagate(*_rows(x, mean, out))
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x, mean = ctx.saved_tensors
        gx, gm = torch.empty_like(x), torch.empty_like(mean)
        x_, m_, grad_, gm_ = _rows(x, mean, grads[0].contiguous(), gm)
        propagate_backward(x_, m_, grad_, gx.view(-1, gx.shape[-1]).numpy(), gm_)
        return gx, gm


def _rows(x: Tensor, *planes: Tensor) -> list[Any]:
    rows = [x.detach().view(-1, x.shape[-1]).numpy()]
    return rows + [p.detach().view(p.shape[0], -1, p.shape[-1]).numpy() for p in planes]

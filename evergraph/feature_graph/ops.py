"""The compiled loops of the support form as torch operators, with hand-written gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function

from evergraph.feature_graph.compiled import support as loops
from evergraph.feature_graph.equations import NORMALIZATIONS, Normalization

Layout = tuple[Tensor, Tensor, Tensor]  # ptr, width and offset: see `compiled.support`


def supports(*tensors: Tensor) -> bool:
    """Whether the compiled loops take these tensors: float32 or float64, on the CPU."""
    return all(
        t.device.type == "cpu" and t.dtype in (torch.float32, torch.float64) for t in tensors
    )


def numpy(*tensors: Tensor) -> list[np.ndarray[Any, Any]]:
    """Tensors as the arrays that the loops take; they share memory where that is possible."""
    return [t.detach().contiguous().numpy() for t in tensors]


def normalized_adjacency(x: Tensor, m: Tensor, layout: Layout, how: Normalization) -> Tensor:
    """Â of every item on its support, `(P, E)`, of x `(N,)` and m `(P, N)`, with gradients."""
    out: Tensor = _Adjacency.apply(x, m, *layout, NORMALIZATIONS.index(how))  # type: ignore[no-untyped-call]
    return out


class _Adjacency(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, m: Tensor, *rest: Any) -> Tensor:
        *layout, how = rest
        hat, degree = m.new_empty(m.shape[0], int(layout[2][-1])), torch.zeros_like(m)
        loops.adjacency(*numpy(x, m, *layout), how, *numpy(hat, degree))
        ctx.how = how
        ctx.save_for_backward(x, m, *layout, degree)
        return hat

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, m, *layout, degree = ctx.saved_tensors
        gx, gm = torch.zeros_like(x), torch.zeros_like(m)
        given = numpy(x, m, *layout)
        loops.adjacency_backward(*given, ctx.how, *numpy(degree, grads[0], gx, gm))
        return gx, gm, None, None, None, None


def product(hat: Tensor, layout: Layout, z: Tensor) -> Tensor:
    """`Â z` for every plane and channel: z `(C, N)` to `(P, C, N)`, with gradients."""
    out: Tensor = _Product.apply(hat, *layout, z)  # type: ignore[no-untyped-call]
    return out


def adjoint(hat: Tensor, layout: Layout, g: Tensor) -> Tensor:
    """`Σ_p Âᵀ_p g_p` for every channel: g `(P, C, N)` to `(C, N)`, with gradients."""
    out: Tensor = _Adjoint.apply(hat, *layout, g)  # type: ignore[no-untyped-call]
    return out


class _Product(Function):
    @staticmethod
    def forward(ctx: Any, hat: Tensor, *rest: Tensor) -> Tensor:
        *layout, z = rest
        ctx.save_for_backward(hat, *rest)
        out = z.new_zeros(hat.shape[0], *z.shape)
        loops.product(*numpy(hat, *layout, z, out))
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hat, ptr, width, offset, z = ctx.saved_tensors
        layout, grad = (ptr, width, offset), grads[0]
        g_hat = _pair_gradient(hat, layout, grad, z) if ctx.needs_input_grad[0] else None
        gz = adjoint(hat, layout, grad) if ctx.needs_input_grad[4] else None
        return g_hat, None, None, None, gz


class _Adjoint(Function):
    @staticmethod
    def forward(ctx: Any, hat: Tensor, *rest: Tensor) -> Tensor:
        *layout, g = rest
        ctx.save_for_backward(hat, *rest)
        out = g.new_zeros(g.shape[1:])
        loops.adjoint(*numpy(hat, *layout, g, out))
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hat, ptr, width, offset, g = ctx.saved_tensors
        layout, grad = (ptr, width, offset), grads[0]
        g_hat = _pair_gradient(hat, layout, g, grad) if ctx.needs_input_grad[0] else None
        gg = product(hat, layout, grad) if ctx.needs_input_grad[4] else None
        return g_hat, None, None, None, gg


def _pair_gradient(hat: Tensor, layout: Layout, g: Tensor, z: Tensor) -> Tensor:
    """The gradient of `product` to hat, for g `(P, C, N)` and z `(C, N)`."""
    out = torch.zeros_like(hat)
    loops.pair_gradient(*numpy(*layout, g, z, out))
    return out

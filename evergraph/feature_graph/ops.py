"""The compiled loops as torch operators, with hand-written gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.library import custom_op

from evergraph.feature_graph.compiled import support as kernels
from evergraph.feature_graph.equations import NORMALIZATIONS, Normalization

# Layout arguments shared by all operators: see `kernels` for ptr, width and offset.


def supports(*tensors: Tensor) -> bool:
    """Whether the compiled loops take these tensors: float32 or float64, on the CPU."""
    return all(
        t.device.type == "cpu" and t.dtype in (torch.float32, torch.float64) for t in tensors
    )


def _numpy(*tensors: Tensor) -> list[np.ndarray[Any, Any]]:
    return [t.detach().contiguous().numpy() for t in tensors]


@custom_op("evergraph::adjacency", mutates_args=())
def adjacency(
    x: Tensor, m: Tensor, ptr: Tensor, width: Tensor, offset: Tensor, size: int, normalization: int
) -> tuple[Tensor, Tensor]:
    """The normalized adjacency of every item on its support: hat `(P, E)`, degree `(P, N)`."""
    hat, degree = m.new_empty(m.shape[0], size), torch.zeros_like(m)
    kernels.adjacency(*_numpy(x, m, ptr, width, offset), normalization, *_numpy(hat, degree))
    return hat, degree


@adjacency.register_fake
def _(
    x: Tensor, m: Tensor, ptr: Tensor, width: Tensor, offset: Tensor, size: int, normalization: int
) -> tuple[Tensor, Tensor]:
    return m.new_empty(m.shape[0], size), torch.empty_like(m)


@custom_op("evergraph::adjacency_backward", mutates_args=())
def adjacency_backward(
    x: Tensor,
    m: Tensor,
    ptr: Tensor,
    width: Tensor,
    offset: Tensor,
    degree: Tensor,
    grad: Tensor,
    normalization: int,
) -> tuple[Tensor, Tensor]:
    """Gradients of `adjacency` to x and m."""
    gx, gm = torch.zeros_like(x), torch.zeros_like(m)
    arrays = _numpy(x, m, ptr, width, offset)
    kernels.adjacency_backward(*arrays, normalization, *_numpy(degree, grad, gx, gm))
    return gx, gm


@adjacency_backward.register_fake
def _(x: Tensor, m: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(m)


def _adjacency_setup(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, _, ctx.normalization = inputs
    ctx.save_for_backward(*tensors, output[1])


def _adjacency_backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    gx, gm = adjacency_backward(*ctx.saved_tensors, grad, ctx.normalization)
    return gx, gm, None, None, None, None, None


adjacency.register_autograd(_adjacency_backward, setup_context=_adjacency_setup)


def normalized_adjacency(
    x: Tensor, m: Tensor, ptr: Tensor, width: Tensor, offset: Tensor, how: Normalization
) -> Tensor:
    """Hat `(P, E)` of x `(N,)` and m `(P, N)`, with gradients to both where they are wanted."""
    size, code = int(offset[-1]), NORMALIZATIONS.index(how)
    if x.requires_grad or m.requires_grad:
        entries: Tensor = adjacency(x, m, ptr, width, offset, size, code)[0]
        return entries
    hat = m.new_empty(m.shape[0], size)  # without gradients plain arrays are quicker
    degree = torch.zeros_like(m)
    kernels.adjacency(*_numpy(x, m, ptr, width, offset), code, *_numpy(hat, degree))
    return hat


@custom_op("evergraph::product", mutates_args=())
def product(hat: Tensor, ptr: Tensor, width: Tensor, offset: Tensor, z: Tensor) -> Tensor:
    """Â z for every plane and channel: z `(C, N)` to `(P, C, N)`."""
    out = z.new_zeros(hat.shape[0], *z.shape)
    kernels.product(*_numpy(hat, ptr, width, offset, z, out))
    return out


@product.register_fake
def _(hat: Tensor, ptr: Tensor, width: Tensor, offset: Tensor, z: Tensor) -> Tensor:
    return z.new_empty(hat.shape[0], *z.shape)


@custom_op("evergraph::adjoint", mutates_args=())
def adjoint(hat: Tensor, ptr: Tensor, width: Tensor, offset: Tensor, g: Tensor) -> Tensor:
    """Σ_p Âᵀ_p g_p for every channel: g `(P, C, N)` to `(C, N)`."""
    out = g.new_zeros(g.shape[1:])
    kernels.adjoint(*_numpy(hat, ptr, width, offset, g, out))
    return out


@adjoint.register_fake
def _(hat: Tensor, ptr: Tensor, width: Tensor, offset: Tensor, g: Tensor) -> Tensor:
    return g.new_empty(g.shape[1:])


@custom_op("evergraph::pair_gradient", mutates_args=())
def pair_gradient(
    hat: Tensor, ptr: Tensor, width: Tensor, offset: Tensor, g: Tensor, z: Tensor
) -> Tensor:
    """Gradient of `product` to hat, for g `(P, C, N)` and z `(C, N)`."""
    out = torch.zeros_like(hat)
    kernels.pair_gradient(*_numpy(ptr, width, offset, g, z, out))
    return out


@pair_gradient.register_fake
def _(hat: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(hat)


def _save_inputs(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _product_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    hat, *layout, z = ctx.saved_tensors
    g_hat = pair_gradient(hat, *layout, grad, z) if ctx.needs_input_grad[0] else None
    gz = adjoint(hat, *layout, grad) if ctx.needs_input_grad[4] else None
    return g_hat, None, None, None, gz


def _adjoint_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    hat, *layout, g = ctx.saved_tensors
    g_hat = pair_gradient(hat, *layout, g, grad) if ctx.needs_input_grad[0] else None
    gg = product(hat, *layout, grad) if ctx.needs_input_grad[4] else None
    return g_hat, None, None, None, gg


product.register_autograd(_product_backward, setup_context=_save_inputs)
adjoint.register_autograd(_adjoint_backward, setup_context=_save_inputs)

"""The compiled loops as torch operators, with hand-written gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import pad

from evergraph.feature_graph.compiled import activation, collect
from evergraph.feature_graph.compiled import support as loops
from evergraph.feature_graph.compiled.vector import LANES
from evergraph.feature_graph.equations import NORMALIZATIONS, Normalization

Layout = tuple[Tensor, Tensor, Tensor]  # ptr, width and offset: see `compiled.support`


def supports(*tensors: Tensor) -> bool:
    """Whether the compiled loops take these tensors: float32 or float64, on the CPU."""
    return all(t.is_cpu and t.dtype in (torch.float32, torch.float64) for t in tensors)


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
        given = numpy(x, m, torch.ones_like(x), *layout)
        loops.adjacency(*given, how, *numpy(hat, degree))
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
    out: Tensor = _Product.apply(False, hat, *layout, z)  # type: ignore[no-untyped-call]
    return out


def adjoint(hat: Tensor, layout: Layout, g: Tensor) -> Tensor:
    """`Σ_p Âᵀ_p g_p` for every channel: g `(P, C, N)` to `(C, N)`, with gradients."""
    out: Tensor = _Product.apply(True, hat, *layout, g)  # type: ignore[no-untyped-call]
    return out


class _Product(Function):
    """`product`, or `adjoint` if transposed: each is the gradient of the other."""

    @staticmethod
    def forward(ctx: Any, transposed: bool, hat: Tensor, *rest: Tensor) -> Tensor:
        *layout, z = rest
        ctx.transposed = transposed
        ctx.save_for_backward(hat, *rest)
        rows = _rows(z)
        shape = rows.shape[1:] if transposed else (hat.shape[0], *rows.shape)
        out = np.empty(shape, rows.dtype)
        loop = collect.adjoint if transposed else collect.product
        loop(*numpy(hat, *layout), rows, out)
        return torch.from_numpy(out).mT[..., : z.shape[-2], :].contiguous()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hat, ptr, width, offset, z = ctx.saved_tensors
        layout, grad, g_hat, gz = (ptr, width, offset), grads[0], None, None
        if ctx.needs_input_grad[1]:
            g_hat = torch.zeros_like(hat)
            planes, nodes = (z, grad) if ctx.transposed else (grad, z)
            collect.pair_gradient(*numpy(hat, *layout), _rows(planes), _rows(nodes), g_hat.numpy())
        if ctx.needs_input_grad[5]:
            gz = _Product.apply(not ctx.transposed, hat, *layout, grad)  # type: ignore[no-untyped-call]
        return None, g_hat, None, None, None, gz


def _rows(z: Tensor) -> np.ndarray[Any, Any]:
    """`(*, C, N)` as rows of channels, `(*, N, L)`: see `compiled.vector`."""
    channels = z.shape[-2]
    out: np.ndarray[Any, Any] = pad(z.detach().mT, (0, -channels % LANES)).contiguous().numpy()
    return out


@dataclass(frozen=True)
class Statistics:
    """What batch normalization needs beyond its parameters.

    Attributes:
        running_mean, running_var: `(D,)`, updated in place in training.
        momentum, eps: as in torch.
        count: all nodes of the batch, present or not.
        training: use the statistics of the batch and update the running ones.
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
    """softsign(batch_norm(z W)) of z `(*, D, F)`; also returns *absent*, `(D,)`.

    Nodes that are not present are zero before, so that the statistics need sums over the present
    ones only; after the activation all others share one constant per channel, called absent. With
    a weight `(C, D)`, the channels of z `(*, C, F)` are mixed before, as in Eq. (7).
    """
    out: tuple[Tensor, Tensor] = _NormSoftsign.apply(statistics, z, weight, scale, shift)  # type: ignore[no-untyped-call]
    return out


class _NormSoftsign(Function):
    @staticmethod
    def forward(
        ctx: Any, statistics: Statistics, z: Tensor, weight: Tensor | None, scale: Tensor,
        shift: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        q = z.detach().contiguous().numpy().reshape(-1, *z.shape[-2:])
        p = q
        if weight is not None:
            p = np.empty((len(q), weight.shape[1], q.shape[2]), q.dtype)
            activation.mix(q, weight.detach().numpy(), p)
        s = statistics
        arrays = *numpy(scale, shift), s.running_mean.numpy(), s.running_var.numpy()
        settings = s.momentum, s.eps, s.count, s.training
        y, moments = np.empty_like(p), np.empty((3, p.shape[1]), p.dtype)
        activation.activate(p, *arrays, *settings, y, moments)
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
        activation.activate_backward(*given, gp, g_scale, g_shift)
        g_parameters = torch.from_numpy(g_scale), torch.from_numpy(g_shift)
        if not weight:
            return None, torch.from_numpy(gp).view(z.shape), None, *g_parameters
        gq, gw = z.new_empty(z.shape), torch.zeros_like(weight[0])
        into = gq.numpy().reshape(q.shape), gw.numpy()
        activation.mix_backward(q, weight[0].detach().numpy(), gp, *into)
        return None, gq, gw, *g_parameters

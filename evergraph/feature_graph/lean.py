"""The form that stores no matrix: for many small dense feature graphs, one product each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from evergraph.feature_graph import ops
from evergraph.feature_graph.compiled import lanes
from evergraph.feature_graph.dense import DenseGraph
from evergraph.feature_graph.equations import (
    NORMALIZATIONS,
    Normalization,
    feature_adjacency,
    normalize,
    propagate,
)
from evergraph.graph.neighbors import Neighbors


@dataclass(frozen=True)
class LeanGraph:
    """The undirected feature graphs of a batch, kept as x and m instead of F × F matrices.

    `Â = normalize(sgnroot(x mᵀ + m xᵀ))`, Eqs. (4)-(6), is made anew in each product `Â z` of
    Eq. (7), with gradients to x, m and z. For a few dozen features that is quicker than to store
    it. The planes of the mean may lie anywhere in memory; they are read where they are.

    Attributes:
        nodes: the feature nodes of Eq. (3), `(*, C, F)`.
        mean: weighted mean of the neighbors per plane, Eq. (5), `(*, P, C, F)`.
        normalization: see `normalize`.

    Example:
        >>> x, mean = torch.rand(3, 2, 4), torch.rand(3, 5, 2, 4)
        >>> graph = LeanGraph(x, mean)
        >>> graph.propagate(x).shape
        torch.Size([3, 10, 4])
        >>> torch.allclose(graph.propagate(x), propagate(graph.adjacency, x))
        True
    """

    nodes: Tensor
    mean: Tensor
    normalization: Normalization = "symmetric"
    support = None  # every node is present

    def __post_init__(self) -> None:
        x, mean = self.nodes.shape, self.mean.shape
        if len(x) < 2 or len(mean) != len(x) + 1 or mean[:-3] + mean[-2:] != x:
            raise ValueError(
                "nodes must have shape (*, C, F) and mean (*, P, C, F), "
                f"got {tuple(x)} and {tuple(mean)}"
            )
        if self.normalization not in NORMALIZATIONS:
            names = ", ".join(NORMALIZATIONS)
            raise ValueError(f"normalization must be one of {names}, got {self.normalization!r}")

    @property
    def adjacency(self) -> Tensor:
        """Â, `(*, P, C, F, F)`."""
        return normalize(feature_adjacency(self.nodes, self.mean), self.normalization)

    def across_channels(self) -> DenseGraph:
        """The same graph for deeper layers, as matrices: every adjacency acts on every channel."""
        nobody = torch.zeros(0, dtype=torch.long, device=self.nodes.device)
        around = Neighbors(self.nodes.new_zeros(0, *self.nodes.shape[-2:]), nobody)
        return DenseGraph(self.nodes, around, self.adjacency).across_channels()

    def propagate(self, z: Tensor) -> Tensor:
        """Â z: `(*, C, F)` to `(*, P * C, F)`; quickest where z is `nodes` itself."""
        x, mean = self.nodes, self.mean
        if z.shape != x.shape:
            raise ValueError(
                f"z must have the shape {tuple(x.shape)} of nodes, got {tuple(z.shape)}"
            )
        if not mean.numel() or not ops.supports(x, mean, z) or not x.dtype == mean.dtype == z.dtype:
            return propagate(self.adjacency, z)
        given, code = None if z is x else z, NORMALIZATIONS.index(self.normalization)
        if torch.is_grad_enabled() and (x.requires_grad or mean.requires_grad or z.requires_grad):
            out: Tensor = _Product.apply(x, mean, given, code)
        else:
            out = _product(*_contiguous(x, mean, given), code)
        return out.movedim(0, -3).flatten(-3, -2)


class _Product(torch.autograd.Function):
    """The compiled loops with their gradients; z is x where None is given."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mean: Tensor, z: Tensor | None, code: int) -> Tensor:
        x, planes, z = _contiguous(x, mean, z)
        ctx.save_for_backward(x, planes, z)
        ctx.code = code
        return _product(x, planes, z, code)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, planes, z = ctx.saved_tensors
        gx, gm = torch.empty_like(x), torch.empty_like(planes)
        gz = None if z is None else torch.empty_like(z)
        arrays = _rows(x), _rows(planes, 1), _rows(x if z is None else z)
        grads = (
            _rows(grad.contiguous(), 1),
            _rows(gx),
            _rows(gm, 1),
            _rows(gx if gz is None else gz),
        )
        lanes.propagate_backward(*arrays, z is None, ctx.code, *grads)
        return gx, gm.movedim(0, -3), gz, None


def _contiguous(x: Tensor, mean: Tensor, z: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """What the compiled loops read: the mean plane by plane, `(P, *, C, F)`."""
    planes = mean.movedim(-3, 0).contiguous()
    return x.contiguous(), planes, None if z is None else z.contiguous()


def _product(x: Tensor, planes: Tensor, z: Tensor | None, code: int) -> Tensor:
    """Â z, `(P, *, C, F)`."""
    out = torch.empty_like(planes)
    arrays = _rows(x), _rows(planes, 1), _rows(x if z is None else z)
    lanes.propagate(*arrays, z is None, code, _rows(out, 1))
    return out


def _rows(t: Tensor, before: int = 0) -> Any:
    """The array with all its dimensions but the first `before` and the last as one."""
    return t.detach().view(*t.shape[:before], -1, t.shape[-1]).numpy()

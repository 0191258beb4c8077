"""The form without stored matrices: for many small dense feature graphs, one product each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from evergraph.checks import check_one_of
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
    it. The mean is read where it is if its memory goes item by item or plane by plane.

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
        check_one_of("normalization", self.normalization, NORMALIZATIONS)

    @property
    def adjacency(self) -> Tensor:
        """Â, `(*, P, C, F, F)`."""
        return normalize(feature_adjacency(self.nodes, self.mean), self.normalization)

    def across_channels(self) -> DenseGraph:
        """The same graph for deeper layers, as matrices: every adjacency acts on every channel."""
        owner = torch.zeros(0, dtype=torch.long, device=self.nodes.device)
        around = Neighbors(self.nodes.new_zeros(0, *self.nodes.shape[-2:]), owner)
        return DenseGraph(self.nodes, around, self.adjacency).across_channels()

    def propagate(self, z: Tensor) -> Tensor:
        """Â z: `(*, C, F)` to `(*, P * C, F)`; quickest where z is `nodes` itself."""
        x, mean = self.nodes, self.mean
        if z.shape != x.shape:
            raise ValueError(
                f"z must have the shape {tuple(x.shape)} of nodes, got {tuple(z.shape)}"
            )
        compiled = x.dtype == mean.dtype == z.dtype and ops.supports(x)
        if not compiled or not mean.numel() or x.shape[-1] < lanes.FEWEST:
            return propagate(self.adjacency, z)
        given, code = None if z is x else z, NORMALIZATIONS.index(self.normalization)
        if not torch.is_grad_enabled():
            return _product(x, mean, given, code)
        out: Tensor = _Product.apply(x, mean, given, code)  # type: ignore[no-untyped-call]
        return out


def _product(x: Tensor, mean: Tensor, z: Tensor | None, code: int, kept: Any = None) -> Tensor:
    """The compiled loops; z is x where None is given, and what a gradient needs is kept."""
    own, rows, (m, apart) = z is None, _rows(x), _plane_rows(mean)
    given = rows if z is None else _rows(z)
    if kept is not None:
        kept.save_for_backward(rows, m, given)
        kept.settings = apart, own, code, mean.shape
    *items, planes, channels, features = mean.shape
    out = x.new_empty(m.shape)
    place, usual = _place(mean.shape, apart), _place(mean.shape, False)
    arrays = rows.numpy(), m.numpy(), place, given.numpy()
    lanes.propagate(*arrays, own, code, planes, out.numpy(), usual)
    return out.view(*items, planes * channels, features)


class _Product(torch.autograd.Function):
    """`_product` with its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mean: Tensor, z: Tensor | None, code: int) -> Tensor:
        return _product(x, mean, z, code, ctx)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, mean, z = ctx.saved_tensors
        apart, own, code, shape = ctx.settings
        *items, planes, channels, features = shape
        gx, gm = torch.empty_like(x), torch.empty_like(mean)
        gz = gx if own else torch.empty_like(x)
        lanes.propagate_backward(
            x.numpy(), mean.numpy(), _place(shape, apart), z.numpy(), own, code, planes,
            _rows(grad).numpy(), _place(shape, False), gx.numpy(), gm.numpy(), gz.numpy(),
        )  # fmt: skip
        whole = (*items, channels, features)
        gm = gm.view(planes, *whole).movedim(0, -3) if apart else gm.view(shape)
        return gx.view(whole), gm, None if own else gz.view(whole), None


def _rows(t: Tensor) -> Tensor:
    """All rows, `(R, F)`; called only where no gradients are recorded."""
    return t.contiguous().view(-1, t.shape[-1])


def _plane_rows(mean: Tensor) -> tuple[Tensor, bool]:
    """The rows of `(*, P, C, F)`, and whether they lie plane by plane; else item by item."""
    if not mean.is_contiguous():
        planes = mean.movedim(-3, 0)
        if planes.is_contiguous():
            return _rows(planes), True
    return _rows(mean), False


def _place(shape: torch.Size, apart: bool) -> tuple[int, int, int]:
    """Where the rows of the planes are, see `lanes`."""
    *items, planes, channels, _ = shape
    if apart:
        rows = math.prod(items) * channels
        return rows, rows, rows
    return channels, planes * channels, channels

"""What a node collects from its neighbors: the product with its feature graph, or less.

A message graph maps the nodes z `(*, C, F)` of a layer to what they collect, `(*, P * C, F)`. The
feature graphs of `evergraph.feature_graph` are such graphs; those here are what they are measured
against, with everything else the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

from evergraph.feature_graph import (
    LeanGraph,
    Neighborhoods,
    Normalization,
    Packed,
    normalize,
    sgnroot,
)
from evergraph.graph.neighbors import Features
from evergraph.graph.rows import SparseRows

Message = Literal["feature-graph", "shared", "mean", "identity", "none"]
MESSAGES: tuple[str, ...] = get_args(Message)


@dataclass(frozen=True)
class MeanGraph:
    """Collect the mean of the neighbors itself, as GCN, SAGE and GAT do.

    Attributes:
        nodes: `(*, C, F)`.
        mean: `(*, P, C, F)`, Eq. (5).
    """

    nodes: Tensor
    mean: Tensor
    support = None

    def propagate(self, z: Tensor) -> Tensor:
        """The mean, plane by plane, whatever z is."""
        return self.mean.flatten(-3, -2)


@dataclass(frozen=True)
class IdentityGraph:
    """Put the identity in place of Â: collect oneself, once for each plane.

    Attributes:
        nodes: `(*, C, F)`.
        planes: P; with 0 planes nothing is collected.
    """

    nodes: Tensor
    planes: int
    support = None

    def propagate(self, z: Tensor) -> Tensor:
        """Z itself, P times."""
        if not self.planes:
            return z[..., :0, :]
        shape = (*z.shape[:-2], self.planes, *z.shape[-2:])
        return z.unsqueeze(-3).expand(shape).flatten(-3, -2)


@dataclass(frozen=True)
class SharedGraph:
    """One adjacency for all nodes of an item, `sgnroot(Σ_x x mᵀ)`, as the released matching code.

    Attributes:
        nodes: `(B, S, 1, F)`.
        mean: `(B, S, 1, 1, F)`.
    """

    nodes: Tensor
    mean: Tensor
    support = None

    def propagate(self, z: Tensor) -> Tensor:
        """`Â z` with row normalization, `(B, S, 1, F)`."""
        x, mean = self.nodes.squeeze(-2), self.mean.flatten(2)
        shared = normalize(sgnroot(x.mT @ mean), "row")
        return (z.squeeze(-2) @ shared.mT).unsqueeze(-2)


@dataclass(frozen=True)
class SparseGraph:
    """Any of the plain messages on sparse rows, for a layer that maps them before they are sent.

    A linear map commutes with a mean: thousands of features need not be averaged.

    Attributes:
        nodes: B sparse rows.
        around: the sparse rows of the packed neighbors.
        layout: whose neighbors they are.
        weight: edge weights, or None.
        planes: P.
        message: `mean`, `identity` or `none`.
        total: sum in place of the mean.
    """

    nodes: SparseRows
    around: SparseRows
    layout: Packed
    weight: Tensor | None
    planes: int
    message: Message
    total: bool
    support = None


MessageGraph = MeanGraph | IdentityGraph | SharedGraph


def message_graph(
    message: Message,
    x: Features,
    around: Features,
    layout: Neighborhoods,
    weight: Tensor | None,
    planes: int,
    normalization: Normalization,
    total: bool,
) -> LeanGraph | MessageGraph | SparseGraph:
    """What the nodes x collect from their neighbors, which are `around` them in a layout."""
    if isinstance(x, SparseRows):
        assert isinstance(around, SparseRows)
        assert isinstance(layout, Packed)
        return SparseGraph(x, around, layout, weight, planes, message, total)
    if message in ("identity", "none"):
        return IdentityGraph(x, planes)
    assert isinstance(around, Tensor)
    mean = layout.mean(around, weight, total=total)
    if message == "feature-graph":
        return LeanGraph(x, mean, normalization)
    return SharedGraph(x, mean) if message == "shared" else MeanGraph(x, mean)

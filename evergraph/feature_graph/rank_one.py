"""The directed form: `sgnroot(x mᵀ) = sgnroot(x) sgnroot(m)ᵀ` has rank one and is never formed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from evergraph.feature_graph.equations import Normalization, sgnroot
from evergraph.feature_graph.neighborhoods import neighborhood_mean
from evergraph.feature_graph.support import Support, find_support, support_mean
from evergraph.graph.neighbors import Neighbors
from evergraph.graph.rows import SparseRows


@dataclass(frozen=True)
class RankOneGraph:
    """The directed feature graphs of a batch, `Â = left · rightᵀ`, in O(F).

    Attributes:
        nodes: the feature nodes of Eq. (3), `(*, C, F)`, or `(1, N)` on the support.
        neighbors: dense, `(N, C, F)`, or sparse rows on the support.
        left, right: `(*, P, A, F)`, or `(P, 1, N)` on the support.
        support: what lies where, or None if every node is present.
    """

    nodes: Tensor
    neighbors: Neighbors
    left: Tensor
    right: Tensor
    support: Support | None

    @classmethod
    def build(
        cls, x: Tensor | SparseRows, neighbors: Neighbors, hops: int, normalization: Normalization
    ) -> RankOneGraph:
        """The factors of Eqs. (4)-(5), normalized, from x `(*, C, F)` or sparse rows."""
        support = None
        if isinstance(x, SparseRows):
            support, values = find_support(x, neighbors)
            nodes = values.unsqueeze(0)
            mean = support_mean(support, neighbors, hops).unsqueeze(1)
        else:
            nodes = x
            items = x.reshape(-1, *x.shape[-2:])
            mean = neighborhood_mean(neighbors, len(items), hops)
            mean = mean.reshape(*x.shape[:-2], *mean.shape[1:])
        left, right = sgnroot(nodes).unsqueeze(-3), sgnroot(mean)
        graph = cls(nodes, neighbors, left, right, support)
        left, right = graph._normalized(normalization)
        return replace(graph, left=left, right=right)

    def _normalized(self, how: Normalization) -> tuple[Tensor, Tensor]:
        """Divide by row sums |left_i| Σ|right| and column sums |right_j| Σ|left|."""
        shape = torch.broadcast_shapes(self.left.shape, self.right.shape)
        left, right = self.left.expand(shape), self.right
        row, column = self._total(right.abs()), self._total(left.abs())
        row, column = row.masked_fill(row == 0, 1), column.masked_fill(column == 0, 1)
        if how == "row":
            return left.sign(), right / row
        if how == "column":
            return left / column, right.sign()
        if how == "symmetric":
            return sgnroot(left) / row.sqrt(), sgnroot(right) / column.sqrt()
        return left, right

    def _total(self, values: Tensor) -> Tensor:
        """Sum over the features of each item, given back to all of them."""
        if self.support is None:
            return values.sum(-1, keepdim=True)
        return self.support.spread(self.support.total(values))

    @property
    def adjacency(self) -> Tensor:
        """Â as dense matrices, `(*, P, A, F, F)`, for inspection."""
        left, right = self.left, self.right
        if self.support is not None:
            left, right = (self.support.to_dense(t.squeeze(1)).unsqueeze(2) for t in (left, right))
        return left.unsqueeze(-1) * right.unsqueeze(-2)

    def across_channels(self) -> RankOneGraph:
        """The same graph for deeper layers: every adjacency acts on every channel."""
        left, right = (t.flatten(-3, -2).unsqueeze(-2) for t in (self.left, self.right))
        return replace(self, left=left, right=right)

    def propagate(self, z: Tensor) -> Tensor:
        """Â z: `(*, C, F)` to `(*, P * C, F)`, likewise on the support."""
        return (self.left * self._total(self.right * z.unsqueeze(-3))).flatten(-3, -2)

    def adjoint(self, g: Tensor) -> Tensor:
        """Σ_p Âᵀ_p g_p: `(*, P * C, F)` to `(*, C, F)`, likewise on the support."""
        g = g.unflatten(-2, (self.left.shape[-3], -1))
        return (self.right * self._total(self.left * g)).sum(-3)

    def propagate_neighbors(self) -> Tensor:
        """Â(x) y of Eq. (8) for all dense neighbors: `(N, P * C, F)`."""
        z, owner = self.neighbors.features, self.neighbors.owner
        assert isinstance(z, Tensor)
        left, right = (t.reshape(-1, *t.shape[-3:])[owner] for t in (self.left, self.right))
        return (left * (right * z.unsqueeze(1)).sum(-1, keepdim=True)).flatten(1, 2)

"""The batched dense form: for small F (sensors, descriptors, embeddings), where nothing is zero."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from evergraph.feature_graph import ops
from evergraph.feature_graph.equations import Normalization, feature_adjacency, normalize, propagate
from evergraph.feature_graph.neighborhoods import neighborhood_mean
from evergraph.graph.neighbors import Neighbors


@dataclass(frozen=True)
class DenseGraph:
    """The feature graphs of a batch as F × F matrices.

    Attributes:
        nodes: the feature nodes of Eq. (3), `(*, C, F)`.
        neighbors: dense, `(N, C, F)`.
        adjacency: Â, `(*, P, A, F, F)`: A = C (one per channel) or 1 (for all channels).
    """

    nodes: Tensor
    neighbors: Neighbors
    adjacency: Tensor
    support = None  # every node is present

    @classmethod
    def build(
        cls, x: Tensor, neighbors: Neighbors, hops: int, normalization: Normalization
    ) -> DenseGraph:
        """Eqs. (4)-(5) for x `(*, C, F)`, whose leading dimensions count the items."""
        channels, features = x.shape[-2:]
        items = x.reshape(-1, channels, features)
        mean = neighborhood_mean(neighbors, len(items), hops)
        if ops.supports(x, mean):
            m = mean.movedim(1, 0).reshape(mean.shape[1], -1)
            step = torch.arange(len(items) * channels + 1)
            width = torch.full_like(step[1:], features)  # all of them in the support of x
            layout = step * features, width, step * (features + 3) * features
            hat = ops.normalized_adjacency(items.reshape(-1), m, layout, normalization)
            hat = hat.view(len(m), len(items), channels, features + 3, features).movedim(0, 1)
            hat = hat[..., :features, :]  # beyond it there is nothing
        else:
            hat = normalize(feature_adjacency(items, mean), normalization)
        return cls(x, neighbors, hat.reshape(*x.shape[:-2], *hat.shape[1:]))

    def across_channels(self) -> DenseGraph:
        """The same graph for deeper layers: every adjacency acts on every channel."""
        return replace(self, adjacency=self.adjacency.flatten(-4, -3).unsqueeze(-3))

    def propagate(self, z: Tensor) -> Tensor:
        """Â z: `(*, C, F)` to `(*, P * C, F)`."""
        return propagate(self.adjacency, z)

    def propagate_neighbors(self) -> Tensor:
        """Â(x) y of Eq. (8) for all neighbors: `(N, P * C, F)`."""
        z, owner = self.neighbors.features, self.neighbors.owner
        assert isinstance(z, Tensor)
        adjacency = self.adjacency.reshape(-1, *self.adjacency.shape[-4:])
        counts = torch.bincount(owner, minlength=len(adjacency))
        slot = torch.arange(len(owner), device=owner.device) - (counts.cumsum(0) - counts)[owner]
        padded = z.new_zeros(len(adjacency), int(counts.max()) if len(owner) else 0, *z.shape[1:])
        padded = padded.index_put((owner, slot), z)
        out = torch.einsum("bpcij,bncj->bnpci", adjacency, padded)
        return out[owner, slot].flatten(1, 2)

"""Networks on the item's own neighborhood graph, Eq. (2): what FGN is compared with.

All of them see what FGN sees: a node and its neighbors, nothing else of the graph. The
neighborhoods of a batch are packed into one PyG graph (the nodes, then all neighbors, with edges
in both directions between a node and each of its neighbors), so that PyG's own layers apply.
"""

from __future__ import annotations

import itertools
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, relu
from torch_geometric.nn import APPNP, GATConv, GCNConv, SAGEConv

from evergraph.feature_graph import Features, Neighbors
from evergraph.feature_graph.build import check
from evergraph.layers import Readout
from evergraph.sparse import SparseRows

Kind = Literal["mlp", "gcn", "sage", "gat", "appnp"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Baseline(nn.Module):
    """A layer of the given kind, batch normalization, ReLU and dropout, twice; a linear head.

    `mlp` looks at the node alone. `gcn`, `sage` and `gat` are PyG's layers. `appnp` is the MLP
    whose logits PyG's APPNP propagates. Weights of edges and hops beyond the first are not used.

    Args:
        kind: one of `mlp`, `gcn`, `sage`, `gat`, `appnp`.
        num_features: F of the input, C · F if it has channels.
        num_classes: number of logits.
        hops: K, the hops of neighbors in the items; all of them become neighbors.
        hidden: width after each layer.
        dropout: rate after each layer.
        unit: bring the features of every node to unit length first.

    Example:
        >>> model = Baseline("gcn", num_features=6, num_classes=3)
        >>> neighbors = Neighbors(torch.rand(5, 1, 6), owner=torch.tensor([0, 0, 0, 1, 1]))
        >>> model(torch.rand(2, 1, 6), neighbors).shape
        torch.Size([2, 3])
    """

    def __init__(
        self,
        kind: Kind,
        num_features: int,
        num_classes: int,
        *,
        hops: int = 1,
        hidden: tuple[int, ...] = (64, 32),
        dropout: float = 0.0,
        unit: bool = True,
    ) -> None:
        super().__init__()
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
        self.kind, self.num_features, self.hops = kind, num_features, hops
        self.dropout, self.unit = dropout, unit
        sizes = [num_features, *hidden]
        pairs = itertools.pairwise(sizes)
        self.layers = nn.ModuleList(_layer(kind, before, after) for before, after in pairs)
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for width in hidden)
        self.readout = Readout(sizes[-1], 1, num_classes, centered=False)
        self.propagate = APPNP(K=2, alpha=0.1) if kind == "appnp" else None

    @property
    def condensable(self) -> bool:
        """Whether the neighbors themselves do not matter: only to the MLP."""
        return self.kind == "mlp"

    def grow(self, num_classes: int) -> None:
        """Make room for more classes; the logits of the old ones stay."""
        self.readout.grow(num_classes)

    def forward(self, x: Features, neighbors: Neighbors) -> Tensor:
        """Logits `(B, K)` of x `(B, C, F)`, or of B sparse rows."""
        check(x, neighbors, self.hops)
        alone = self.kind == "mlp"
        h = _rows(x) if alone else torch.cat([_rows(x), _rows(neighbors.features)])
        if h.shape[1] != self.num_features:
            raise ValueError(
                f"items must have {self.num_features} features for this model, got {h.shape[1]}"
            )
        edges = star_edges(len(x), neighbors.owner)
        h = h.to(self.readout.weight.dtype)
        if self.unit:
            h = nn.functional.normalize(h, dim=-1)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            h = layer(h) if isinstance(layer, nn.Linear) else layer(h, edges)
            if len(h) > 1 or not self.training:  # one row has no variance
                h = norm(h)
            h = dropout(relu(h), self.dropout, self.training)
        if self.propagate is None:
            return self._head(h[: len(x)])
        out: Tensor = self.propagate(self._head(h), edges)[: len(x)]
        return out

    def _head(self, h: Tensor) -> Tensor:
        out: Tensor = self.readout(h.unsqueeze(-1), h.new_zeros(h.shape[1]))
        return out


def star_edges(num_items: int, owner: Tensor) -> Tensor:
    """Edges of the packed graph, `(2, 2N)`: every neighbor to its owner and back."""
    neighbor = torch.arange(len(owner), device=owner.device) + num_items
    return torch.stack([torch.cat([neighbor, owner]), torch.cat([owner, neighbor])])


def _layer(kind: Kind, before: int, after: int) -> Any:
    if kind == "gcn":
        return GCNConv(before, after)
    if kind == "sage":
        return SAGEConv(before, after)
    if kind == "gat":
        return GATConv(before, after)
    return nn.Linear(before, after)


def _rows(features: Features) -> Tensor:
    return features.to_dense() if isinstance(features, SparseRows) else features.flatten(1)

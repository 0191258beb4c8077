"""Networks on the item's own neighborhood graph, Eq. (2): what FGN is compared with.

All of them see what FGN sees: a node and its neighbors, nothing else of the graph. The
neighborhoods of a batch are packed into one PyG graph (the nodes, then all neighbors, with edges
in both directions between a node and each of its neighbors), so that PyG's own layers apply.

Only the linear map inside the first layer is ours: PyG's takes dense features, and bags of words
with thousands of them would make the baselines many times slower than they need to be.

Layers are followed by layer normalization: batches of a class-incremental stream are of one class,
and with the statistics of such batches every one of these networks lost points.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding_bag, relu
from torch_geometric.nn import APPNP, GATConv, GCNConv, SAGEConv, SimpleConv

from evergraph.nn.blocks import Readout
from evergraph.feature_graph import Features, Neighbors, condense
from evergraph.feature_graph.build import check
from evergraph.graph.rows import SparseRows

Kind = Literal["mlp", "gcn", "sage", "gat", "appnp"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Baseline(nn.Module):
    """Layers of the given kind, each with normalization, ReLU and dropout; a linear head.

    `mlp` looks at the node alone. `gcn`, `sage` and `gat` are PyG's layers. `appnp` is the MLP
    whose logits PyG's APPNP propagates. Edge weights matter if the neighbors are condensed only.

    Args:
        kind: one of `mlp`, `gcn`, `sage`, `gat`, `appnp`.
        num_features: F of the input, C · F if it has channels.
        num_classes: number of logits.
        hops: K, the hops of neighbors in the items; all of them become neighbors.
        hidden: width after each layer.
        dropout: rate after each layer.
        condensed: see one neighbor per hop, the weighted mean of all (Eq. 5), as FGN does.

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
        condensed: bool = False,
    ) -> None:
        super().__init__()
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
        self.kind, self.num_features, self.hops = kind, num_features, hops
        self.dropout, self.condensable = dropout, condensed or kind == "mlp"
        self.project = Projection(num_features, hidden[0] * (2 if kind == "sage" else 1))
        self.layers = nn.ModuleList([_first(kind, hidden[0])])
        self.layers.extend(_layer(kind, before, after) for before, after in pairwise(hidden))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in hidden)
        self.readout = Readout(hidden[-1], 1, num_classes, centered=False)
        self.propagate = APPNP(K=2, alpha=0.1) if kind == "appnp" else None

    def grow(self, num_classes: int) -> None:
        """Make room for more classes; the logits of the old ones stay."""
        self.readout.grow(num_classes)

    def extra_repr(self) -> str:
        """What the shapes of the parameters do not tell."""
        return (
            f"{self.kind}, hops={self.hops}, dropout={self.dropout}, condensed={self.condensable}"
        )

    def check(self, x: Features, neighbors: Neighbors) -> None:
        """Raise a ValueError that names the item, or the width, that this network cannot read."""
        check(x, neighbors, self.hops)
        width = x.num_features if isinstance(x, SparseRows) else x.shape[1:].numel()
        if width != self.num_features:
            raise ValueError(
                f"items must have {self.num_features} features for this model, got {width}"
            )

    def forward(self, x: Features, neighbors: Neighbors) -> Tensor:
        """Logits `(B, K)` of x `(B, C, F)`, or of B sparse rows."""
        self.check(x, neighbors)
        if self.condensable and self.kind != "mlp":
            neighbors = condense(neighbors, len(x), self.hops)
        rows = x if self.kind == "mlp" else _both(x, neighbors.features)
        edges = star_edges(len(x), neighbors.owner)
        h = self.project(rows)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            h = layer(h) if self.kind in ("mlp", "appnp") else layer(h, edges)
            h = dropout(relu(norm(h)), self.dropout, self.training)
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


class Projection(nn.Module):
    """`x W` for dense features or sparse rows: the linear map inside a first layer.

    Args:
        num_features: F, or C · F.
        width: of the result.
    """

    def __init__(self, num_features: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_features, width))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, rows: Features) -> Tensor:
        """Map N rows to `(N, width)`."""
        dtype = self.weight.dtype
        dense = rows if isinstance(rows, Tensor) else None
        if dense is not None:
            return dense.flatten(1).to(dtype) @ self.weight
        assert isinstance(rows, SparseRows)
        values = rows.values.to(dtype)
        index, start = rows.indices.long(), rows.indptr[:-1]
        return embedding_bag(index, self.weight, start, mode="sum", per_sample_weights=values)


class SageStart(nn.Module):
    """SAGE's first layer after its two linear maps: the mean of the neighbors' map, plus one's own.

    PyG's SAGEConv takes the mean before it maps, over all F features; the order does not matter.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mean = SimpleConv(aggr="mean")
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, h: Tensor, edges: Tensor) -> Tensor:
        """Map `(N, 2 * width)` to `(N, width)`."""
        around, own = h.chunk(2, dim=-1)
        out: Tensor = self.mean(around, edges) + own + self.bias
        return out


class Bias(nn.Module):
    """What is left of a linear layer when its map is done."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, h: Tensor) -> Tensor:
        """Add the bias to `(N, width)`."""
        return h + self.bias


def _first(kind: Kind, width: int) -> nn.Module:
    """The first layer without its linear map, which `Projection` has done."""
    if kind == "sage":
        return SageStart(width)
    if kind in ("mlp", "appnp"):
        return Bias(width)
    layer = _layer(kind, width, width)
    layer.lin = nn.Identity()
    return layer


def _layer(kind: Kind, before: int, after: int) -> nn.Module:
    layers = {"gcn": GCNConv, "sage": SAGEConv, "gat": GATConv}
    layer: nn.Module = layers.get(kind, nn.Linear)(before, after)
    return layer


def _both(x: Features, y: Features) -> Features:
    if isinstance(x, SparseRows):
        assert isinstance(y, SparseRows)
        return SparseRows.concatenate([x, y])
    assert isinstance(y, Tensor)
    return torch.cat([x.flatten(0, -3), y])

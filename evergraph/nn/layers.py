"""The layers of Section 4.3: broadcast (Eq. 7) and transform (Eq. 8).

Layers map feature nodes `(*, C, F)` with any leading dimensions. On the support of a sparse
batch the same nodes come as `(C, N)` (no leading dimension, see `feature_graph.support`), and
all nodes that are not there share one value per channel, called *absent*.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag, linear

from evergraph.feature_graph import DenseGraph, FeatureGraph, RankOneGraph
from evergraph.feature_graph.lean import LeanGraph
from evergraph.graph.neighbors import Features
from evergraph.graph.rows import SparseRows
from evergraph.nn.attention import uniform
from evergraph.nn.messages import IdentityGraph, MessageGraph, SparseGraph

Graph = FeatureGraph | LeanGraph | MessageGraph

HARDLY_SPARSE = 1 / 16  # share of nonzeros from which a product with all zeros is the faster one


class FeatureBroadcast(nn.Module):
    """Mix the channels of what each feature collects from its feature graph, Eq. (7).

    `x' = Â x W`, or `[Â x, x] W` with `concatenate`; σ is left to the caller. The number of
    features stays, the number of channels changes. Several planes (hops, edge components) count
    as input channels each.

    Args:
        in_channels: C of the input.
        out_channels: C of the output.
        planes: P, the number of adjacencies per channel.
        concatenate: keep the unpropagated features beside the propagated ones.

    Example:
        >>> from evergraph.feature_graph import feature_graph
        >>> from evergraph.graph import Neighbors
        >>> x, y = torch.rand(2, 1, 6), torch.rand(5, 1, 6)
        >>> graph = feature_graph(x, Neighbors(y, owner=torch.tensor([0, 0, 0, 1, 1])))
        >>> FeatureBroadcast(1, 10)(x, graph).shape
        torch.Size([2, 10, 6])
    """

    def __init__(
        self, in_channels: int, out_channels: int, planes: int = 1, concatenate: bool = False
    ) -> None:
        super().__init__()
        self.concatenate = concatenate
        channels = (planes + concatenate) * in_channels
        self.weight = nn.Parameter(uniform(channels, out_channels))

    def forward(self, x: Tensor, graph: Graph, absent: Tensor | None = None) -> Tensor:
        """Map x `(*, C, F)` to `(*, D, F)`; absent `(C,)` is where x is measured from."""
        return self.weight.T @ self.collect(x, graph, absent)

    def collect(self, x: Tensor, graph: Graph, absent: Tensor | None = None) -> Tensor:
        """What is mixed: `Â x`, or `[Â x, x - absent]`, which is 0 for nodes that are not there."""
        around = graph.propagate(x)
        if not self.concatenate:
            return around
        return torch.cat([around, x if absent is None else x - absent.unsqueeze(-1)], dim=-2)


class FeatureTransform(nn.Module):
    """Map propagated features to new ones, for a node and its neighbors alike, Eq. (8).

    `x' = W Â x` and `y' = W Â(x) y`, or `W [Â x, x]` and `W [Â(x) y, y]` with `concatenate`,
    which prevents over-smoothing; σ is left to the caller. W holds one F' × F matrix for every
    pair of channels, so that the number of channels can change too.

    Args:
        in_channels: C of the input.
        in_features: F of the input.
        out_channels: C of the output.
        out_features: F of the output.
        concatenate: keep the unpropagated features beside the propagated ones.
        planes: P, the number of adjacencies per channel.
        bias: add one number per output.
    """

    def __init__(
        self,
        in_channels: int,
        in_features: int,
        out_channels: int,
        out_features: int,
        concatenate: bool = False,
        planes: int = 1,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.shape = (out_channels, out_features)
        self.propagated = planes * in_channels
        self.concatenate = concatenate
        channels = self.propagated + in_channels * concatenate
        weight = uniform(channels * in_features, out_channels * out_features)
        self.weight = nn.Parameter(weight.T.contiguous().view(-1, channels, in_features))
        self.bias = nn.Parameter(torch.zeros(out_channels * out_features)) if bias else None

    def forward(self, graph: Graph | SparseGraph) -> Tensor:
        """Map the nodes `(*, C, F)` to `(*, D, G)`."""
        if isinstance(graph, SparseGraph):
            return self._on_rows(graph)
        if graph.support is not None:
            return self._on_support(graph)[0]
        return self._map(graph.propagate(graph.nodes), graph.nodes)

    def with_neighbors(self, graph: Graph) -> tuple[Tensor, Tensor]:
        """The same for the nodes and for their packed neighbors, `(N, D, G)`."""
        if graph.support is not None:
            return self._on_support(graph)
        if isinstance(graph, DenseGraph | RankOneGraph):
            y, around = graph.neighbors.features, graph.propagate_neighbors()
            assert isinstance(y, Tensor)
            return self(graph), self._map(around, y)
        raise TypeError(f"{type(graph).__name__} has no packed neighbors to transform")

    def alone(self, y: Features) -> Tensor:
        """Map nodes that collect themselves, such as neighbors whose neighbors are unknown."""
        if isinstance(y, SparseRows):
            return self._finish(_bag(y, self.weight.sum(1)))
        planes = self.propagated // y.shape[-2]
        return self._map(IdentityGraph(y, planes).propagate(y), y)

    def _map(self, propagated: Tensor, plain: Tensor) -> Tensor:
        if self.concatenate:
            propagated = _beside(propagated, plain)
        return self._finish(linear(propagated.flatten(-2), self.weight.flatten(1)))

    def _on_rows(self, graph: SparseGraph) -> Tensor:
        """Map sparse rows first, then send the message."""
        out: Tensor | None = None
        if self.concatenate:
            out = _bag(graph.nodes, self.weight[:, self.propagated])
        if graph.message == "identity":
            own = _bag(graph.nodes, self.weight[:, : graph.planes].sum(1))
            out = own if out is None else out + own
        elif graph.message == "mean":
            around = self._mean_of_rows(graph)
            out = around if out is None else out + around
        assert out is not None
        return self._finish(out)

    def _mean_of_rows(self, graph: SparseGraph) -> Tensor:
        """`Σ_p W_p m_p`, each neighbor mapped by the W of its plane before the mean is taken."""
        neighbors = graph.layout.neighbors
        hop, components = neighbors.hop, neighbors.edge_components
        out: Tensor | None = None
        for component in range(components):
            mapped = self.weight.new_zeros(len(graph.around), len(self.weight))
            for number, plane in enumerate(range(component, graph.planes, components)):
                if hop is None:
                    mapped = _bag(graph.around, self.weight[:, plane])
                    break
                mine = torch.nonzero(hop == number + 1).squeeze(1)
                rows = _bag(graph.around[mine], self.weight[:, plane])
                mapped = mapped.index_add(0, mine, rows)
            means = graph.layout.mean(mapped.unsqueeze(1), graph.weight, graph.total)
            mine_of = means[:, component::components].sum(1).squeeze(1)
            out = mine_of if out is None else out + mine_of
        assert out is not None
        return out

    def _finish(self, out: Tensor) -> Tensor:
        out = out if self.bias is None else out + self.bias
        return out.view(*out.shape[:-1], *self.shape)

    def _on_support(self, graph: Graph) -> tuple[Tensor, Tensor]:
        """`(W Â) x` in place of `W (Â x)`: W Â is made once per item and serves all neighbors."""
        assert graph.support is not None
        assert not isinstance(graph, DenseGraph)
        y, support = graph.neighbors.features, graph.support
        assert isinstance(y, SparseRows)
        weight = self.weight[..., support.feature]  # (D * G, channels, N)
        there = weight[:, : self.propagated].movedim(1, 0).flatten(0, 1)
        combined = graph.adjoint(there)
        if self.concatenate:
            combined = combined + weight[:, self.propagated]
        own = support.total(combined * graph.nodes)
        terms = combined[:, support.position] * y.values.to(combined.dtype)
        around = terms.new_zeros(len(combined), len(y)).index_add(1, y.rows, terms)
        if self.bias is not None:
            own, around = own + self.bias.unsqueeze(-1), around + self.bias.unsqueeze(-1)
        return own.T.reshape(-1, *self.shape), around.T.reshape(-1, *self.shape)


class FeatureConvolution(nn.Module):
    """Eq. (8) with a band for W: the same numbers along its diagonals.

    Features are moments in time, and what a movement means does not depend on when it begins.

    Args:
        in_channels: C of the input.
        out_channels: C of the output.
        kernel: how many moments W reaches over, an odd number.
        concatenate: keep the unpropagated features beside the propagated ones.
        planes: P, the number of adjacencies per channel.
        circular: whether W goes on around the end; zeros lie there otherwise.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: int,
        concatenate: bool = False,
        planes: int = 1,
        circular: bool = True,
    ) -> None:
        super().__init__()
        self.concatenate = concatenate
        self.band = nn.Conv1d(
            (planes + concatenate) * in_channels,
            out_channels,
            kernel,
            padding=kernel // 2,
            padding_mode="circular" if circular else "zeros",
        )

    def forward(self, graph: Graph) -> Tensor:
        """Map the nodes `(*, C, F)` to `(*, D, F)`."""
        x = graph.nodes
        y = graph.propagate(x)
        if self.concatenate:
            y = _beside(y, x)
        out: Tensor = self.band(y.flatten(0, -3))
        return out.view(*x.shape[:-2], *out.shape[1:])


def _beside(message: Tensor, plain: Tensor) -> Tensor:
    """Channels of a message and of the node itself; no copy is made if there is no message."""
    return torch.cat([message, plain], dim=-2) if message.shape[-2] else plain


def _bag(rows: SparseRows, weight: Tensor) -> Tensor:
    """`rows Wᵀ` for a dense W `(O, F)`: `(R, O)`, in time that depends on the nonzeros if few."""
    rows = rows.to(weight.dtype)
    if len(rows.values) > HARDLY_SPARSE * len(rows) * rows.num_features:
        return rows.to_dense() @ weight.T
    values, index = rows.values, rows.indices.long()
    table, start = weight.T.contiguous(), rows.indptr[:-1].long()
    return embedding_bag(index, table, start, mode="sum", per_sample_weights=values)

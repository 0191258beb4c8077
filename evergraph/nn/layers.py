"""The layers of Section 4.3: broadcast (Eq. 7), transform (Eq. 8) and attention (Eq. 9).

Layers map feature nodes `(*, C, F)` with any leading dimensions. On the support of a sparse
batch the same nodes come as `(C, N)` (no leading dimension, see `feature_graph.support`), and
all nodes that are not there share one value per channel, called *absent*.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, linear

from evergraph.feature_graph import DenseGraph, FeatureGraph, Features, Neighbors, SupportGraph
from evergraph.graph.rows import SparseRows


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

    def forward(self, x: Tensor, graph: FeatureGraph, absent: Tensor | None = None) -> Tensor:
        """Map x `(*, C, F)` to `(*, D, F)`; absent `(C,)` is where x is measured from."""
        return self.weight.T @ self.collect(x, graph, absent)

    def collect(self, x: Tensor, graph: FeatureGraph, absent: Tensor | None = None) -> Tensor:
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
    """

    def __init__(
        self,
        in_channels: int,
        in_features: int,
        out_channels: int,
        out_features: int,
        concatenate: bool = False,
        planes: int = 1,
    ) -> None:
        super().__init__()
        self.shape = (out_channels, out_features)
        self.propagated = planes * in_channels
        self.concatenate = concatenate
        channels = self.propagated + in_channels * concatenate
        weight = uniform(channels * in_features, out_channels * out_features)
        self.weight = nn.Parameter(weight.T.reshape(-1, channels, in_features))

    def forward(self, graph: FeatureGraph) -> tuple[Tensor, Tensor]:
        """Map the nodes `(*, C, F)` and neighbors `(N, C, F)` to `(*, D, G)` and `(N, D, G)`."""
        if graph.support is not None:
            return self._on_support(graph)
        x, y = graph.nodes, graph.neighbors.features
        assert isinstance(y, Tensor)
        assert not isinstance(graph, SupportGraph)
        return self._map(graph.propagate(x), x), self._map(graph.propagate_neighbors(), y)

    def _map(self, propagated: Tensor, plain: Tensor) -> Tensor:
        if self.concatenate:
            propagated = torch.cat([propagated, plain], dim=-2)
        out = linear(propagated.flatten(-2), self.weight.flatten(1))
        return out.view(*out.shape[:-1], *self.shape)

    def _on_support(self, graph: FeatureGraph) -> tuple[Tensor, Tensor]:
        """`(W Â) x` in place of `W (Â x)`: W Â is made once per item and serves all neighbors."""
        y, support = graph.neighbors.features, graph.support
        assert isinstance(y, SparseRows)
        assert support is not None
        assert not isinstance(graph, DenseGraph)
        weight = self.weight[..., support.feature]  # (D * G, channels, N)
        there = weight[:, : self.propagated].movedim(1, 0).flatten(0, 1)
        combined = graph.adjoint(there)
        if self.concatenate:
            combined = combined + weight[:, self.propagated]
        own = support.total(combined * graph.nodes)
        terms = combined[:, support.position] * y.values.to(combined.dtype)
        around = terms.new_zeros(len(combined), len(y)).index_add(1, y.rows, terms)
        return own.T.reshape(-1, *self.shape), around.T.reshape(-1, *self.shape)


class FeatureAttention(nn.Module):
    """Weigh the neighbors of a node by what they are about, Eq. (9).

    `w_xy = softmax_y(LeakyReLU(a_x · x + a_y · y + b))` over each hop of the neighborhood. Give
    the result to `Neighbors.with_weight`; several heads become vector edge weights.

    Args:
        channels: C of the nodes.
        features: F of the nodes.
        heads: how many independent weights to learn.
        slope: of the LeakyReLU on its negative side.
        scaled: divide the scores by √(C F). They are sums of C F terms, and a step of Adam moves
            all terms alike: unscaled they soon choose one neighbor for good.

    Example:
        >>> neighbors = Neighbors(torch.rand(3, 1, 6), owner=torch.tensor([0, 0, 1]))
        >>> weight = FeatureAttention(1, 6)(torch.rand(2, 1, 6), neighbors)
        >>> weight.shape, weight[2].item()
        (torch.Size([3]), 1.0)
    """

    def __init__(
        self,
        channels: int,
        features: int,
        heads: int = 1,
        slope: float = 0.2,
        scaled: bool = False,
    ) -> None:
        super().__init__()
        self.center = nn.Parameter(uniform(channels * features, heads))
        self.neighbor = nn.Parameter(uniform(channels * features, heads))
        self.bias = nn.Parameter(torch.zeros(heads))
        self.slope = slope
        self.scale = (channels * features) ** -0.5 if scaled else 1.0

    def forward(self, x: Features, neighbors: Neighbors, hops: int = 1) -> Tensor:
        """One weight per neighbor, `(N,)`, or `(N, heads)`."""
        own = _inner(x, self.center)
        score = own[neighbors.owner] + _inner(neighbors.features, self.neighbor)
        score = score * self.scale + self.bias
        weight = _grouped_softmax(
            leaky_relu(score, self.slope), neighbors.slots(hops), len(own) * hops
        )
        return weight.squeeze(-1) if weight.shape[-1] == 1 else weight


def uniform(fan_in: int, fan_out: int) -> Tensor:
    """Weights to start from, `(fan_in, fan_out)`, between ±1/√fan_in."""
    bound = 1 / math.sqrt(max(fan_in, 1))
    return torch.empty(fan_in, fan_out).uniform_(-bound, bound)


def _inner(features: Features, vectors: Tensor) -> Tensor:
    """Inner products with a few vectors `(C * F, H)`: `(N, H)`."""
    if isinstance(features, SparseRows):
        return features.to(vectors.dtype).matmul(vectors)
    return features.reshape(-1, vectors.shape[0]).to(vectors.dtype) @ vectors


def _grouped_softmax(score: Tensor, group: Tensor, num_groups: int) -> Tensor:
    """Softmax of `(N, H)` within the groups of its rows."""
    index = group.unsqueeze(-1).expand_as(score)
    shape = (num_groups, score.shape[1])
    top = score.new_full(shape, -math.inf).scatter_reduce(0, index, score.detach(), "amax")
    weight = (score - top[group]).exp()
    return weight / score.new_zeros(shape).index_add(0, group, weight)[group]

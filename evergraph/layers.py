"""The layers of Section 4.3: broadcast (Eq. 7), transform (Eq. 8) and attention (Eq. 9).

Layers map feature nodes `(*, C, F)` with any leading dimensions. On the support of a sparse
batch the same nodes come as `(C, N)` (no leading dimension, see `feature_graph.support`), and
all nodes that are not there share one value per channel, called *absent*.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, leaky_relu, linear, pad, softsign

from evergraph.feature_graph import (
    DenseGraph,
    FeatureGraph,
    Features,
    Neighbors,
    Support,
    SupportGraph,
    ops,
)
from evergraph.feature_graph.activation import Statistics, norm_softsign
from evergraph.sparse import SparseRows


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
        self.weight = nn.Parameter(_uniform(channels, out_channels))

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
        weight = _uniform(channels * in_features, out_channels * out_features)
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
        self.center = nn.Parameter(_uniform(channels * features, heads))
        self.neighbor = nn.Parameter(_uniform(channels * features, heads))
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


class FeatureNorm(nn.Module):
    """Batch normalization of feature nodes, per channel, over items and features.

    Nodes that are not present are zeros that nobody stored: they count in the mean and in the
    variance, and all get the same normalized value, which is returned beside the rest.

    Args:
        channels: C.
        gain: times scale and shift. Where few nodes are present, those are far from the mean, and
            softsign can hardly tell them apart; a small gain keeps them in its straight part.
        momentum: weight of the new batch in the running statistics.
        eps: added to the variance.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self, channels: int, gain: float = 1.0, momentum: float = 0.1, eps: float = 1e-5
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.gain = gain
        self.momentum = momentum
        self.eps = eps

    @property
    def affine(self) -> tuple[Tensor, Tensor]:
        """Scale and shift of the normalized nodes, `(C,)` each."""
        if self.gain == 1:
            return self.weight, self.bias
        return self.gain * self.weight, self.gain * self.bias

    def forward(self, z: Tensor, num_nodes: int | None = None) -> tuple[Tensor, Tensor]:
        """Normalize z `(*, C, F)` among `num_nodes` nodes; also returns absent, `(C,)`."""
        mean, var = self.running_mean, self.running_var
        if self.training:
            stored = z.numel() // max(z.shape[-2], 1)
            count = stored if num_nodes is None else num_nodes
            axes = [axis for axis in range(z.dim()) if axis != z.dim() - 2]
            mean = z.sum(axes) / max(count, 1)
            square = (z - mean.unsqueeze(-1)).square().sum(axes)
            var = (square + (count - stored) * mean.square()) / max(count, 1)
            self.track(mean, var, count)
        weight, bias = self.affine
        scale = weight * torch.rsqrt(var + self.eps)
        shift = bias - mean * scale
        return torch.addcmul(shift.unsqueeze(-1), z, scale.unsqueeze(-1)), shift

    def softsign(
        self, z: Tensor, num_nodes: int | None = None, mixing: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Softsign of the normalized z and of absent, compiled where that is possible.

        With `mixing (C, D)`, the channels of z are mapped before.
        """
        if ops.supports(z) and z.dtype == self.weight.dtype:
            statistics = self.statistics(z, num_nodes)
            out: tuple[Tensor, Tensor]
            out = norm_softsign(z, mixing, *self.affine, statistics)
            return out
        y, absent = self(z if mixing is None else mixing.T @ z, num_nodes)
        return softsign(y), softsign(absent)

    def statistics(self, z: Tensor, num_nodes: int | None = None) -> Statistics:
        """What the compiled forms need to normalize z."""
        count = z.numel() // max(z.shape[-2], 1) if num_nodes is None else num_nodes
        running = self.running_mean, self.running_var
        return Statistics(*running, self.momentum, self.eps, count, self.training)

    @torch.no_grad()
    def track(self, mean: Tensor, var: Tensor, count: int) -> None:
        """Follow the statistics of a training batch."""
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(var * (count / max(count - 1, 1)), self.momentum)


class BroadcastBlock(nn.Module):
    """`dropout(softsign(batch_norm(Â x W)))`: Eq. (7) as the paper uses it.

    A dropped node looks like an absent one, so that dropout costs nothing where nothing is.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        planes: int = 1,
        dropout: float = 0.0,
        concatenate: bool = False,
        gain: float = 1.0,
    ) -> None:
        super().__init__()
        self.layer = FeatureBroadcast(in_channels, out_channels, planes, concatenate)
        self.norm = FeatureNorm(out_channels, gain)
        self.dropout = dropout

    def forward(
        self, x: Tensor, graph: FeatureGraph, absent: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Map x `(*, C, F)` to `(*, D, F)`; takes and returns the value of absent nodes."""
        nodes = None if graph.support is None else graph.support.num_nodes
        y, absent = self.norm.softsign(
            self.layer.collect(x, graph, absent), nodes, mixing=self.layer.weight
        )
        return _drop(y, absent, self.dropout, self.training), absent


class TransformBlock(nn.Module):
    """`dropout(softsign(batch_norm(W Â x)))`, for a node and its neighbors: Eq. (8) as used."""

    def __init__(self, layer: FeatureTransform, dropout: float = 0.0, gain: float = 1.0) -> None:
        super().__init__()
        self.layer = layer
        self.norm = FeatureNorm(layer.shape[0], gain)
        self.dropout = dropout

    def forward(self, graph: FeatureGraph) -> tuple[Tensor, Neighbors, Tensor]:
        """The new nodes, their new neighbors and the value of absent nodes, `(C,)`."""
        own, around = self.layer(graph)
        items = own.reshape(-1, *own.shape[-2:])
        together, absent = self.norm.softsign(torch.cat([items, around]))
        together = _drop(together, absent, self.dropout, self.training)
        neighbors = graph.neighbors.with_features(together[len(items) :])
        return together[: len(items)].view_as(own), neighbors, absent


class Readout(nn.Module):
    """A linear classifier over all feature nodes of an item.

    `logits = Σ_f W_f (y_f - absent) + b`: features that are not there add nothing, so that the
    cost follows those that are. As long as `absent` stays, this is the plain linear layer with
    another bias; `centered=False` is that plain layer, and adds absent times the column sums.

    Args:
        channels: C.
        features: F.
        outputs: K, the number of logits.
        centered: measure from the absent value.
        sparse_gradient: let `FGN` give the weight a sparse gradient where it runs compiled, so
            that a step costs the same for any F; for optimizers that accept it, such as SGD.
    """

    def __init__(
        self,
        channels: int,
        features: int,
        outputs: int,
        centered: bool = True,
        sparse_gradient: bool = False,
    ) -> None:
        super().__init__()
        if sparse_gradient and not centered:
            raise ValueError("sparse_gradient needs centered=True: column sums touch every weight")
        self.weight = nn.Parameter(
            _uniform(channels * features, outputs).view(features, channels, -1)
        )
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.centered = centered
        self.sparse_gradient = sparse_gradient

    def forward(self, y: Tensor, absent: Tensor, support: Support | None = None) -> Tensor:
        """Logits `(*, K)` of y `(*, C, F)`, or `(B, K)` of `(C, N)` on a support."""
        if support is None:
            if self.centered:
                y = y - absent.unsqueeze(-1)
            return torch.einsum("...cf,fck->...k", y, self.weight) + self.bias
        rows = self.weight[support.feature]
        terms = torch.einsum("cn,nck->kn", y - absent.unsqueeze(-1), rows)
        logits = support.total(terms).T
        if not self.centered:
            logits = logits + absent @ self.weight.sum(0)
        return logits + self.bias

    def grow(self, outputs: int) -> None:
        """Make room for more logits; the new ones start at zero."""
        more = outputs - self.bias.shape[0]
        if more > 0:
            self.weight = nn.Parameter(pad(self.weight.detach(), (0, more)))
            self.bias = nn.Parameter(pad(self.bias.detach(), (0, more)))


def _uniform(fan_in: int, fan_out: int) -> Tensor:
    bound = 1 / math.sqrt(max(fan_in, 1))
    return torch.empty(fan_in, fan_out).uniform_(-bound, bound)


def _drop(y: Tensor, absent: Tensor, rate: float, training: bool) -> Tensor:
    if not training or rate == 0:
        return y
    base = absent.unsqueeze(-1)
    return base + dropout(y - base, rate)


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

"""What stands around the layers in a network: normalization, softsign, dropout, the classifier."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, pad, softsign

from evergraph.feature_graph import FeatureGraph, Neighbors, Support, ops
from evergraph.feature_graph.activation import Statistics, norm_softsign
from evergraph.nn.layers import FeatureBroadcast, FeatureTransform, uniform


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
            uniform(channels * features, outputs).view(features, channels, -1)
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


def _drop(y: Tensor, absent: Tensor, rate: float, training: bool) -> Tensor:
    if not training or rate == 0:
        return y
    base = absent.unsqueeze(-1)
    return base + dropout(y - base, rate)

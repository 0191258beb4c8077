"""Networks that classify a window of sensors: FGN, and those it is measured against.

All take windows `(B, 2 S, C, F)` and know by themselves who neighbors whom, so that a batch stores
no neighbors: within an instant the sensors are 1-hop neighbors of each other, those of the other
instant are 2-hop neighbors (Appendix C of the paper).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, leaky_relu

from evergraph.apps.action.plain import normalized, pooled
from evergraph.apps.action.preprocessing import Standardize
from evergraph.apps.action.propagation import propagated
from evergraph.apps.action.windows import INSTANTS
from evergraph.feature_graph import Neighbors
from evergraph.nn.blocks import FeatureNorm, Readout, TransformBlock
from evergraph.nn.layers import FeatureAttention, FeatureTransform

Relation = Literal["feature-graph", "identity", "mean", "none"]
HOPS = 2


def neighborhoods(sensors: int, hops: int = HOPS, together: bool = False) -> Tensor:
    """Who neighbors whom, `(P, 2 S, 2 S)` booleans: row i holds the neighbors of node i.

    Args:
        sensors: S.
        hops: 1 for the same instant only, 2 for the adjacent one too, in a plane of its own.
        together: one plane with all nodes, the node itself included, as GCN and GAT have it.

    Example:
        >>> neighborhoods(sensors=2).sum(-1)
        tensor([[1, 1, 1, 1],
                [2, 2, 2, 2]])
    """
    instant = torch.arange(INSTANTS).repeat_interleave(sensors)
    same = instant.unsqueeze(1) == instant
    if together:
        return torch.ones_like(same).unsqueeze(0)
    itself = torch.eye(len(instant), dtype=torch.bool)
    return torch.stack([same & ~itself, ~same][:hops])


def attend(attention: FeatureAttention, x: Tensor, around: Tensor) -> Tensor:
    """Eq. (9) for all nodes of all windows at once: weights `(B, P, N, N)`, rows sum to 1.

    Args:
        attention: the layer that holds the parameters.
        x: `(B, N, C, F)`.
        around: see `neighborhoods`.
    """
    flat = x.flatten(2)
    score = (flat @ attention.center) + (flat @ attention.neighbor).mT
    score = leaky_relu(score * attention.scale + attention.bias, attention.slope).unsqueeze(1)
    weight = score.masked_fill(~around, -torch.inf).softmax(-1)
    return weight.masked_fill(~around, 0)  # a node without neighbors has a row of NaN


@dataclass(frozen=True)
class WindowGraph:
    """All nodes of windows with what they collect, as a transform layer takes them.

    Neighbors are nodes of the same window, and are transformed there; none is listed twice.

    Attributes:
        nodes: `(B, N, C, F)`.
        collected: `(P, B, N, C, F)`: what plane p gives to each node.
    """

    nodes: Tensor
    collected: Tensor
    support = None

    @property
    def neighbors(self) -> Neighbors:
        """None beside the nodes themselves."""
        shape = self.nodes.shape[-2:]
        return Neighbors(self.nodes.new_zeros(0, *shape), torch.zeros(0, dtype=torch.long))

    def propagate(self, z: Tensor) -> Tensor:
        """`(B, N, P * C, F)`."""
        return self.collected.movedim(0, 2).flatten(2, 3)

    def propagate_neighbors(self) -> Tensor:
        """None."""
        planes, *_, channels, features = self.collected.shape
        return self.nodes.new_zeros(0, planes * channels, features)


class ConvolutionBlock(nn.Module):
    """Eq. (8) with a band for W: `dropout(pool(relu(norm(W * [Â x, x]))))`.

    Features are moments in time, and what a movement means does not depend on when it begins: W
    has the same numbers along its diagonals, around the end, as in the authors' code. Two
    neighboring moments are pooled into one, so that F becomes F // 2.

    Args:
        in_channels: channels of what is collected.
        out_channels: C of the output.
        kernel: how many moments W reaches over, an odd number.
        rate: of dropout.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel: int, rate: float) -> None:
        super().__init__()
        self.layer = nn.Conv1d(
            in_channels, out_channels, kernel, padding=kernel // 2, padding_mode="circular"
        )
        self.norm = FeatureNorm(out_channels)
        self.rate = rate

    def forward(self, graph: WindowGraph) -> tuple[Tensor, None, Tensor]:
        """The new nodes `(B, N, D, F // 2)`, as a `TransformBlock` gives them."""
        x = graph.nodes
        y = graph.propagate(x)
        if self.layer.in_channels > y.shape[2]:
            y = torch.cat([y, x], dim=2)
        y = pooled(normalized(self.norm, self.layer(y.flatten(0, 1)))).relu()
        y = dropout(y.view(*x.shape[:2], *y.shape[1:]), self.rate, self.training)
        return y, None, y.new_zeros(y.shape[2])


class GraphNetwork(nn.Module):
    """Two transform layers (Eq. 8) on the graph of a window, and a classifier of all its nodes.

    FGN, GCN and GAT are this network with another rule of what a node collects, and share
    everything else. Since all neighbors are nodes of the same window, the next layer finds them
    transformed by their own feature graphs.

    Args:
        sensors: S.
        in_channels: C.
        features: F, the samples of an instant.
        num_classes: number of logits.
        relation: `feature-graph` collects `Â x` (Eqs. 4-6), `mean` the neighbors' mean itself,
            `identity` puts the identity in place of Â, and `none` nothing.
        attention: learn the weights of the mean (Eq. 9); else all neighbors count the same.
        hops: 2 with the adjacent instant, 1 without.
        together: all nodes in one neighborhood, with the node itself.
        concatenate: keep x beside what is collected.
        channels: C after each layer.
        kernels: reach of W in each layer, see `ConvolutionBlock`; F is halved by each. None takes
            W as it is in Eq. (8), any matrix, and needs `widths`.
        widths: F after each layer, without kernels.
        rate: of dropout after each layer.
        teleport: after the layers, mix all nodes and keep this share of each (APPNP); 1 does not.
    """

    def __init__(
        self,
        sensors: int,
        in_channels: int,
        features: int,
        num_classes: int = 0,
        *,
        relation: Relation = "feature-graph",
        attention: bool = True,
        hops: int = HOPS,
        together: bool = False,
        concatenate: bool = True,
        channels: tuple[int, ...] = (32, 32),
        kernels: tuple[int, ...] | None = (5, 3),
        widths: tuple[int, ...] = (12, 6),
        rate: float = 0.2,
        teleport: float = 1.0,
    ) -> None:
        super().__init__()
        self.relation, self.teleport = relation, teleport
        self.scaling = Standardize(sensors, in_channels)
        self.hops = 1 if relation == "none" else hops
        self.around = neighborhoods(sensors, hops, together)
        planes = 0 if relation == "none" else len(self.around)
        self.blocks, self.attentions = nn.ModuleList(), nn.ModuleList()
        if kernels is not None:
            widths = tuple(features >> (layer + 1) for layer in range(len(channels)))
        depths, sizes = (in_channels, *channels), (features, *widths)
        if min(sizes) < 1:
            raise ValueError(f"{len(channels)} layers need more than {features} samples an instant")
        for layer in range(len(channels)):
            c, d, f, g = depths[layer], depths[layer + 1], sizes[layer], sizes[layer + 1]
            if kernels is None:
                transform = FeatureTransform(c, f, d, g, concatenate, planes)
                self.blocks.append(TransformBlock(transform, rate))
            else:
                inputs = (planes + concatenate) * c
                self.blocks.append(ConvolutionBlock(inputs, d, kernels[layer], rate))
            if attention and relation not in ("none", "identity"):
                self.attentions.append(FeatureAttention(c, f, scaled=True))
        self.readout = Readout(INSTANTS * sensors * depths[-1], sizes[-1], num_classes)

    @property
    def condensable(self) -> bool:
        """The neighbors are in the window already."""
        return False

    def grow(self, num_classes: int) -> None:
        """Make room for more classes; the logits of the old ones stay."""
        self.readout.grow(num_classes)

    def forward(self, x: Tensor, neighbors: Neighbors | None = None) -> Tensor:
        """Logits `(B, K)` of windows `(B, 2 S, C, F)`."""
        y, absent = self.encode(x)
        out: Tensor = self.readout(y.flatten(1, 2), absent.repeat(y.shape[1]))
        return out

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The nodes after the last layer, `(B, 2 S, C, F)`, and the value of absent ones."""
        x = self.scaling(x)
        absent = x.new_zeros(x.shape[2])
        for layer, block in enumerate(self.blocks):
            graph: Any = WindowGraph(x, self.collect(x, layer))
            x, _, absent = block(graph)
        if self.teleport < 1:
            x = torch.lerp(x.mean(1, keepdim=True), x, self.teleport)
        return x, absent

    def collect(self, x: Tensor, layer: int) -> Tensor:
        """What each node collects in a layer, `(P, B, 2 S, C, F)`."""
        if self.relation == "none":
            return x.new_zeros(0, *x.shape)
        if self.relation == "identity":
            return x.expand(len(self.around), *x.shape)
        mean = self.mean(x, layer)
        return propagated(x, mean) if self.relation == "feature-graph" else mean

    def mean(self, x: Tensor, layer: int) -> Tensor:
        """The weighted mean of the neighbors per hop, Eq. (5): `(P, B, 2 S, C, F)`."""
        count = self.around.sum(-1, keepdim=True).clamp(min=1)
        share = (self.around / count).to(x.dtype)
        if self.attentions:
            attention: Any = self.attentions[layer]
            weight = attend(attention, x, self.around)
            share = weight / count if self.relation == "feature-graph" else weight
        share = share if share.dim() == 4 else share.unsqueeze(0)
        total = share.transpose(0, 1) @ x.flatten(2)
        return total.view(len(self.around), *x.shape)

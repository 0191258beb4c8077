"""Learned edge weights, Eq. (9)."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from evergraph.checks import check_one_of
from evergraph.feature_graph import Neighborhoods
from evergraph.graph.neighbors import Features
from evergraph.graph.rows import SparseRows
from evergraph.noise import generator

Attention = Literal["softmax", "gate"]
ATTENTIONS: tuple[str, ...] = get_args(Attention)


class FeatureAttention(nn.Module):
    """Weigh the neighbors of a node by what they are about, Eq. (9).

    `w_xy = softmax_y(LeakyReLU(a_x · x + a_y · y + b))` over each hop of the neighborhood. With
    `gate`, a sigmoid takes the place of the softmax, which keeps how many neighbors agree. Given
    edge weights act as a prior: they multiply what is learned.

    Args:
        channels: C of the nodes.
        features: F of the nodes.
        kind: `softmax` or `gate`.
        slope: of the LeakyReLU on its negative side.
        scaled: divide the scores by √(C F). They are sums of C F terms, and a step of Adam moves
            all terms alike: unscaled they soon choose one neighbor for good.

    Example:
        >>> from evergraph.feature_graph import Packed
        >>> from evergraph.graph import Neighbors
        >>> neighbors = Neighbors(torch.rand(3, 1, 6), owner=torch.tensor([0, 0, 1]))
        >>> layout = Packed(neighbors, num_items=2, hops=1)
        >>> weight = FeatureAttention(1, 6)(torch.rand(2, 1, 6), neighbors.features, layout)
        >>> weight.shape, weight[2].item()
        (torch.Size([3]), 1.0)
    """

    def __init__(
        self,
        channels: int,
        features: int,
        kind: Attention = "softmax",
        slope: float = 0.2,
        scaled: bool = False,
    ) -> None:
        super().__init__()
        check_one_of("attention", kind, ATTENTIONS)
        self.center = nn.Parameter(uniform(channels * features, 1))
        self.neighbor = nn.Parameter(uniform(channels * features, 1))
        self.bias = nn.Parameter(torch.zeros(1))
        self.kind, self.slope = kind, slope
        self.scale = (channels * features) ** -0.5 if scaled else 1.0

    def forward(self, x: Features, around: Features, layout: Neighborhoods) -> Tensor:
        """One weight per edge of the layout, or one per component of its given weight."""
        own, other = _inner(x, self.center), _inner(around, self.neighbor)
        if self.scale != 1:
            own, other = own * self.scale, other * self.scale
        score = leaky_relu(layout.pair(own + self.bias, other), self.slope, inplace=True)
        if self.kind == "softmax":
            return layout.softmax(score)
        gate = score.sigmoid()
        if layout.weight is None:
            return gate
        return gate.view(*gate.shape, *(1,) * (layout.weight.dim() - gate.dim())) * layout.weight


def uniform(fan_in: int, fan_out: int) -> Tensor:
    """Weights to start from, `(fan_in, fan_out)`, between ±1/√fan_in; see `noise.draw_from`."""
    bound = 1 / math.sqrt(max(fan_in, 1))
    return torch.empty(fan_in, fan_out).uniform_(-bound, bound, generator=generator())


def _inner(features: Features, vector: Tensor) -> Tensor:
    """Inner products with a vector `(C * F, 1)`: one number per row, `(*,)`."""
    if isinstance(features, SparseRows):
        return features.to(vector.dtype).matmul(vector).squeeze(-1)
    return (features.flatten(-2).to(vector.dtype) @ vector).squeeze(-1)

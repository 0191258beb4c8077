"""Networks that know no graph: a perceptron and a small CNN, to measure FGN against."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, dropout

from evergraph.apps.action.preprocessing import Standardize
from evergraph.apps.action.windows import INSTANTS
from evergraph.feature_graph import Neighbors
from evergraph.nn.blocks import FeatureNorm, Readout


def normalized(norm: FeatureNorm, z: Tensor) -> Tensor:
    """What the layer computes, by torch's own operator: every node is present here."""
    parameters = (norm.running_mean, norm.running_var, *norm.affine)
    return batch_norm(z, *parameters, norm.training, norm.momentum, norm.eps)


def pooled(z: Tensor) -> Tensor:
    """The larger of each two neighboring features: `(*, F)` to `(*, F // 2)`."""
    even = z[..., : z.shape[-1] // 2 * 2]
    return torch.maximum(even[..., ::2], even[..., 1::2])


class Perceptron(nn.Module):
    """Two hidden layers on the flat window: knows no sensors, no time and no graph."""

    hops = 1
    condensable = False

    def __init__(
        self,
        sensors: int,
        in_channels: int,
        features: int,
        num_classes: int = 0,
        hidden: tuple[int, int] = (200, 200),
        rate: float = 0.2,
    ) -> None:
        super().__init__()
        self.scaling = Standardize(sensors, in_channels)
        inputs = INSTANTS * sensors * in_channels * features
        self.layers = nn.ModuleList([nn.Linear(inputs, hidden[0]), nn.Linear(*hidden)])
        self.norms = nn.ModuleList([FeatureNorm(width) for width in hidden])
        self.readout = Readout(hidden[-1], 1, num_classes)
        self.rate = rate

    def grow(self, num_classes: int) -> None:
        """Make room for more classes."""
        self.readout.grow(num_classes)

    def forward(self, x: Tensor, neighbors: Neighbors | None = None) -> Tensor:
        """Logits `(B, K)` of windows `(B, 2 S, C, F)`."""
        y = self.scaling(x).flatten(1)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            assert isinstance(norm, FeatureNorm)
            y = dropout(normalized(norm, layer(y)).relu(), self.rate, self.training)
        out: Tensor = self.readout(y.unsqueeze(-1), y.new_zeros(y.shape[1]))
        return out


class Convolutions(nn.Module):
    """A small 1-D CNN over the whole window: what most practitioners would start with."""

    hops = 1
    condensable = False

    def __init__(
        self,
        sensors: int,
        in_channels: int,
        num_classes: int = 0,
        channels: tuple[int, ...] = (32, 56, 104),
        kernel: int = 5,
        rate: float = 0.2,
    ) -> None:
        super().__init__()
        self.scaling = Standardize(sensors, in_channels)
        depths = (sensors * in_channels, *channels)
        self.layers = nn.ModuleList(
            nn.Conv1d(depths[i], depths[i + 1], kernel, padding=kernel // 2)
            for i in range(len(channels))
        )
        self.norms = nn.ModuleList(FeatureNorm(depth) for depth in channels)
        self.readout = Readout(2 * depths[-1], 1, num_classes)
        self.rate = rate

    def grow(self, num_classes: int) -> None:
        """Make room for more classes."""
        self.readout.grow(num_classes)

    def forward(self, x: Tensor, neighbors: Neighbors | None = None) -> Tensor:
        """Logits `(B, K)` of windows `(B, 2 S, C, F)`."""
        y = signals(self.scaling(x))
        for number, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            assert isinstance(norm, FeatureNorm)
            y = normalized(norm, layer(y)).relu()
            if number + 1 < len(self.layers):
                y = pooled(y)
        y = torch.cat([y.mean(-1), y.amax(-1)], dim=1)
        y = dropout(y, self.rate, self.training)
        out: Tensor = self.readout(y.unsqueeze(-1), y.new_zeros(y.shape[1]))
        return out


def signals(x: Tensor) -> Tensor:
    """Windows `(B, 2 S, C, F)` as signals in time, `(B, S * C, 2 F)`."""
    size, nodes, channels, features = x.shape
    halves = x.view(size, INSTANTS, nodes // INSTANTS, channels, features)
    return halves.permute(0, 2, 3, 1, 4).reshape(size, -1, INSTANTS * features)

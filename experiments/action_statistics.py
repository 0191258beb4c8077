"""What classical recognizers see of a window: a few statistics of every signal."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from evergraph.apps.action.plain import signals
from evergraph.nn.blocks import Readout
from evergraph.feature_graph import Neighbors

STATISTICS = ("mean", "deviation", "smallest", "largest", "mean change", "largest change")


def window_statistics(x: Tensor) -> Tensor:
    """Six statistics of every signal of windows `(B, 2 S, C, F)`: `(B, 6 S C)`.

    Example:
        >>> window_statistics(torch.rand(3, 10, 9, 25)).shape
        torch.Size([3, 270])
    """
    y = signals(x)
    change = y.diff(dim=-1).abs()
    parts = (
        y.mean(-1), y.std(-1, correction=0), y.amin(-1), y.amax(-1), change.mean(-1),
        change.amax(-1),
    )  # fmt: skip
    return torch.cat(parts, dim=1)


class StatisticsScaling:
    """Brings statistics to mean 0 and deviation 1 of the training windows.

    Args:
        train: statistics of training windows, `(N, D)`.
    """

    def __init__(self, train: Tensor) -> None:
        deviation = train.std(0, correction=0)
        self.mean = train.mean(0)
        self.deviation = deviation.masked_fill(deviation < 1e-6, 1.0)

    def items(self, statistics: Tensor) -> Tensor:
        """As items of a learner, `(B, 1, D + 1)`: with a constant beside them.

        The analytic method brings items to unit length; next to a large constant this leaves
        their size as it is, and the constant is what a regression needs for its offset.
        """
        scaled = ((statistics - self.mean) / self.deviation).clamp(-10, 10)
        large = 10 * math.sqrt(scaled.shape[1])
        return torch.cat([scaled, scaled.new_full((len(scaled), 1), large)], dim=1).unsqueeze(1)


class Linear(nn.Module):
    """No hidden layer: what a learner holds when its method has a classifier of its own."""

    hops = 1
    condensable = False

    def __init__(self, features: int, num_classes: int = 0) -> None:
        super().__init__()
        self.readout = Readout(1, features, num_classes)

    def grow(self, num_classes: int) -> None:
        """Make room for more classes."""
        self.readout.grow(num_classes)

    def forward(self, x: Tensor, neighbors: Neighbors | None = None) -> Tensor:
        """Logits `(B, K)` of items `(B, 1, F)`."""
        out: Tensor = self.readout(x, x.new_zeros(1))
        return out

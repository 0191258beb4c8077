"""Rich features of windows and their feature graphs, which a closed form reads.

Nothing here is learned by gradients: the features of a window are known as it comes, so that
linear discriminant analysis on them, `evergraph.learn.methods.Analytic`, learns windows in any
order with the same result, and forgets them again exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor, nn

from evergraph.apps.action.network import Standardize, signals, triples
from evergraph.apps.action.recording import Layout
from evergraph.apps.action.windows import INSTANTS
from evergraph.feature_graph.equations import normalize, sgnroot
from evergraph.nn.fgn import FGN

LAGS = (0, 4, 8, 12)  # samples between two signals that are correlated
DELAYS = (2, 4, 8, 12)  # samples between a signal and itself
BANDS = (0.02, 0.06, 0.12, 0.2, 0.32, 0.52, 1.01)  # limits of the bands, in half the rate
QUARTILES = (0.25, 0.5, 0.75)
FLOOR = 1e-3  # of a power, in units of the deviation of a sensor
LIMIT = 8.0  # deviations to which features are clipped
CHUNK = 1000  # windows at a time
STRENGTH = 1.8  # shrinkage of the covariance
BLOCKS = ("moments", "spectrum", "correlations", "graph")
WEIGHTS = {"moments": 1.0, "spectrum": 1.0, "correlations": 0.25, "graph": 0.25}
"""How much each block counts: shrinkage asks less of a feature with a larger weight."""
CLOSED: dict[str, dict[str, float]] = {"rich": {"graph": 0.0}, "rich-graph": {}}
"""Closed forms by name, and what they change in `WEIGHTS`."""


def with_magnitudes(y: Tensor, axes: tuple[tuple[int, int, int], ...]) -> Tensor:
    """Signals `(B, S, C, T)`, and the length of each vector of three axes as channels of its own.

    Example:
        >>> with_magnitudes(torch.tensor([[[[3.0], [4.0], [0.0]]]]), ((0, 1, 2),)).flatten()
        tensor([3., 4., 0., 5.])
    """
    lengths = [y[:, :, list(three)].square().sum(2, keepdim=True).sqrt() for three in axes]
    return torch.cat([y, *lengths], 2)


def moments(y: Tensor) -> Tensor:
    """Mean, deviation and quartiles of signals `(B, *, T)`: `(B, *, 5)`."""
    share = torch.tensor(QUARTILES, dtype=y.dtype)
    quartiles = torch.quantile(y, share, dim=-1).movedim(0, -1)
    return torch.cat([y.mean(-1, True), y.std(-1, correction=0, keepdim=True), quartiles], -1)


def spectrum(y: Tensor) -> Tensor:
    """Log-power of signals `(B, *, T)` in six bands, and autocorrelations: `(B, *, 6 + L)`."""
    length = y.shape[-1]
    centered = y - y.mean(-1, True)
    power = torch.fft.rfft(centered * torch.hann_window(length)).abs().square()
    frequency = torch.linspace(0, 1, power.shape[-1])
    bands = [
        power[..., (frequency >= low) & (frequency < high)].sum(-1) for low, high in pairwise(BANDS)
    ]
    unit = unit_power(centered)
    delayed = [(unit[..., :-d] * unit[..., d:]).mean(-1) for d in DELAYS if d < length]
    return torch.cat([(torch.stack(bands, -1) + FLOOR).log(), torch.stack(delayed, -1)], -1)


def unit_power(y: Tensor) -> Tensor:
    """Signals without their mean, with a mean square of 1."""
    centered = y - y.mean(-1, True)
    return centered / (centered.square().mean(-1, True).sqrt() + FLOOR)


def correlations(y: Tensor) -> Tensor:
    """Correlations of the same channel of two sensors, `(B, S, C, T)` to `(B, D)`.

    Lags count for both orders of the two sensors.
    """
    unit, sensors, length = unit_power(y), y.shape[1], y.shape[-1]
    first, second = torch.triu_indices(sensors, sensors, 1)
    found = []
    for lag in LAGS:
        if lag < length:
            table = _lagged("bsct,buct->bcsu", unit, unit, lag)
            found.append(table[..., first, second])
            found += [table[..., second, first]] if lag else []
    return torch.cat([part.flatten(1) for part in found], 1)


def graph(y: Tensor) -> Tensor:
    """The feature graph of each sensor with the mean of the others, Eqs. (4) to (6), at each lag.

    The features are the channels: `A = sgnroot(Σ_t x_t m_{t+l}ᵀ + m_{t+l} x_tᵀ)`, normalized by
    rows and columns, where m is the mean of the other sensors. `(B, S, C, T)` to `(B, D)`.
    """
    unit, (sensors, channels, length) = unit_power(y), y.shape[1:]
    if sensors < 2:
        return y.new_zeros(len(y), 0)
    mean = (unit.sum(1, keepdim=True) - unit) / (sensors - 1)
    upper = torch.triu_indices(channels, channels)
    found = []
    for lag in LAGS:
        if lag < length:
            outer = _lagged("bsct,bsdt->bscd", unit, mean, lag)
            adjacency = normalize(sgnroot(outer + outer.mT))
            found.append(adjacency[..., upper[0], upper[1]].flatten(1))
    return torch.cat(found, 1)


def _lagged(equation: str, first: Tensor, second: Tensor, lag: int) -> Tensor:
    """Mean over time of products with the second `lag` samples later."""
    length = first.shape[-1] - lag
    return torch.einsum(equation, first[..., :length], second[..., lag:]) / length


class RichFeatures(nn.Module):
    """Fixed features of windows as items `(B, 1, D + 1)` of a closed form; an encoder of `FGN`.

    Signals are divided by the deviation of their sensor's quantity, features get mean 0 and
    deviation 1, both of the windows that `update` was given. The last feature is a constant, and
    so large that bringing items to unit length leaves the others as they are.

    Args:
        layout: sensors and channels.
        features: F, the samples of an instant.
        weights: of `BLOCKS`; those of weight 0 are left out.

    Attributes:
        sizes: how many features each block has, in their order.
    """

    fixed = True  # nothing is learned by gradients, so that a closed form may stand on it
    center: Tensor
    spread: Tensor
    weight: Tensor

    def __init__(
        self, layout: Layout, features: int, weights: dict[str, float] | None = None
    ) -> None:
        super().__init__()
        self.axes = triples(layout.channels)
        self.weights = {**WEIGHTS, **(weights or {})}
        self.scale = Standardize(*layout.shape, features)
        self.in_shape, self.in_nodes = self.scale.in_shape, self.scale.in_nodes
        example = torch.zeros(1, INSTANTS * layout.shape[0], layout.shape[1], features)
        self.sizes = {name: part.shape[1] for name, part in self._blocks(example)}
        parts = [torch.full((size,), self.weights[name]) for name, size in self.sizes.items()]
        self.register_buffer("weight", torch.cat(parts))
        self.register_buffer("center", torch.zeros(len(self.weight)))
        self.register_buffer("spread", torch.ones(len(self.weight)))

    @property
    def mean(self) -> Tensor:
        """The mean of each signal, `(S, C)`, which stands in for one that is missing."""
        return self.scale.mean

    @property
    def deviation(self) -> Tensor:
        """The deviation of each signal, `(S, C)`."""
        return self.scale.deviation

    def update(self, x: Tensor) -> None:
        """Set the scale from windows `(B, 2 S, C, F)`, all at once."""
        if self.scale.count:
            raise ValueError(
                "the scale of rich features is set once, by the first recordings, because the "
                "closed form keeps sums of scaled features; train again for another scale"
            )
        self.scale.update(x)
        found = torch.cat([self._raw(part) for part in x.split(CHUNK)])
        spread, self.center = torch.std_mean(found, 0, correction=0)
        self.spread = spread.masked_fill(spread < 1e-6, 1.0)

    def _blocks(self, x: Tensor) -> Iterator[tuple[str, Tensor]]:
        sensors, channels = self.scale.mean.shape
        deviation = self.scale.deviation.clone()
        for three in self.axes:  # one for a vector, whose direction stays
            deviation[:, list(three)] = deviation[:, list(three)].mean(1, keepdim=True)
        y = signals(x).unflatten(1, (sensors, channels)) / deviation.unsqueeze(-1)
        every = with_magnitudes(y, self.axes)
        makers = {"moments": (moments, every), "spectrum": (spectrum, every)}
        makers |= {"correlations": (correlations, every), "graph": (graph, y)}
        for name in BLOCKS:
            if self.weights[name]:
                make, given = makers[name]
                yield name, make(given).flatten(1)

    def _raw(self, x: Tensor) -> Tensor:
        return torch.cat([part for _, part in self._blocks(x)], 1)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Map windows `(B, 2 S, C, F)` to items `(B, 1, D + 1)`."""
        parts = [self._raw(part) for part in x.split(CHUNK)]
        scaled = ((torch.cat(parts) - self.center) / self.spread).clamp(-LIMIT, LIMIT) * self.weight
        constant = scaled.new_full((len(scaled), 1), 10 * math.sqrt(scaled.shape[1]))
        return torch.cat([scaled, constant], 1).unsqueeze(1)


def rich_network(layout: Layout, features: int, weights: dict[str, float] | None = None) -> FGN:
    """What a learner of `Analytic` reads its items from: rich features and no layers.

    Example:
        >>> layout = Layout(("arm", "leg"), ("acc_x", "acc_y", "acc_z"), 25.0)
        >>> rich_network(layout, 25).encoder(torch.rand(3, 4, 3, 25)).shape
        torch.Size([3, 1, 197])
    """
    encoder = RichFeatures(layout, features, weights)
    width = len(encoder.weight) + 1
    return FGN(width, layer="transform", channels=(), message="none", encoder=encoder)

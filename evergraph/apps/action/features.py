"""What is computed of a window: moments, bands, relations between sensors, their feature graph.

Pure functions of signals `(B, S, C, T)`: sensors, channels and time. Nothing here is learned.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from evergraph.feature_graph.equations import normalize, sgnroot

LAGS = (0, 4, 8, 12)  # samples between two signals that are correlated
DELAYS = (2, 4, 8, 12)  # samples between a signal and itself
BANDS = (0.02, 0.06, 0.12, 0.2, 0.32, 0.52, 1.01)  # limits of the bands, in half the rate
QUARTILES = (0.25, 0.5, 0.75)
FLOOR = 1e-3  # of a power, in units of the deviation of a sensor
Axes = tuple[tuple[int, int, int], ...]
"""Channels that are the three axes of one vector, see `network.triples`."""


def with_magnitudes(y: Tensor, axes: Axes) -> Tensor:
    """Signals `(B, S, C, T)`, and the length of each vector of three axes as channels of its own.

    Example:
        >>> with_magnitudes(torch.tensor([[[[3.0], [4.0], [0.0]]]]), ((0, 1, 2),)).flatten()
        tensor([3., 4., 0., 5.])
    """
    lengths = [y[:, :, list(three)].square().sum(2, keepdim=True).sqrt() for three in axes]
    return torch.cat([y, *lengths], 2)


def moments(y: Tensor) -> Tensor:
    """Mean, deviation and quartiles of signals `(B, *, T)`: `(B, *, 5)`."""
    mean = y.mean(-1, True)
    deviation = (y - mean).square().mean(-1, True).sqrt()
    return torch.cat([mean, deviation, quartiles(y)], -1)


def quartiles(y: Tensor) -> Tensor:
    """The quartiles of signals `(B, *, T)`, between two values by their distance: `(B, *, 3)`.

    NumPy sorts in a tenth of the time of `torch.quantile`.

    Example:
        >>> quartiles(torch.tensor([[4.0, 0.0, 1.0, 2.0, 8.0]]))
        tensor([[1., 2., 4.]])
    """
    ordered = torch.from_numpy(np.sort(y.detach().numpy(), axis=-1))
    place = torch.tensor(QUARTILES, dtype=y.dtype) * (y.shape[-1] - 1)
    low, high = place.floor().long(), place.ceil().long()
    return torch.lerp(ordered[..., low], ordered[..., high], place - low)


def spectrum(y: Tensor) -> Tensor:
    """Log-power of signals `(B, *, T)` in six bands, and autocorrelations: `(B, *, 6 + L)`."""
    length = y.shape[-1]
    centered = y - y.mean(-1, True)
    power = torch.fft.rfft(centered * torch.hann_window(length)).abs().square()
    frequency = torch.linspace(0, 1, power.shape[-1])
    inside = [(frequency >= low) & (frequency < high) for low, high in pairwise(BANDS)]
    bands = power @ torch.stack(inside, 1).to(power.dtype)
    unit = unit_power(centered)
    delayed = [(unit[..., :-d] * unit[..., d:]).mean(-1) for d in DELAYS if d < length]
    return torch.cat([(bands + FLOOR).log(), torch.stack(delayed, -1)], -1)


def unit_power(y: Tensor) -> Tensor:
    """Signals without their mean, with a mean square of 1."""
    centered = y - y.mean(-1, True)
    return centered / (centered.square().mean(-1, True).sqrt() + FLOOR)


def correlations(y: Tensor) -> Tensor:
    """Correlations of the same channel of two sensors, `(B, S, C, T)` to `(B, D)`.

    Lags count for both orders of the two sensors.
    """
    unit, sensors, length = unit_power(y).transpose(1, 2).contiguous(), y.shape[1], y.shape[-1]
    first, second = torch.triu_indices(sensors, sensors, 1)
    found = []
    for lag in LAGS:
        if lag < length:
            table = _lagged(unit, unit, lag)
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
            outer = _lagged(unit, mean, lag)
            adjacency = normalize(sgnroot(outer + outer.mT))
            found.append(adjacency[..., upper[0], upper[1]].flatten(1))
    return torch.cat(found, 1)


def _lagged(first: Tensor, second: Tensor, lag: int) -> Tensor:
    """Mean over time of products `(*, n, T)` by `(*, k, T)`, `lag` samples later: `(*, n, k)`."""
    length = first.shape[-1] - lag
    return first[..., :length] @ second[..., lag:].mT / length


def along_gravity(y: Tensor, axes: Axes) -> Tensor:
    """Each vector of three axes along the mean of the first one, and how long the rest of it is.

    The first vector should be the acceleration, whose mean over a window points along gravity.
    Turning a sensor on the body changes none of these signals. `(B, S, C, T)` to `(B, S, 2 V, T)`
    for V vectors.

    Example:
        >>> y = torch.tensor([[[[0.0, 0.0], [2.0, 2.0], [1.0, -1.0]]]])
        >>> along_gravity(y, ((0, 1, 2),))[0, 0]
        tensor([[2., 2.],
                [1., 1.]])
    """
    if not axes:
        return y[:, :, :0]
    down = y[:, :, list(axes[0])].mean(-1, True)
    down = down / down.square().sum(2, True).sqrt().clamp(min=1e-6)
    found = []
    for three in axes:
        vector = y[:, :, list(three)]
        along = (vector * down).sum(2)
        rest = (vector.square().sum(2) - along.square()).clamp(min=0).sqrt()
        found += [along, rest]
    return torch.stack(found, 2)


def course(y: Tensor) -> Tensor:
    """`moments` and `spectrum`, and how far the second half of signals `(B, *, T)` is higher."""
    half = y.shape[-1] // 2
    rise = y[..., half:].mean(-1, True) - y[..., :half].mean(-1, True)
    return torch.cat([moments(y), spectrum(y), rise, rise.abs()], -1)


def gravity(y: Tensor, axes: Axes) -> Tensor:
    """The `course` of each sensor's signals `along_gravity`, `(B, D)`."""
    return course(along_gravity(y, axes)).flatten(1) if axes else y.new_zeros(len(y), 0)


def mean(y: Tensor, axes: Axes) -> Tensor:
    """The `course` of the mean of all sensors, in signals that do not depend on how they are worn.

    These are `along_gravity` and the lengths of vectors; all channels, if there are no vectors.
    """
    lengths = with_magnitudes(y, axes)[:, :, y.shape[2] :]
    signals = torch.cat([along_gravity(y, axes), lengths], 2) if axes else y
    return course(signals.mean(1)).flatten(1)

"""Standardization of windows, the first layer of every network, and augmentation in training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from evergraph.apps.action.windows import INSTANTS
from evergraph.noise import generator

AXES = "xyz"
Arrangement = Literal["sensors", "flat", "signals"]
ARRANGEMENTS: tuple[str, ...] = get_args(Arrangement)


def triples(channels: Sequence[str]) -> tuple[tuple[int, int, int], ...]:
    """The indices of channels that are the three axes of one quantity.

    Example:
        >>> triples(("acc_x", "acc_y", "acc_z", "gyr_x", "gyr_y"))
        ((0, 1, 2),)
    """
    place = {name: number for number, name in enumerate(channels)}
    stems = [name[:-1] for name in channels if name.endswith(AXES[0])]
    found = [tuple(place.get(stem + axis, -1) for axis in AXES) for stem in stems]
    return tuple((a, b, c) for a, b, c in found if min(a, b, c) >= 0)


def rotations(angle: Tensor) -> Tensor:
    """Rotation matrices `(*, 3, 3)` of rotation vectors `(*, 3)` in radians."""
    x, y, z = angle.unbind(-1)
    zero = torch.zeros_like(x)
    rows = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], -1)
    return torch.matrix_exp(rows.unflatten(-1, (3, 3)))


@dataclass(frozen=True)
class Augmentation:
    """Randomly rotate, scale and drop sensors; the same for both instants of a window.

    Attributes:
        axes: triples of channels to rotate, see `triples`; other channels are not rotated.
        turn: standard deviation of the rotation about each axis, radians.
        gain: standard deviation of the factor of each signal.
        loss: probability that a sensor is replaced by its mean.
    """

    axes: tuple[tuple[int, int, int], ...] = ()
    turn: float = 0.3
    gain: float = 0.2
    loss: float = 0.1

    def __call__(self, x: Tensor) -> Tensor:
        """Augment standardized windows `(B, 2 S, C, F)` with torch's global generator."""
        size, nodes, channels, features = x.shape
        sensors = nodes // INSTANTS
        mixing = torch.eye(channels).repeat(size, sensors, 1, 1)
        noise = generator()
        turned = rotations(self.turn * torch.randn(size, sensors, 3, generator=noise))
        for axes in self.axes:
            place = torch.tensor(axes)
            mixing[:, :, place[:, None], place] = turned
        mixing = mixing * (1 + self.gain * torch.randn(size, sensors, channels, 1, generator=noise))
        mixing = mixing * (torch.rand(size, sensors, 1, 1, generator=noise) >= self.loss)
        instants = x.view(size, INSTANTS, sensors, channels, features)
        return (mixing.unsqueeze(1).to(x.dtype) @ instants).view(x.shape)


class Standardize(nn.Module):
    """Standardize every signal to mean 0 and deviation 1 over the training windows.

    The statistics come from training windows only and can be updated on a stream. The mean is
    over all recordings and not per recording, so the direction of gravity, which separates lying
    from standing, is kept. In training mode `augmentation` is applied to the result.

    Args:
        sensors: S.
        channels: C.
        features: F.
        arrangement: of the result: `sensors` leaves windows as they are, `(B, 2 S, C, F)`; `flat`
            has one node with all numbers, `(B, 1, 1, 2 S C F)`; `signals` one node with all
            channels, the two instants side by side, `(B, 1, S C, 2 F)`.

    Attributes:
        in_shape, in_nodes: C and F, and 2 S, of the windows.

    Example:
        >>> scaling = Standardize(sensors=1, channels=1, features=2)
        >>> scaling.update(torch.tensor([[[[1.0, 3.0]], [[5.0, 7.0]]]]))
        >>> scaling(torch.full((1, 2, 1, 2), 4.0)).flatten()
        tensor([0., 0., 0., 0.])
    """

    count: Tensor
    mean: Tensor
    square: Tensor
    augmentation: Augmentation | None = None

    def __init__(
        self, sensors: int, channels: int, features: int, arrangement: Arrangement = "sensors"
    ) -> None:
        super().__init__()
        if arrangement not in ARRANGEMENTS:
            known = ", ".join(ARRANGEMENTS)
            raise ValueError(f"arrangement must be one of {known}, got {arrangement!r}")
        self.arrangement = arrangement
        self.in_shape, self.in_nodes = (channels, features), INSTANTS * sensors
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(sensors, channels))
        self.register_buffer("square", torch.zeros(sensors, channels))

    @property
    def out_shape(self) -> tuple[int, int, int]:
        """Nodes, channels and features of the result."""
        nodes, (channels, features) = self.in_nodes, self.in_shape
        if self.arrangement == "flat":
            return 1, 1, nodes * channels * features
        if self.arrangement == "signals":
            return 1, nodes // INSTANTS * channels, INSTANTS * features
        return nodes, channels, features

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Add windows `(B, 2 S, C, F)` to the statistics, in any number of parts."""
        for part in x.split(1000):
            self._add(part)

    def _add(self, x: Tensor) -> None:
        """Combine the mean and sum of squared deviations of two sets of values."""
        values = x.double().reshape(len(x), INSTANTS, *self.mean.shape, -1)
        count = values[:, :, 0, 0].numel()
        mean = values.mean((0, 1, 4))
        square = (values - mean.unsqueeze(-1)).square().sum((0, 1, 4))
        known, apart = float(self.count), mean - self.mean
        both = known + count
        self.square += (square + apart.square() * (known * count / both)).to(self.square.dtype)
        self.mean += (apart * (count / both)).to(self.mean.dtype)
        self.count.fill_(both)

    @property
    def deviation(self) -> Tensor:
        """`(S, C)`; 1 where a signal is constant."""
        found = (self.square / self.count.clamp(min=1)).sqrt()
        return found.masked_fill(found < 1e-6, 1.0)

    def forward(self, x: Tensor) -> Tensor:
        """Standardize windows `(B, 2 S, C, F)` and arrange them."""
        shape = (1, self.in_nodes, self.in_shape[0], 1)
        mean, deviation = (
            part.repeat(INSTANTS, 1).view(shape) for part in (self.mean, self.deviation)
        )
        scaled: Tensor = (x - mean) / deviation
        if self.training and self.augmentation is not None:
            scaled = self.augmentation(scaled)
        if self.arrangement == "flat":
            return scaled.flatten(1)[:, None, None]
        return signals(scaled).unsqueeze(1) if self.arrangement == "signals" else scaled


def signals(x: Tensor) -> Tensor:
    """Windows `(B, 2 S, C, F)` as signals in time, `(B, S * C, 2 F)`."""
    size, nodes, channels, features = x.shape
    halves = x.view(size, INSTANTS, nodes // INSTANTS, channels, features)
    return halves.permute(0, 2, 3, 1, 4).reshape(size, -1, INSTANTS * features)

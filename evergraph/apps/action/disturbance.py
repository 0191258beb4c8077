"""Small changes of training windows, as if another person wore the sensors a little differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.apps.action.windows import INSTANTS

AXES = "xyz"


def triples(channels: Sequence[str]) -> tuple[tuple[int, int, int], ...]:
    """The places of channels that are the three axes of one quantity.

    Example:
        >>> triples(("acc_x", "acc_y", "acc_z", "gyr_x", "gyr_y"))
        ((0, 1, 2),)
    """
    place = {name: number for number, name in enumerate(channels)}
    stems = [name[:-1] for name in channels if name.endswith(AXES[0])]
    found = [tuple(place.get(stem + axis, -1) for axis in AXES) for stem in stems]
    return tuple((a, b, c) for a, b, c in found if min(a, b, c) >= 0)


def rotations(angle: Tensor) -> Tensor:
    """Rotation matrices `(*, 3, 3)` about axes `(*, 3)`, by their length in radians."""
    x, y, z = angle.unbind(-1)
    zero = torch.zeros_like(x)
    rows = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], -1)
    return torch.matrix_exp(rows.unflatten(-1, (3, 3)))


@dataclass(frozen=True)
class Disturbance:
    """Turn, amplify and lose sensors at random; both instants of a window alike.

    Attributes:
        axes: see `triples`; other channels are not turned.
        turn: deviation of the angle about each axis, radians.
        gain: deviation of the factor of each signal.
        loss: probability that a sensor is put at its mean.
    """

    axes: tuple[tuple[int, int, int], ...] = ()
    turn: float = 0.3
    gain: float = 0.2
    loss: float = 0.1

    def __call__(self, x: Tensor) -> Tensor:
        """Scaled windows `(B, 2 S, C, F)`, changed by what torch's generator draws."""
        size, nodes, channels, features = x.shape
        sensors = nodes // INSTANTS
        mixing = torch.eye(channels).repeat(size, sensors, 1, 1)
        turned = rotations(self.turn * torch.randn(size, sensors, 3))
        for axes in self.axes:
            place = torch.tensor(axes)
            mixing[:, :, place[:, None], place] = turned
        mixing = mixing * (1 + self.gain * torch.randn(size, sensors, channels, 1))
        mixing = mixing * (torch.rand(size, sensors, 1, 1) >= self.loss)
        instants = x.view(size, INSTANTS, sensors, channels, features)
        return (mixing.unsqueeze(1).to(x.dtype) @ instants).view(x.shape)

"""FGN on windows of sensors, and the networks it is compared with: values of one class.

The nodes of a window are its sensors at two instants. Within an instant they are 1-hop neighbors
of each other, those of the other instant are 2-hop neighbors (Appendix C of the paper). Since
every window has the same places, a batch stores no neighbors, and each layer finds them
transformed by their own feature graphs. Every network begins with `Standardize`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from evergraph.apps.action.recording import Layout
from evergraph.apps.action.windows import INSTANTS
from evergraph.checks import check_one_of
from evergraph.nn.fgn import FGN
from evergraph.noise import generator

AXES = "xyz"
ARRANGEMENTS = ("sensors", "flat", "signals")
HOPS = 2

FGN_VALUES: dict[str, Any] = {
    "channels": (32, 32),
    "kernels": (5, 3),
    "concatenate": True,
    "activation": "relu",
    "attention": "softmax",
    "scaled_attention": True,
    "dropout": 0.1,
}
"""The paper's sizes, with a band for W, as the authors' code has it."""
DENSE: dict[str, Any] = {"kernels": None, "widths": (12, 6), "activation": "softsign"}

NETWORKS: dict[str, dict[str, Any]] = {
    "fgn": {},
    # the same layers, hops and parameters; nodes collect their neighbors and not Âx
    "gat": {"message": "mean"},
    "gcn": {"message": "mean", "attention": None},
    # as published: one neighborhood with the node in it, whose mean replaces the node
    "gat-plain": {"message": "mean", "together": True, "concatenate": False},
    "gcn-plain": {"message": "mean", "attention": None, "together": True, "concatenate": False},
    # on a complete graph any number of steps of its iteration is one step
    "appnp": {"message": "none", "together": True, "teleport": 0.1},
    # what each part of FGN brings
    "fgn-identity": {"message": "identity"},
    "fgn-one-hop": {"hops": 1},
    "fgn-uniform": {"attention": None},
    "fgn-bare": {"concatenate": False},
    # W of Eq. (8) without any restriction
    "fgn-dense": DENSE,
    "gat-dense": {**DENSE, "message": "mean"},
    # no graph: the window as one node
    "mlp": {
        "arrangement": "flat", "message": "none", "channels": (200, 200), "kernels": None,
        "widths": (1, 1), "centered": False,
    },
    "cnn": {
        "arrangement": "signals", "message": "none", "channels": (32, 56, 104),
        "kernels": (5, 5, 5), "pooled": True, "dropout": 0.0, "centered": False,
    },
}  # fmt: skip
"""What each network changes in `FGN_VALUES`."""


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

    Channels of `axes`, see `triples`, are rotated; `turn` is the standard deviation of the angle
    about each axis in radians, `gain` that of the factor of each signal, and `loss` the probability
    that a sensor is replaced by its mean.
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

    The arrangement `sensors` leaves windows as they are, `(B, 2 S, C, F)`; `flat` makes one node
    with all numbers, `(B, 1, 1, 2 S C F)`; `signals` one node with all channels, the two instants
    side by side, `(B, 1, S C, 2 F)`. `in_shape` is C and F, `in_nodes` 2 S of the windows.

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
        self, sensors: int, channels: int, features: int, arrangement: str = "sensors"
    ) -> None:
        super().__init__()
        check_one_of("arrangement", arrangement, ARRANGEMENTS)
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
            values = part.double().reshape(len(part), INSTANTS, *self.mean.shape, -1)
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
        mean, deviation = (
            part.unsqueeze(-1).expand(*part.shape, x.shape[-1]).flatten()
            for part in (self.mean, self.deviation)
        )
        scaled = (x.reshape(-1, len(mean)) - mean).div_(deviation).view(x.shape)
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


def neighborhoods(sensors: int, hops: int = HOPS, together: bool = False) -> Tensor:
    """Who neighbors whom, `(P, 2 S, 2 S)` booleans: row i holds the neighbors of node i.

    One plane for the same instant, a second one for the other if `hops` is 2; or, `together`, one
    plane with all nodes, the node itself included, as GCN and GAT have it.

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


def network(
    name: str, layout: Layout, features: int, seed: int = 0, augment: bool = False, **settings: Any
) -> FGN:
    """A network for windows of a layout; it has no classes yet and grows as they come.

    Args:
        name: of `NETWORKS`.
        layout: sensors and channels.
        features: F, the samples of an instant.
        seed: of the parameters.
        augment: change windows a little in training, see `Augmentation`.
        settings: other values for `FGN`, where `widths` is F after each layer; `hops` and
            `together` of `neighborhoods`; `arrangement` of `Standardize`.

    Example:
        >>> model = network("fgn", Layout(("arm", "leg"), ("x", "y", "z"), 25.0), features=25)
        >>> model.head.outputs
        0
    """
    check_one_of("model", name, NETWORKS)
    values = {**FGN_VALUES, **NETWORKS[name], **settings}
    hops, together = values.pop("hops", HOPS), values.pop("together", False)
    encoder = Standardize(*layout.shape, features, values.pop("arrangement", "sensors"))
    if augment:
        encoder.augmentation = Augmentation(triples(layout.channels))
    nodes, in_channels, num_features = encoder.out_shape
    places = neighborhoods(len(layout.sensors), hops, together)
    values |= {
        "features": values.pop("widths", None),
        "places": places if nodes > 1 else places.new_ones(1, 1, 1),
        "nodes": nodes,
        "encoder": encoder,
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return FGN(num_features, in_channels=in_channels, **values)

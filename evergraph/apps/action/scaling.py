"""Mean and spread of every signal, inside the network: items are kept as they were measured."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from evergraph.apps.action.disturbance import Disturbance
from evergraph.apps.action.windows import INSTANTS


class Standardize(nn.Module):
    """Bring every signal to mean 0 and deviation 1 over the training windows; gravity stays in.

    The statistics come from training windows alone and can be continued on a stream. Only a
    common mean is taken off: every recording keeps its own, which tells lying from standing.
    All networks begin with this, so a `disturbance` of training windows is put here.

    Args:
        sensors: S.
        channels: C.

    Example:
        >>> scaling = Standardize(sensors=1, channels=1)
        >>> scaling.update(torch.tensor([[[[1.0, 3.0]], [[5.0, 7.0]]]]))
        >>> scaling(torch.full((1, 2, 1, 2), 4.0)).flatten()
        tensor([0., 0., 0., 0.])
    """

    count: Tensor
    mean: Tensor
    square: Tensor
    disturbance: Disturbance | None = None

    def __init__(self, sensors: int, channels: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(sensors, channels))
        self.register_buffer("square", torch.zeros(sensors, channels))

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Add windows `(B, 2 S, C, F)` to the statistics: the same in any number of parts."""
        for part in x.split(1000):
            self._add(part)

    def _add(self, x: Tensor) -> None:
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
        """`(S, C)`; 1 where a signal never changes."""
        found = (self.square / self.count.clamp(min=1)).sqrt()
        return found.masked_fill(found < 1e-6, 1.0)

    def forward(self, x: Tensor) -> Tensor:
        """Scale windows `(B, 2 S, C, F)`."""
        shape = (1, INSTANTS * self.mean.shape[0], self.mean.shape[1], 1)
        mean, deviation = (
            part.repeat(INSTANTS, 1).view(shape) for part in (self.mean, self.deviation)
        )
        scaled: Tensor = (x - mean) / deviation
        if self.training and self.disturbance is not None:
            scaled = self.disturbance(scaled)
        return scaled

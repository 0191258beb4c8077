"""How sure a recognizer is: calibrated probabilities, and windows unlike all that it knows.

Both are set on windows that were held back from learning, if possible of other people.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.apps.action.network import signals

UNKNOWN = "unknown activity"
TEMPERATURES = torch.logspace(-1, 2, 46).tolist()
QUANTILES = 201  # of the distances of held-back windows
LEVEL = 0.99  # windows farther away than this share of those held back are unknown
FLOOR = 0.05  # of a deviation, in deviations of the signal


@dataclass(frozen=True)
class Calibration:
    """What held-back windows say about the outputs of a model.

    Attributes:
        temperatures: what the outputs of each model are divided by before the softmax; empty
            where nothing was held back: by 1.
        usual: quantiles of the distance of held-back windows from the windows in memory; empty if
            nothing was held back, and then no window is unknown.
    """

    temperatures: tuple[float, ...] = ()
    usual: tuple[float, ...] = ()

    def novelty(self, distance: Tensor) -> Tensor:
        """The share of held-back windows that are closer to what is known, `(B,)`."""
        if not self.usual:
            return torch.zeros_like(distance)
        place = np.interp(distance.numpy(), self.usual, np.linspace(0, 1, len(self.usual)))
        return torch.from_numpy(place).to(distance.dtype)

    def state(self) -> dict[str, Any]:
        """What JSON can hold."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}

    @classmethod
    def of(cls, temperatures: Sequence[float], distance: Tensor) -> Calibration:
        """From the temperature of each model, and distances of held-back windows."""
        usual = np.quantile(distance.numpy(), np.linspace(0, 1, QUANTILES))
        return cls(tuple(temperatures), tuple(map(float, usual)))


def temperature(output: Tensor, target: Tensor) -> float:
    """The temperature at which outputs `(B, K)` are closest to what is true, `(B,)` columns."""
    loss = [
        float(torch.nn.functional.cross_entropy(output.double() / t, target)) for t in TEMPERATURES
    ]
    return float(TEMPERATURES[int(np.argmin(loss))])


def summary(x: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """Mean and log-deviation of every signal of windows `(B, 2 S, C, F)`, `(B, 2 S C)`.

    Both are in units of the training windows, `mean` and `deviation` `(S, C)`.
    """
    scaled = (signals(x) - mean.view(1, -1, 1)) / deviation.view(1, -1, 1)
    spread = (scaled.std(-1, correction=0) + FLOOR).log()
    return torch.cat([scaled.mean(-1), spread], 1)


def distance(found: Tensor, known: Tensor) -> Tensor:
    """Distance of summaries `(B, D)` from the nearest of those known, `(B,)`."""
    parts = [torch.cdist(part, known).amin(1) for part in found.split(500)]
    return torch.cat(parts) / math.sqrt(found.shape[1])

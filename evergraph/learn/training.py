"""How gradients are used: settings, the optimizer, and what follows a network that grows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad


@dataclass(frozen=True)
class Training:
    """How gradients are used.

    Attributes:
        optimizer: `sgd` or `adam`.
        lr: learning rate.
        momentum: of SGD.
        weight_decay: of weights; biases and scales are left alone.
        steps: gradient steps on each new batch.
        replay_every: replay after every so many batches.
        replay_batches: minibatches of memory per replay; None is one pass over all of it.
        replay_batch_size: items in each of them.
        averaging: predict with an average of the network over the last batches, of which this
            share is kept at each new one; 0 predicts with the network as it is.
        average_steps: let the average follow every gradient step, not every batch.
    """

    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0
    steps: int = 5
    replay_every: int = 1
    replay_batches: int | None = None
    replay_batch_size: int = 10
    averaging: float = 0.0
    average_steps: bool = False

    def __post_init__(self) -> None:
        """Reject settings that cannot train."""
        if self.optimizer not in ("sgd", "adam"):
            raise ValueError(f"optimizer must be sgd or adam, got {self.optimizer!r}")
        if not self.lr > 0:
            raise ValueError(f"lr must be positive, got {self.lr}")
        if not 0 <= self.averaging < 1:
            raise ValueError(f"averaging must lie in [0, 1), got {self.averaging}")
        for name in ("steps", "replay_every", "replay_batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

    def optimizer_of(self, model: nn.Module) -> torch.optim.Optimizer:
        """An optimizer for all parameters of a network."""
        everything = list(model.parameters())
        groups = [
            {"params": [p for p in everything if p.dim() > 1], "weight_decay": self.weight_decay},
            {"params": [p for p in everything if p.dim() <= 1], "weight_decay": 0.0},
        ]
        if self.optimizer == "adam":
            return torch.optim.Adam(groups, lr=self.lr)
        return torch.optim.SGD(groups, lr=self.lr, momentum=self.momentum)


def exchange(
    optimizer: torch.optim.Optimizer, before: Mapping[str, Tensor], after: Mapping[str, Tensor]
) -> None:
    """Let an optimizer go on with parameters that have grown, and with what it knew of them."""
    state = optimizer.state
    for name, parameter in after.items():
        old = before[name]
        if parameter is old:
            continue
        for group in optimizer.param_groups:
            group["params"] = [parameter if p is old else p for p in group["params"]]
        if old in state:
            kept = state.pop(old)
            state[parameter] = {key: fit(value, parameter) for key, value in kept.items()}


@torch.no_grad()
def follow(averaged: dict[str, Tensor], model: nn.Module, share: float) -> None:
    """Keep a share of the average, the rest is the network now; new classes start as they are."""
    for name, now in model.state_dict().items():
        average = now.clone()
        if name in averaged and now.is_floating_point():
            old = averaged[name]
            part = tuple(slice(size) for size in old.shape)
            average[part] = torch.lerp(now[part], old, share)
        averaged[name] = average


def fit(value: Any, parameter: Tensor) -> Any:
    """Pad a tensor that goes with a parameter to the parameter's new size, with zeros."""
    if not isinstance(value, Tensor) or value.dim() != parameter.dim():
        return value
    missing = [n - o for n, o in zip(parameter.shape, value.shape, strict=True)]
    return pad(value, [m for size in reversed(missing) for m in (0, size)])

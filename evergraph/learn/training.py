"""Training settings, the optimizer, and the moving average (EMA) of a model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from evergraph.checks import check_one_of, check_positive
from evergraph.learn.transaction import Undo


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
        averaging: predict with a moving average of the parameters over the last batches, of which
            this share is kept at each new one; 0 predicts with the parameters as they are.
        average_steps: update the average after every gradient step, not after every batch.
        cycle: steps of a one-cycle schedule of the rate; 0 keeps it constant.

    Example:
        >>> Training(optimizer="adam", lr=0.005, replay_batches=2).steps
        5
        >>> Training(lr=0)
        Traceback (most recent call last):
        ValueError: lr must be positive, got 0
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
    cycle: int = 0

    def __post_init__(self) -> None:
        """Reject settings that cannot train."""
        check_one_of("optimizer", self.optimizer, ("sgd", "adam"))
        if not self.lr > 0:
            raise ValueError(f"lr must be positive, got {self.lr}")
        if not 0 <= self.averaging < 1:
            raise ValueError(f"averaging must lie in [0, 1), got {self.averaging}")
        check_positive(steps=self.steps, replay_every=self.replay_every)
        check_positive(replay_batch_size=self.replay_batch_size)


class Optimizer:
    """SGD with momentum, or Adam, over the named parameters of a model that may grow.

    The arithmetic is torch's. State is kept by parameter name, so that it can be saved, and is
    padded with zeros when a parameter has grown. (torch.optim would import torch._dynamo.)

    Args:
        training: rates and decay.

    Attributes:
        lr, beta1: of the next step; a schedule changes them.
        state: tensors by `name:key`.
        count: steps made.
    """

    def __init__(self, training: Training) -> None:
        self.training, self.lr, self.beta1 = training, training.lr, 0.9
        self.state: dict[str, Tensor] = {}
        self.count = 0
        self.undo: Undo | None = None  # of the transaction that is under way

    @torch.no_grad()
    def step(self, model: nn.Module) -> None:
        """Move every parameter that has a gradient, which is taken from it."""
        if self.training.cycle:
            one_cycle(self, min(self.count, self.training.cycle), self.training.cycle + 1)
        self.count += 1
        undo = self.undo
        named = model.named_parameters() if undo is None else undo.parameters(model)
        for name, parameter in named:
            gradient = parameter.grad
            if gradient is None:
                continue
            parameter.grad = None
            decay = self.training.weight_decay if parameter.dim() > 1 else 0.0
            if gradient.is_sparse and (decay or self.training.momentum):
                gradient = gradient.to_dense()
            if gradient.is_sparse and self.training.optimizer == "sgd":
                if undo is not None:
                    undo.keep_rows(parameter, gradient._indices()[0])
                parameter.add_(gradient, alpha=-self.lr)
                continue
            if self.training.optimizer == "adam":
                self._adam(name, parameter, gradient, decay)
                continue
            old = self._renewed(name, parameter)
            if decay:
                gradient = gradient.add(old, alpha=decay)
            if self.training.momentum:
                velocity, before = self._kept(name, "velocity", parameter)
                gradient = torch.mul(before, self.training.momentum, out=velocity).add_(gradient)
            torch.add(old, gradient, alpha=-self.lr, out=parameter.data)

    def _adam(self, name: str, parameter: Tensor, gradient: Tensor, decay: float) -> None:
        if gradient.is_sparse:
            gradient = gradient.to_dense()
        count = self.state.get(f"{name}:count", torch.zeros((), device=parameter.device)) + 1
        self.state[f"{name}:count"] = count
        moved = _held(parameter, self._renewed(name, parameter))
        mean = _held(*self._kept(name, "mean", parameter))
        square = _held(*self._kept(name, "square", parameter))
        torch._fused_adam_(
            [moved],
            [gradient.contiguous()],
            [mean],
            [square],
            [],
            [count],
            lr=self.lr,
            beta1=self.beta1,
            beta2=0.999,
            weight_decay=decay,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )

    def _kept(self, name: str, key: str, parameter: Tensor) -> tuple[Tensor, Tensor]:
        """What is kept of a parameter, zeros at first and where it has grown; now and before."""
        place = f"{name}:{key}"
        kept = self.state.get(place)
        if kept is None or kept.shape != parameter.shape:
            kept = torch.zeros_like(parameter) if kept is None else padded(kept, parameter)
            self.state[place] = kept
            return kept, kept
        return kept, self._renewed(place, kept)

    def _renewed(self, name: str, tensor: Tensor) -> Tensor:
        """What a tensor holds, which is about to be written elsewhere if it can be put back."""
        if self.undo is None or id(tensor) in self.undo.pooled:  # a copy of it is kept
            return tensor.data
        return self.undo.renew(name, tensor)


def _held(tensor: Tensor, before: Tensor) -> Tensor:
    """The memory of a tensor with what it held before, in order: a fused step knows no strides."""
    if tensor.data_ptr() != before.data_ptr():
        tensor.data.copy_(before)
    elif not tensor.is_contiguous():
        tensor.data = before.contiguous()
    return tensor.data


def gradients(model: nn.Module, value: Tensor) -> dict[str, Tensor]:
    """The gradient of a value with respect to every parameter, dense, by name."""
    names, parameters = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad(value, parameters, allow_unused=True)
    return {
        name: torch.zeros_like(p) if g is None else (g.to_dense() if g.is_sparse else g)
        for name, p, g in zip(names, parameters, found, strict=True)
    }


def padded(value: Tensor, like: Tensor) -> Tensor:
    """Pad a tensor with zeros at its ends to the shape of another of as many axes."""
    missing = [n - o for n, o in zip(like.shape, value.shape, strict=True)]
    return pad(value, [m for size in reversed(missing) for m in (0, size)])


@torch.no_grad()
def update_average(average: dict[str, Tensor], state: Mapping[str, Tensor], share: float) -> None:
    """Move an exponential moving average: keep `share` of it, the rest is the state now.

    Entries that are new, such as those of a new class, start as they are.
    """
    for name, now in state.items():
        old = average.get(name)
        if old is None or not now.is_floating_point():
            average[name] = now.clone()
        elif old.shape == now.shape:
            average[name] = torch.lerp(now, old, share)
        else:
            fresh, part = now.clone(), tuple(slice(size) for size in old.shape)
            fresh[part] = torch.lerp(now[part], old, share)
            average[name] = fresh


def one_cycle(optimizer: Optimizer, step: int, total: int) -> None:
    """Set rate and momentum of a step: up from 1/25 of the rate for 30 % of the steps, then down.

    The one-cycle schedule with torch's default numbers: cosines, and Adam's β₁ from .95 to .85
    and back.
    """
    peak = 0.3 * total - 1
    lr = optimizer.training.lr
    if step <= peak:
        part = step / peak if peak > 0 else 1.0
        optimizer.lr, optimizer.beta1 = _cosine(lr / 25, lr, part), _cosine(0.95, 0.85, part)
    else:
        part = (step - peak) / (total - 1 - peak)
        optimizer.lr, optimizer.beta1 = _cosine(lr, lr / 25e4, part), _cosine(0.85, 0.95, part)


def _cosine(start: float, end: float, part: float) -> float:
    return end + (start - end) / 2 * (1 + math.cos(math.pi * part))

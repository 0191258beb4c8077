"""Gradients by name and as one vector, and parameters held in place: what methods share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from evergraph.learn.learner import Learner
from evergraph.learn.training import padded
from evergraph.stream.batch import Batch


def gradients(model: nn.Module, value: Tensor) -> dict[str, Tensor]:
    """The gradient of a value with respect to every parameter, dense, by name."""
    names, parameters = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad(value, parameters, allow_unused=True)
    return {
        name: torch.zeros_like(p) if g is None else (g.to_dense() if g.is_sparse else g)
        for name, p, g in zip(names, parameters, found, strict=True)
    }


def memory_gradient(learner: Learner, batch: Batch) -> Tensor:
    """The gradient of the loss on old items, as one vector."""
    found = gradients(learner.model, learner.loss(batch))
    return torch.cat([g.flatten() for g in found.values()])


def current_gradient(learner: Learner) -> Tensor:
    """The gradient that the optimizer is about to use, as one vector."""
    parts = []
    for p in learner.model.parameters():
        grad = torch.zeros_like(p) if p.grad is None else p.grad
        parts.append((grad.to_dense() if grad.is_sparse else grad).flatten())
    return torch.cat(parts)


def set_gradient(learner: Learner, vector: Tensor) -> None:
    """Let the optimizer use another gradient."""
    start = 0
    for p in learner.model.parameters():
        p.grad = vector[start : start + p.numel()].view_as(p).clone()
        start += p.numel()


@dataclass
class Anchors:
    """Where each parameter was and how much it mattered, for EWC and MAS.

    Attributes:
        place: the parameters at the last consolidation, by name.
        importance: of each number in them.
    """

    place: dict[str, Tensor] = field(default_factory=dict)
    importance: dict[str, Tensor] = field(default_factory=dict)

    def penalty(self, model: nn.Module) -> Tensor:
        """`½ Σ Ω (θ - θ*)²`; numbers that are new since then are free."""
        total = torch.zeros(())
        for name, parameter in model.named_parameters():
            if name in self.place:
                place, weight = (padded(t[name], parameter) for t in (self.place, self.importance))
                total = total + (weight * (parameter - place).square()).sum() / 2
        return total

    @torch.no_grad()
    def consolidate(self, model: nn.Module, importance: Mapping[str, Tensor], decay: float) -> None:
        """Move the anchors here, and add the new importance to what is left of the old."""
        for name, parameter in model.named_parameters():
            old = padded(self.importance[name], parameter) if name in self.importance else 0.0
            self.importance[name] = decay * old + importance[name]
            self.place[name] = parameter.detach().clone()

    def tensors(self) -> dict[str, Tensor]:
        """All numbers by name, to save them."""
        place = {f"place.{name}": tensor for name, tensor in self.place.items()}
        return place | {f"importance.{name}": t for name, t in self.importance.items()}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """The opposite of `tensors`."""
        self.place, self.importance = {}, {}
        for name, tensor in tensors.items():
            kind, _, rest = name.partition(".")
            getattr(self, kind)[rest] = tensor

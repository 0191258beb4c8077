"""Regularization of important parameters: elastic weight consolidation, memory aware synapses."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from evergraph.learn.learner import Learner, Method
from evergraph.learn.state import require_like
from evergraph.learn.training import gradients, padded
from evergraph.learn.transaction import State
from evergraph.stream.batch import Batch


@dataclass
class Consolidation(Method):
    """Pull parameters back to where they mattered, by `½ Σ Ω (θ - θ*)²`.

    Attributes:
        strength: of the pull.
        every: batches between consolidations; no task boundary is needed.
        decay: what is left of old importance at each.
        place: θ*, the parameters at the last consolidation, by name.
        weight: Ω, the importance of each number in them.
    """

    strength: float = 1.0
    every: int = 10
    decay: float = 0.95
    place: dict[str, Tensor] = field(default_factory=dict, repr=False)
    weight: dict[str, Tensor] = field(default_factory=dict, repr=False)

    @abstractmethod
    def importance(self, learner: Learner, batch: Batch) -> dict[str, Tensor]:
        """How much each number of each parameter matters, by name."""

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Learn from a new batch."""
        for _ in range(learner.training.steps):
            pull = self._penalty(learner.model)
            learner.descend(learner.loss(batch) + self.strength * pull)
        if (learner.position + 1) % self.every == 0:
            self._consolidate(learner.model, self.importance(learner, batch))

    def _penalty(self, model: nn.Module) -> Tensor:
        """Numbers that are new since the last consolidation are free."""
        total = torch.zeros(())
        for name, parameter in model.named_parameters():
            if name in self.place:
                kept = (part[name].to(parameter.device) for part in (self.place, self.weight))
                place, weight = (padded(tensor, parameter) for tensor in kept)
                total = total + (weight * (parameter - place).square()).sum() / 2
        return total

    @torch.no_grad()
    def _consolidate(self, model: nn.Module, importance: Mapping[str, Tensor]) -> None:
        for name, parameter in model.named_parameters():
            old: Tensor | float = 0.0
            if name in self.weight:
                old = padded(self.weight[name].to(parameter.device), parameter)
            self.weight[name] = self.decay * old + importance[name]
            self.place[name] = parameter.detach().clone()

    def state(self) -> State:
        """Place and importance of all parameters."""
        tensors = {f"place.{name}": tensor for name, tensor in self.place.items()}
        return tensors | {f"importance.{name}": t for name, t in self.weight.items()}, {}

    def load_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Put both back."""
        self.place, self.weight = (
            {k.removeprefix(kind): v for k, v in tensors.items() if k.startswith(kind)}
            for kind in ("place.", "importance.")
        )

    def check_state(self, learner: Learner) -> None:
        """Both must be of the model's parameters."""
        wanted = dict(learner.model.named_parameters())
        for what, found in (("the place", self.place), ("the importance", self.weight)):
            require_like(what, found, wanted, some=True)
        shapes = [{k: t.shape for k, t in part.items()} for part in (self.place, self.weight)]
        if shapes[0] != shapes[1]:
            raise ValueError("place and importance must be of the same parameters")


@dataclass
class EWC(Consolidation):
    """Online EWC: importance is the diagonal of the empirical Fisher information.

    Example:
        >>> from evergraph import FGN, EWC, Learner, node_continuum
        >>> from evergraph.datasets import Growth, generate
        >>> data = generate(Growth(nodes=60, classes=3, features=20))
        >>> learner = Learner(FGN(20), EWC(every=2))
        >>> for batch in node_continuum(data):
        ...     learner.observe(batch)
        >>> all(bool((w >= 0).all()) for w in learner.method.weight.values())
        True
    """

    strength: float = 100.0

    def importance(self, learner: Learner, batch: Batch) -> dict[str, Tensor]:
        """The squared gradient of the loss."""
        found = gradients(learner.model, learner.loss(batch))
        return {name: slope.square() for name, slope in found.items()}


@dataclass
class MAS(Consolidation):
    """Online MAS: importance is how fast the squared length of the outputs changes.

    Example:
        >>> from evergraph import FGN, Learner, MAS, node_continuum
        >>> from evergraph.datasets import Growth, generate
        >>> data = generate(Growth(nodes=60, classes=3, features=20))
        >>> learner = Learner(FGN(20), MAS(every=2))
        >>> for batch in node_continuum(data):
        ...     learner.observe(batch)
        >>> all(bool((w >= 0).all()) for w in learner.method.weight.values())
        True
    """

    def importance(self, learner: Learner, batch: Batch) -> dict[str, Tensor]:
        """The absolute gradient of that length."""
        length = learner.outputs(batch).square().sum(-1).mean()
        return {name: slope.abs() for name, slope in gradients(learner.model, length).items()}

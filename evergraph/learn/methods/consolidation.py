"""Hold the parameters that matter: elastic weight consolidation, memory aware synapses."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from evergraph.learn.learner import Learner, Method
from evergraph.learn.memory import State
from evergraph.learn.methods.gradients import Anchors, gradients
from evergraph.stream.batch import Batch


@dataclass
class Consolidation(Method):
    """Pull parameters back to where they mattered; what matters is left to subclasses.

    Attributes:
        strength: of the pull.
        every: batches between consolidations; no task boundary is needed.
        decay: what is left of old importance at each.
    """

    strength: float = 1.0
    every: int = 10
    decay: float = 0.95
    anchors: Anchors = field(default_factory=Anchors, repr=False)

    @abstractmethod
    def importance(self, learner: Learner, batch: Batch) -> dict[str, Tensor]:
        """How much each number of each parameter matters, by name."""

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Learn from a new batch."""
        for _ in range(learner.training.steps):
            pull = self.anchors.penalty(learner.model)
            learner.descend(learner.loss(batch) + self.strength * pull)
        if (learner.position + 1) % self.every == 0:
            self.anchors.consolidate(learner.model, self.importance(learner, batch), self.decay)

    def state(self) -> State:
        """The anchors."""
        return self.anchors.tensors(), {}

    def load_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Put the anchors back."""
        self.anchors.load_tensors(tensors)


@dataclass
class EWC(Consolidation):
    """Online EWC: importance is the diagonal of the empirical Fisher information."""

    strength: float = 100.0

    def importance(self, learner: Learner, batch: Batch) -> dict[str, Tensor]:
        """The squared gradient of the loss."""
        found = gradients(learner.model, learner.loss(batch))
        return {name: slope.square() for name, slope in found.items()}


@dataclass
class MAS(Consolidation):
    """Online MAS: importance is how fast the squared length of the outputs changes."""

    def importance(self, learner: Learner, batch: Batch) -> dict[str, Tensor]:
        """The gradient of that length, without its sign."""
        length = learner.model(batch).square().sum(-1).mean()
        return {name: slope.abs() for name, slope in gradients(learner.model, length).items()}

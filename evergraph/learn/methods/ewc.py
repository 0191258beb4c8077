"""Elastic weight consolidation: hold the parameters that the likelihood depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from evergraph.stream.batch import Batch
from evergraph.learn.learner import Learner
from evergraph.learn.memory import State
from evergraph.learn.methods.anchors import Anchors, gradients


@dataclass
class EWC:
    """Online EWC: importance is the diagonal of the empirical Fisher information.

    Attributes:
        strength: of the pull.
        every: batches between consolidations; no task boundary is needed.
        decay: what is left of old importance at each.
    """

    strength: float = 100.0
    every: int = 10
    decay: float = 0.95
    anchors: Anchors = field(default_factory=Anchors, repr=False)

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Learn from a new batch."""
        for _ in range(learner.training.steps):
            pull = self.anchors.penalty(learner.model)
            learner.descend(learner.loss(batch) + self.strength * pull)
        if (learner.position + 1) % self.every == 0:
            slopes = gradients(learner.model, learner.loss(batch))
            importance = {name: slope.square() for name, slope in slopes.items()}
            self.anchors.consolidate(learner.model, importance, self.decay)

    def state(self) -> State:
        """The anchors."""
        return self.anchors.tensors(), {}

    def load_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Put the anchors back."""
        self.anchors.load_tensors(tensors)

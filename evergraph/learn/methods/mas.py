"""Memory aware synapses: hold the parameters that the outputs depend on."""

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
class MAS:
    """Online MAS: importance is how fast the squared length of the logits changes.

    Attributes:
        strength: of the pull.
        every: batches between consolidations; no task boundary is needed.
        decay: what is left of old importance at each.
    """

    strength: float = 1.0
    every: int = 10
    decay: float = 0.95
    anchors: Anchors = field(default_factory=Anchors, repr=False)

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Learn from a new batch."""
        for _ in range(learner.training.steps):
            pull = self.anchors.penalty(learner.model)
            learner.descend(learner.loss(batch) + self.strength * pull)
        if (learner.position + 1) % self.every == 0:
            length = learner.logits(batch).square().sum(-1).mean()
            importance = {n: g.abs() for n, g in gradients(learner.model, length).items()}
            self.anchors.consolidate(learner.model, importance, self.decay)

    def state(self) -> State:
        """The anchors."""
        return self.anchors.tensors(), {}

    def load_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Put the anchors back."""
        self.anchors.load_tensors(tensors)

"""Learn each batch and nothing else: the lower bound."""

from __future__ import annotations

from dataclasses import dataclass

from evergraph.learn.learner import Learner, Method
from evergraph.stream.batch import Batch


@dataclass
class Finetune(Method):
    """Gradient steps on the new batch and nothing else."""

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Learn from a new batch."""
        for _ in range(learner.training.steps):
            learner.descend(learner.loss(batch))

"""Learn each batch and hope: the lower bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from evergraph.stream.batch import Batch
from evergraph.learn.learner import Learner
from evergraph.learn.memory import State


@dataclass
class Finetune:
    """Gradient steps on the new batch and nothing else."""

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Learn from a new batch."""
        for _ in range(learner.training.steps):
            learner.descend(learner.loss(batch))

    def state(self) -> State:
        """Nothing to remember."""
        return {}, {}

    def load_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Nothing to restore."""

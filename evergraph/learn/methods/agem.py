"""Averaged gradient episodic memory: never step against the average of the past."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from evergraph.stream.batch import Batch, concatenate
from evergraph.learn.learner import Learner
from evergraph.learn.memory import State
from evergraph.learn.methods.projection import current_gradient, memory_gradient, set_gradient


@dataclass
class AGEM:
    """If the step would raise the loss on a sample of memory, take that part out of it.

    Attributes:
        sample: how many old items to look at.
    """

    sample: int = 100

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Learn from a new batch."""
        items = learner.require_memory().items
        for _ in range(learner.training.steps):
            chosen = learner.rng.permutation(len(items))[: self.sample].tolist()
            old = concatenate([items[i] for i in chosen]) if chosen else None

            def adjust(old: Batch | None = old) -> None:
                if old is not None:
                    gradient, past = current_gradient(learner), memory_gradient(learner, old)
                    against = gradient @ past
                    if against < 0:
                        set_gradient(learner, gradient - against / (past @ past) * past)

            learner.descend(learner.loss(batch), adjust)
        learner.require_memory().add(batch)

    def state(self) -> State:
        """Nothing to remember beside the memory."""
        return {}, {}

    def load_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Nothing to restore."""

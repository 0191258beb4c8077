"""Averaged gradient episodic memory: never step against the average of the past."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from evergraph.learn.learner import Learner, Method
from evergraph.learn.methods.gradients import current_gradient, memory_gradient, set_gradient
from evergraph.stream.batch import Batch


@dataclass
class AGEM(Method):
    """If the step would raise the loss on a sample of memory, take that part out of it.

    Attributes:
        sample: how many old items to look at.
    """

    needs_memory: ClassVar[bool] = True
    sample: int = 100

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Learn from a new batch."""
        assert learner.memory is not None
        for _ in range(learner.training.steps):
            old = learner.sample(self.sample)

            def adjust(old: Batch | None = old) -> None:
                if old is not None:
                    gradient, past = current_gradient(learner), memory_gradient(learner, old)
                    against = gradient @ past
                    if against < 0:
                        set_gradient(learner, gradient - against / (past @ past) * past)

            learner.descend(learner.loss(batch), adjust)
        learner.memory.add(batch)

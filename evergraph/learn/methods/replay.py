"""The paper's method: a memory that treats all of the stream alike, replayed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from evergraph.learn.learner import Learner, Method
from evergraph.stream.batch import Batch


@dataclass
class Replay(Method):
    """Put the batch in memory, learn from it, then from minibatches of memory.

    Attributes:
        store: whether new items enter the memory; False rehearses items that are in it already.
    """

    needs_memory: ClassVar[bool] = True
    store: bool = True

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Learn from a new batch."""
        assert learner.memory is not None
        if self.store:
            learner.memory.add(batch)
        for _ in range(learner.training.steps):
            learner.descend(learner.loss(batch))
        if learner.position % learner.training.replay_every == 0:
            for old in learner.replay():
                learner.descend(learner.loss(old))

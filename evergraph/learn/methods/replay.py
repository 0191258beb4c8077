"""The paper's method: a memory that treats all of the stream alike, replayed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from evergraph.stream.batch import Batch
from evergraph.learn.learner import Learner
from evergraph.learn.memory import State


@dataclass
class Replay:
    """Put the batch in memory, learn from it, then go over the memory."""

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Learn from a new batch."""
        learner.require_memory().add(batch)
        for _ in range(learner.training.steps):
            learner.descend(learner.loss(batch))
        if learner.position % learner.training.replay_every == 0:
            for old in learner.replay():
                learner.descend(learner.loss(old))

    def state(self) -> State:
        """Nothing to remember beside the memory."""
        return {}, {}

    def load_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Nothing to restore."""

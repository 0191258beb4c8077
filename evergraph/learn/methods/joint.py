"""Keep everything and learn it all together: the upper bound, with an unbounded memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from evergraph.learn.learner import Learner, Method
from evergraph.learn.memory import State
from evergraph.stream.batch import Batch, concatenate


@dataclass
class Joint(Method):
    """Store all that passes, and train on all of it whenever a prediction is asked for.

    Attributes:
        epochs: passes over everything at each time.
    """

    lazy: ClassVar[bool] = True  # a prediction after learning has to train first
    epochs: int = 20
    seen: list[Batch] = field(default_factory=list, repr=False)
    fresh: bool = field(default=True, repr=False)

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Put a new batch to the others."""
        self.seen.append(batch)
        self.fresh = False

    @property
    def ready(self) -> bool:
        """Whether nothing has come since the last training."""
        return self.fresh

    def prepare(self, learner: Learner) -> None:
        """Train on everything."""
        everything = concatenate(self.seen)
        learner.model.train()
        for _ in range(self.epochs):
            order = torch.from_numpy(learner.rng.permutation(len(everything)))
            for part in order.split(learner.training.replay_batch_size):
                learner.descend(learner.loss(everything.select(part)))
        if not learner.training.average_steps:
            learner.average.clear()  # it is of the network before this
        self.fresh = True

    @property
    def nbytes(self) -> int:
        """How many bytes everything takes: it grows with the stream."""
        return sum(batch.nbytes for batch in self.seen)

    def state(self) -> State:
        """Everything."""
        tensors = concatenate(self.seen).tensors() if self.seen else {}
        return tensors, {"fresh": self.fresh}

    def load_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Put everything back."""
        self.seen = [Batch.from_tensors(tensors)] if tensors else []
        self.fresh = values["fresh"]

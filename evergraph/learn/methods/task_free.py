"""Memory aware synapses that find out by themselves when to consolidate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from evergraph.learn.learner import Learner
from evergraph.learn.methods.consolidation import MAS
from evergraph.learn.methods.retrieval import losses
from evergraph.learn.transaction import State
from evergraph.stream.batch import Batch


@dataclass
class TaskFreeMAS(MAS):
    """MAS for streams without tasks: consolidate where the loss stays low (CVPR 2019).

    A plateau is a window of batches whose losses have a low mean and spread; after one, the next
    is looked for when a loss has risen above its mean by its spread. Importance is measured on the
    stored items, those with the highest losses, which are learned with each batch.

    Attributes:
        window: batches of which the losses are looked at.
        low: mean of the losses of a plateau, at the most.
        steady: their standard deviation, at the most.
        recent: the losses in the window.
        plateau: mean and standard deviation of the last one, while no peak has come after it.

    Example:
        >>> from evergraph import FGN, Learner, Reservoir, TaskFreeMAS, node_continuum
        >>> from evergraph.datasets import Growth, generate
        >>> data = generate(Growth(nodes=60, classes=3, features=20))
        >>> learner = Learner(FGN(20), TaskFreeMAS(window=2, low=9.0, steady=9.0), Reservoir(5))
        >>> for batch in node_continuum(data):
        ...     learner.observe(batch)
        >>> len(learner.method.weight) > 0
        True
    """

    needs_memory: ClassVar[bool] = True
    window: int = 5
    low: float = 0.5
    steady: float = 0.3
    recent: list[float] = field(default_factory=list, repr=False)
    plateau: tuple[float, float] | None = field(default=None, repr=False)

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Learn from a new batch."""
        assert learner.memory is not None
        hard = learner.memory.batch(range(len(learner.memory))) if len(learner.memory) else None
        for step in range(learner.training.steps):
            loss = learner.loss(batch)
            if not step:
                self._note(float(loss.detach()))
            if hard is not None:
                loss = (loss + learner.loss(hard)) / 2
            learner.descend(loss + self.strength * self._penalty(learner.model))
        learner.memory.rank(batch, -losses(learner, batch).double().numpy())
        if self._steady():
            hard = learner.memory.batch(range(len(learner.memory)))
            self._consolidate(learner.model, self.importance(learner, hard))
            self.plateau = float(np.mean(self.recent)), float(np.std(self.recent))
            self.recent = []

    def _note(self, loss: float) -> None:
        """Keep a loss in the window; one that is high enough ends the last plateau."""
        self.recent = [*self.recent, loss][-self.window :]
        if self.plateau is not None and loss > sum(self.plateau):
            self.plateau = None

    def _steady(self) -> bool:
        """Whether the window is a plateau, and the first since the last peak."""
        if self.plateau is not None or len(self.recent) < self.window:
            return False
        return bool(np.mean(self.recent) <= self.low and np.std(self.recent) <= self.steady)

    def state(self) -> State:
        """Place and importance of all parameters, and the window."""
        return super().state()[0], {"recent": self.recent, "plateau": self.plateau}

    def load_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Put all of it back."""
        super().load_state(tensors, values)
        self.recent = [float(loss) for loss in values["recent"]]
        plateau = values["plateau"]
        self.plateau = None if plateau is None else (float(plateau[0]), float(plateau[1]))

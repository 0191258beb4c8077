"""Experience replay, the paper's method, with its lower and upper bound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from evergraph.learn.learner import Learner, Method
from evergraph.learn.transaction import State
from evergraph.stream.batch import Batch, concatenate


@dataclass
class Finetune(Method):
    """Gradient steps on the new batch and nothing else: the lower bound.

    Example:
        >>> from evergraph import FGN, Finetune, Learner, node_continuum
        >>> from evergraph.datasets import Growth, generate
        >>> data = generate(Growth(nodes=60, classes=3, features=20))
        >>> learner = Learner(FGN(20), Finetune())
        >>> for batch in node_continuum(data):
        ...     learner.observe(batch)
        >>> learner.predict(batch).unique()  # of three classes, the last one
        tensor([2])
    """

    spreads: ClassVar[bool] = True

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Learn from a new batch."""
        for _ in range(learner.training.steps):
            learner.descend(learner.loss(batch))


@dataclass
class Replay(Method):
    """The paper's method: store the batch, learn from it, then from minibatches of memory.

    Attributes:
        store: whether new items enter the memory; False rehearses items that are in it already.

    Example:
        >>> from evergraph import FGN, Learner, Replay, Reservoir, node_continuum
        >>> from evergraph.datasets import Growth, generate
        >>> data = generate(Growth(nodes=60, classes=3, features=20))
        >>> learner = Learner(FGN(20), Replay(), Reservoir(20))
        >>> for batch in node_continuum(data):
        ...     learner.observe(batch)
        >>> learner.classes, len(learner.memory)
        ([0, 1, 2], 20)
    """

    needs_memory: ClassVar[bool] = True
    spreads: ClassVar[bool] = True
    store: bool = True

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Learn from a new batch."""
        if self.store:
            self.keep(learner, batch)
        for _ in range(learner.training.steps):
            learner.descend(learner.loss(batch))
        if learner.position % learner.training.replay_every == 0:
            for old in self.recall(learner):
                learner.descend(learner.loss(old))

    def keep(self, learner: Learner, batch: Batch) -> None:
        """Offer new items to the memory."""
        assert learner.memory is not None
        learner.memory.add(batch)

    def recall(self, learner: Learner) -> Iterable[Batch]:
        """Old items to learn again, in minibatches."""
        return learner.replay()


@dataclass
class Joint(Method):
    """Store the whole stream, and train on all of it before a prediction: the upper bound.

    Attributes:
        epochs: passes over all items at each time.

    Example:
        >>> from evergraph import FGN, Joint, Learner, node_continuum
        >>> from evergraph.datasets import Growth, generate
        >>> data = generate(Growth(nodes=60, classes=3, features=20))
        >>> learner = Learner(FGN(20), Joint(epochs=2))
        >>> for batch in node_continuum(data):
        ...     learner.observe(batch)
        >>> len(learner.method.seen), learner.method.ready  # it trains when it is asked
        (5, False)
    """

    lazy: ClassVar[bool] = True  # a prediction after learning has to train first
    epochs: int = 20
    seen: list[Batch] = field(default_factory=list, repr=False)
    fresh: bool = field(default=True, repr=False)

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Store a new batch."""
        self.seen.append(batch)
        self.fresh = False

    @property
    def ready(self) -> bool:
        """Whether no item has come since the last training."""
        return self.fresh

    def prepare(self, learner: Learner) -> None:
        """Train on all items."""
        items = concatenate(self.seen)
        learner.model.train()
        for _ in range(self.epochs):
            order = torch.from_numpy(learner.rng.permutation(len(items)))
            for part in order.split(learner.training.replay_batch_size):
                learner.descend(learner.loss(items.select(part)))
        if not learner.training.average_steps:
            learner.average.clear()  # it is of the network before this
        self.fresh = True

    @property
    def nbytes(self) -> int:
        """How many bytes all items take: it grows with the stream."""
        return sum(batch.nbytes for batch in self.seen)

    def state(self) -> State:
        """All items."""
        tensors = concatenate(self.seen).tensors() if self.seen else {}
        return tensors, {"fresh": self.fresh}

    def load_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Put the items back."""
        self.seen = [Batch.from_tensors(tensors)] if tensors else []
        self.fresh = values["fresh"]

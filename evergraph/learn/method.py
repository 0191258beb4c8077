"""How forgetting is fought: the hooks of a method, each with a default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from torch import Tensor

from evergraph.learn.memory import State
from evergraph.stream.batch import Batch

if TYPE_CHECKING:
    from evergraph.learn.learner import Learner


class Method(Protocol):
    """What is done with a new batch. Subclass it and write `observe`; all else has a default.

    Attributes:
        needs_memory: whether the learner must have a memory.
        lazy: whether a prediction after learning is expensive, because the method has to solve or
            train first; evaluations are then made at the end of tasks only.
        labels_only: whether targets must be labels.
    """

    needs_memory: ClassVar[bool] = False
    lazy: ClassVar[bool] = False
    labels_only: ClassVar[bool] = False

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Learn from a new batch."""
        ...

    def check(self, learner: Learner, batch: Batch) -> None:
        """Raise a ValueError if this method cannot learn from a batch; nothing has changed yet."""
        return

    def prepare(self, learner: Learner) -> None:
        """Do what has to be done before a prediction, with gradients if need be."""
        return

    def output(self, learner: Learner, batch: Batch) -> Tensor:
        """Outputs to decide on, `(B, K)`: those of the model, unless a method has its own."""
        out: Tensor = learner.snapshot()(batch)
        return out

    @property
    def nbytes(self) -> int:
        """How many bytes the method keeps beside the memory."""
        return sum(tensor.nbytes for tensor in self.state()[0].values())

    def state(self) -> State:
        """All that is needed to resume: tensors, and what JSON can hold."""
        return {}, {}

    def load_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Resume from a state."""
        return

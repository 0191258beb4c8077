"""Replay of what the last step has hurt most: maximally interfered retrieval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from evergraph.learn.learner import Learner, Method
from evergraph.stream.batch import Batch


@dataclass
class MIR(Method):
    """Maximally interfered retrieval: replay the items whose loss rises most (NeurIPS 2019).

    Its authors foresee the step on the new batch on a copy of the network, and then learn both in
    one step; here the step is made, and what it has hurt is learned in the next.

    Attributes:
        sample: how many stored items to look at; `replay_batch_size` of them are learned again.

    Example:
        >>> from evergraph import FGN, MIR, Learner, Reservoir, node_continuum
        >>> from evergraph.datasets import Growth, generate
        >>> data = generate(Growth(nodes=60, classes=3, features=20))
        >>> learner = Learner(FGN(20), MIR(sample=20), Reservoir(20))
        >>> for batch in node_continuum(data):
        ...     learner.observe(batch)
        >>> learner.classes, len(learner.memory)
        ([0, 1, 2], 20)
    """

    needs_memory: ClassVar[bool] = True
    sample: int = 50

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Learn from a new batch."""
        assert learner.memory is not None
        for _ in range(learner.training.steps):
            old = learner.sample(self.sample)
            before = losses(learner, old) if old is not None else torch.zeros(0)
            learner.descend(learner.loss(batch))
            if old is not None:
                rise = losses(learner, old) - before
                size = min(learner.training.replay_batch_size, len(old))
                learner.descend(learner.loss(old.select(rise.topk(size).indices)))
        learner.memory.add(batch)


@torch.no_grad()
def losses(learner: Learner, batch: Batch) -> Tensor:
    """The loss of each item alone, `(B,)`, without noise or batch statistics."""
    learner.model.eval()
    outputs = learner.outputs(batch).split(1)
    found = [learner.task.loss(out, item) for out, item in zip(outputs, batch, strict=True)]
    learner.model.train()
    return torch.stack(found)

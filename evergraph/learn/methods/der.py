"""Dark experience replay (DER++): replay old items with the answers of their time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from evergraph.stream.batch import Batch
from evergraph.learn.learner import Learner
from evergraph.learn.memory import State


@dataclass
class DER:
    """Replay labels and, on the classes known then, the logits that an item had when it came.

    Attributes:
        strength: of the old logits.
    """

    strength: float = 0.5
    answers: dict[int, Tensor] = field(default_factory=dict, repr=False)

    def check(self, learner: Learner, batch: Batch) -> None:
        """Refuse items without a name."""
        if bool((batch.node < 0).any()):
            raise ValueError("DER finds its logits by the name of an item: set batch.node")

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Learn from a new batch."""
        memory = learner.require_memory()
        for _ in range(learner.training.steps):
            learner.descend(learner.loss(batch))
        memory.add(batch)
        self._remember(learner, batch)
        if learner.position % learner.training.replay_every == 0:
            for old in learner.replay():
                logits = learner.logits(old)
                then, known = self._recall(old, logits)
                gap = ((logits - then).square() * known).sum() / known.sum().clamp(min=1)
                learner.descend(learner.loss_of(logits, old) + self.strength * gap)

    @torch.no_grad()
    def _remember(self, learner: Learner, batch: Batch) -> None:
        kept = {int(item.node[0]) for item in learner.require_memory().items}
        learner.model.eval()
        for node, logits in zip(batch.node.tolist(), learner.logits(batch), strict=True):
            if node in kept:
                self.answers[node] = logits.clone()
        learner.model.train()
        self.answers = {node: old for node, old in self.answers.items() if node in kept}

    def _recall(self, old: Batch, logits: Tensor) -> tuple[Tensor, Tensor]:
        width = logits.shape[1]
        found = [self.answers[node] for node in old.node.tolist()]
        then = torch.stack([pad(a, (0, width - len(a))) for a in found])
        known = torch.stack([torch.arange(width) < len(a) for a in found])
        return then, known.to(then.dtype)

    def state(self) -> State:
        """The logits of their time, by item."""
        return {str(node): logits for node, logits in self.answers.items()}, {}

    def load_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Put the logits back."""
        self.answers = {int(node): logits for node, logits in tensors.items()}

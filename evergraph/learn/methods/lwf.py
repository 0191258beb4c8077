"""Learning without forgetting: the old network teaches the new one."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import kl_div, log_softmax, softmax

from evergraph.stream.batch import Batch
from evergraph.learn.learner import Learner
from evergraph.learn.memory import State


@dataclass
class LwF:
    """Keep the answers of an earlier copy of the network on the classes that it knew.

    Attributes:
        strength: of the distillation.
        temperature: that softens both answers.
        every: batches between copies; no task boundary is needed.
    """

    strength: float = 1.0
    temperature: float = 2.0
    every: int = 10
    teacher: dict[str, Tensor] = field(default_factory=dict, repr=False)

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Learn from a new batch."""
        answers = self._answers(learner, batch)
        for _ in range(learner.training.steps):
            loss = learner.loss(batch)
            if answers is not None:
                loss = loss + self.strength * self._distance(learner.logits(batch), answers)
            learner.descend(loss)
        if (learner.position + 1) % self.every == 0:
            self.teacher = {k: v.clone() for k, v in learner.model.state_dict().items()}

    @torch.no_grad()
    def _answers(self, learner: Learner, batch: Batch) -> Tensor | None:
        if not self.teacher:
            return None
        model = copy.deepcopy(learner.model)
        state = model.state_dict()
        known = self.teacher["readout.bias"].shape[0]
        for name, tensor in self.teacher.items():
            state[name][tuple(slice(size) for size in tensor.shape)] = tensor
        model.load_state_dict(state)
        out: Tensor = model.eval()(batch.x, batch.neighbors)[:, :known]
        return out

    def _distance(self, logits: Tensor, answers: Tensor) -> Tensor:
        soft = log_softmax(logits[:, : answers.shape[1]] / self.temperature, -1)
        target = softmax(answers / self.temperature, -1)
        return kl_div(soft, target, reduction="batchmean") * self.temperature**2

    def state(self) -> State:
        """The teacher."""
        return self.teacher, {}

    def load_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Put the teacher back."""
        self.teacher = dict(tensors)

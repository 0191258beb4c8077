"""Learning without forgetting: the old network teaches the new one."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import kl_div, log_softmax, softmax

from evergraph.learn.learner import Learner, Method
from evergraph.learn.memory import State
from evergraph.stream.batch import Batch


@dataclass
class LwF(Method):
    """Keep the outputs of an earlier copy of the network on the classes that it knew.

    Attributes:
        strength: of the distillation.
        temperature: that softens both outputs.
        every: batches between copies; no task boundary is needed.
    """

    labels_only: ClassVar[bool] = True
    strength: float = 1.0
    temperature: float = 2.0
    every: int = 10
    teacher: dict[str, Tensor] = field(default_factory=dict, repr=False)
    known: int = field(default=0, repr=False)  # classes that the teacher knows

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Learn from a new batch."""
        taught = self._taught(learner, batch)
        for _ in range(learner.training.steps):
            output = learner.model(batch)
            loss = learner.task.loss(output, batch)
            if taught is not None:
                loss = loss + self.strength * self._distance(output, taught)
            learner.descend(loss)
        if (learner.position + 1) % self.every == 0:
            self.teacher = {k: v.clone() for k, v in learner.model.state_dict().items()}
            self.known = learner.model.head.outputs

    @torch.no_grad()
    def _taught(self, learner: Learner, batch: Batch) -> Tensor | None:
        if not self.teacher:
            return None
        model = copy.deepcopy(learner.model)
        state = model.state_dict()
        for name, tensor in self.teacher.items():
            state[name][tuple(slice(size) for size in tensor.shape)] = tensor
        model.load_state_dict(state)
        out: Tensor = model.eval()(batch)[:, : self.known]
        return out

    def _distance(self, output: Tensor, taught: Tensor) -> Tensor:
        soft = log_softmax(output[:, : taught.shape[1]] / self.temperature, -1)
        target = softmax(taught / self.temperature, -1)
        return kl_div(soft, target, reduction="batchmean") * self.temperature**2

    def state(self) -> State:
        """The teacher."""
        return self.teacher, {"known": self.known}

    def load_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Put the teacher back."""
        self.teacher, self.known = dict(tensors), values["known"]

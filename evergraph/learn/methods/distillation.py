"""Distillation: earlier outputs are targets (LwF, and DER++ on replayed items)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import kl_div, log_softmax, pad, softmax

from evergraph.learn.checkpoint import whole
from evergraph.learn.learner import Learner, Method
from evergraph.learn.state import require_like
from evergraph.learn.transaction import State
from evergraph.nn.model import outputs
from evergraph.stream.batch import Batch


@dataclass
class LwF(Method):
    """Learning without forgetting: keep the outputs of an earlier copy on the classes it knew.

    Attributes:
        strength: of the distillation.
        temperature: that softens both outputs.
        every: batches between copies; no task boundary is needed.

    Example:
        >>> from evergraph import FGN, Learner, LwF, node_continuum
        >>> from evergraph.datasets import Growth, generate
        >>> data = generate(Growth(nodes=60, classes=3, features=20))
        >>> learner = Learner(FGN(20), LwF(every=2))
        >>> for batch in node_continuum(data):
        ...     learner.observe(batch)
        >>> learner.method.known  # classes of the copy
        3
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
            output = learner.outputs(batch)
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
        return outputs(model.eval(), batch, learner.device)[:, : self.known]

    def _distance(self, output: Tensor, taught: Tensor) -> Tensor:
        soft = log_softmax(output[:, : taught.shape[1]] / self.temperature, -1)
        target = softmax(taught / self.temperature, -1)
        return kl_div(soft, target, reduction="batchmean") * self.temperature**2

    def state(self) -> State:
        """The teacher."""
        return self.teacher, {"known": self.known}

    def load_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Put the teacher back."""
        self.teacher, self.known = dict(tensors), whole(values["known"])

    def check_state(self, learner: Learner) -> None:
        """The teacher must be an earlier state of the model."""
        require_like("the teacher", self.teacher, learner.model.state_dict(), some=True)
        if self.known > learner.model.head.outputs:
            raise ValueError(f"the teacher must know classes of the model, got {self.known}")


@dataclass
class DER(Method):
    """Dark experience replay (DER++): replay labels and the outputs that an item had when it came.

    Attributes:
        strength: of the old outputs.

    Example:
        >>> from evergraph import FGN, DER, Learner, Reservoir, node_continuum
        >>> from evergraph.datasets import Growth, generate
        >>> data = generate(Growth(nodes=60, classes=3, features=20))
        >>> learner = Learner(FGN(20), DER(), Reservoir(20))
        >>> for batch in node_continuum(data):
        ...     learner.observe(batch)
        >>> len(learner.memory), len(learner.method.outputs)
        (20, 20)
    """

    needs_memory: ClassVar[bool] = True
    strength: float = 0.5
    outputs: dict[int, Tensor] = field(default_factory=dict, repr=False)

    def check(self, learner: Learner, batch: Batch) -> None:
        """Refuse items without an identifier."""
        if bool((batch.node < 0).any()):
            raise ValueError("DER finds the outputs of an item by its identifier: set batch.node")

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Learn from a new batch."""
        memory = learner.memory
        assert memory is not None
        for _ in range(learner.training.steps):
            learner.descend(learner.loss(batch))
        memory.add(batch)
        self._remember(learner, batch)
        if learner.position % learner.training.replay_every == 0:
            for old in learner.replay():
                output = learner.outputs(old)
                then, known = self._recall(old, output)
                gap = ((output - then).square() * known).sum() / known.sum().clamp(min=1)
                learner.descend(learner.task.loss(output, old) + self.strength * gap)

    @torch.no_grad()
    def _remember(self, learner: Learner, batch: Batch) -> None:
        assert learner.memory is not None
        kept = set(learner.memory.node.tolist())
        learner.model.eval()
        for node, output in zip(batch.node.tolist(), learner.outputs(batch), strict=True):
            if node in kept:
                self.outputs[node] = output.clone()
        learner.model.train()
        self.outputs = {node: old for node, old in self.outputs.items() if node in kept}

    def _recall(self, old: Batch, output: Tensor) -> tuple[Tensor, Tensor]:
        width = output.shape[1]
        found = [self.outputs[node] for node in old.node.tolist()]
        then = torch.stack([pad(a, (0, width - len(a))) for a in found])
        known = torch.stack([torch.arange(width) < len(a) for a in found])
        return then, known.to(then.dtype)

    def state(self) -> State:
        """The outputs of their time, by item."""
        return {str(node): output for node, output in self.outputs.items()}, {}

    def load_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Put the outputs back."""
        self.outputs = {int(node): output for node, output in tensors.items()}

    def check_state(self, learner: Learner) -> None:
        """Every item in memory must have outputs, of classes that are known."""
        assert learner.memory is not None
        missing = {int(item.node[0]) for item in learner.memory.items} - self.outputs.keys()
        if missing:
            raise ValueError(
                f"items in memory must have outputs, got none for {sorted(missing)[:3]}"
            )
        like = torch.zeros(learner.model.head.outputs)
        for node, output in self.outputs.items():
            name = f"output {node}"
            require_like("the memory", {name: output}, {name: like}, some=True)

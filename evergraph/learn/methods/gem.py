"""Gradient episodic memory: never step against any group of the past."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from scipy.optimize import nnls
from torch import Tensor

from evergraph.learn.learner import Learner, Method
from evergraph.learn.methods.gradients import current_gradient, memory_gradient, set_gradient
from evergraph.stream.batch import Batch, concatenate


@dataclass
class GEM(Method):
    """Take the nearest step that raises the loss of no group of old items.

    Groups are the classes in memory (all of it without classes), so that no task boundary is
    needed. The nearest step is `g + Gᵀ v` with the smallest length over v >= 0, where the rows of
    G are the gradients of the groups: a small non-negative least squares problem.

    Attributes:
        sample: how many old items of each group to look at.
    """

    needs_memory: ClassVar[bool] = True
    sample: int = 30

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Learn from a new batch."""
        assert learner.memory is not None
        groups = self._groups(learner)

        def adjust() -> None:
            gradient = current_gradient(learner)
            past = torch.stack([memory_gradient(learner, old) for old in groups])
            if bool((past @ gradient < 0).any()):
                set_gradient(learner, nearest_step(gradient, past))

        for _ in range(learner.training.steps):
            learner.descend(learner.loss(batch), adjust if groups else None)
        learner.memory.add(batch)

    def _groups(self, learner: Learner) -> list[Batch]:
        assert learner.memory is not None
        members: dict[int, list[Batch]] = {}
        for item in learner.memory.items:
            members.setdefault(learner.task.groups(item.target)[0], []).append(item)
        groups = []
        for items in members.values():
            chosen = learner.rng.permutation(len(items))[: self.sample].tolist()
            groups.append(concatenate([items[i] for i in chosen]))
        return groups


def nearest_step(gradient: Tensor, past: Tensor) -> Tensor:
    """The vector nearest to gradient `(D,)` with no negative product with a row of `(T, D)`.

    Example:
        >>> nearest_step(torch.tensor([1.0, -1.0]), torch.tensor([[0.0, 1.0]]))
        tensor([1., 0.])
    """
    basis, triangle = torch.linalg.qr(past.T.double())
    inside = basis.T @ gradient.double()
    v, _ = nnls(triangle.numpy(), -inside.numpy())
    return gradient + past.T @ torch.from_numpy(v).to(gradient.dtype)

"""Gradient episodic memory (GEM) and its averaged form (A-GEM): constrained gradient steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from scipy.optimize import nnls
from torch import Tensor

from evergraph.learn.learner import Learner, Method
from evergraph.learn.training import gradients
from evergraph.stream.batch import Batch


@dataclass
class GEM(Method):
    """Take the nearest step that raises the loss of no group of old items.

    Groups are the classes in memory (all of it without classes), so that no task boundary is
    needed. The nearest step is `g + Gᵀ v` with the smallest length over v >= 0, where the rows of
    G are the gradients of the groups: a small non-negative least squares problem.

    Attributes:
        sample: how many old items of each group to look at.

    Example:
        >>> from evergraph import FGN, GEM, Learner, Reservoir, node_continuum
        >>> from evergraph.datasets import Growth, generate
        >>> data = generate(Growth(nodes=60, classes=3, features=20))
        >>> learner = Learner(FGN(20), GEM(sample=5), Reservoir(20))
        >>> for batch in node_continuum(data):
        ...     learner.observe(batch)
        >>> learner.classes
        [0, 1, 2]
    """

    needs_memory: ClassVar[bool] = True
    sample: int = 30

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Learn from a new batch."""
        assert learner.memory is not None
        groups = self._groups(learner)

        def adjust() -> None:
            gradient = _current_gradient(learner)
            past = torch.stack([loss_gradient(learner, old) for old in groups])
            if bool((past @ gradient < 0).any()):
                _set_gradient(learner, nearest_step(gradient, past))

        for _ in range(learner.training.steps):
            learner.descend(learner.loss(batch), adjust if groups else None)
        learner.memory.add(batch)

    def _groups(self, learner: Learner) -> list[Batch]:
        assert learner.memory is not None
        members: dict[int, list[int]] = {}
        for position, group in enumerate(learner.task.groups(learner.memory.target)):
            members.setdefault(group, []).append(position)
        groups = []
        for positions in members.values():
            chosen = learner.rng.permutation(positions)[: self.sample]
            groups.append(learner.memory.batch(chosen))
        return groups


@dataclass
class AGEM(Method):
    """If the step would raise the loss on a sample of memory, take that part out of it.

    Attributes:
        sample: how many old items to look at.

    Example:
        >>> from evergraph import FGN, AGEM, Learner, Reservoir, node_continuum
        >>> from evergraph.datasets import Growth, generate
        >>> data = generate(Growth(nodes=60, classes=3, features=20))
        >>> learner = Learner(FGN(20), AGEM(sample=10), Reservoir(20))
        >>> for batch in node_continuum(data):
        ...     learner.observe(batch)
        >>> learner.classes
        [0, 1, 2]
    """

    needs_memory: ClassVar[bool] = True
    sample: int = 100

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Learn from a new batch."""
        assert learner.memory is not None
        for _ in range(learner.training.steps):
            old = learner.sample(self.sample)

            def adjust(old: Batch | None = old) -> None:
                if old is not None:
                    gradient, past = _current_gradient(learner), loss_gradient(learner, old)
                    against = gradient @ past
                    if against < 0:
                        _set_gradient(learner, gradient - against / (past @ past) * past)

            learner.descend(learner.loss(batch), adjust)
        learner.memory.add(batch)


def nearest_step(gradient: Tensor, past: Tensor) -> Tensor:
    """The vector nearest to gradient `(D,)` with no negative product with a row of `(T, D)`.

    Example:
        >>> nearest_step(torch.tensor([1.0, -1.0]), torch.tensor([[0.0, 1.0]]))
        tensor([1., 0.])
    """
    basis, triangle = torch.linalg.qr(past.T.double())
    inside = basis.T @ gradient.double()
    v, _ = nnls(triangle.cpu().numpy(), -inside.cpu().numpy())
    return gradient + past.T @ torch.from_numpy(v).to(gradient)


def loss_gradient(learner: Learner, batch: Batch) -> Tensor:
    """The gradient of the loss on old items, as one vector."""
    found = gradients(learner.model, learner.loss(batch))
    return torch.cat([g.flatten() for g in found.values()])


def _current_gradient(learner: Learner) -> Tensor:
    """The gradient that the optimizer is about to use, as one vector."""
    found = [torch.zeros_like(p) if p.grad is None else p.grad for p in learner.model.parameters()]
    return torch.cat([(g.to_dense() if g.is_sparse else g).flatten() for g in found])


def _set_gradient(learner: Learner, vector: Tensor) -> None:
    """Let the optimizer use another gradient."""
    parameters = list(learner.model.parameters())
    for p, part in zip(parameters, vector.split([p.numel() for p in parameters]), strict=True):
        p.grad = part.view_as(p).clone()

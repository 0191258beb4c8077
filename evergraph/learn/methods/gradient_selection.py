"""Replay of items chosen by their gradients: influence (ER-GNN), and diversity (GSS)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from evergraph.learn.learner import Learner
from evergraph.learn.methods.gem import loss_gradient
from evergraph.learn.methods.replay import Replay
from evergraph.stream.batch import Batch


@dataclass
class Influence(Replay):
    """ER-GNN's influence maximization: items that matter most to the network stay (AAAI 2021).

    Leaving an item with gradient g out moves the parameters by about `H⁻¹ g`, and its own loss by
    `gᵀ H⁻¹ g`. With the identity in place of the Hessian H, this is |g|², measured right after
    the item was learned. Classes have equal shares; the rule of the memory is not asked.

    Example:
        >>> from evergraph import FGN, Influence, Learner, Reservoir, node_continuum
        >>> from evergraph.datasets import Growth, generate
        >>> data = generate(Growth(nodes=60, classes=3, features=20))
        >>> learner = Learner(FGN(20), Influence(), Reservoir(6))
        >>> for batch in node_continuum(data):
        ...     learner.observe(batch)
        >>> learner.memory.target.bincount()
        tensor([2, 2, 2])
    """

    spreads: ClassVar[bool] = False
    store: bool = False  # items are stored here, after they are learned

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Learn from a new batch."""
        super().observe(learner, batch)
        self.keep(learner, batch)

    def keep(self, learner: Learner, batch: Batch) -> None:
        """Store what matters more than what is there."""
        assert learner.memory is not None
        influence = item_gradients(learner, batch).square().sum(1)
        balanced = not batch.target.is_floating_point()
        learner.memory.rank(batch, -influence.double().cpu().numpy(), balanced)


@dataclass
class GSS(Replay):
    """Gradient-based sample selection, items whose gradients differ stay (NeurIPS 2019).

    The score of an item is 1 plus the largest cosine of its gradient with those of some stored
    items. In a full memory an item with a score below 1 meets a stored one, drawn by its score,
    and takes its place with the chance that their scores give it. The memory's rule is not asked.

    Attributes:
        sample: how many stored items the gradient is compared with.

    Example:
        >>> from evergraph import FGN, GSS, Learner, Reservoir, node_continuum
        >>> from evergraph.datasets import Growth, generate
        >>> data = generate(Growth(nodes=60, classes=3, features=20))
        >>> learner = Learner(FGN(20), GSS(sample=5), Reservoir(20))
        >>> for batch in node_continuum(data):
        ...     learner.observe(batch)
        >>> learner.classes, len(learner.memory)
        ([0, 1, 2], 20)
    """

    spreads: ClassVar[bool] = False
    sample: int = 10

    def keep(self, learner: Learner, batch: Batch) -> None:
        """Store items that pull in another direction than what is there."""
        memory = learner.memory
        assert memory is not None
        old = learner.sample(self.sample)
        past = None if old is None else _directions(item_gradients(learner, old))
        for item, gradient in zip(batch, _directions(item_gradients(learner, batch)), strict=True):
            score = 1.0 if past is None else 1 + float((past @ gradient).max())

            def leaves(score: float = score) -> int:
                """The new item, which is the last, or one that is drawn and loses to it."""
                assert memory is not None
                scores = memory.keys[:-1].clip(min=1e-6)
                if score >= 1 or not len(scores):
                    return len(scores)
                drawn = int(learner.rng.choice(len(scores), p=scores / scores.sum()))
                wins = learner.rng.random() < scores[drawn] / (scores[drawn] + max(score, 1e-6))
                return drawn if wins else len(scores)

            memory.swap(item, score, leaves)


def item_gradients(learner: Learner, batch: Batch) -> Tensor:
    """The gradient of the loss of each item alone, `(B, D)`, without noise or batch statistics."""
    learner.model.eval()
    found = torch.stack([loss_gradient(learner, item) for item in batch])
    learner.model.train()
    return found


def _directions(gradients: Tensor) -> Tensor:
    """Rows of unit length; zeros stay zero."""
    return torch.nn.functional.normalize(gradients, dim=1)

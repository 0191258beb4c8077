"""Memories that look at their items: two selections of ER-GNN (Zhou and Cao, AAAI 2021).

ER-GNN chooses at the end of each task among all of its nodes. Here nothing is known of tasks and
only the memory can be looked at: whenever it is full, the class with the most items gives up the
one that suits least. The third selection, by influence, needs the network: see `Influence`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from evergraph.graph.neighbors import as_dense
from evergraph.learn.memory import AgeQuota, ClassBalanced, Memory, Reservoir, UniformEviction
from evergraph.learn.slots import Slots
from evergraph.stream.batch import Batch

Array = np.ndarray[Any, Any]


class _ByFeatures:
    """Of the class with the most items, the one that suits least goes."""

    labels_only: ClassVar[bool] = True

    @abstractmethod
    def unfit(self, rows: Array, own: Array) -> Array:
        """How little each item of a class suits, by the rows of all and who is of the class."""

    def add(self, slots: Slots, batch: Batch, rng: np.random.Generator) -> None:
        """See `Rule`."""
        slots.extend(batch, np.zeros(len(batch)))
        if not slots.full:
            return
        rows, labels = _unit_rows(slots), slots.column("target").numpy().copy()
        while slots.full:
            found, counts = np.unique(labels, return_counts=True)
            own = labels == found[counts.argmax()]
            gone = int(np.flatnonzero(own)[self.unfit(rows, own).argmax()])
            slots.drop(gone)
            rows, labels = np.delete(rows, gone, 0), np.delete(labels, gone)


class _NearMean(_ByFeatures):
    """The items nearest to the mean of their class stay."""

    name: ClassVar[str] = "MeanOfFeature"

    def unfit(self, rows: Array, own: Array) -> Array:
        away: Array = np.linalg.norm(rows[own] - rows[own].mean(0), axis=1)
        return away.round(5)  # two items are equally far from their mean: the older one goes


class _Covering(_ByFeatures):
    """The items with the fewest items of other classes around them stay."""

    name: ClassVar[str] = "Coverage"

    def __init__(self, distance: float) -> None:
        self.distance = distance

    def unfit(self, rows: Array, own: Array) -> Array:
        inner = rows[own] @ rows[~own].T  # of unit rows: |a - b|² = 2 - 2 ab
        count: Array = (2 - 2 * inner < self.distance**2).sum(1)
        return count


def MeanOfFeature(  # noqa: N802 - reads as the kind of memory it makes
    capacity: int | None = None, capacity_bytes: int | None = None, seed: int = 0
) -> Memory:
    """ER-GNN's mean of feature: items whose features are nearest to the mean of their class.

    The mean is that of the stored items. Classes have equal shares.

    Args:
        capacity: items at the most.
        capacity_bytes: bytes at the most.
        seed: not used, since nothing is drawn.

    Example:
        >>> from evergraph import node_continuum
        >>> from evergraph.datasets import Growth, generate
        >>> data = generate(Growth(nodes=60, classes=3, features=20))
        >>> memory = MeanOfFeature(capacity=6)
        >>> for batch in node_continuum(data):
        ...     memory.add(batch)
        >>> memory.target.bincount()
        tensor([2, 2, 2])
    """
    return Memory(_NearMean(), capacity, capacity_bytes, seed)


def Coverage(  # noqa: N802
    capacity: int | None = None,
    capacity_bytes: int | None = None,
    seed: int = 0,
    distance: float = 1.2,
) -> Memory:
    """ER-GNN's coverage maximization: items with few items of other classes around them.

    Args:
        capacity: items at the most.
        capacity_bytes: bytes at the most.
        seed: not used, since nothing is drawn.
        distance: how far an item of another class is around; rows have unit length, so that
            those that share no feature are √2 apart.

    Example:
        >>> from evergraph import node_continuum
        >>> from evergraph.datasets import Growth, generate
        >>> data = generate(Growth(nodes=60, classes=3, features=20))
        >>> memory = Coverage(capacity=6)
        >>> for batch in node_continuum(data):
        ...     memory.add(batch)
        >>> memory.target.bincount()
        tensor([2, 2, 2])
    """
    return Memory(_Covering(distance), capacity, capacity_bytes, seed)


def _unit_rows(slots: Slots) -> Array:
    """The features of all items, each of unit length; those without any stay zero."""
    x = as_dense(slots.batch(range(len(slots))).x)
    rows: Array = x.reshape(len(slots), -1).numpy().astype(np.float64)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(length > 0, length, 1))


MEMORIES = {
    "reservoir": Reservoir,
    "class-balanced": ClassBalanced,
    "age-quota": AgeQuota,
    "uniform": UniformEviction,
    "mean-of-feature": MeanOfFeature,
    "coverage": Coverage,
}
"""Every memory by its name."""

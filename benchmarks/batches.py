"""Batches to measure on: from real data where it is at hand, generated otherwise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from evergraph.graph import Dataset, Features, Neighbors, SparseRows
from evergraph.stream import Batch


@dataclass(frozen=True)
class Case:
    """A named batch with its targets.

    Attributes:
        name: of the data set.
        origin: `real` or `generated`.
        batch: sparse rows, or `(B, 1, F)`, with their neighbors.
        num_features: F.
        num_classes: K.
    """

    name: str
    origin: str
    batch: Batch
    num_features: int
    num_classes: int


def _batch(x: Features, neighbors: Neighbors, target: torch.Tensor) -> Batch:
    unknown = torch.full((len(target),), -1)
    return Batch(x, neighbors, target, unknown, unknown)


def from_dataset(dataset: Dataset, size: int, seed: int = 0) -> Case:
    """A random batch of training nodes with all their neighbors, self-loop included."""
    graph = dataset.graph
    assert graph.labels is not None
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(dataset.train), generator=generator)
    nodes = dataset.train[order[:size]]
    found = graph.neighborhood(nodes)
    features = graph.features
    assert isinstance(features, SparseRows)
    return Case(
        dataset.name,
        "generated" if dataset.generated else "real",
        _batch(features[nodes], Neighbors(features[found.nodes], found.owner), graph.labels[nodes]),
        graph.num_features,
        graph.num_classes,
    )


def bags_of_words(
    size: int,
    num_features: int,
    own: int = 18,
    support: int = 67,
    neighbors: int = 4,
    num_classes: int = 7,
    seed: int = 0,
    name: str = "generated",
    weighted: bool = False,
) -> Case:
    """Items with exactly `own` nonzeros in x and `support` in x and its neighbors together.

    The neighbors (x itself is the first) share the words evenly. The defaults are the means of
    Cora, so that only F changes when F changes. Weighted words have numbers between 0 and 1, so
    that no two feature nodes of an item are alike; others have 1.
    """
    rng = np.random.default_rng(seed)
    share = -(-(support - own) // max(neighbors - 1, 1))
    rows: list[np.ndarray] = []
    for _ in range(size):
        words = rng.choice(num_features, support, replace=False)
        rows.append(words[:own])
        for n in range(neighbors - 1):
            start = own + (n * share) % max(support - own, 1)
            rows.append(words[start : start + share])
    indptr = torch.tensor([0, *map(len, rows)]).cumsum(0)
    indices = torch.from_numpy(np.concatenate(rows).astype(np.int64))
    values = (
        torch.from_numpy(rng.random(len(indices))).float() if weighted else torch.ones(len(indices))
    )
    y = SparseRows(indptr, indices, values, num_features)
    owner = torch.arange(size).repeat_interleave(neighbors)
    target = torch.from_numpy(rng.integers(0, num_classes, size))
    x = y[torch.arange(size) * neighbors]
    batch = _batch(x, Neighbors(y, owner), target)
    return Case(name, "generated", batch, num_features, num_classes)


def dense_embeddings(size: int, num_features: int, neighbors: int, seed: int = 0) -> Case:
    """Normal features without zeros, as sensors, descriptors and embeddings have them."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randn(size * neighbors, 1, num_features, generator=generator)
    owner = torch.arange(size).repeat_interleave(neighbors)
    target = torch.randint(0, 7, (size,), generator=generator)
    batch = _batch(y[::neighbors], Neighbors(y, owner), target)
    return Case(f"dense-{num_features}", "generated", batch, num_features, 7)

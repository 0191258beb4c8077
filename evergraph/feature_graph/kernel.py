"""The feature graph as a kernel between items: inner products of F × F matrices never formed.

For non-negative features the inner product of two directed feature graphs (Eq. 4) is a product of
two small ones, `⟨√(x mᵀ), √(x' m'ᵀ)⟩ = ⟨√x, √x'⟩ ⟨√m, √m'⟩`. Rows are integers of unit length, so
that each inner product is exact: the same bits in any order, batch and blocking.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from evergraph.feature_graph.fixed_point import ONE, Rows, dense_product, root, unit
from evergraph.feature_graph.neighborhoods import condense, neighborhood_mean
from evergraph.graph.neighbors import Features, Neighbors
from evergraph.graph.rows import SparseRows

Floats = NDArray[np.float64]
Hops = Literal["all", "first", "last"]
"""Which of the means: of all hops, of the nearest, or of the farthest."""
WIDE = 2**22  # numbers of a block of dense rows that are multiplied at a time


@dataclass(frozen=True)
class Planes:
    """Items as integer rows of unit length.

    Attributes:
        x: their features, `(n, F)`.
        means: of their neighborhoods, one matrix per plane (hop, edge component).
        roots: the signed roots of these.
    """

    x: Rows
    means: list[Rows]
    roots: list[Rows]

    @classmethod
    def of(cls, rows: Rows, width: int) -> Planes:
        """From x and the means side by side, each F wide."""
        parts = [rows[:, at : at + width].tocsr() for at in range(0, rows.shape[1], width)]
        x, *means = (unit(part.astype(np.int64)) for part in parts)
        return cls(x, means, [unit(root(mean.astype(np.int64))) for mean in means])

    def __len__(self) -> int:
        return int(self.x.shape[0])

    def places(self, hops: Hops) -> range:
        """Which planes are meant."""
        count = len(self.means)
        return {"all": range(count), "first": range(1), "last": range(count - 1, count)}[hops]

    def together(self, hops: Hops) -> Rows:
        """Rows of x and the rooted means added up."""
        rows: Any = self.x
        for place in self.places(hops):
            rows = rows + self.roots[place]
        return unit(sparse.csr_array(rows).astype(np.int64))

    def part(self, which: slice) -> Planes:
        """Some of them."""
        return Planes(self.x[which], *([m[which] for m in p] for p in (self.means, self.roots)))


class Similarity:
    """Inner products between two sets of items, `(n, k)` each, of blocks of unit length.

    Each is computed when it is first asked for, and kept.

    Args:
        some: n items.
        others: k items.
    """

    def __init__(self, some: Planes, others: Planes) -> None:
        self.sets = some, others
        self._found: dict[tuple[str, Hops | int], Floats] = {}

    @cached_property
    def x(self) -> Floats:
        """Of their features."""
        return inner(*(planes.x for planes in self.sets))

    def mean(self, hops: Hops = "all") -> Floats:
        """Of their neighborhood means: the average over planes (hops, edge components)."""
        return self._average("means", hops)

    def root(self, hops: Hops = "all") -> Floats:
        """The same of the signed roots of the means."""
        return self._average("roots", hops)

    def product(self, hops: Hops = "all") -> Floats:
        """Of their feature graphs: the product of x and the rooted means."""
        return self.x * self.root(hops)

    def together(self, hops: Hops = "all") -> Floats:
        """Of x and the rooted means added up: a word of an item meets one around another."""
        return self._kept("together", hops, lambda: inner(*(p.together(hops) for p in self.sets)))

    def first(self, size: int) -> Similarity:
        """Among so many of the items at the most."""
        return Similarity(*(planes.part(slice(size)) for planes in self.sets))

    def _average(self, name: str, hops: Hops) -> Floats:
        places = self.sets[0].places(hops)
        if not places:  # of a model that reads no neighbors
            return np.zeros_like(self.x)
        return np.asarray(sum(self._plane(name, place) for place in places) / len(places))

    def _plane(self, name: str, place: int) -> Floats:
        return self._kept(name, place, lambda: inner(*(getattr(p, name)[place] for p in self.sets)))

    def _kept(self, name: str, which: Hops | int, compute: Callable[[], Floats]) -> Floats:
        if (name, which) not in self._found:
            self._found[name, which] = compute()
        return self._found[name, which]


def planes(x: Features, neighbors: Neighbors, items: int, hops: int) -> Rows:
    """Give x and the mean of each plane side by side, as integers, one row per item.

    The largest number of each of them is `ONE`. Items of several nodes have the rows of their
    nodes side by side.

    Example:
        >>> import torch
        >>> near = Neighbors(torch.tensor([[[0.0, 2.0]]]), owner=torch.tensor([0]))
        >>> planes(torch.tensor([[[3.0, 0.0]]]), near, 1, 1).toarray().tolist()
        [[1048576, 0, 0, 1048576]]
    """
    if isinstance(x, SparseRows):
        mean = condense(neighbors, len(x), hops).features
        assert isinstance(mean, SparseRows)
        own, around, count = _sparse(x), _sparse(mean), len(mean) // max(len(x), 1)
        parts = [own, *(around[plane::count] for plane in range(count))]
    else:
        flat = x.flatten(0, -3)
        means = neighborhood_mean(neighbors, len(flat), hops)
        wide = flat.shape[1:].numel()
        parts = [
            sparse.csr_array(_numbers(p).reshape(len(p), wide)) for p in (flat, *means.unbind(1))
        ]
    if not items:  # a sub-graph has the rows of its nodes side by side, also if there is none
        width = x.num_features if isinstance(x, SparseRows) else x.shape[1:].numel()
        return sparse.csr_array((0, width * len(parts)))
    width = parts[0].shape[0] * parts[0].shape[1] // items
    found = [whole_rows(part.reshape((items, width)).tocsr()) for part in parts]
    return sparse.csr_array(sparse.hstack(found, format="csr"))


def inner(some: Rows, others: Rows) -> Floats:
    """Inner products `(n, k)` of integer rows of unit length, exact, with ONE for 1."""
    points, step = others.T.tocsr(), max(WIDE // max(some.shape[1], 1), 1)
    found = np.zeros((some.shape[0], others.shape[0]))
    for start in range(0, some.shape[0], step):
        found[start : start + step] = dense_product(some[start : start + step], points)
    return found / ONE**2


def _numbers(values: Tensor) -> Floats:
    found: Floats = values.detach().double().numpy()
    return found


def _sparse(rows: SparseRows) -> Rows:
    parts = (part.detach().numpy() for part in (rows.indices, rows.indptr))
    return sparse.csr_array((_numbers(rows.values), *parts), shape=(len(rows), rows.num_features))


def whole_rows(rows: Rows) -> Rows:
    """Integers of rows of numbers: the largest of each row becomes ONE."""
    size = np.diff(rows.indptr)
    top = np.zeros(rows.shape[0])
    np.maximum.at(top, np.repeat(np.arange(len(size)), size), np.abs(rows.data))
    scale = ONE / np.where(top > 0, top, 1)
    values = np.rint(rows.data * np.repeat(scale, size)).astype(np.int64)
    return sparse.csr_array((values, rows.indices, rows.indptr), shape=rows.shape)

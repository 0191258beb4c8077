"""The feature graph as a kernel between items: inner products of F × F matrices never formed.

For non-negative features the inner product of two directed feature graphs (Eq. 4) is a product of
two small ones, `⟨√(x mᵀ), √(x' m'ᵀ)⟩ = ⟨√x, √x'⟩ ⟨√m, √m'⟩`. Rows are integers of unit length, so
that each inner product is exact: the same bits in any order, batch and blocking.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from evergraph.feature_graph.fixed_point import ONE, Rows, dense_product, root, unit
from evergraph.feature_graph.neighborhoods import condense, neighborhood_mean
from evergraph.graph.neighbors import Features, Neighbors
from evergraph.graph.rows import SparseRows

Floats = NDArray[np.float64]
WIDE = 2**22  # numbers of a block of dense rows that are multiplied at a time


@dataclass(frozen=True)
class Similarity:
    """Inner products between two sets of items, `(n, k)` each, of blocks of unit length.

    Attributes:
        x: of their features.
        mean: of their neighborhood means, the average over planes (hops, edge components).
        root: the same of the signed roots of the means.
    """

    x: Floats
    mean: Floats
    root: Floats

    @property
    def product(self) -> Floats:
        """Of their feature graphs: the product of x and the rooted means."""
        return self.x * self.root


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
    found = [_whole(part.reshape((items, width)).tocsr()) for part in parts]
    return sparse.csr_array(sparse.hstack(found, format="csr"))


def similarity(some: Planes, others: Planes) -> Similarity:
    """Inner products between items."""
    means = [inner(a, b) for a, b in zip(some.means, others.means, strict=True)]
    roots = [inner(a, b) for a, b in zip(some.roots, others.roots, strict=True)]
    return Similarity(inner(some.x, others.x), np.mean(means, axis=0), np.mean(roots, axis=0))


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


def _whole(rows: Rows) -> Rows:
    """Integers of rows of numbers: the largest of each row becomes ONE."""
    size = np.diff(rows.indptr)
    top = np.zeros(rows.shape[0])
    np.maximum.at(top, np.repeat(np.arange(len(size)), size), np.abs(rows.data))
    scale = ONE / np.where(top > 0, top, 1)
    values = np.rint(rows.data * np.repeat(scale, size)).astype(np.int64)
    return sparse.csr_array((values, rows.indices, rows.indptr), shape=rows.shape)

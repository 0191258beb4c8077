"""Embeddings in integers: a node's row is the same bits alone, in any batch, on any history.

Everything is exact where order could matter: sums and products run over integers that float64
holds exactly, and roots and quotients are single, correctly rounded operations on one number.
So sums over rows do not depend on order either, and a row can be taken out again to the last bit.

A row is made of blocks side by side, each of unit length: linear ones (features, the mean of each
hop, Âx of Eq. 7, as they are or rooted), and kernel values against landmarks, which carry the
product kernel of two feature graphs: `⟨√(x mᵀ), √(x' m'ᵀ)⟩ = ⟨√x, √x'⟩ ⟨√m, √m'⟩`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import eigh

from evergraph.feature_graph.compiled.fixed_point import products, propagated
from evergraph.feature_graph.equations import sgnroot

UNIT = 20  # bits of an entry of a row of unit length
ONE = 2.0**UNIT
DENSE = 64  # a dense product takes an entry this much faster than a sparse one
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rows = sparse.csr_array
"""Integers of nodes by feature."""

LINEAR = ("x", "root x", "mean", "root mean", "graph", "root graph")


@dataclass(frozen=True)
class Blocks:
    """What a row is made of.

    Attributes:
        linear: names of `LINEAR`; `mean` stands for one block per hop, `graph` for Âx with the
            mean of the first hop.
        max_width: linear blocks are left out if there are more features than this.
        landmarks: how many nodes serve as landmarks; 0 leaves the kernel block out.
    """

    linear: tuple[str, ...] = ("x", "root mean")
    max_width: int = 128
    landmarks: int = 512

    def __post_init__(self) -> None:
        """Reject blocks that do not exist."""
        unknown = [name for name in self.linear if name not in LINEAR]
        if unknown or not (self.linear or self.landmarks):
            raise ValueError(f"blocks must be among {', '.join(LINEAR)}, got {self.linear}")


def divide(sums: Rows, count: Ints) -> Rows:
    """Integer quotients of rows by one number each, rounded to the nearest, halves up."""
    by = np.repeat(count, np.diff(sums.indptr))
    out = sums.copy()
    out.data = (2 * sums.data + by) // (2 * by)
    return out


def root(rows: Rows) -> Rows:
    """The signed square root, Eq. (4), in integers with eight more bits."""
    out = rows.copy()
    signed = sgnroot(torch.from_numpy(rows.data.astype(np.float64))).numpy()
    out.data = np.rint(signed * 256).astype(np.int64)
    return out


def unit(rows: Rows) -> Rows:
    """Rows of unit length, as integers of `UNIT` bits in float64; rows of zeros stay so."""
    size = len(rows.indptr) - 1
    owner = np.repeat(np.arange(size), np.diff(rows.indptr))
    square = np.zeros(size, dtype=np.int64)
    np.add.at(square, owner, rows.data * rows.data)
    length = np.sqrt(np.maximum(square, 1).astype(np.float64))
    values = np.rint(rows.data / length[owner] * ONE)
    return sparse.csr_array((values, rows.indices, rows.indptr), shape=rows.shape)


class Embedding:
    """Rows of nodes from their features and the means of their hops.

    Args:
        blocks: what rows are made of.
        width: F, the number of features.
        hops: K.
        landmarks: features of the landmark nodes.

    Attributes:
        names: of the linear blocks, in their order.
        block_width: of each of them.
        points: the landmarks of unit length, as they are and rooted, `(F, L)` each.
        parts: where the linear blocks and the kernel lie in a row; a constant ends it.
        size: D, the length of a row.
    """

    def __init__(self, blocks: Blocks, width: int, hops: int, landmarks: Rows) -> None:
        self.blocks, self.hops = blocks, hops
        kept = blocks.linear if width <= blocks.max_width else ()
        self.names = [n for n in kept for _ in range(hops if n.endswith("mean") else 1)]
        self.block_width, points = width, landmarks.shape[0]
        linear = len(self.names) * width
        self.points = [unit(landmarks).T.tocsc(), unit(root(landmarks)).T.tocsc()]
        self._by_feature = [part.tocsr() for part in self.points]
        self.parts = {"linear": slice(0, linear), "kernel": slice(linear, linear + points)}
        self.size = linear + points + 1

    def __call__(self, x: Rows, means: Sequence[Rows]) -> Floats:
        """Rows `(B, D)` of nodes: integers of `UNIT` bits."""
        out = np.zeros((x.shape[0], self.size))
        if self.names:
            blocks = sparse.hstack(self._linear(x, means), format="csr")
            out[:, self.parts["linear"]] = blocks.toarray()
        if self.points[0].shape[1]:
            out[:, self.parts["kernel"]] = self._kernel(unit(x), [unit(root(m)) for m in means])
        out[:, -1] = ONE
        return out

    def _linear(self, x: Rows, means: Sequence[Rows]) -> list[Rows]:
        found: list[Rows] = []
        for name in self.blocks.linear:
            kind = name.rpartition(" ")[2]
            parts = {"x": lambda: [x], "mean": lambda: [*means]}.get(
                kind, lambda: [propagate_rows(x, means[0])]
            )()
            found += [unit(root(part) if name.startswith("root") else part) for part in parts]
        return found

    def landmark_kernel(self) -> Floats:
        """Kernel values between landmarks, `(L, L)`, symmetric, of unit scale."""
        own, rooted = (part.T.tocsr() for part in self.points)
        found = self._kernel(own, [rooted] * self.hops) / ONE
        return np.asarray((found + found.T) / 2)

    @cached_property
    def whiten(self) -> Floats:
        """`K^-1/2` of the landmark kernel, without directions that landmarks hardly span.

        It is kept, since all classifiers on these landmarks need it, and since scipy lets no other
        thread run meanwhile.
        """
        kernel = self.landmark_kernel()
        if not len(kernel):
            return np.zeros((0, 0))
        values, vectors = eigh(kernel)
        kept = values > 1e-6 * values[-1]
        return np.asarray(vectors[:, kept] / np.sqrt(values[kept]))

    def _kernel(self, x: Rows, means: Sequence[Rows]) -> Floats:
        """`exp(2 (k - 1))`, k the mean of ⟨x, x'⟩, of ⟨√m, √m'⟩ for each hop and their products.

        Landmarks have no neighbors here: their own features stand for their means.
        """
        scale = ONE**-2
        own = dense_product(x, self._by_feature[0]) * scale
        total = own.copy()
        for mean in means:
            other = dense_product(mean, self._by_feature[1]) * scale
            total += other
            total += own * other
        return self.kernel_of(total)

    def kernel_of(self, total: Floats) -> Floats:
        """The kernel value, of `UNIT` bits, of the sum of all its `2 K + 1` products."""
        return np.rint(exponential(2 * (total / (2 * self.hops + 1) - 1)) * ONE)


def dense_product(rows: Rows, points: Rows) -> Floats:
    """`rows @ points` of integers that float64 adds exactly, so that any order gives the same bits.

    Neither way holds Python's lock, so that other threads go on meanwhile.
    """
    dense = rows.shape[0] * rows.shape[1] * points.shape[0] * points.shape[1]
    if DENSE * rows.nnz * points.nnz > dense:
        return np.asarray(rows.toarray() @ points.toarray())
    out = np.zeros((rows.shape[0], points.shape[1]))
    places = rows.indptr, rows.indices, rows.data, points.indptr, points.indices, points.data
    products(*places, out)
    return out


def exponential(x: Floats) -> Floats:
    """`(1 + x / 1024)^1024`, which is nearly e^x and made of products only: the same everywhere.

    Of a kernel between -1 and 1 it is a polynomial with positive coefficients: a kernel again.
    """
    out = 1 + x / 1024
    for _ in range(10):
        out = out * out
    return out


def propagate_rows(x: Rows, mean: Rows) -> Rows:
    """Âx of Eq. (7) with columns of Â summing to one, as integers of 16 bits."""
    both = (abs(x) + abs(mean)).tocsr()
    both.sort_indices()
    x, mean = (part.tocsr().sorted_indices() for part in (x, mean))
    places = (part.astype(np.int64) for m in (x, mean) for part in (m.indptr, m.indices))
    x_ptr, x_feature, m_ptr, m_feature = places
    values = propagated(
        both.indptr, both.indices, x_ptr, x_feature, x.data, m_ptr, m_feature, mean.data
    )
    return sparse.csr_array((values, both.indices, both.indptr), shape=x.shape)

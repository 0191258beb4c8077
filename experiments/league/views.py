"""What fixed representations see of a graph: its rooted features and their means, as matrices."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from evergraph.evaluate.presets import KERNEL
from evergraph.feature_graph import sgnroot
from evergraph.feature_graph.embedding import fixed_embedding
from evergraph.feature_graph.kernel import Planes, Similarity, whole_rows
from evergraph.graph.graph import Graph
from evergraph.graph.hops import Neighborhood
from evergraph.graph.neighbors import Neighbors
from evergraph.graph.rows import SparseRows
from evergraph.learn.dual import Choice, Stored, mixtures, tried
from experiments.league.graphs import Split
from experiments.league.solvers import Kernel

Array = np.ndarray[Any, Any]
Matrix = sparse.csr_array
STEPS = KERNEL["hops"]


class Views:
    """A graph as matrices; all that is shared by its splits is made once.

    Attributes:
        x: `(N, F)`, sgnroot of the features, as every learner of a run reads them.
        mean: averages over a node and its neighbors, Eq. (5).
        smooth: `D^-1/2 (A + I) D^-1/2`.
    """

    def __init__(self, graph: Graph) -> None:
        nodes = torch.arange(graph.num_nodes)
        near = _operator(graph.neighborhood(nodes), graph.num_nodes)
        near.data[:] = 1.0
        share = sparse.diags_array(1 / near.sum(1))
        self.x, self.mean = _rooted(graph), Matrix(share @ near)
        walked = _operator(graph.diffusion(nodes), graph.num_nodes)
        counts = np.diff(walked.indptr)  # by which Eq. (5) divides; weights hold it
        self.smooth = Matrix(sparse.diags_array(1 / counts) @ walked)

    @cached_property
    def smoothed(self) -> Matrix:
        """One step of smoothing of all nodes."""
        return Matrix(self.smooth @ self.x)

    def walks(self, nodes: Tensor, steps: int) -> list[Matrix]:
        """Of nodes: the mean over walks of 1, 2 and more steps of smoothing."""
        walk, found = Matrix(self.smooth[nodes.numpy()]), []
        for step in range(steps):
            walk = Matrix(walk @ self.smooth) if step else walk
            found.append(self._read(walk))
        return found

    def _read(self, walk: Matrix) -> Matrix:
        """`walk @ x`, by whichever product is faster."""
        count = walk.shape[0] * self.x.shape[0] * self.x.shape[1]
        if DENSE * walk.nnz * self.x.nnz < count * self.x.shape[0]:
            return Matrix(walk @ self.x)
        narrow = (part.astype(np.float32).toarray() for part in (walk, self.x))
        return Matrix(np.matmul(*narrow).astype(np.float64))

    def means(self, nodes: Tensor) -> dict[str, Matrix]:
        """Of nodes: the mean, and one to three steps of smoothing."""
        steps = self.walks(nodes, STEPS)
        found = {f"step {step}": mean for step, mean in enumerate(steps, start=1)}
        return {"mean": Matrix(self.mean[nodes.numpy()] @ self.x), **found}


DENSE = 64  # a dense product takes a number this much faster than a sparse one
PLANES = {1: ("mean",), 2: ("step 1", "step 2"), 3: ("step 1", "step 2", "step 3")}
"""The means that one hop, or two and three hops of walks, have."""


class Seen:
    """What is seen of the training nodes of a split, then of its nodes to test; made once.

    Attributes:
        views: of the graph.
        count: of training nodes, the first rows of every block.
        labels: of the training nodes.
    """

    def __init__(self, views: Views, split: Split) -> None:
        self.views, self.split, self.count = views, split, len(split.data.train)
        self.kernels: dict[Any, Kernel] = {}
        self.nodes = torch.cat([split.data.train, split.data.test])
        self.labels: Array = split.labels[split.data.train].numpy()

    @cached_property
    def x(self) -> Matrix:
        """Features of the nodes."""
        return Matrix(self.views.x[self.nodes.numpy()])

    @cached_property
    def means(self) -> dict[str, Matrix]:
        """Means of their neighbors."""
        return self.views.means(self.nodes)

    @cached_property
    def blocks(self) -> dict[str, Matrix]:
        """Rows of unit length: x, its means, and what the feature graph of each makes of x."""
        found = {"x": unit(self.x)} | {name: unit(mean) for name, mean in self.means.items()}
        return found | {f"Â {name}": propagated(self.x, mean) for name, mean in self.means.items()}

    def summed(self, blocks: tuple[str, ...], hops: int) -> Matrix:
        """The fixed embedding of the closed form: the sum of unit rows, of unit length again."""
        own = {
            "x": ("x",),
            "mean": PLANES[hops],
            "propagated": tuple(f"Â {name}" for name in PLANES[hops]),
        }
        parts = [self.blocks[name] for block in blocks for name in own[block]]
        return unit(sum(parts[1:], parts[0]))

    def kernel(self, blocks: tuple[str, ...], hops: int) -> Kernel:
        """Products of the summed rows, kept for the next model that reads the same."""
        key = blocks, hops
        if key not in self.kernels:
            self.kernels[key] = Kernel.of(self.summed(blocks, hops), self.count)
        return self.kernels[key]

    @cached_property
    def planes(self) -> Planes:
        """What the feature-graph kernel reads: x and three steps of smoothing, as integers."""
        parts = [self.x, *(self.means[f"step {step + 1}"] for step in range(STEPS))]
        rows = sparse.csr_array(sparse.hstack([whole_rows(part) for part in parts], format="csr"))
        return Planes.of(rows, self.views.x.shape[1])

    @cached_property
    def dual(self) -> tuple[Stored, Similarity, list[Choice]]:
        """Training items for kernel regression, those to test beside them, and what was tried."""
        train, test = (
            self.planes.part(part) for part in (slice(self.count), slice(self.count, None))
        )
        classes, target = np.unique(self.labels, return_inverse=True)
        once = np.ones(self.count, dtype=np.int64)
        stored = Stored(Similarity(train, train), target, len(classes), once)
        return stored, Similarity(test, train), tried(stored, mixtures())

    @cached_property
    def beside(self) -> Matrix:
        """The node itself and the mean side by side."""
        parts = self.blocks["x"], self.blocks["mean"]
        return Matrix(sparse.hstack(parts, format="csr"))

    def halves(self, rows: Any) -> tuple[Any, Any]:
        """Rows of training nodes, and of those to test."""
        return rows[: self.count], rows[self.count :]


def propagated(x: Matrix, mean: Matrix) -> Matrix:
    """Âx of items with one mean each, as rows of unit length."""
    count = x.shape[0]
    around = Neighbors(sparse_rows(mean), torch.arange(count))
    found = fixed_embedding(sparse_rows(x), around, 1, ("propagated",))
    assert isinstance(found, SparseRows)
    return _csr(found)


def unit(rows: Matrix) -> Matrix:
    """Rows of unit length; empty ones stay empty."""
    length = np.sqrt(np.asarray((rows * rows).sum(1)))
    return Matrix(sparse.diags_array(1 / np.where(length > 0, length, 1)) @ rows)


def _rooted(graph: Graph) -> Matrix:
    x = graph.features
    rows = x if isinstance(x, SparseRows) else SparseRows.from_dense(x.flatten(1))
    found = _csr(rows)
    found.data = sgnroot(torch.from_numpy(found.data)).numpy()
    return found


def _csr(rows: SparseRows) -> Matrix:
    parts = rows.values.double().numpy(), rows.indices.numpy(), rows.indptr.numpy()
    return Matrix(parts, shape=(len(rows), rows.num_features))


def sparse_rows(matrix: Matrix) -> SparseRows:
    """The same rows as the package has them."""
    indptr, indices = (
        torch.from_numpy(a.astype(np.int64)) for a in (matrix.indptr, matrix.indices)
    )
    return SparseRows(indptr, indices, torch.from_numpy(matrix.data), matrix.shape[1])


def _operator(near: Neighborhood, size: int) -> Matrix:
    """The weights of neighbors as a matrix; 1 where there are none."""
    owner, nodes = near.owner.numpy(), near.nodes.numpy()
    weight = np.ones(len(nodes)) if near.weight is None else near.weight.double().numpy()
    return Matrix((weight, (owner, nodes)), shape=(size, size))

"""A closed-form classifier: one pass, constant memory, independent of the order of the stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from scipy.linalg import cho_factor, cho_solve
from torch import Tensor

from evergraph.feature_graph import Normalization
from evergraph.feature_graph.embedding import BLOCKS, Block, fixed_embedding
from evergraph.graph.neighbors import Features, Neighbors
from evergraph.graph.rows import SparseRows
from evergraph.learn.learner import Learner, Method, Predictor
from evergraph.learn.transaction import Restore, State
from evergraph.stream.batch import Batch

Array = np.ndarray[Any, Any]


@dataclass
class Analytic(Method):
    """Ridge regression, or linear discriminant analysis, on fixed feature-graph embeddings.

    Both need only sums over the items: `G = Σ e eᵀ`, `S_c = Σ_{y=c} e` and the counts. Sums do
    not depend on the order, so that class-incremental, data-incremental and regular learning give
    the same classifier; and an item can be taken out again by subtracting it.

    Attributes:
        solver: `ridge` solves `(G + λ I) W = S`; `lda` takes the class means and the common
            covariance within classes, shrunk by λ.
        strength: λ.
        relevance: whether ridge asks less of features that tell the classes apart: see
            `_relevance`. It is read off the same sums, so that all of the above still holds.
        blocks: what the embedding is made of.
        normalization: of the feature graph in it.
        max_width: wider embeddings are folded to this many numbers by a fixed signed hash, so
            that G stays small.
    """

    solver: Literal["ridge", "lda"] = "ridge"
    strength: float = 2.0
    relevance: bool = False
    blocks: tuple[Block, ...] = BLOCKS
    normalization: Normalization = "column"
    max_width: int = 4096
    lazy: ClassVar[bool] = True  # a prediction after learning has to solve first
    labels_only: ClassVar[bool] = True
    gram: Array | None = field(default=None, repr=False)
    sums: dict[int, Array] = field(default_factory=dict, repr=False)
    counts: dict[int, int] = field(default_factory=dict, repr=False)
    changed: list[Any] = field(default_factory=list, repr=False)  # blocks of G, to undo
    solution: tuple[Array, Array] | None = field(default=None, repr=False)  # weight, offset

    def __post_init__(self) -> None:
        """Reject settings that do not go together."""
        if self.relevance and self.solver != "ridge":
            raise ValueError(
                f"relevance is for solver 'ridge', which has one penalty per feature, "
                f"got {self.solver!r}, which knows the covariance"
            )

    def check(self, learner: Learner, batch: Batch) -> None:
        """Refuse items of several sparse rows, which have no embedding of their own."""
        if isinstance(batch.x, SparseRows) and batch.nodes_per_item > 1:
            raise ValueError(
                f"Analytic reads one sparse row per item, got {batch.nodes_per_item}; use dense "
                "features, or another method"
            )
        if not isinstance(batch.neighbors, Neighbors):
            raise ValueError(
                "Analytic reads self-contained items, got a batch whose items are linked; select "
                "items from it first"
            )

    def savepoint(self) -> Restore:
        """Put back the blocks of G that have changed since, and the class sums."""
        kept, counts = dict(vars(self)), dict(self.counts)
        sums = {label: total.copy() for label, total in self.sums.items()}
        changed = self.changed = []

        def restore() -> None:
            for place, block in reversed(changed):
                kept["gram"][place] = block
            vars(self).update({**kept, "sums": sums, "counts": counts})

        return restore

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Add a new batch to the sums."""
        self._add(learner, batch, +1)

    def forget(self, learner: Learner, batch: Batch) -> None:
        """Take items out again, as if they had never come."""
        for label, count in zip(*np.unique(batch.target.numpy(), return_counts=True), strict=True):
            if self.counts.get(int(label), 0) < count:
                raise ValueError(
                    f"only what was learned can be forgotten: {count} items of class {label} "
                    f"asked for, {self.counts.get(int(label), 0)} learned"
                )
        self._add(learner, batch, -1)
        self.changed = []

    def predictor(self, learner: Learner) -> Predictor:
        """The regression of each class, in the order of the learner's classes, solved once."""
        if self.solution is None:
            self.solution = self._solve(learner.classes)
        weight, offset = self.solution

        def predict(batch: Batch) -> Tensor:
            rows = [values @ weight[index] for index, values in self._embed(learner, batch)]
            return torch.from_numpy(np.reshape(rows, (len(batch), len(offset))) + offset)

        return predict

    def _add(self, learner: Learner, batch: Batch, sign: int) -> None:
        rows = self._embed(learner, batch)
        for (index, values), label in zip(rows, batch.target.tolist(), strict=True):
            assert self.gram is not None
            place = np.ix_(index, index)
            before = self.gram[place]
            self.changed.append((place, before))
            self.gram[place] = before + sign * np.outer(values, values)
            total = self.sums.setdefault(label, np.zeros(len(self.gram)))
            total[index] += sign * values
            self.counts[label] = self.counts.get(label, 0) + sign
        self.solution = None

    def _embed(self, learner: Learner, batch: Batch) -> list[tuple[Array, Array]]:
        """Index and value of the nonzeros of each item's embedding, folded if it is wide."""
        self.check(learner, batch)
        if not len(batch):
            return []
        assert isinstance(batch.neighbors, Neighbors)
        found = fixed_embedding(
            batch.x, batch.neighbors, learner.model.requires.hops, self.blocks, self.normalization
        )
        width = found.num_features if isinstance(found, SparseRows) else found.shape[1]
        size = min(width, self.max_width)
        if self.gram is None:
            self.gram = np.zeros((size, size))
        rows = _entries(found)
        return rows if width <= self.max_width else [_fold(row, self.max_width) for row in rows]

    def _solve(self, classes: list[int]) -> tuple[Array, Array]:
        """Weight `(D, K)` and offset `(K,)`; that of LDA is `log(share) - ½ μᵀ Σ⁻¹ μ`."""
        assert self.gram is not None
        size = len(self.gram)
        sums = np.stack([self.sums.get(label, np.zeros(size)) for label in classes], axis=1)
        counts = np.array([self.counts.get(label, 0) for label in classes], dtype=float)
        means = sums / np.maximum(counts, 1)
        if self.solver == "lda":
            left = self.gram - (means * counts) @ means.T
            left = left / max(counts.sum() - np.count_nonzero(counts), 1)
            weight = _ridge(left, means, self.strength * float(np.mean(np.diagonal(left))))
            share = np.log(np.maximum(counts, 1e-12) / max(counts.sum(), 1))
            return weight, share - 0.5 * (means * weight).sum(0)
        root = np.ones(size)
        if self.relevance:
            root = np.sqrt(_relevance(self.gram, sums, counts))
        scaled = root[:, None] * self.gram * root
        weight = root[:, None] * _ridge(scaled, root[:, None] * sums, self.strength)
        return weight, np.zeros(len(classes))

    def state(self) -> State:
        """The sums."""
        if self.gram is None:
            return {}, {"counts": {}}
        tensors = {"gram": torch.from_numpy(self.gram)}
        tensors |= {f"sums.{label}": torch.from_numpy(v) for label, v in self.sums.items()}
        return tensors, {"counts": {str(label): n for label, n in self.counts.items()}}

    def load_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Put the sums back."""
        _check_sums(tensors, values["counts"])
        self.gram = tensors["gram"].numpy().copy() if "gram" in tensors else None
        self.sums = {
            int(name.removeprefix("sums.")): tensor.numpy().copy()
            for name, tensor in tensors.items()
            if name.startswith("sums.")
        }
        self.counts = {int(label): count for label, count in values["counts"].items()}
        self.solution = None

    @property
    def nbytes(self) -> int:
        """How many bytes the sums take: constant in the stream."""
        parts = [*self.sums.values(), *([] if self.gram is None else [self.gram])]
        return sum(part.nbytes for part in parts)


def _check_sums(tensors: Mapping[str, Tensor], counts: Mapping[str, Any]) -> None:
    """Refuse sums that belong to no items."""
    size = len(tensors["gram"]) if "gram" in tensors else 0
    for name, tensor in tensors.items():
        shape = (size, size) if name == "gram" else (size,)
        finite = tensor.dtype == torch.float64 and bool(tensor.isfinite().all())
        if tensor.shape != shape or not finite:
            raise ValueError(f"{name} must be finite float64 numbers of shape {shape}")
    gram = tensors.get("gram", torch.zeros(0, 0))
    if not torch.equal(gram, gram.T) or bool((gram.diagonal() < 0).any()):
        raise ValueError("G must be symmetric with a diagonal of 0 or more, as sums of e eᵀ are")
    wrong = [n for n in counts.values() if type(n) is not int or n < 0]
    if wrong or tensors.keys() != {"gram" for _ in counts} | {f"sums.{label}" for label in counts}:
        raise ValueError("there must be G, and the sum and the count of every class")


def _ridge(left: Array, right: Array, penalty: float) -> Array:
    """Solve `(left + penalty I) W = right`."""
    factor = cho_factor(left + max(penalty, 1e-12) * np.eye(len(left)), lower=True)
    return np.asarray(cho_solve(factor, right))


def _entries(found: Features) -> list[tuple[Array, Array]]:
    if isinstance(found, Tensor):
        values = found.detach().double().numpy()
        index = np.arange(values.shape[1])
        return [(index, row) for row in values]
    indptr, indices = found.indptr.numpy(), found.indices.numpy()
    data = found.values.detach().double().numpy()
    return [(indices[a:b], data[a:b]) for a, b in pairwise(indptr)]


def _fold(row: tuple[Array, Array], width: int) -> tuple[Array, Array]:
    """Sum entries into `width` places with a fixed hash and a fixed sign (a count sketch)."""
    index, values = row
    mixed = (index.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    sign = np.where(mixed >> np.uint64(63), 1.0, -1.0)
    place, slot = np.unique((mixed % np.uint64(width)).astype(np.int64), return_inverse=True)
    return place, np.bincount(slot, weights=values * sign, minlength=len(place))


def _relevance(gram: Array, sums: Array, counts: Array) -> Array:
    """How much larger the weights of each feature may be, one on average.

    It is the F of an analysis of variance: how far the class means of a feature lie apart, over
    how much it varies within the classes. Solving with `e √r` in place of e is ridge regression
    with the penalty `λ / r_j` on the weights of feature j.
    """
    total = np.diagonal(gram)
    classes = (sums**2 / np.maximum(counts, 1)).sum(1)
    between = classes - sums.sum(1) ** 2 / max(counts.sum(), 1)
    within = np.maximum(total - classes, 1e-3 * total)  # nothing counts without limit
    ratio = np.divide(between, within, out=np.zeros_like(total), where=within > 0).clip(min=0)
    mean = (ratio * total).sum() / max(total.sum(), 1e-12)
    return ratio / mean if mean > 1e-9 else np.ones_like(ratio)  # one class: all the same

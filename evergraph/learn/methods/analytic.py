"""A closed-form classifier: one pass, constant memory, independent of the order of the stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve
from torch import Tensor

from evergraph.feature_graph import Normalization
from evergraph.feature_graph.compiled.embedding import integers
from evergraph.feature_graph.compiled.fixed_point import scatter
from evergraph.feature_graph.embedding import BLOCKS, Block, embed
from evergraph.feature_graph.fixed_point import ONE
from evergraph.feature_graph.ops import numpy
from evergraph.graph.neighbors import Neighbors
from evergraph.graph.rows import SparseRows
from evergraph.learn.learner import Learner, Method, Predictor
from evergraph.learn.sums import Rows, Sums, width_of
from evergraph.learn.transaction import State
from evergraph.stream.batch import Batch

Array = np.ndarray[Any, Any]
ENTRY = 2  # numbers that an entry of a sparse row takes, with its index


@dataclass
class Analytic(Method):
    """Ridge regression, or linear discriminant analysis, on fixed feature-graph embeddings.

    Both need only sums over the items: `G = Σ e eᵀ`, `S_c = Σ_{y=c} e` and the counts. They are
    sums of integers, see `Sums`, and do not depend on the order, so that class-incremental,
    data-incremental and regular learning give the same classifier; and an item can be taken out
    again by subtracting it. What a model's encoder makes of an item is embedded in its place, if
    the encoder is `fixed`: if it learns nothing.

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
        between: for `lda`, how much the differences between the tasks of a class count in the
            covariance, see `discriminant`: more than 1 if what is new comes from new tasks, such
            as people. Then sums are held by class and task.
        by_task: for `lda`, whether each task of a class has a mean of its own, because what comes
            is of the same tasks again, such as people who are known: see `of_classes`.

    Example:
        >>> from evergraph import FGN, Analytic, Learner, node_continuum
        >>> from evergraph.datasets import Growth, generate
        >>> data = generate(Growth(nodes=60, classes=3, features=20))
        >>> one, other = Learner(FGN(20), Analytic()), Learner(FGN(20), Analytic())
        >>> batches = list(node_continuum(data))
        >>> for first, last in zip(batches, reversed(batches), strict=True):
        ...     one.observe(first)
        ...     other.observe(last)
        >>> bool((one.predict(first) == other.predict(first)).all())  # in any order
        True
    """

    solver: Literal["ridge", "lda"] = "ridge"
    strength: float = 2.0
    relevance: bool = False
    blocks: tuple[Block, ...] = BLOCKS
    normalization: Normalization = "column"
    max_width: int = 4096
    between: float = 1.0
    by_task: bool = False
    lazy: ClassVar[bool] = True  # a prediction after learning has to solve first
    labels_only: ClassVar[bool] = True
    condenses: ClassVar[bool] = True
    trains: ClassVar[bool] = False
    sums: Sums | None = field(default=None, repr=False)
    solution: tuple[Array, Array, Array | None] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Reject settings that do not go together."""
        if self.relevance and self.solver != "ridge":
            raise ValueError(
                f"relevance is for solver 'ridge', which has one penalty per feature, "
                f"got {self.solver!r}, which knows the covariance"
            )
        if self.between != 1 and self.solver != "lda":
            raise ValueError(
                f"between is for solver 'lda', which has a covariance, got {self.solver!r}"
            )
        if self.by_task and (self.solver != "lda" or self.between != 1):
            raise ValueError(
                "by_task is for solver 'lda' with between 1, because tasks with means of their own "
                f"leave no differences to count, got {self.solver!r} with {self.between:g}"
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

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Add a new batch to the sums."""
        self._add(learner, batch, +1)

    def forget(self, learner: Learner, batch: Batch) -> None:
        """Take items out again, as if they had never come."""
        self._add(learner, batch, -1)

    def predictor(self, learner: Learner) -> Predictor:
        """The regression of each class, in the order of the learner's classes, solved once."""
        if self.solution is None:
            self.solution = self._solve(learner.classes)
        weight, offset, member = self.solution

        def predict(batch: Batch) -> Tensor:
            scores = _for_products(self._embed(learner, batch)) @ weight / ONE + offset
            return torch.from_numpy(scores if member is None else of_classes(scores, member))

        return predict

    def _add(self, learner: Learner, batch: Batch, sign: int) -> None:
        rows = self._embed(learner, batch)
        sums = Sums(width_of(rows)) if self.sums is None else self.sums
        labels = batch.target.tolist()
        known = {label: str(label) for label in set(labels)}
        names = [known[label] for label in labels]
        if self._tells_tasks:
            names = [
                f"{name} {task}" for name, task in zip(names, batch.task.tolist(), strict=True)
            ]
        sums.add(rows, names, sign)
        self.sums, self.solution = sums, None

    def _embed(self, learner: Learner, batch: Batch) -> Rows:
        """The embedding of each item, folded if it is wide, as integers of 20 bits.

        It stays with its batch, since a test asks for the same items again and again.
        """
        hops = learner.intake.requires.hops
        settings = hops, self.blocks, self.normalization, self.max_width
        mark = *settings, fixed_encoder(learner), batch.versions
        known, rows = vars(batch).get("embedding", (None, None))
        if known != mark:
            rows = self._embedded(learner, batch, hops)
            vars(batch)["embedding"] = mark, rows
        found: Rows = rows
        return found

    def _embedded(self, learner: Learner, batch: Batch, hops: int) -> Rows:
        self.check(learner, batch)
        assert isinstance(batch.neighbors, Neighbors)
        encoder = fixed_encoder(learner)
        x = batch.x if encoder is None else encoder(batch.x)
        found = embed(x, batch.neighbors, hops, self.blocks, self.normalization)
        rows: Rows
        if not isinstance(found, SparseRows):
            rows = found.detach().double().numpy()
        elif found.values.shape[0] * ENTRY >= len(found) * found.num_features:
            rows = np.zeros((len(found), found.num_features))
            scatter(*numpy(found.indptr, found.indices, found.values), rows)
        else:
            rows = found
        if width_of(rows) > self.max_width:
            rows = _fold(rows, self.max_width)
        if isinstance(rows, SparseRows):
            values = torch.from_numpy(integers(*numpy(rows.values), ONE))
            return SparseRows(rows.indptr, rows.indices, values, rows.num_features)
        rows *= ONE
        return np.rint(rows, out=rows)

    @property
    def _tells_tasks(self) -> bool:
        """Whether sums are held by class and task."""
        return self.by_task or self.between != 1

    def _solve(self, classes: list[int]) -> tuple[Array, Array, Array | None]:
        """Weight `(D, K)` and offset `(K,)`; of tasks, if each has its mean, and their classes."""
        assert self.sums is not None
        labels = list(map(str, classes))
        names = sorted(self.sums.counts) if self._tells_tasks else labels
        gone = set(labels) - {name.split()[0] for name in names}  # all of it was forgotten
        names += sorted(gone)
        gram = self.sums.gram / ONE**2
        none = np.zeros(self.sums.size, dtype=np.int64)
        sums = np.stack([self.sums.totals.get(name, none) for name in names], axis=1) / ONE
        counts = np.array([self.sums.counts.get(name, 0) for name in names], dtype=float)
        if self.solver == "lda":
            member = np.array([[name.split()[0] == label for label in labels] for name in names])
            if self.by_task:
                every = np.eye(len(names))
                return *discriminant(gram, sums, counts, every, self.strength), member
            return *discriminant(gram, sums, counts, member, self.strength, self.between), None
        if not self.relevance:
            return _ridge(gram, sums, self.strength), np.zeros(len(classes)), None
        root = np.sqrt(_relevance(gram, sums, counts))[:, None]
        weight = root * _ridge(root * gram * root.T, root * sums, self.strength)
        return weight, np.zeros(len(classes)), None

    def state(self) -> State:
        """The sums."""
        if self.sums is None:
            return {}, {}
        arrays, values = self.sums.arrays()
        return {name: torch.from_numpy(array) for name, array in arrays.items()}, values

    def load_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Put the sums back."""
        self.solution, self.sums = None, None
        if tensors:
            self.sums = Sums.from_arrays({k: t.numpy() for k, t in tensors.items()}, values)

    @property
    def nbytes(self) -> int:
        """How many bytes the sums take: constant in the stream."""
        return 0 if self.sums is None else self.sums.nbytes


def discriminant(
    gram: Array, sums: Array, counts: Array, member: Array, strength: float, between: float = 1.0
) -> tuple[Array, Array]:
    """Linear discriminant analysis: weight `(D, K)` and offset `log(share) - ½ μᵀ Σ⁻¹ μ`, `(K,)`.

    Items come in groups of one class and task: `gram` is `Σ e eᵀ`, written over, `sums` `(D, G)`
    and `counts` `(G,)` are of the groups, and `member` `(G, K)` says which class each is of.
    Σ is the covariance within classes, with λ times its mean diagonal added to the diagonal. It
    consists of the covariance within groups and of that of their means; the latter counts
    `between` times.
    """
    member = member.astype(float)
    size = counts @ member
    means = (sums @ member) / np.maximum(size, 1)
    left = gram
    left -= (means * size) @ means.T
    if between != 1:
        apart = sums / np.maximum(counts, 1) - means @ member.T
        left += (between - 1) * (apart * counts) @ apart.T
    left /= max(size.sum() - np.count_nonzero(size), 1)
    weight = _ridge(left, means, strength * float(np.mean(np.diagonal(left))))
    share = np.log(np.maximum(size, 1e-12) / max(size.sum(), 1))
    return weight, share - 0.5 * (means * weight).sum(0)


def of_classes(scores: Array, member: Array) -> Array:
    """Scores `(n, K)` of classes, of which any of their tasks may be meant.

    `scores` `(n, G)` are logarithms of shares of tasks, whose shares of a class add up; `member`
    `(G, K)` says which class each is of.

    Example:
        >>> shares = np.log([[0.3, 0.2, 0.1]])
        >>> np.exp(of_classes(shares, np.array([[True, False], [True, False], [False, True]])))
        array([[0.5, 0.1]])
    """
    masked = [np.logaddexp.reduce(scores[:, own], axis=1) for own in member.T.astype(bool)]
    return np.stack(masked, axis=1)


def fixed_encoder(learner: Learner) -> Any:
    """The encoder of a learner's model, if it is not trained; None without one."""
    encoder = getattr(learner.model, "encoder", None)
    return encoder if getattr(encoder, "fixed", False) else None


def _ridge(left: Array, right: Array, penalty: float) -> Array:
    """Solve `(left + penalty I) W = right` in the place of left, which is symmetric."""
    left[np.diag_indices_from(left)] += max(penalty, 1e-12)
    factor = cho_factor(left.T, lower=True, overwrite_a=True, check_finite=False)
    return np.asarray(cho_solve(factor, right, check_finite=False))


def _fold(rows: Rows, width: int) -> Rows:
    """Sum features into `width` places with a fixed hash and a fixed sign (a count sketch).

    Rows are brought to unit length again.
    """
    features = width_of(rows)
    mixed = (np.arange(features, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    sign = np.where(mixed >> np.uint64(63), 1.0, -1.0)
    place = (mixed % np.uint64(width)).astype(np.int64)
    sketch = sparse.csr_array((sign, (np.arange(features), place)), shape=(features, width))
    folded: Any = _for_products(rows) @ sketch
    length = np.sqrt(np.asarray((folded * folded).sum(1)))
    found: Any = sparse.diags_array(1 / np.where(length > 0, length, 1)) @ folded
    if isinstance(found, np.ndarray):
        return found
    ends, index = (
        torch.from_numpy(part.astype(np.int64)) for part in (found.indptr, found.indices)
    )
    return SparseRows(ends, index, torch.from_numpy(found.data), width)


def _for_products(rows: Rows) -> Array | sparse.csr_array:
    """Rows as scipy and numpy multiply them."""
    if not isinstance(rows, SparseRows):
        return rows
    indptr, indices, values = numpy(rows.indptr, rows.indices, rows.values.double())
    return sparse.csr_array((values, indices, indptr), shape=(len(rows), rows.num_features))


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

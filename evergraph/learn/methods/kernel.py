"""A closed form whose representation is the feature graph itself, through its kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from evergraph.checks import check_one_of, check_positive
from evergraph.feature_graph.fixed_point import ONE, Rows
from evergraph.feature_graph.kernel import Hops, Planes, Similarity, planes
from evergraph.graph.neighbors import Neighbors
from evergraph.learn.checkpoint import whole
from evergraph.learn.dual import HOPS, Stored, mixtures, solve, tried
from evergraph.learn.learner import Learner, Method, Predictor
from evergraph.learn.transaction import State
from evergraph.stream.batch import Batch

Ints = NDArray[np.int64]
NAMES = ("target", "times", "indptr", "indices", "values")
BOOKED = 256  # bytes that a stored item takes beside its numbers: key, label, objects around them


class Item(NamedTuple):
    """What is kept of an item: its class, and x and the means of its planes as one sparse row."""

    label: int
    times: int
    indices: NDArray[np.int32]
    values: NDArray[np.int32]


@dataclass
class Kernel(Method):
    """Kernel ridge regression on stored items; the kernel is that of their feature graphs.

    Rows are integers, items are sorted by a hash of what they are before anything is solved, and
    the items with the smallest hashes stay. So the state does not depend on the order of the
    stream, to the last bit, and an item that is stored can be taken out again as if it had never
    come. Block weights, products and λ are chosen by leave-one-out whenever a prediction is
    asked for: there is nothing to tune.

    Attributes:
        capacity: items that are stored at the most. Beyond it they are a uniform sample of the
            stream.
        products: whether products of x and the means, the feature graph itself, may be chosen.
        roots: whether the signed roots of the means may be chosen.
        raised: whether `exp(2 (k - 1))` of a kernel k may be chosen in its place.
        together: whether x and the rooted means added up may be chosen.
        reads: `all` hops, the `first` or the `last` alone; by default that is chosen too.

    Example:
        >>> from evergraph import FGN, Kernel, Learner, node_continuum
        >>> from evergraph.datasets import Growth, generate
        >>> data = generate(Growth(nodes=60, classes=3, features=20))
        >>> learner = Learner(FGN(20), Kernel())
        >>> for batch in node_continuum(data):
        ...     learner.observe(batch)
        >>> learner.predict(batch).shape, learner.classes
        (torch.Size([9]), [0, 1, 2])
    """

    capacity: int = 4096
    products: bool = True
    roots: bool = True
    raised: bool = True
    together: bool = True
    reads: Hops | None = None
    lazy: ClassVar[bool] = True  # a prediction after learning has to solve first
    labels_only: ClassVar[bool] = True
    trains: ClassVar[bool] = False
    stored: dict[bytes, Item] = field(default_factory=dict, repr=False)
    width: int = field(default=0, repr=False)
    columns: int = field(default=0, repr=False)
    seen: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        """Reject a capacity for nothing."""
        check_positive(capacity=self.capacity)
        if self.reads is not None:
            check_one_of("reads", self.reads, HOPS)

    def check(self, learner: Learner, batch: Batch) -> None:
        """Refuse items that are linked to each other."""
        if not isinstance(batch.neighbors, Neighbors):
            raise ValueError(
                "Kernel reads self-contained items, got a batch whose items are linked; select "
                "items from it first"
            )

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Store the items of a new batch; of too many, those with the smallest keys."""
        stored = self.stored.copy()
        for key, item in self._items(learner, batch):
            times = stored[key].times + 1 if key in stored else 1
            stored[key] = item._replace(times=times)
        if len(stored) > self.capacity:
            stored = {key: stored[key] for key in sorted(stored)[: self.capacity]}
        self.stored, self.seen = stored, self.seen + len(batch)

    def forget(self, learner: Learner, batch: Batch) -> None:
        """Take items out again, as if they had never come; what is not stored has left no trace."""
        stored = self.stored.copy()
        for key, item in self._items(learner, batch):
            if key in stored:
                left = stored[key].times - 1
                stored[key] = item._replace(times=left)
                if not left:
                    del stored[key]
            elif self.seen <= self.capacity:
                raise ValueError(
                    f"only what was learned can be forgotten, got an item of class {item.label} "
                    "that is not stored"
                )
        self.stored, self.seen = stored, self.seen - len(batch)

    def predictor(self, learner: Learner) -> Predictor:
        """The regression of each class, in the order of the learner's classes, solved now."""
        count = len(learner.classes)
        if not self.stored:  # all that came was forgotten
            return lambda batch: torch.zeros(len(batch), count, dtype=torch.float64)
        tensors, _ = self.state()
        target, times, indptr, indices, values = (tensors[name].numpy() for name in NAMES)
        rows = sparse.csr_array((values, indices, indptr), shape=(len(target), self.columns))
        width, kept = self.width, Planes.of(rows, self.width)
        place = {label: number for number, label in enumerate(learner.classes)}
        known = np.array([place[label] for label in target.tolist()], dtype=np.int64)
        stored = Stored(Similarity(kept, kept), known, count, times)
        allowed = mixtures(
            self.products, self.roots, self.raised, self.together, self._hops(len(kept.means))
        )
        every = tried(stored, allowed)
        solved = solve(stored, min(every, key=lambda choice: choice.loss))

        def predict(batch: Batch) -> Tensor:
            found = Planes.of(rows_of(learner, batch), width)
            return torch.from_numpy(solved(Similarity(found, kept)))

        return predict

    def _hops(self, planes: int) -> tuple[Hops, ...]:
        """The hops that may be chosen; those of a single plane are all the same."""
        if self.reads is not None:
            return (self.reads,)
        return HOPS if planes > 1 else HOPS[:1]

    def _items(self, learner: Learner, batch: Batch) -> list[tuple[bytes, Item]]:
        """The items of a batch, and a hash of each: a fixed random order of all there can be."""
        self.check(learner, batch)
        rows, found = rows_of(learner, batch), []
        self.width, self.columns = math.prod(batch.width), rows.shape[1]
        indices, values = rows.indices.astype(np.int32), rows.data.astype(np.int32)
        names = zip(batch.target.tolist(), batch.node.tolist(), strict=True)
        for row, (label, node) in enumerate(names):
            at = slice(rows.indptr[row], rows.indptr[row + 1])
            own = indices[at].copy(), values[at].copy()  # not all of the batch with each
            text = b"%d %d %d " % (label, node, len(own[0])) + own[0].tobytes() + own[1].tobytes()
            found.append((blake2b(text, digest_size=16).digest(), Item(label, 1, *own)))
        return found

    def state(self) -> State:
        """The items by their keys."""
        keys = sorted(self.stored)
        values: dict[str, Any] = {"keys": [key.hex() for key in keys], "seen": self.seen}
        values |= {"width": self.width, "columns": self.columns}
        if not keys:
            return {}, values
        items = [self.stored[key] for key in keys]
        indptr = np.cumsum([0, *(len(item.indices) for item in items)])
        arrays = (
            np.array([item.label for item in items], dtype=np.int64),
            np.array([item.times for item in items], dtype=np.int64),
            indptr.astype(np.int64),
            np.concatenate([item.indices for item in items]),
            np.concatenate([item.values for item in items]),
        )
        return {n: torch.from_numpy(a) for n, a in zip(NAMES, arrays, strict=True)}, values

    def load_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Put the items back."""
        keys = [bytes.fromhex(key) for key in values["keys"]]
        numbers = (whole(values[name]) for name in ("seen", "width", "columns"))
        self.seen, self.width, self.columns = numbers
        self.stored = {}
        if not keys and not tensors:
            return
        target, times, indptr, indices, data = (tensors[name].numpy() for name in NAMES)
        _check_rows(keys, target, times, indptr, indices, data, self.columns)
        for row, key in enumerate(keys):
            at = slice(indptr[row], indptr[row + 1])
            own = indices[at].copy(), data[at].copy()
            self.stored[key] = Item(int(target[row]), int(times[row]), *own)

    @property
    def nbytes(self) -> int:
        """How many bytes the items take, their neighborhood means included."""
        numbers = sum(len(item.indices) for item in self.stored.values())
        return 8 * numbers + BOOKED * len(self.stored)


def rows_of(learner: Learner, batch: Batch) -> Rows:
    """The planes of each item side by side, sorted by feature."""
    assert isinstance(batch.neighbors, Neighbors)
    rows = planes(batch.x, batch.neighbors, len(batch), learner.model.requires.hops)
    rows.sort_indices()
    return rows


def _check_rows(
    keys: list[bytes],
    target: Ints,
    times: Ints,
    indptr: Ints,
    indices: NDArray[np.int32],
    values: NDArray[np.int32],
    columns: int,
) -> None:
    """Refuse arrays that are not those of items, sorted by key."""
    types = [part.dtype for part in (target, times, indptr, indices, values)]
    sizes = len(keys) == len(target) == len(times) == len(indptr) - 1
    if types != [np.int64] * 3 + [np.int32] * 2 or not sizes or keys != sorted(set(keys)):
        raise ValueError(f"stored items must be sorted by {len(keys)} keys, got {types}")
    if not (indptr[0] == 0 and indptr[-1] == len(indices) == len(values)):
        raise ValueError(f"indptr must rise from 0 to {len(indices)}, got {indptr[:8].tolist()}")
    inside = len(indices) == 0 or (indices.min() >= 0 and indices.max() < columns)
    if (np.diff(indptr) < 0).any() or not inside or (times < 1).any():
        raise ValueError(f"stored items must have {columns} columns and come at least once")
    if (np.abs(values.astype(np.int64)) > ONE).any():
        raise ValueError(f"numbers of stored items must be at most {int(ONE)} in size")

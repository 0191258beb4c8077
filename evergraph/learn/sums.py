"""Exact sums of a closed-form classifier: `G = Σ e eᵀ`, `S_c = Σ e` and counts, in integers."""

from __future__ import annotations

import copy
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.feature_graph.compiled.fixed_point import (
    add_by_class,
    add_outer,
    add_spread,
    add_tile,
    both_halves,
    scatter,
)
from evergraph.feature_graph.fixed_point import UNIT
from evergraph.graph.rows import SparseRows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rows = Floats | SparseRows
Waiting = tuple[Rows, list[str], int]
"""Rows, their class names and a sign."""
BLOCK = 2 ** (53 - 2 * UNIT)  # rows whose products float64 adds up without rounding
MOST = 2 ** (63 - 2 * UNIT) - 1  # rows that int64 can hold the sums of
TILE = 512  # of G that is worked out at a time
PAIR = 16  # numbers of spread rows that are added in the time of one pair of nonzeros


class Sums:
    """What a closed form knows of its items, in whatever order they came and went.

    New rows wait until there are enough of them for a fast product, or until G is asked for.
    Of G, which is symmetric, one half is held. Nothing that is held changes in place, so that
    references are enough to go back.

    Args:
        size: D, the length of a row.

    Attributes:
        counts: items by class name; classes without items are not there.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._half = np.zeros(size * (size + 1) // 2, dtype=np.int64)
        self._totals: dict[str, Ints] = {}
        self._waiting: tuple[Waiting, ...] = ()
        self._bytes = 0  # of the rows that wait
        self.counts: dict[str, int] = {}

    def __len__(self) -> int:
        return sum(self.counts.values())

    def copy(self) -> Sums:
        """The same sums, whatever is added to these afterwards."""
        self._flush()
        made = copy.copy(self)
        made._totals, made.counts = dict(self._totals), dict(self.counts)
        return made

    @property
    def gram(self) -> Ints:
        """G, `(D, D)` int64."""
        self._flush()
        found: Ints = both_halves(self._half, self.size)
        return found

    @property
    def totals(self) -> dict[str, Ints]:
        """S, `(D,)` int64 by class name."""
        self._flush()
        return self._totals

    @property
    def nbytes(self) -> int:
        """How many bytes are held at the most, rows that wait included."""
        return self._half.nbytes + self._patience + 8 * self.size * len(self.counts)

    @property
    def _patience(self) -> int:
        """How many bytes may wait: with them, no more is held than both halves of a large G."""
        return 8 * self.size * max(min(self.size // 2 - 1, 256), self.size // 8, 32)

    def add(self, rows: Rows, labels: Sequence[str], sign: int = 1) -> None:
        """Add rows of integers up to 2^20 in size, `(n, D)`; a sign of -1 takes them out again.

        Sparse rows hold each feature once; float32 is enough for them.
        """
        if len(self) + sign * len(labels) > MOST:
            raise ValueError(
                f"sums hold {MOST} items at the most, got {len(labels)} beside {len(self)}; take "
                "some of them out first"
            )
        names = list(labels)
        sizes = {name: sign * count for name, count in Counter(names).items()}
        self._check(sizes)
        self._waiting += ((rows, names, sign),)
        self._bytes += rows.nbytes
        self._count(sizes)
        if self._bytes >= self._patience:
            self._flush()

    def _count(self, sizes: Mapping[str, int]) -> None:
        """Count items; of a class without items nothing is left."""
        for name, size in sizes.items():
            self.counts[name] = self.counts.get(name, 0) + size
            if not self.counts[name]:
                self._flush()
                del self.counts[name]
                self._totals.pop(name, None)

    def _flush(self) -> None:
        """Bring the rows that wait into G and S."""
        if self._waiting:
            half, totals = self._half.copy(), dict(self._totals)
            for own in (1, -1):
                parts = [(rows, names) for rows, names, sign in self._waiting if sign == own]
                if parts:
                    rows = _stacked([rows for rows, _ in parts])
                    _add_totals(totals, rows, [n for _, names in parts for n in names], own)
                    _add_product(half, rows, own)
            self._half, self._totals, self._waiting, self._bytes = half, totals, (), 0

    def merge(self, other: Sums, sign: int = 1) -> None:
        """Add the items of other sums, or take them out again with a sign of -1."""
        if self.size != other.size:
            raise ValueError(
                f"sums to merge must have rows of {self.size} numbers, got {other.size}"
            )
        sizes = {name: sign * count for name, count in other.counts.items()}
        self._check(sizes)
        self._flush()
        other._flush()
        self._half = self._half + sign * other._half
        for name, total in other.totals.items():
            self._totals[name] = self._totals.get(name, 0) + sign * total
        self._count(sizes)

    def _check(self, sizes: Mapping[str, int]) -> None:
        for name, count in sizes.items():
            have = self.counts.get(name, 0)
            if have + count < 0:
                raise ValueError(
                    f"only what was learned can be forgotten: {have} of {name!r}, got {-count}"
                )

    def update(self, digest: Any) -> None:
        """Feed all numbers to a hash."""
        digest.update(self.gram.tobytes())
        for name in sorted(self.counts):
            digest.update(f"{name!r} {self.counts[name]} ".encode())
            digest.update(self.totals[name].tobytes())

    def digest(self) -> str:
        """A hash of the sums: equal for equal items, whatever their order and history."""
        found = hashlib.sha256()
        self.update(found)
        return found.hexdigest()

    def arrays(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """All that is needed to load them again: arrays, and what JSON can hold."""
        names = sorted(self.counts)
        totals = np.array([self.totals[n] for n in names], dtype=np.int64)
        arrays = {"gram": self.gram, "totals": totals.reshape(len(names), self.size)}
        return arrays, {"classes": names, "counts": [self.counts[n] for n in names]}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> Sums:
        """The opposite of `arrays`."""
        gram, totals, names = arrays["gram"], arrays["totals"], list(values["classes"])
        fits = gram.ndim == 2 and gram.shape[0] == gram.shape[1] and len(names) == len(totals)
        whole = gram.dtype == totals.dtype == np.int64
        if not (fits and whole) or totals.shape[1:] != gram.shape[1:]:
            raise ValueError(f"sums need a square of int64, got {gram.shape} and {totals.shape}")
        if not np.array_equal(gram, gram.T) or bool((np.diagonal(gram) < 0).any()):
            raise ValueError(
                "G must be symmetric with a diagonal of 0 or more, as sums of e eᵀ are"
            )
        counts = values["counts"]
        if len(counts) != len(names) or any(type(n) is not int or n < 1 for n in counts):
            raise ValueError(f"every class must have a count of 1 or more, got {counts}")
        if sum(counts) > MOST:
            raise ValueError(f"sums hold {MOST} items at the most, got {sum(counts)}")
        made = cls(len(gram))
        made._half = gram[np.triu_indices(len(gram))]
        for name, count, total in zip(names, counts, totals, strict=True):
            made.counts[str(name)], made._totals[str(name)] = count, total.copy()
        return made


def _stacked(parts: Sequence[Rows]) -> Rows:
    """Rows one below the other: sparse if all of them are."""
    thin = [part for part in parts if isinstance(part, SparseRows)]
    if len(parts) == 1:
        return parts[0]
    if len(thin) == len(parts):
        return SparseRows.concatenate(thin)
    out, start = np.zeros((sum(map(len, parts)), width_of(parts[0]))), 0
    for part in parts:
        place = out[start : start + len(part)]
        if isinstance(part, SparseRows):
            scatter(*_arrays(part), place)
        else:
            place[:] = part
        start += len(part)
    return out


def width_of(rows: Rows) -> int:
    """D, the length of a row."""
    return rows.num_features if isinstance(rows, SparseRows) else rows.shape[1]


def _arrays(rows: SparseRows) -> tuple[NDArray[Any], ...]:
    """Where rows begin, features and values."""
    return rows.indptr.numpy(), rows.indices.numpy(), rows.values.numpy()


def _add_totals(totals: dict[str, Ints], rows: Rows, labels: Sequence[str], sign: int) -> None:
    """Add the sum of the rows of each class; no sum in totals changes in place."""
    names = sorted(set(labels))
    place = {name: k for k, name in enumerate(names)}
    owner = np.array([place[name] for name in labels])
    if isinstance(rows, SparseRows):
        found = np.zeros((len(names), rows.num_features), dtype=np.int64)
        add_by_class(found, owner, *_arrays(rows))
    else:
        found = ((owner == np.arange(len(names))[:, None]).astype(float) @ rows).astype(np.int64)
    for name, total in zip(names, found, strict=True):
        totals[name] = totals.get(name, 0) + sign * total


def _add_product(half: Ints, rows: Rows, sign: int) -> None:
    """Add one half of `sign · rowsᵀ rows`, tile by tile."""
    if isinstance(rows, SparseRows):
        parts, size = _arrays(rows), rows.num_features
        pairs = (np.diff(parts[0]).astype(float) ** 2).sum()
        add = add_outer if PAIR * pairs < len(parts[1]) * size else add_spread
        add(half, size, *parts, sign)
        return
    count, size = rows.shape
    for first in range(0, count, BLOCK):
        block = rows[first : first + BLOCK]
        for top in range(0, size, TILE):
            left = block[:, top : top + TILE]
            for start in range(top, size, TILE):  # numpy works out half of a tile on the diagonal
                add_tile(half, size, left.T @ block[:, start : start + TILE], top, start, sign)

"""Exact sums of a closed-form classifier: `G = Σ e eᵀ`, `S_c = Σ e` and counts, in integers."""

from __future__ import annotations

import copy
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.feature_graph.compiled.fixed_point import add_outer, add_tile, both_halves, scatter
from evergraph.feature_graph.fixed_point import UNIT

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rows = Floats | sparse.csr_array
ARRAYS = ("data", "indices")  # of sparse rows
Waiting = tuple[Rows, list[str], int]
"""Rows, their class names and a sign."""
BLOCK = 2 ** (53 - 2 * UNIT)  # rows whose products float64 adds up without rounding
MOST = 2 ** (63 - 2 * UNIT) - 1  # rows that int64 can hold the sums of
TILE = 512  # of G that is worked out at a time
PAIR = 28  # numbers of a dense product that take the time of one pair of nonzeros


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
        return self._half.nbytes + 8 * self.size * (self._patience + len(self.counts))

    @property
    def _patience(self) -> int:
        """How many rows may wait: with them, no more is held than both halves of a large G."""
        return max(min(self.size // 2 - 1, 256), self.size // 8, 32)

    def add(self, rows: Rows, labels: Sequence[str], sign: int = 1) -> None:
        """Add rows of integers up to 2^20 in size, `(n, D)`; a sign of -1 takes them out again.

        Sparse rows hold each feature once.
        """
        if len(self) + sign * len(labels) > MOST:
            raise ValueError(
                f"sums hold {MOST} items at the most, got {len(labels)} beside {len(self)}; take "
                "some of them out first"
            )
        names = list(map(str, labels))
        sizes = {name: sign * count for name, count in Counter(names).items()}
        self._check(sizes)
        self._waiting += ((rows, names, sign),)
        self._count(sizes)
        if sum(len(names) for _, names, _ in self._waiting) >= self._patience:
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
                    for start in range(0, rows.shape[0], BLOCK):
                        _add_product(half, rows[start : start + BLOCK], own)
            self._half, self._totals, self._waiting = half, totals, ()

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
    """Rows one below the other: sparse if all of them are, and if that is faster."""
    count, width = sum(part.shape[0] for part in parts), parts[0].shape[1]
    if len(parts) == 1 and not sparse.issparse(parts[0]):
        return parts[0]
    thin = [part for part in parts if sparse.issparse(part)]
    if len(thin) == len(parts):
        sizes = np.concatenate([np.diff(part.indptr) for part in thin])
        if PAIR * (sizes.astype(float) ** 2).sum() < count * width**2:
            values, indices = (np.concatenate([getattr(p, n) for p in thin]) for n in ARRAYS)
            bounds = np.concatenate([[0], np.cumsum(sizes)])
            return sparse.csr_array((values, indices, bounds), shape=(count, width))
    out, start = np.zeros((count, width)), 0
    for part in parts:
        place = out[start : start + part.shape[0]]
        if sparse.issparse(part):
            scatter(part.indptr, part.indices, part.data, place)
        else:
            place[:] = part
        start += part.shape[0]
    return out


def _add_totals(totals: dict[str, Ints], rows: Rows, labels: Sequence[str], sign: int) -> None:
    """Add the sum of the rows of each class; no sum in totals changes in place."""
    names = sorted(set(labels))
    place = {name: k for k, name in enumerate(names)}
    member = np.zeros((len(names), len(labels)))
    member[[place[name] for name in labels], np.arange(len(labels))] = sign
    for name, total in zip(names, np.asarray(member @ rows), strict=True):
        totals[name] = totals.get(name, 0) + total.astype(np.int64)


def _add_product(half: Ints, rows: Rows, sign: int) -> None:
    """Add one half of `sign · rowsᵀ rows`, tile by tile."""
    size = rows.shape[1]
    if sparse.issparse(rows):
        add_outer(half, size, rows.indptr, rows.indices, rows.data, sign)
        return
    for top in range(0, size, TILE):
        left = rows[:, top : top + TILE]
        for start in range(top, size, TILE):  # numpy works out half of a tile on the diagonal
            add_tile(half, size, left.T @ rows[:, start : start + TILE], top, start, sign)

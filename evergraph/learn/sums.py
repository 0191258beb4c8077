"""Exact sums of a closed-form classifier: `G = Σ e eᵀ`, `S_c = Σ e` and counts, in integers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.feature_graph.fixed_point import UNIT

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rows = Floats | sparse.csr_array
BLOCK = 2 ** (53 - 2 * UNIT)  # rows whose products float64 adds up without rounding
MOST = 2 ** (63 - 2 * UNIT) - 1  # rows that int64 can hold the sums of
TILE = 512  # of G that is worked out at a time
SHORT = 0.05  # below this share of nonzeros a sparse product is faster


class Sums:
    """What a closed form knows of its items, in whatever order they came and went.

    New rows wait until there are enough of them for a fast product, or until G is asked for.
    Nothing that is held changes in place, so that references are enough to go back.

    Args:
        size: D, the length of a row.

    Attributes:
        totals: S, `(D,)` int64 by class name.
        counts: items by class name; classes without items are not there.
    """

    def __init__(self, size: int) -> None:
        self._gram = np.zeros((size, size), dtype=np.int64)
        self._waiting: tuple[tuple[Rows, int], ...] = ()  # rows with a sign
        self.totals: dict[str, Ints] = {}
        self.counts: dict[str, int] = {}

    def __len__(self) -> int:
        return sum(self.counts.values())

    @property
    def gram(self) -> Ints:
        """G, `(D, D)` int64."""
        self._flush()
        return self._gram

    @property
    def size(self) -> int:
        """D, the length of a row."""
        return len(self._gram)

    @property
    def nbytes(self) -> int:
        """How many bytes are held at the most, rows that wait included."""
        row = 8 * self.size
        return row * (self.size + self._patience + len(self.totals))

    @property
    def _patience(self) -> int:
        """How many rows may wait: an eighth of what G takes, or a few for a small G."""
        return max(self.size // 8, 256)

    def add(self, rows: Rows, labels: Sequence[str], sign: int = 1) -> None:
        """Add rows of integers up to 2^20 in size, `(n, D)`; a sign of -1 takes them out again."""
        if len(self) + sign * len(labels) > MOST:
            raise OverflowError(f"sums hold {MOST} items at the most")
        names, which = np.unique(np.asarray(labels, dtype=object).astype(str), return_inverse=True)
        sizes = dict(zip(names.tolist(), (sign * np.bincount(which)).tolist(), strict=True))
        self._check(sizes)
        self._waiting += ((rows, sign),)
        for number, (name, size) in enumerate(sizes.items()):
            total = np.asarray(rows[which == number].sum(0))
            self._put(name, size, sign * total.astype(np.int64))
        if sum(part.shape[0] for part, _ in self._waiting) >= self._patience:
            self._flush()

    def _flush(self) -> None:
        """Bring the rows that wait into G."""
        if self._waiting:
            self._gram, self._waiting = _added(self._gram, self._waiting), ()

    def merge(self, other: Sums, sign: int = 1) -> None:
        """Add the items of other sums, or take them out again with a sign of -1."""
        if self.size != other.size:
            raise ValueError(
                f"sums to merge must have rows of {self.size} numbers, got {other.size}"
            )
        self._check({name: sign * count for name, count in other.counts.items()})
        self._gram = self.gram + sign * other.gram
        for name, count in other.counts.items():
            self._put(name, sign * count, sign * other.totals[name])

    def _check(self, sizes: Mapping[str, int]) -> None:
        for name, count in sizes.items():
            have = self.counts.get(name, 0)
            if have + count < 0:
                raise ValueError(
                    f"only what was learned can be forgotten: {have} of {name!r}, got {-count}"
                )

    def _put(self, name: str, count: int, total: Ints) -> None:
        have = self.counts.get(name, 0) + count
        summed = self.totals.get(name, 0) + total
        if have:
            self.counts[name], self.totals[name] = have, summed
        else:
            self.counts.pop(name, None)
            self.totals.pop(name, None)

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
        made = cls(0)
        made._gram = gram.copy()
        for name, count, total in zip(names, counts, totals, strict=True):
            made.counts[str(name)], made.totals[str(name)] = count, total.copy()
        return made


def _added(gram: Ints, waiting: Sequence[tuple[Rows, int]]) -> Ints:
    """`gram + Σ sign · rowsᵀ rows`."""
    out = gram.copy()
    for sign in (1, -1):
        rows = _stacked([part for part, own in waiting if own == sign])
        for start in range(0, rows.shape[0], BLOCK):
            _add_product(out, rows[start : start + BLOCK], sign)
    return out


def _stacked(parts: list[Any]) -> Rows:
    """Rows one below the other: sparse if they are, and if that is faster."""
    if not parts:
        return np.zeros((0, 0))
    if not sparse.issparse(parts[0]):
        return np.concatenate(parts)
    rows = sparse.csr_array(sparse.vstack(parts))
    return rows if rows.nnz < SHORT * rows.shape[0] * rows.shape[1] else np.asarray(rows.toarray())


def _add_product(out: Ints, rows: Rows, sign: int) -> None:
    """Add `sign · rowsᵀ rows`, tile by tile above the diagonal and their mirror images."""
    if sparse.issparse(rows):
        found = (rows.T @ rows).tocoo()
        out[found.row, found.col] += sign * found.data.astype(np.int64)
        return
    for top in range(0, len(out), TILE):
        left = rows[:, top : top + TILE]
        for start in range(top, len(out), TILE):
            tile = sign * (left.T @ rows[:, start : start + TILE]).astype(np.int64)
            out[top : top + TILE, start : start + TILE] += tile
            if start > top:
                out[start : start + TILE, top : top + TILE] += tile.T

"""Exact sums of a closed-form classifier: `G = Σ e eᵀ`, `S_c = Σ e` and counts, in integers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.feature_graph.fixed_point import UNIT

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
BLOCK = 2 ** (53 - 2 * UNIT)  # rows whose products float64 adds up without rounding
MOST = 2 ** (63 - 2 * UNIT) - 1  # rows that int64 can hold the sums of


class Sums:
    """What a closed form knows of its items, in whatever order they came and went.

    Args:
        size: D, the length of a row.

    Attributes:
        gram: G, `(D, D)` int64.
        totals: S, `(D,)` int64 by class name.
        counts: items by class name; classes without items are not there.
    """

    def __init__(self, size: int) -> None:
        self.gram = np.zeros((size, size), dtype=np.int64)
        self.totals: dict[str, Ints] = {}
        self.counts: dict[str, int] = {}

    def __len__(self) -> int:
        return sum(self.counts.values())

    def add(self, rows: Floats, labels: Sequence[str], sign: int = 1) -> None:
        """Add rows of integers `(n, D)`, or take them out again with a sign of -1."""
        if len(self) + sign * len(labels) > MOST:
            raise OverflowError(f"sums hold {MOST} items at the most")
        names, which = np.unique(np.asarray(labels, dtype=object).astype(str), return_inverse=True)
        sizes = dict(zip(names.tolist(), (sign * np.bincount(which)).tolist(), strict=True))
        self._check(sizes)
        for start in range(0, len(labels), BLOCK):
            part = rows[start : start + BLOCK]
            self.gram += sign * (part.T @ part).astype(np.int64)
        for number, (name, size) in enumerate(sizes.items()):
            self._put(name, size, sign * rows[which == number].astype(np.int64).sum(0))

    def merge(self, other: Sums, sign: int = 1) -> None:
        """Add the items of other sums, or take them out again with a sign of -1."""
        if self.gram.shape != other.gram.shape:
            raise ValueError(
                f"sums to merge must have rows of {len(self.gram)} numbers, got {len(other.gram)}"
            )
        self._check({name: sign * count for name, count in other.counts.items()})
        self.gram += sign * other.gram
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
        arrays = {"gram": self.gram, "totals": totals.reshape(len(names), len(self.gram))}
        return arrays, {"classes": names, "counts": [self.counts[n] for n in names]}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> Sums:
        """The opposite of `arrays`."""
        gram, totals, names = arrays["gram"], arrays["totals"], list(values["classes"])
        fits = gram.ndim == 2 and gram.shape[0] == gram.shape[1] and len(names) == len(totals)
        if not fits or totals.shape[1:] != gram.shape[1:] or gram.dtype != np.int64:
            raise ValueError(f"sums need a square of int64, got {gram.shape} and {totals.shape}")
        made = cls(0)
        made.gram = gram.copy()
        for name, count, total in zip(names, values["counts"], totals, strict=True):
            made.counts[str(name)], made.totals[str(name)] = int(count), total.copy()
        return made

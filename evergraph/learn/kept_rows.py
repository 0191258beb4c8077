"""Rows that were made lately: most that change were put into the sums a moment ago."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
BYTES = 1 << 24  # of rows that are kept; int32 holds their integers of 20 bits


class KeptRows:
    """Rows by slot; the oldest ones make room for new ones.

    Args:
        size: D, the length of a row.
        most: how many are kept; by default, what fits into `BYTES`.

    Example:
        >>> kept = KeptRows(2)
        >>> slots = np.array([3, 5])
        >>> kept.rows(slots, lambda missing: np.outer(missing, [1.0, 2.0])).tolist()
        [[3.0, 6.0], [5.0, 10.0]]
        >>> kept.drop([3])
        >>> kept.rows(slots, lambda missing: np.outer(missing, [0.0, 1.0])).tolist()
        [[0.0, 3.0], [5.0, 10.0]]
    """

    def __init__(self, size: int, most: int | None = None) -> None:
        self.size = size
        self.most = max(BYTES // (4 * size), 1) if most is None else most
        self._rows = np.zeros((0, size), dtype=np.int32)
        self._place: dict[int, int] = {}
        self._slot = [-1] * self.most  # what each place holds, or held
        self._next = 0

    def _keep(self, slots: Ints, rows: Floats) -> None:
        """Keep rows; of more than there is room for, the last ones."""
        if not len(self._rows):
            self._rows = np.empty((self.most, self.size), dtype=np.int32)
        slots, rows = slots[-self.most :], rows[-self.most :]
        places = (self._next + np.arange(len(slots))) % self.most
        self._next = (self._next + len(slots)) % self.most
        self._rows[places] = rows
        for slot, place in zip(slots.tolist(), places.tolist(), strict=True):
            if self._place.get(self._slot[place]) == place:
                del self._place[self._slot[place]]
            self._slot[place], self._place[slot] = slot, place

    def rows(self, slots: Ints, make: Callable[[Ints], Floats], keep: bool = True) -> Floats:
        """Rows `(n, D)` of distinct slots; `make` gives those that are not kept, as integers.

        They are kept from now on, unless `keep` says that they are not needed again.
        """
        places = np.fromiter((self._place.get(s, -1) for s in slots.tolist()), np.int64, len(slots))
        missing = places < 0
        if not missing.any():
            return self._rows[places].astype(np.float64)
        made = make(slots[missing])
        out = np.empty((len(slots), self.size))
        out[missing], out[~missing] = made, self._rows[places[~missing]]
        if keep:
            self._keep(slots[missing], made)
        return out

    def drop(self, slots: Iterable[int]) -> None:
        """Forget the rows of slots."""
        for slot in slots:
            self._place.pop(slot, None)

"""Finding rows of a memory of any size in logarithmic time: by key, by class, by position."""

from __future__ import annotations

from array import array
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class Largest:
    """The row with the largest key of a group, and the group with the most rows.

    What is there at the beginning is sorted once, in arrays; what comes later waits in a heap for
    each group. Rows leave through `pop` alone. Of equal keys, the first row is the largest.

    Args:
        rows: what can be found.
        groups: of these rows.
        keys: of all rows, by row.
    """

    def __init__(self, rows: Array, groups: Array, keys: Array) -> None:
        order = np.lexsort((-rows, keys[rows], groups))
        self._rows, self._keys = rows[order].astype(np.int32), keys
        labels, begin, counts = np.unique(groups[order], return_index=True, return_counts=True)
        names = labels.tolist()
        self._begin = dict(zip(names, begin.tolist(), strict=True))
        self._end = dict(zip(names, (begin + counts).tolist(), strict=True))
        self._count: dict[int, int] = dict(zip(names, counts.tolist(), strict=True))
        self._new: dict[int, list[tuple[float, int]]] = {}
        self._sizes: list[tuple[int, int]] = [(-n, -group) for group, n in self._count.items()]
        heapify(self._sizes)

    def add(self, row: int, group: int, key: float) -> None:
        """Let a new row be found."""
        heappush(self._new.setdefault(group, []), (-key, row))
        self._resize(group, 1)

    def largest_group(self) -> int:
        """The group with the most rows; of several, the one with the largest number."""
        while True:
            count, group = self._sizes[0]
            if self._count[-group] == -count:
                return -group
            heappop(self._sizes)  # its size of another time

    def pop(self, group: int) -> int:
        """Take out the row with the largest key of a group."""
        new, end = self._new.get(group), self._end.get(group, 0)
        old = None
        if end > self._begin.get(group, 0):
            row = int(self._rows[end - 1])
            old = (-float(self._keys[row]), row)
        if old is None or (new and new[0] < old):
            assert new
            old = heappop(new)
        else:
            self._end[group] = end - 1
        self._resize(group, -1)
        return old[1]

    def _resize(self, group: int, by: int) -> None:
        count = self._count[group] = self._count.get(group, 0) + by
        if count:
            heappush(self._sizes, (-count, -group))


class Positions:
    """The row at a position when some rows are left out: a tree of counts (Fenwick's).

    Args:
        present: whether each row counts.

    Example:
        >>> positions = Positions(np.array([True, False, True, True]))
        >>> [positions.row(i) for i in range(3)]
        [0, 2, 3]
    """

    def __init__(self, present: Array) -> None:
        last = np.arange(1, len(present) + 1)
        before = np.concatenate([[0], np.cumsum(present)])
        counts = before[last] - before[last - (last & -last)]
        self._tree = array("i", counts.astype(np.intc).tobytes())  # node i ends at row i

    def change(self, row: int, by: int) -> None:
        """Count a row (1) or no longer (-1)."""
        tree, node = self._tree, row + 1
        while node <= len(tree):
            tree[node - 1] += by
            node += node & -node

    def row(self, position: int) -> int:
        """The row that has so many present rows before it."""
        tree, row = self._tree, 0
        step = 1 << len(tree).bit_length()
        while step := step >> 1:
            if row + step <= len(tree) and tree[row + step - 1] <= position:
                row += step
                position -= tree[row - 1]
        return row

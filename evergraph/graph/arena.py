"""Rows of changing length, packed into flat arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from evergraph.graph.hops import Ints, spans

SMALLEST = 4  # the capacity of a row that gets its first entry by `insert`


class Column:
    """An array that grows.

    Attributes:
        array: the values and the spare places behind them, `(capacity,)` or `(capacity, W)`.
        cells: the same memory for single elements, which are read and written as Python numbers
            in half the time that numpy needs.
    """

    __slots__ = ("array", "cells", "fill")

    def __init__(self, dtype: DTypeLike, fill: float = 0, width: int | None = None) -> None:
        self.fill = fill
        self.replace(np.empty((0,) if width is None else (0, width), dtype))

    def replace(self, array: NDArray[Any]) -> None:
        """Put other values into the column's place."""
        self.array = array
        self.cells: memoryview[Any] = memoryview(array)  # type: ignore[arg-type]

    def reserve(self, size: int) -> None:
        """Make room for `size` elements, and for half as many again if there was none."""
        old = self.array
        if size <= len(old):
            return
        room = size if not len(old) else max(size, len(old) + len(old) // 2 + 8)
        grown = np.zeros((room, *old.shape[1:]), old.dtype)
        grown[: len(old)] = old
        if self.fill:  # zeros cost nothing until they are read or written
            grown[len(old) :] = self.fill
        self.replace(grown)


class Arena:
    """Rows, one per slot, whose entries lie side by side in flat columns.

    Row s owns the entries `start[s]:start[s] + length[s]` and may grow up to `capacity[s]` where it
    is; then it moves to the end with twice the room. When more than half of the arena is left
    behind, it is compacted, so that an insertion costs a constant on average.

    Attributes:
        columns: what an entry holds; None for a column that was not needed so far.
        start: where each row begins, -1 for a slot without a row.
        length: the number of its entries.
        capacity: the number of entries it has room for.

    Example:
        >>> arena = Arena([Column(np.int32)])
        >>> arena.reserve(2)
        >>> for at, value in enumerate([5, 7]):
        ...     arena.insert(1, at, (value,))
        >>> arena.insert(1, 1, (6,))
        >>> arena.row(1, 0).tolist()
        [5, 6, 7]
    """

    def __init__(self, columns: Sequence[Column | None]) -> None:
        self.columns = list(columns)
        self.start = Column(np.int64, fill=-1)
        self.length, self.capacity = Column(np.int32), Column(np.int32)
        self.used = 0
        self.dead = 0

    def reserve(self, slots: int) -> None:
        """Make room for rows 0 to `slots - 1`."""
        for column in (self.start, self.length, self.capacity):
            column.reserve(slots)

    def begin(self, place: int, column: Column) -> None:
        """Begin a column that was not needed so far; present entries hold its fill value."""
        column.reserve(self.used)
        self.columns[place] = column

    def row(self, slot: int, place: int) -> NDArray[Any]:
        """The entries of a row in one column, a view that is good until the next change."""
        column, start = self.columns[place], self.start.cells[slot]
        assert column is not None
        return column.array[start : start + self.length.cells[slot]]

    def expand(self, slots: Ints, limit: int | None = None) -> tuple[Ints, Ints]:
        """All entries (or the first `limit`) of rows: the position in `slots` and the entry."""
        counts = self.length.array[slots].astype(np.int64)
        if limit is not None:
            counts = np.minimum(counts, limit)
        return spans(self.start.array[slots], counts)

    def insert(self, slot: int, at: int, entry: Sequence[Any]) -> None:
        """Insert an entry at a position of a row; what comes after moves on by one."""
        length = self.length.cells[slot]
        if length == self.capacity.cells[slot]:
            self._move(slot, max(SMALLEST, 2 * length), length)
        place = self.start.cells[slot] + at
        end = place + length - at
        for column, value in zip(self.columns, entry, strict=True):
            if column is None:
                continue
            if column.array.ndim == 1:
                if place < end:
                    column.cells[place + 1 : end + 1] = column.cells[place:end]
                column.cells[place] = value
            else:
                column.array[place + 1 : end + 1] = column.array[place:end]
                column.array[place] = value
        self.length.cells[slot] = length + 1

    def remove(self, slot: int, at: int) -> None:
        """Remove the entry at a position of a row; what comes after moves back by one."""
        place = self.start.cells[slot] + at
        end = place + self.length.cells[slot] - at
        for column in self.columns:
            if column is not None:
                column.array[place : end - 1] = column.array[place + 1 : end]
        self.length.cells[slot] -= 1

    def write(self, slot: int, *values: NDArray[Any]) -> None:
        """Put a whole row in the place of the one that was there."""
        length = len(values[0])
        if length > self.capacity.cells[slot]:
            self._move(slot, length, 0)
        elif self.start.cells[slot] < 0:
            self.start.cells[slot] = 0
        start = self.start.cells[slot]
        for column, value in zip(self.columns, values, strict=True):
            assert column is not None
            column.array[start : start + length] = value
        self.length.cells[slot] = length

    def append(self, slots: Ints, counts: Ints, *values: NDArray[Any] | None) -> None:
        """Write the rows of many slots that have none, packed in this order, at once."""
        start = self.used
        self._reserve_entries(int(counts.sum()))
        for column, value in zip(self.columns, values, strict=True):
            if column is not None:
                column.array[start : self.used] = value
        self.start.array[slots] = start + np.cumsum(counts) - counts
        self.length.array[slots] = self.capacity.array[slots] = counts

    def clear(self, slot: int) -> None:
        """Forget a row."""
        capacity = self.capacity.cells[slot]
        self.start.cells[slot] = -1
        self.length.cells[slot] = self.capacity.cells[slot] = 0
        self._release(capacity)

    @property
    def nbytes(self) -> int:
        """The size of all arrays."""
        columns = [self.start, self.length, self.capacity, *self.columns]
        return sum(column.array.nbytes for column in columns if column is not None)

    def _reserve_entries(self, count: int) -> None:
        self.used += count
        for column in self.columns:
            if column is not None:
                column.reserve(self.used)

    def _move(self, slot: int, capacity: int, keep: int) -> None:
        """Give a row a new place with more room; the first `keep` entries come along."""
        old, new = self.start.cells[slot], self.used
        left = self.capacity.cells[slot]
        self._reserve_entries(capacity)
        for column in self.columns:
            if column is not None and keep:
                column.array[new : new + keep] = column.array[old : old + keep]
        self.start.cells[slot] = new
        self.length.cells[slot] = keep
        self.capacity.cells[slot] = capacity
        self._release(left)

    def _release(self, count: int) -> None:
        self.dead += count
        if 2 * self.dead > self.used > 1024:
            self._compact()

    def _compact(self) -> None:
        """Lay all rows side by side again, in the order of their slots."""
        slots = np.flatnonzero(self.capacity.array)
        length = self.length.array[slots].astype(np.int64)
        capacity = self.capacity.array[slots].astype(np.int64)
        start = np.cumsum(capacity) - capacity
        source, target = self.expand(slots)[1], spans(start, length)[1]
        self.used, self.dead = int(capacity.sum()), 0
        for column in self.columns:
            if column is not None:
                packed = np.full(
                    (self.used, *column.array.shape[1:]), column.fill, column.array.dtype
                )
                packed[target] = column.array[source]
                column.replace(packed)
        self.start.array[slots] = start

"""Items of any layouts in a few packed tables, found by their place."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from evergraph.learn.packed import Layout, Level, unpack
from evergraph.learn.ranking import Array
from evergraph.learn.transaction import Restore
from evergraph.stream.batch import Batch, concatenate

BITS = 16  # of a place that name the table; the others name the row


class Tables:
    """One table for each layout that items have; nearly always, that is a single one.

    Items are appended and never changed. What is no longer needed stays until the tables are
    rewritten, which gives new ones and leaves the old ones as they are.
    """

    def __init__(self, tables: tuple[tuple[Layout, Level], ...] = ()) -> None:
        self._tables = tables

    @property
    def allocated(self) -> int:
        """How many bytes all tables take, unneeded items and room included."""
        return sum(table.allocated for _, table in self._tables)

    def batch(self, places: Array) -> Batch:
        """The items at these places in one batch, in this order."""
        if len(self._tables) == 1:
            layout, table = self._tables[0]
            return unpack(layout, table.take(torch.from_numpy(places >> BITS), wide=True))
        found = [
            unpack(layout, table.take(_rows(places, number), wide=True))
            for number, (layout, table) in enumerate(self._tables)
            if bool((_numbers(places) == number).any())
        ]
        return concatenate(found).select(_back(places))

    def column(self, name: str, places: Array) -> Tensor:
        """One field of the items at these places: `target`, `task` or `node`."""
        fields = [table.columns[name] for _, table in self._tables]
        found = [field[_rows(places, number)] for number, field in enumerate(fields)]
        return torch.cat(found)[_back(places)] if found else torch.empty(0, dtype=torch.long)

    def append(self, layout: Layout, new: Level) -> Array | None:
        """Store items and return their places; None if there is no room for them."""
        for number, (known, table) in enumerate(self._tables):
            if known == layout and table.fits(new):
                places: Array = np.arange(table.used, table.used + new.used) << BITS | number
                table.append(new)
                return places
        return None

    def rewrite(
        self, places: Array, layout: Layout | None = None, new: Level | None = None
    ) -> tuple[Tables, Array]:
        """Tables with nothing but the items at these places, and room for new ones.

        Returns:
            the tables, and where the items are in them.
        """
        moved = np.empty_like(places)
        tables: list[tuple[Layout, Level]] = []
        for number, (known, table) in enumerate(self._tables):
            rows = _rows(places, number)
            more = new if known == layout else None
            if len(rows) or more is not None:
                moved[_numbers(places) == number] = np.arange(len(rows)) << BITS | len(tables)
                tables.append((known, table.rewrite(rows, more)))
        if layout is not None and new is not None and layout not in [x for x, _ in tables]:
            tables.append((layout, new.rewrite(torch.arange(0), new)))
        return Tables(tuple(tables)), moved

    def savepoint(self) -> Restore:
        """A function that takes all items out that are appended from now on."""
        ends = [table.savepoint() for _, table in self._tables]

        def back() -> None:
            for restore in ends:
                restore()

        return back


def _numbers(places: Array) -> Array:
    """The table of each place."""
    found: Array = places & (1 << BITS) - 1
    return found


def _rows(places: Array, number: int) -> Tensor:
    """The rows of one table among some places."""
    return torch.from_numpy(places[_numbers(places) == number] >> BITS)


def _back(places: Array) -> Tensor:
    """Where each place is when they are ordered by table."""
    order = np.argsort(_numbers(places), kind="stable")
    return torch.from_numpy(np.argsort(order, kind="stable"))

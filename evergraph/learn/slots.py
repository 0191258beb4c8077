"""Where a memory keeps its items: packed, counted as the process pays for them, undone cheaply."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from evergraph.graph.neighbors import check_items
from evergraph.learn.packed import Layout, Level, pack
from evergraph.learn.ranking import Array, Largest, Positions
from evergraph.learn.tables import Tables
from evergraph.learn.transaction import Restore
from evergraph.stream.batch import Batch

SEARCH = 32  # bytes of an item in what finds it: order, ranking, positions


def _rows(keys: Array, costs: Array) -> Level:
    """New rows, which hold no item yet."""
    size = len(keys)
    return Level.of(
        size,
        {
            "key": torch.from_numpy(keys.astype(np.float64)),
            "cost": torch.from_numpy(costs),
            "place": torch.full((size,), -1),
            "alive": torch.zeros(size, dtype=torch.bool),
        },
    )


EMPTY = _rows(np.zeros(0), np.zeros(0, np.int64))


def costs(table: Level) -> Array:
    """What each item of a table is counted as: its bytes, an eighth as room, and what finds it.

    Tables are rewritten before room and rows without an item exceed that eighth, so that the sum
    over all items bounds what is allocated, and depends on nothing but the items.
    """
    own = sum(column.element_size() for column in EMPTY.columns.values())
    size = table.row_bytes() + own
    found: Array = size + (size + 7) // 8 + SEARCH
    return found


class Items(Sequence[Batch]):
    """What is kept, as batches of one that are made when they are asked for."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots

    def __len__(self) -> int:
        return len(self._slots)

    @overload
    def __getitem__(self, position: int) -> Batch: ...

    @overload
    def __getitem__(self, position: slice) -> list[Batch]: ...

    def __getitem__(self, position: int | slice) -> Batch | list[Batch]:
        if isinstance(position, slice):
            return [self[i] for i in range(*position.indices(len(self)))]
        return self._slots.batch([position]).compact()


class Slots:
    """Items in the order in which they came, with a key for each, and the limits that they keep.

    Every item has a row with its key, its cost and its place in the tables. An item that goes
    leaves an empty row behind; rows and tables are rewritten when they are full or too much of
    them is empty.

    Args:
        capacity: items at the most, or None.
        capacity_bytes: bytes at the most, or None.

    Attributes:
        nbytes: of all items, as `costs` counts them.
    """

    def __init__(self, capacity: int | None, capacity_bytes: int | None) -> None:
        if capacity is None and capacity_bytes is None:
            raise ValueError("a memory needs a capacity in items or in bytes, got neither")
        for name, value in (("capacity", capacity), ("capacity_bytes", capacity_bytes)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        self.capacity, self.capacity_bytes = capacity, capacity_bytes
        self.nbytes = self._count = 0
        self._tables = Tables()
        self._waiting: list[tuple[Layout, Level, int]] = []  # new items, and the row of the first
        self._use(EMPTY)

    def _use(self, rows: Level) -> None:
        """Go on with other rows; all that was found about the old ones is void."""
        self._book = rows
        self._died: list[int] = []  # rows that lost their item, to give it back
        self._forget()
        self._see()

    def _forget(self) -> None:
        self._order: Array | None = None
        self._positions: Positions | None = None
        self._ranking: tuple[bool, Largest] | None = None

    def _see(self) -> None:
        columns = self._book.columns
        names = ("key", "cost", "place", "alive")
        self._key, self._cost, self._place, self._alive = (columns[n].numpy() for n in names)

    def __getstate__(self) -> dict[str, Any]:
        """Copies find items anew."""
        self._store()
        own = ("_order", "_positions", "_ranking", "_key", "_cost", "_place", "_alive")
        return {k: v for k, v in vars(self).items() if k not in own}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """The opposite of `__getstate__`."""
        vars(self).update(state)
        self._forget()
        self._see()

    # -- reading ----------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        """Whether a limit is exceeded."""
        return self._exceeds(self._count, self.nbytes)

    def _exceeds(self, count: int, nbytes: int) -> bool:
        too_many = self.capacity is not None and count > self.capacity
        return too_many or (self.capacity_bytes is not None and nbytes > self.capacity_bytes)

    @property
    def allocated(self) -> int:
        """How many bytes rows and tables take, with what is empty or free in them."""
        return self._book.allocated + self._tables.allocated

    @property
    def items(self) -> Items:
        """All items as batches of one, the oldest first."""
        return Items(self)

    @property
    def keys(self) -> Array:
        """The keys of all items, `(M,)`."""
        found: Array = self._key[self._live()]
        return found

    def batch(self, positions: Sequence[int] | Array) -> Batch:
        """The items at these positions in one batch, in this order."""
        self._store()
        return self._tables.batch(self._place[self._live()[np.asarray(positions, np.int64)]])

    def column(self, name: str) -> Tensor:
        """One field of all items: `target`, `task` or `node`."""
        self._store()
        return self._tables.column(name, self._place[self._live()])

    def _live(self) -> Array:
        """The rows of all items."""
        if self._order is None:
            self._order = np.flatnonzero(self._alive[: self._book.used]).astype(np.int32)
        return self._order

    # -- adding -----------------------------------------------------------------------------

    def put(self, item: Batch, key: float) -> None:
        """Add an item, over the limits if need be; it must fit alone."""
        self.extend(item, [key])

    def extend(self, batch: Batch, keys: Sequence[float] | Array) -> None:
        """Add all items of a batch, over the limits if need be."""
        for row in self._offer(batch, keys):
            self._admit(row)

    def insert(
        self,
        batch: Batch,
        keys: Array,
        limit: Callable[[int], float],
        evicted: Callable[[int, float], None],
        balanced: bool = False,
    ) -> None:
        """Add items one by one, each if its key is small enough then, and evict what is too much.

        Args:
            batch: the items.
            keys: one per item.
            limit: keys of a label must be below it; it may fall and never rise. Without balance,
                all items have the label 0.
            evicted: gets label and key of each item that goes.
            balanced: see `evict`.
        """
        labels = batch.target.tolist() if balanced else [0] * len(batch)
        offers, most = (
            list(zip(labels, keys.tolist(), strict=True)),
            {k: limit(k) for k in set(labels)},
        )
        chosen = [i for i, (label, key) in enumerate(offers) if key < most[label]]
        if not chosen:
            return
        rows = self._offer(batch, keys[chosen], balanced, chosen)
        for row, (label, key) in zip(rows, (offers[i] for i in chosen), strict=True):
            if key < limit(label):
                self._admit(row)
                if self._ranking is not None:
                    self._ranking[1].add(row, label, key)
                while self.full:
                    evicted(*self.evict(balanced))

    def check(self, batch: Batch) -> None:
        """Refuse a batch with an item that does not fit alone."""
        if self.capacity_bytes is not None and len(batch):
            self._check_costs(costs(pack(batch)[1]))

    def _check_costs(self, found: Array) -> None:
        if self.capacity_bytes is not None and found.max() > self.capacity_bytes:
            raise ValueError(
                f"capacity_bytes must hold at least one item, got {self.capacity_bytes} for an "
                f"item of {found.max()} bytes"
            )

    def _offer(
        self,
        batch: Batch,
        keys: Sequence[float] | Array,
        balanced: bool | None = None,
        chosen: Sequence[int] | None = None,
    ) -> range:
        """Rows for new items, which wait there to be admitted; others leave no trace.

        With `balanced`, all items before are ranked if one of them may have to go; with `chosen`,
        only these items of the batch are offered.
        """
        layout, table = pack(batch)
        if chosen is not None and len(chosen) < table.used:
            table = table.take(torch.tensor(chosen))
        found = costs(table)
        self._check_costs(found)
        new = _rows(np.asarray(keys), found)
        if not self._book.fits(new):
            self._store()
            self._use(self._book.rewrite(torch.from_numpy(self._live().astype(np.int64)), new))
        if self._ranking is not None and self._ranking[0] != balanced:
            self._ranking = None
        total = self.nbytes + int(found.sum())
        if balanced is not None and self._exceeds(self._count + table.used, total):
            self._rank(balanced)
        first = self._book.used
        self._book.append(new)
        self._waiting.append((layout, table, first))
        return range(first, first + table.used)

    def _admit(self, row: int) -> None:
        self._alive[row] = True
        self._changed(row, 1)

    def _changed(self, row: int, by: int) -> None:
        self._count += by
        self.nbytes += by * int(self._cost[row])
        self._order = None
        if self._positions is not None:
            self._positions.change(row, by)

    # -- removing ---------------------------------------------------------------------------

    def evict(self, balanced: bool = False) -> tuple[int, float]:
        """Drop the item with the largest key, the oldest of several; returns label and key.

        With `balanced`, it is one of the label that most items have (the largest of several);
        otherwise all items have the label 0.
        """
        ranking = self._rank(balanced)
        label = ranking.largest_group() if balanced else 0
        return label, self._remove(ranking.pop(label))

    def drop(self, position: int) -> float:
        """Take an item out and return its key."""
        if not -self._count <= position < self._count:
            raise IndexError(f"position must be below {self._count} items, got {position}")
        if self._positions is None:
            present = self._alive.copy()
            present[self._book.used :] = False
            self._positions = Positions(present)
        self._ranking = None
        return self._remove(self._positions.row(position % self._count))

    def keep(self, positions: Sequence[int]) -> None:
        """Keep these items, in their order."""
        self._store()
        live, chosen = self._live(), np.asarray(positions, dtype=np.int64)
        gone = np.ones(len(live), dtype=bool)
        gone[chosen] = False
        self._forget()
        for row in live[gone].tolist():
            self._remove(row)
        if bool((np.diff(chosen) < 0).any()):
            self._use(self._book.rewrite(torch.from_numpy(live[chosen].astype(np.int64))))

    def _remove(self, row: int) -> float:
        self._died.append(row)
        self._alive[row] = False
        self._changed(row, -1)
        return float(self._key[row])

    def _rank(self, balanced: bool) -> Largest:
        if self._ranking is None or self._ranking[0] != balanced:
            rows = self._live()
            groups = self.column("target").numpy() if balanced else np.zeros(len(rows), np.int64)
            self._ranking = balanced, Largest(rows, groups, self._key)
        return self._ranking[1]

    # -- storing ----------------------------------------------------------------------------

    def _store(self) -> None:
        """Move the items that wait and have been admitted into the tables."""
        waiting, self._waiting = self._waiting, []
        for layout, table, first in waiting:
            admitted = np.flatnonzero(self._alive[first : first + table.used])
            if len(admitted) < table.used:
                table = table.take(torch.from_numpy(admitted))
            if table.used:
                self._place[admitted + first] = self._stored(layout, table)

    def _stored(self, layout: Layout, table: Level) -> Array:
        places = self._tables.append(layout, table)
        if places is None:
            rows = self._live()
            rows = rows[self._place[rows] >= 0]
            self._tables, moved = self._tables.rewrite(self._place[rows], layout, table)
            place = self._book.columns["place"].clone()  # a savepoint may need the old one
            self._book = replace(self._book, columns={**self._book.columns, "place": place})
            self._see()
            self._place[rows] = moved
            places = self._tables.append(layout, table)
            assert places is not None
        return places

    def settle(self) -> None:
        """End a change: all items are in tables, and these take no more than is counted."""
        self._store()
        if self.allocated > self.nbytes:
            rows = self._live().astype(np.int64)
            self._tables, places = self._tables.rewrite(self._place[rows])
            self._use(self._book.rewrite(torch.from_numpy(rows)))
            self._place[: len(rows)] = places

    def savepoint(self) -> Restore:
        """A function that puts everything back; it costs what changes until then, not a copy.

        Rows and tables are appended to or replaced, so that it suffices to know where they end;
        what finds items is made anew.
        """
        self._store()
        kept, died, count = dict(vars(self)), self._died, len(self._died)
        ends = self._book.savepoint(), self._tables.savepoint()

        def back() -> None:
            vars(self).clear()
            vars(self).update(kept)
            for restore in ends:
                restore()
            self._alive[died[count:]] = True
            del died[count:]
            self._waiting = []
            self._forget()

        return back

    def tensors(self) -> dict[str, Tensor]:
        """The items as one batch, and their keys."""
        keys = {"keys": torch.tensor(self.keys.tolist(), dtype=torch.float64)}
        return keys | (self.batch(range(len(self))).tensors() if len(self) else {})

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """The opposite of `tensors`."""
        keys, fresh = tensors["keys"], Slots(self.capacity, self.capacity_bytes)
        size = 0
        if len(keys):
            batch = Batch.from_tensors(tensors)
            check_items(batch.x, batch.neighbors, hops=2**31)
            size = len(batch)
        if keys.shape != (size,) or not bool(keys.isfinite().all()):
            raise ValueError(f"{size} items need as many finite keys, got {tuple(keys.shape)}")
        if size:
            fresh.extend(batch, keys.numpy())
            fresh.batch(range(size))  # fails if the parts do not belong together
        if fresh.full:
            raise ValueError(
                f"a memory of at most {self.capacity} items and {self.capacity_bytes} bytes got "
                f"{size} items of {fresh.nbytes} bytes"
            )
        vars(self).update(vars(fresh))

"""Items of a batch in columns with room to grow: one tensor per field, not one per item.

An item owns any number of neighbors, and a sparse row any number of entries. So a table has
levels: each row of a level owns a run of rows of the levels below it.
"""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.feature_graph.compiled.embedding import copy_runs, find_runs
from evergraph.graph.neighbors import Features, Linked, Neighbors
from evergraph.graph.rows import SparseRows
from evergraph.learn.transaction import Restore
from evergraph.stream.batch import Batch

ROOM = 16  # a level gets room for one more row in so many
PIECE = 4096  # rows that are copied at a time
PLAIN = (torch.float32, torch.float64, torch.int32, torch.int64)  # copied by loops and by numpy
PAGES = 1 << 16  # bytes from which a column gets pages of its own


def _room(size: int, like: Tensor) -> Tensor:
    """Rows to fill; large ones are pages of their own, which go back to the system when freed.

    Memory from the heap would stay with the process, torn, each time a table is rewritten.
    """
    nbytes = size * like.element_size() * like.shape[1:].numel()
    if nbytes < PAGES or like.device.type != "cpu":
        return like.new_empty(size, *like.shape[1:])
    pages = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(pages, dtype=like.dtype).view(size, *like.shape[1:])


def _is_plain(data: Tensor) -> bool:
    return data.is_cpu and data.dtype in PLAIN


def _picked(data: Tensor, index: Tensor) -> Tensor:
    """Copies of some rows; numpy takes a third of torch's time for a few."""
    if _is_plain(data):
        return torch.from_numpy(data.numpy()[index.numpy()])
    return data[index]


@dataclass(eq=False)
class Level:
    """Rows of a few columns, appended at the end and never changed.

    Attributes:
        columns: by name, `(capacity, *)`; rows from `used` on are free.
        start: where the run of each row begins in a level below, `(capacity + 1,)`, by its name;
            on the CPU.
        below: the levels that rows own runs of, by name.
        used: how many rows there are.
        capacity: how many there is room for.
    """

    columns: dict[str, Tensor]
    start: dict[str, Tensor]
    below: dict[str, Level]
    used: int
    capacity: int

    @classmethod
    def of(
        cls,
        size: int,
        columns: Mapping[str, Tensor | None],
        below: Mapping[str, tuple[Tensor, Level]] | None = None,
    ) -> Level:
        """A level of exactly these rows; columns that are None are left out."""
        below = below or {}
        given = {name: tensor.detach() for name, tensor in columns.items() if tensor is not None}
        start = {name: first for name, (first, _) in below.items()}
        return cls(given, start, {name: level for name, (_, level) in below.items()}, size, size)

    @property
    def kind(self) -> tuple[object, ...]:
        """What levels must have in common to be joined: names, types and shapes."""
        own = ((name, data.dtype, data.shape[1:]) for name, data in self.columns.items())
        return (*own, *((name, level.kind) for name, level in self.below.items()))

    @property
    def allocated(self) -> int:
        """How many bytes all tensors take, free rows included."""
        own = sum(data.nbytes for data in (*self.columns.values(), *self.start.values()))
        return own + sum(level.allocated for level in self.below.values())

    def row_bytes(self) -> NDArray[np.int64]:
        """How many bytes each row takes with all that it owns, `(used,)`."""
        fixed = sum(data.element_size() * data.shape[1:].numel() for data in self.columns.values())
        out = np.full(self.used, fixed + 8 * len(self.start))
        for name, level in self.below.items():
            start = self.start[name].numpy()[: self.used + 1]
            if level.below:
                total = np.zeros(level.used + 1, np.int64)
                np.cumsum(level.row_bytes(), out=total[1:])
                out += np.diff(total[start])
            else:  # all of its rows take the same
                columns = level.columns.values()
                size = sum(data.element_size() * data.shape[1:].numel() for data in columns)
                out += np.diff(start) * size
        return out

    def take(self, index: Tensor, wide: bool = False) -> Level:
        """Copies of some rows and all that they own; `wide` makes indices int64 on the way."""
        columns = {name: _picked(data, index) for name, data in self.columns.items()}
        taken = Level(columns, {}, {}, len(index), len(index))
        for name, level in self.below.items():
            runs = find_runs(self.start[name].numpy(), index.numpy())
            first, taken.start[name] = map(torch.from_numpy, runs)
            taken.below[name] = level._take_runs(first, taken.start[name], wide)
        return taken

    def _take_runs(self, first: Tensor, start: Tensor, wide: bool) -> Level:
        """Copies of runs of rows, each from `first` on, that begin at `start` in the result."""
        plain = all(data.dim() == 1 and _is_plain(data) for data in self.columns.values())
        if self.below or not plain:
            begin = start.numpy()
            where = np.repeat(first.numpy() - begin[:-1], np.diff(begin))
            return self.take(torch.from_numpy(where + np.arange(len(where))), wide)
        size = int(start[-1])
        runs, columns = (first.numpy(), start.numpy()), {}
        for name, data in self.columns.items():
            widened = wide and data.dtype == torch.int32
            columns[name] = data.new_empty(size, dtype=torch.int64 if widened else data.dtype)
            copy_runs(*runs, data.numpy(), columns[name].numpy())
        return Level(columns, {}, {}, size, size)

    def rewrite(self, index: Tensor, more: Level | None = None) -> Level:
        """Copies of some rows, with room for those of another level and some beyond them."""
        pieces = index.split(PIECE)  # small ones, or copying would take more than the copies
        sizes = sum((self._owned(piece, piece + 1) for piece in pieces), Counter[str]())
        fresh = self._empty(sizes, more)
        for piece in pieces:
            fresh.append(self.take(piece))
        return fresh

    def _owned(self, first: Tensor, end: Tensor, path: str = "") -> Counter[str]:
        """How many rows of this level and those below it some runs have, by the level's path."""
        found = Counter({path: int((end - first).sum())})
        for name, level in self.below.items():
            start = self.start[name]
            found += level._owned(start[first], start[end], f"{path}/{name}")
        return found

    def _empty(self, sizes: Counter[str], more: Level | None, path: str = "") -> Level:
        wanted = sizes[path] + (0 if more is None else more.used)
        capacity = wanted + wanted // ROOM
        fresh = Level({}, {}, {}, 0, capacity)
        fresh.columns = {name: _room(capacity, data) for name, data in self.columns.items()}
        for name, level in self.below.items():
            fresh.start[name] = _room(capacity + 1, self.start[name])
            fresh.start[name][0] = 0
            below = None if more is None else more.below[name]
            fresh.below[name] = level._empty(sizes, below, f"{path}/{name}")
        return fresh

    def fits(self, other: Level) -> bool:
        """Whether there is room for the rows of another level."""
        own = self.used + other.used <= self.capacity
        return own and all(level.fits(other.below[name]) for name, level in self.below.items())

    def append(self, other: Level) -> None:
        """Copy the rows of another level of the same kind behind the own ones."""
        end = self.used + other.used
        for name, data in self.columns.items():
            given = other.columns[name]
            if _is_plain(data) and _is_plain(given):
                data.numpy()[self.used : end] = given.numpy()[: other.used]
            else:
                data[self.used : end] = given[: other.used]
        for name, level in self.below.items():
            first = other.start[name].numpy()[1 : other.used + 1]
            self.start[name].numpy()[self.used + 1 : end + 1] = first + level.used
            level.append(other.below[name])
        self.used = end

    def savepoint(self) -> Restore:
        """A function that takes all rows out that are appended from now on."""
        used, below = self.used, [level.savepoint() for level in self.below.values()]

        def back() -> None:
            self.used = used
            for restore in below:
                restore()

        return back


@dataclass(frozen=True)
class Layout:
    """What items of one table have in common.

    Attributes:
        width: the shape of one item's features.
        nodes: S, the nodes of an item.
        kind: of the table.
    """

    width: tuple[int, ...]
    nodes: int
    kind: tuple[object, ...] = field(repr=False)


def pack(batch: Batch) -> tuple[Layout, Level]:
    """The items of a batch as a table; sparse rows get int32 indices."""
    if isinstance(batch.neighbors, Linked):
        batch = batch.compact()
    around, nodes, size = batch.neighbors, batch.nodes_per_item, len(batch)
    assert isinstance(around, Neighbors)
    columns: dict[str, Tensor | None] = {
        "target": batch.target, "task": batch.task, "node": batch.node
    }  # fmt: skip
    hop = torch.zeros(len(around), dtype=torch.int32) if around.hop is None else around.hop.int()
    edges: dict[str, Tensor | None] = {"hop": hop, "weight": around.weight}  # hop 0: not given
    owner = around.owner
    if nodes > 1:
        edges["place"] = (owner % nodes).int()
        owner = owner // nodes
    below = _features(around.features, edges, 1)
    counts = torch.bincount(owner, minlength=size).cpu()
    start = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    owned = _features(batch.x, columns, nodes)
    owned["neighbors"] = (start, Level.of(len(around), edges, below))
    table = Level.of(size, columns, owned)
    return Layout(batch.width, nodes, table.kind), table


def _features(
    features: Features, columns: dict[str, Tensor | None], nodes: int
) -> dict[str, tuple[Tensor, Level]]:
    """Dense features become a column; sparse rows a level below, for `nodes` rows together."""
    if isinstance(features, Tensor):
        columns["features"] = features
        return {}
    if nodes > 1:
        columns["counts"] = features.counts.view(-1, nodes).int()
    entries: dict[str, Tensor | None] = {
        "indices": features.indices.int(), "values": features.values
    }  # fmt: skip
    level = Level.of(len(features.indices), entries)
    return {"features": (features.indptr[::nodes].long().cpu(), level)}


def unpack(layout: Layout, table: Level) -> Batch:
    """The opposite of `pack`, for a table without room; all indices are int64."""
    columns, edges = table.columns, table.below["neighbors"]
    device = columns["target"].device
    counts = np.diff(table.start["neighbors"].numpy())
    owner = torch.from_numpy(np.repeat(np.arange(len(counts)), counts)).to(device)
    if layout.nodes > 1:
        owner = owner * layout.nodes + edges.columns["place"]
    given = edges.columns["hop"]
    hop = given.clamp(min=1).long() if bool(given.any()) else None
    around = Neighbors(_unpacked(edges, layout), owner, hop, edges.columns.get("weight"))
    parts = (columns["target"], columns["task"], columns["node"])
    return Batch(_unpacked(table, layout), around, *parts)


def _unpacked(level: Level, layout: Layout) -> Features:
    if "features" in level.columns:
        return level.columns["features"]
    entries = level.below["features"].columns
    start = level.start["features"].to(entries["values"].device)
    if "counts" in level.columns:  # several rows of an item
        start = torch.cat([start[:1], level.columns["counts"].flatten().cumsum(0)])
    return SparseRows(start, entries["indices"].long(), entries["values"], layout.width[-1])

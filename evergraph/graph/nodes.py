"""The nodes of a growing graph: ids, slots, fixed-point features, labels and times."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from operator import is_
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evergraph.checks import shorten
from evergraph.graph.arena import Arena, Column
from evergraph.graph.hops import Bools, Ints
from evergraph.graph.ids import PLAIN, Coded, Id, check_id, key, order_of

FRACTION = 16  # features are integers in units of 2**-16
MAX_VALUE = 2**24  # in these units: 256, which float32 holds exactly
INDEX, VALUE = range(2)  # the columns of a feature row

Int32s = NDArray[np.int32]


class Nodes:
    """A table of nodes. A slot is a number that is used again when its node is gone.

    Attributes:
        slot_of: the slot of each id.
        id_of: the id of each slot, None for a free one.
        features: a row of index and value per slot; a free slot has none.
        label: the label of each slot, or None.
        classes: how many nodes have each label.
        keys: the key of each slot's id.
        time: when each slot's node came, NaN if unknown.
    """

    def __init__(self) -> None:
        self.slot_of: dict[Id, int] = {}
        self.id_of: list[Id | None] = []
        self.free: list[int] = []
        self.features = Arena([Column(np.int32), Column(np.int32)])
        self.label: list[str | None] = []
        self.classes: dict[str, int] = {}
        self.keys = Column(np.uint64)
        self.time = Column(np.float64, fill=np.nan)

    def find(self, node: Id) -> int:
        """The slot of a node; an error if there is none."""
        found = self.slot_of.get(node if type(node) in (str, int) else check_id(node))
        if found is None:
            raise ValueError(f"the graph has no node {shorten(node)}: put it first")
        return found

    def find_all(self, nodes: Sequence[Id]) -> Ints:
        """The slots of many nodes."""
        found = self._find_plain(nodes.distinct if isinstance(nodes, Coded) else nodes)
        if found is None:  # `find` says which is missing
            return np.fromiter(map(self.find, nodes), dtype=np.int64, count=len(nodes))
        return found[nodes.codes] if isinstance(nodes, Coded) else found

    def find_ends(self, sources: Sequence[Id], targets: Sequence[Id]) -> tuple[Ints, Ints]:
        """The slots of the ends of many edges; ids that both share are looked up once."""
        if isinstance(sources, Coded) and isinstance(targets, Coded):
            slots = self._find_plain(sources.distinct)
            if slots is not None and targets.distinct is sources.distinct:
                return slots[sources.codes], slots[targets.codes]
        return self.find_all(sources), self.find_all(targets)

    def _find_plain(self, ids: Sequence[Id]) -> Ints | None:
        """The slots of plain strings and integers; None if one has none, or is something else."""
        if len(ids) == len(self.slot_of) == len(self.id_of) and all(map(is_, ids, self.id_of)):
            return np.arange(len(ids))  # all nodes in the order of their slots
        if set(map(type, ids)) <= PLAIN:
            with suppress(KeyError):
                return np.fromiter(map(self.slot_of.__getitem__, ids), np.int64, len(ids))
        return None

    def sorted(self) -> Ints:
        """The slots of all nodes in the order of their keys."""
        slots = np.fromiter(self.slot_of.values(), dtype=np.int64, count=len(self.slot_of))
        return slots[order_of(self.keys.array[slots])]

    def next_slot(self) -> int:
        """The slot that the next new node will have."""
        return self.free[-1] if self.free else len(self.id_of)

    def add(self, node: Id) -> int:
        """Give a new node its slot."""
        slot = self.next_slot()
        if self.free:
            self.free.pop()
            self.id_of[slot] = node
        else:
            self.id_of.append(node)
            self.label.append(None)
            self.reserve(slot + 1)
        self.slot_of[node] = slot
        self.keys.cells[slot] = key(node)
        return slot

    def next_slots(self, nodes: Sequence[Id]) -> dict[Id, int] | None:
        """Slots for many nodes, free ones first; None unless all are new and distinct."""
        again = self.free[: -len(nodes) - 1 : -1]
        first = len(self.id_of)
        slots = dict(
            zip(nodes, [*again, *range(first, first + len(nodes) - len(again))], strict=True)
        )
        new = len(slots) == len(nodes) and self.slot_of.keys().isdisjoint(slots.keys())
        return slots if new else None

    def add_all(
        self,
        slots: dict[Id, int],
        keys: NDArray[np.uint64],
        labels: Sequence[str | None],
        counts: Mapping[str, int],
    ) -> Ints:
        """Give many new nodes the slots that `next_slots` has found, and their labels."""
        again = min(len(self.free), len(slots))
        names: dict[str | None, str | None] = {None: None}
        for name, count in counts.items():
            names[name] = plain = sys.intern(str(name))
            self.classes[plain] = self.classes.get(plain, 0) + count
        found = np.fromiter(slots.values(), np.int64, len(slots))
        for node, slot, given in zip(
            islice(slots, again), found[:again].tolist(), labels, strict=False
        ):
            self.id_of[slot], self.label[slot] = node, names[given]
        del self.free[len(self.free) - again :]
        self.label.extend(map(names.__getitem__, labels[again:]))
        self.id_of.extend(islice(slots, again, None))
        if self.slot_of:
            self.slot_of.update(slots)
        else:
            self.slot_of = slots
        self.reserve(len(self.id_of))
        self.keys.array[found] = keys
        return found

    def reserve(self, slots: int) -> None:
        """Make room for the slots 0 to `slots - 1`."""
        self.features.reserve(slots)
        self.keys.reserve(slots)
        self.time.reserve(slots)

    def remove(self, slot: int) -> None:
        """Forget a node."""
        node = self.id_of[slot]
        assert node is not None
        self.set_label(slot, None)
        self.features.clear(slot)
        self.time.cells[slot] = np.nan
        self.id_of[slot] = None
        del self.slot_of[node]
        self.free.append(slot)

    def set_label(self, slot: int, label: str | None) -> None:
        """Label a node, or take its label away."""
        old = self.label[slot]
        if old is not None:
            self.classes[old] -= 1
            if not self.classes[old]:
                del self.classes[old]
        if label is not None:
            label = sys.intern(label)
            self.classes[label] = self.classes.get(label, 0) + 1
        self.label[slot] = label

    def present(self, slots: Ints) -> Bools:
        """Whether there is a node in each slot."""
        inside = (slots >= 0) & (slots < len(self.id_of))
        if not self.id_of:
            return inside
        found: Bools = inside & (self.features.start.array[np.where(inside, slots, 0)] >= 0)
        return found

    def check(self, slots: Ints) -> None:
        """Reject slots without a node."""
        there = self.present(slots)
        if not there.all():
            raise ValueError(f"slot {slots[there.argmin()]} has no node: `slots` gives the slots")

    def rows(self, slots: Ints) -> tuple[Ints, Int32s, Int32s]:
        """The features of nodes packed: where each row begins and the last ends, index, value."""
        _, entry = self.features.expand(slots)
        indptr = np.zeros(len(slots) + 1, dtype=np.int64)
        np.cumsum(self.features.length.array[slots], out=indptr[1:])
        index, value = self.features.columns
        assert index is not None
        assert value is not None
        return indptr, index.array[entry], value.array[entry]

    @property
    def nbytes(self) -> int:
        """The memory of arrays, ids and the tables that find them."""
        arrays = self.features.nbytes + self.keys.array.nbytes + self.time.array.nbytes
        tables: Iterable[object] = (self.slot_of, self.id_of, self.label, self.free)
        integers = 28 * len(self.slot_of)  # the slots in `slot_of`
        ids = sum(map(sys.getsizeof, self.slot_of))
        return arrays + sum(map(sys.getsizeof, tables)) + integers + ids


def check_row(indices: ArrayLike, values: ArrayLike, num_features: int) -> tuple[Int32s, Int32s]:
    """A feature row as int32 without zeros; an error names what is wrong with it."""
    index, value = _as_ints("index", indices), _as_ints("value", values)
    size = len(index)
    if size != len(value):
        raise ValueError(f"a row needs a value for each index, got {size} and {len(value)}")
    if not size:
        return index.astype(np.int32), value.astype(np.int32)
    if index[0] < 0 or index[-1] >= num_features or not (index[1:] > index[:-1]).all():
        raise ValueError(
            f"the indices of a row must ascend, be distinct and inside 0 to {num_features - 1}, "
            f"got {shorten(index.tolist())}"
        )
    if value.max() > MAX_VALUE or value.min() < -MAX_VALUE:
        worst = int(value[np.abs(value.astype(np.float64)).argmax()])
        raise ValueError(
            f"the values of a row must be from -2**24 to 2**24 (256 in units of 2**-16), got "
            f"{worst}"
        )
    if np.count_nonzero(value) != size:
        index, value = index[value != 0], value[value != 0]
    return index.astype(np.int32, copy=False), value.astype(np.int32, copy=False)


def check_rows(
    bounds: ArrayLike, indices: ArrayLike, values: ArrayLike, count: int, num_features: int
) -> tuple[Ints, Int32s, Int32s]:
    """Many packed rows as `check_row` wants each: the lengths, index and value without zeros."""
    indptr = _as_ints("indptr", bounds).astype(np.int64)
    index, value = _as_ints("index", indices), _as_ints("value", values)
    counts = np.diff(indptr)
    if len(indptr) != count + 1 or indptr[0] != 0 or (counts < 0).any():
        raise ValueError(f"indptr must rise from 0 in {count} steps, one per node, got {indptr}")
    if indptr[-1] != len(index) or len(index) != len(value):
        raise ValueError(
            f"index and value must have indptr[-1] = {indptr[-1]} entries, got {len(index)} and "
            f"{len(value)}"
        )
    if not len(index):
        return counts, index.astype(np.int32), value.astype(np.int32)
    fits = 0 <= index.min() <= index.max() < num_features
    fits = fits and -MAX_VALUE <= value.min() <= value.max() <= MAX_VALUE
    descends = index[1:] <= index[:-1]
    starts = indptr[1:-1]
    descends[starts[(starts > 0) & (starts < len(index))] - 1] = False  # there another row begins
    if not fits or descends.any():
        for at in range(count):
            part = slice(indptr[at], indptr[at + 1])
            try:
                check_row(index[part], value[part], num_features)
            except ValueError as error:
                raise ValueError(f"row {at}: {error}") from None
    if np.count_nonzero(value) < len(value):
        keep = value != 0
        counts = np.bincount(np.repeat(np.arange(count), counts)[keep], minlength=count)
        index, value = index[keep], value[keep]
    return counts, index.astype(np.int32, copy=False), value.astype(np.int32, copy=False)


def _as_ints(what: str, values: ArrayLike) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):
        array = np.empty(0, dtype=np.object_)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise ValueError(
            f"{what} must be a list of 64-bit integers, got {shorten(values)} ({array.dtype})"
        )
    return array

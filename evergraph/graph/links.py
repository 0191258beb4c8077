"""The edges of a growing graph: for every node its neighbors in the order of their keys."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

import numpy as np

from evergraph.checks import shorten
from evergraph.graph.arena import Arena, Column
from evergraph.graph.hops import Floats, Ints

WEIGHT_BITS = 10
ONE = 1 << WEIGHT_BITS  # a weight of 1 in fixed point
MAX_WEIGHT = 2**14  # in fixed point 2**24, which float32 still holds exactly
TARGET, WEIGHT, TIME = range(3)  # the columns of an entry


class Links:
    """Edges between slots, stored with both ends (undirected) or beside their mirror (directed).

    Weights and times have columns from the first edge on that needs them.

    Args:
        keys: the key of each slot.
        directed: whether an edge counts from source to target only.
        components: the number of components of a weight, None for plain numbers.
        limit: how many neighbors of a node count, those with the smallest keys; None for all.
    """

    def __init__(
        self, keys: Column, directed: bool, components: int | None, limit: int | None
    ) -> None:
        self.keys = keys
        self.directed = directed
        self.components = components
        self.limit = limit
        self.unit = ONE * (components or 1)  # what an edge of weight 1 counts in sums
        self.count = 0
        self.weighted = 0  # how many edges have a weight other than 1
        self.out = Arena([Column(np.int32), None, None])
        self.into = Arena([Column(np.int32), None, None]) if directed else self.out
        if components is not None:
            self.begin(WEIGHT)

    def begin(self, place: int) -> None:
        """Give edges a column for weights or times, if there is none so far."""
        if self.out.columns[place] is None:
            column = Column(np.float64, math.nan)
            if place == WEIGHT:
                column = Column(np.int32, ONE, self.components)
            self.out.begin(place, column)

    @property
    def num_nodes(self) -> int:
        """How many slots there are, in use or not."""
        return len(self.out.start.array)

    def reserve(self, slots: int) -> None:
        """Make room for the slots 0 to `slots - 1`."""
        self.out.reserve(slots)
        if self.directed:
            self.into.reserve(slots)

    def find(self, arena: Arena, owner: int, other: int) -> tuple[int, bool]:
        """Where the other slot is in the owner's row or would be, and whether it is there."""
        column = arena.columns[TARGET]
        assert column is not None
        keys, target, key = self.keys.cells, column.cells, self.keys.cells[other]
        start, length = arena.start.cells[owner], arena.length.cells[owner]
        if not length:
            return 0, False
        end = start + length
        place = bisect_left(target, key, start, end, key=keys.__getitem__)
        while place < end and keys[target[place]] == key:
            if target[place] == other:
                return place - start, True
            place += 1
        return place - start, False

    def weight_at(self, owner: int, at: int) -> int:
        """What an entry of a row counts in sums."""
        column = self.out.columns[WEIGHT]
        if column is None:
            return self.unit
        place = self.out.start.cells[owner] + at
        weight: int = column.cells[place] if self.components is None else column.array[place].sum()
        return int(weight)

    def has_weight(self, owner: int, at: int, weight: Any) -> bool:
        """Whether an entry of a row has this weight."""
        if self.out.columns[WEIGHT] is None:
            return not self._differs(weight)
        return np.array_equal(self.out.row(owner, WEIGHT)[at], weight)

    def insert(self, source: int, target: int, at: int, weight: Any, time: float | None) -> None:
        """Add an edge that is not there; `at` is the target's place in the source's row."""
        if weight is None:
            weight = ONE
        else:
            self.begin(WEIGHT)
        if time is None:
            time = math.nan
        else:
            self.begin(TIME)
        self.out.insert(source, at, (target, weight, time))
        back = self.find(self.into, target, source)[0]
        self.into.insert(target, back, (source, weight, time))
        self.count += 1
        self.weighted += weight is not ONE and self._differs(weight)

    def update(self, source: int, target: int, weight: Any, time: float | None) -> None:
        """Change the weight or the time of an edge that is there; None leaves it as it is."""
        ends = ((source, target),) if self.directed else ((source, target), (target, source))
        for place, value in ((WEIGHT, weight), (TIME, time)):
            if value is None:
                continue
            self.begin(place)
            if place == WEIGHT:
                at = self.find(self.out, source, target)[0]
                old = self.out.row(source, WEIGHT)[at]
                self.weighted += self._differs(value) - self._differs(old)
            for owner, other in ends:
                at = self.find(self.out, owner, other)[0]
                self.out.row(owner, place)[at] = value

    def remove(self, source: int, target: int) -> None:
        """Delete an edge that is there."""
        at = self.find(self.out, source, target)[0]
        if self.out.columns[WEIGHT] is not None:
            self.weighted -= self._differs(self.out.row(source, WEIGHT)[at])
        self.out.remove(source, at)
        self.into.remove(target, self.find(self.into, target, source)[0])
        self.count -= 1

    def _differs(self, weight: Any) -> bool:
        return bool(weight != ONE) if self.components is None else bool((weight != ONE).any())

    def targets(self, entry: Ints) -> Ints:
        """Where entries lead."""
        column = self.out.columns[TARGET]
        assert column is not None
        return column.array[entry].astype(np.int64)

    def step(self, nodes: Ints) -> tuple[Ints, Ints, Ints]:
        """All edges that leave slots, as `hops.walk` wants them."""
        parent, entry = self.out.expand(nodes)
        return parent, self.targets(entry), entry

    def weights(self, entry: Ints) -> Floats:
        """The weights of entries as floating-point numbers, `(N,)` or `(N, W)`."""
        column = self.out.columns[WEIGHT]
        assert column is not None
        return column.array[entry].astype(np.float32) / np.float32(ONE)

    def times(self, entry: Ints) -> Floats:
        """The times of entries, NaN where an edge has none."""
        column = self.out.columns[TIME]
        return np.full(len(entry), math.nan) if column is None else column.array[entry]

    def counted(self, slots: Ints) -> tuple[Ints, Ints, Ints]:
        """The neighbors that count: the position in `slots`, the neighbor, its weight in sums."""
        parent, entry = self.out.expand(slots, self.limit)
        column = self.out.columns[WEIGHT]
        if column is None:
            return parent, self.targets(entry), np.full(len(entry), self.unit)
        weight = (
            column.array[entry].reshape(len(entry), self.components or 1).sum(1, dtype=np.int64)
        )
        return parent, self.targets(entry), weight

    def counting(self, slot: int) -> list[int]:
        """The slots in whose sums this one counts, itself left out."""
        sources, limit = self.into.row(slot, TARGET), self.limit
        if limit is None:
            return sources.tolist()  # type: ignore[no-any-return]
        if not limit:
            return []
        crowded = self.out.length.array[sources] > limit
        last = self.targets(self.out.start.array[sources[crowded]] + limit - 1)
        beyond = self.keys.array[last] < self.keys.cells[slot]
        keep = np.ones(len(sources), dtype=np.bool_)
        keep[crowded] = ~beyond
        return sources[keep].tolist()  # type: ignore[no-any-return]

    def dependents(self, slots: Iterable[int], hops: int) -> set[int]:
        """The slots that reach one of these in at most so many steps through what counts."""
        found = set(slots)
        edge = found
        for _ in range(hops):
            edge = {other for slot in edge for other in self.counting(slot)} - found
            found |= edge
        return found

    def neighbors(self, slot: int) -> tuple[list[int], list[int]]:
        """Where edges lead from a slot, and where they come from."""
        return self.out.row(slot, TARGET).tolist(), self.into.row(slot, TARGET).tolist()

    def clear(self, slot: int) -> None:
        """Forget the rows of a slot that has no edges."""
        self.out.clear(slot)
        if self.directed:
            self.into.clear(slot)

    @property
    def nbytes(self) -> int:
        """The size of all arrays."""
        return self.out.nbytes + (self.into.nbytes if self.directed else 0)


def fixed_weight(weight: object, components: int | None) -> Any:
    """One weight in fixed point: an integer, or an int32 vector of `components`.

    Example:
        >>> fixed_weight(0.5, None)
        512
        >>> fixed_weight(20000, None)
        Traceback (most recent call last):
        ValueError: a weight must be a number from -16384 to 16384, got 20000: scale the weights
    """
    if components is None and type(weight) is float and -MAX_WEIGHT <= weight <= MAX_WEIGHT:
        return round(weight * ONE)
    found = fixed_weights([weight], 1, components)[0]
    return int(found) if components is None else found


def fixed_weights(weights: Any, count: int, components: int | None) -> Any:
    """Weights in fixed point: int32 `(E,)`, or `(E, W)` with components."""
    try:
        values = np.asarray(weights)
    except ValueError:  # vectors of different lengths
        values = np.empty(0, dtype=np.object_)
    shape = (count,) if components is None else (count, components)
    if values.dtype.kind not in "iuf" or values.shape != shape:
        kind = "a number" if components is None else f"a vector of {components} numbers"
        raise ValueError(
            f"a weight must be {kind} (`components` of the graph says which), got "
            f"{shorten(list(weights) if count > 1 else weights[0])}"
        )
    values = values.astype(np.float64)
    outside = ~(np.abs(values) <= MAX_WEIGHT).reshape(count, components or 1).all(1)
    if outside.any():
        raise ValueError(
            f"a weight must be a number from -{MAX_WEIGHT} to {MAX_WEIGHT}, got "
            f"{shorten(weights[int(outside.argmax())])}: scale the weights"
        )
    return np.rint(values * ONE).astype(np.int32)

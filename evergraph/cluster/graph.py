"""The graph of a shard: its own nodes with all their edges, and ghosts at the foreign ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.feature_graph.fixed_point import divide
from evergraph.graph.arena import Arena, Column
from evergraph.graph.growing import GrowingGraph
from evergraph.graph.hops import Bools, Ints
from evergraph.graph.ids import Id
from evergraph.graph.links import TARGET

PIECE = 4096  # means that are made at a time
EDGES = 100_000  # nodes whose edges are counted at a time
MOST_HOPS = 2  # a ghost's mean of one step is all that is known of its neighbors


@dataclass(frozen=True, eq=False)
class Means:
    """The means of one step of some nodes, packed, in units of 2**-16."""

    ids: list[Id]
    counts: Ints
    index: NDArray[np.int32]
    value: NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays, and eight for each id."""
        return 8 * len(self.ids) + self.counts.nbytes + self.index.nbytes + self.value.nbytes


class ShardGraph(GrowingGraph):
    """A growing graph that answers for its own nodes as the whole graph does.

    The mean of two steps needs the means of the neighbors. Those of ghosts come from the shards
    that own them, in integers that fit a row of features, so that nothing is rounded on the way.

    Args:
        num_features: the width F of the features.
        place: the number of this shard.
        shards: how many there are.
        made: see `GrowingGraph`.

    Attributes:
        moved: slots whose mean of one step may have changed since `border` was asked last.
    """

    def __init__(self, num_features: int, place: int, shards: int, **made: Any) -> None:
        super().__init__(num_features, **made)
        if self.hops > MOST_HOPS:
            raise ValueError(f"hops must be 1 or 2 on a cluster, got {self.hops}")
        self.place, self.shards = place, shards
        self.moved: set[int] = set()
        self._means = Arena([Column(np.int32), Column(np.int32)])

    def homes(self, slots: Ints) -> Ints:
        """The shards that own nodes."""
        found: Ints = (self._nodes.keys.array[slots] % np.uint64(self.shards)).astype(np.int64)
        return found

    def own(self) -> Ints:
        """The slots of the nodes that this shard owns, in the order of their keys."""
        slots = self.slots()
        mine: Ints = slots[self.homes(slots) == self.place]
        return mine

    def count_edges(self) -> int:
        """How many edges there are, each in the count of one shard.

        That of a directed edge is where its source is, that of another where the end with the
        smaller key is.
        """
        total, keys = 0, self._nodes.keys.array
        for start in range(0, self._links.num_nodes, EDGES):
            slots = np.arange(start, min(start + EDGES, self._links.num_nodes))
            slots = slots[self.homes(slots) == self.place]
            owner, other, _ = self._links.step(slots)
            total += len(owner) if self.directed else int((keys[slots[owner]] < keys[other]).sum())
        return total

    def sums(self, slots: Ints) -> sparse.csr_array:
        """As in `GrowingGraph`; of a ghost its mean, which `degree` divides by one."""
        own = self.homes(slots) == self.place
        if own.all():
            return super().sums(slots)
        indptr, index, value = self._rows_of_means(slots[~own])
        shape = len(indptr) - 1, self.num_features
        means = sparse.csr_array((value.astype(np.int64), index, indptr), shape=shape)
        both = sparse.vstack([super().sums(slots[own]), means], format="csr")
        order = np.concatenate([np.flatnonzero(own), np.flatnonzero(~own)])
        found: sparse.csr_array = both[np.argsort(order)]
        return found

    def degree(self, slots: Ints) -> Ints:
        """As in `GrowingGraph`; of a ghost one."""
        found, own = np.ones(len(slots), dtype=np.int64), self.homes(slots) == self.place
        found[own] = super().degree(slots[own])
        return found

    def _rows_of_means(self, slots: Ints) -> tuple[Ints, NDArray[np.int32], NDArray[np.int32]]:
        self._means.reserve(self._links.num_nodes)
        missing = self._means.start.array[slots] < 0
        if missing.any():
            names = self.ids(slots[missing][:1])
            raise RuntimeError(f"the mean of the ghost {names[0]!r} has not come yet")
        _, entry = self._means.expand(slots)
        indptr = np.zeros(len(slots) + 1, dtype=np.int64)
        np.cumsum(self._means.length.array[slots], out=indptr[1:])
        index, value = self._means.columns
        assert index is not None
        assert value is not None
        return indptr, index.array[entry], value.array[entry]

    def border(self, everything: bool) -> Ints:
        """Own slots with foreign neighbors: all, or those whose mean may have changed."""
        slots = self.own() if everything else np.array(sorted(self.moved), dtype=np.int64)
        self.moved = set()
        slots = slots[self.present(slots)]
        slots = slots[self.homes(slots) == self.place]
        cut: Ints = slots[np.unique(self._cut(slots)[0])]
        return cut

    def _cut(self, slots: Ints) -> tuple[Ints, Ints]:
        """The foreign shards that nodes have neighbors in: position in `slots` and shard."""
        found = []
        for arena in {id(a): a for a in (self._links.out, self._links.into)}.values():
            parent, entry = arena.expand(slots)
            column = arena.columns[TARGET]
            assert column is not None
            found.append(parent * self.shards + self.homes(column.array[entry].astype(np.int64)))
        parent, shard = np.divmod(np.unique(np.concatenate(found)), self.shards)
        return parent[shard != self.place], shard[shard != self.place]

    def means_for(self, slots: Ints) -> list[Means | None]:
        """The means of own nodes for the shards that hold ghosts of them."""
        if not len(slots):
            return [None] * self.shards
        rows = [
            divide(super(ShardGraph, self).sums(part), super(ShardGraph, self).degree(part))
            for part in np.split(slots, range(PIECE, len(slots), PIECE))
        ]
        means = sparse.vstack(rows, format="csr")
        means.eliminate_zeros()
        position, shard = self._cut(slots)
        found: list[Means | None] = []
        for other in range(self.shards):
            mine = position[shard == other]
            part = means[mine]
            values = part.indices.astype(np.int32), part.data.astype(np.int32)
            names = self.ids(slots[mine])
            found.append(Means(names, np.diff(part.indptr), *values) if names else None)
        return found

    def put_means(self, means: Means) -> None:
        """Take the means of ghosts; rows that change are announced before."""
        kept = np.array([node in self for node in means.ids], dtype=np.bool_)
        slots = self.slots([node for node, there in zip(means.ids, kept, strict=True) if there])
        entries = np.repeat(kept, means.counts)
        counts, index, value = means.counts[kept], means.index[entries], means.value[entries]
        table = self._means
        table.reserve(self._links.num_nodes)
        known = table.start.array[slots] >= 0
        changed = np.flatnonzero(known)[~self._same(slots[known], known, counts, index, value)]
        if len(changed) and self.before is not None:
            near = self._links.dependents(slots[changed].tolist(), self.hops - 1)
            self.before(np.array(sorted(near), dtype=np.int64))
        bounds = np.r_[0, np.cumsum(counts)].tolist()
        for at in changed.tolist():
            row = slice(bounds[at], bounds[at + 1])
            table.write(int(slots[at]), index[row], value[row])
        new = np.repeat(~known, counts)
        table.append(slots[~known], counts[~known], index[new], value[new])

    def _same(
        self,
        slots: Ints,
        known: Bools,
        counts: Ints,
        index: NDArray[np.int32],
        value: NDArray[np.int32],
    ) -> Bools:
        """Whether the means of slots are those that have come."""
        given = np.repeat(known, counts)
        indptr, own_index, own_value = self._rows_of_means(slots)
        same: Bools = np.diff(indptr) == counts[known]
        mine, theirs = np.repeat(same, np.diff(indptr)), np.repeat(same, counts[known])
        differs = (own_index[mine] != index[given][theirs]) | (
            own_value[mine] != value[given][theirs]
        )
        owner = np.repeat(np.flatnonzero(same), counts[known][same])
        same[owner[differs]] = False
        return same

    def delete_node(self, node: Id) -> None:
        """Delete a node with its edges, its label, and its mean if it is a ghost."""
        slot = self._nodes.find(node)
        super().delete_node(node)
        if slot < len(self._means.start.array) and self._means.start.cells[slot] >= 0:
            self._means.clear(slot)

    def _announce(self, slots: Iterable[int], hops: int) -> None:
        slots = list(slots)
        if hops:
            self.moved |= self._links.dependents(slots, hops - 1)
        super()._announce(slots, hops)

    def _announce_edge(self, one: int, other: int) -> None:
        self.moved |= {one, other}
        super()._announce_edge(one, other)

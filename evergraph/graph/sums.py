"""Exact sums over the neighbors in a growing graph, in integers."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from evergraph.graph.hops import Ints
from evergraph.graph.links import Links
from evergraph.graph.nodes import INDEX, VALUE, Nodes

HUB = 64  # from how many neighbors on a sum is kept up to date, at least
DENSE = 2**18  # up to how many numbers the sums are made in a dense matrix


class NeighborSums:
    """`Σ w x` over the neighbors of a node and itself, and `Σ w`, as 64-bit integers.

    A node with many neighbors is a hub: once asked for, its sum is kept, and every change of an
    edge or of a neighbor's row is added to it. What is kept follows from the graph, so that it
    makes no difference to the results. With a cap nobody has many neighbors that count.

    Args:
        links: the edges.
        nodes: the nodes and their rows.
        num_features: the width F of the rows.
    """

    def __init__(self, links: Links, nodes: Nodes, num_features: int) -> None:
        self.links = links
        self.nodes = nodes
        self.features = nodes.features
        self.num_features = num_features
        self.threshold = max(HUB, num_features // 4)  # a kept sum is not larger than the rows
        self.dense = DENSE
        self.hubs: dict[int, Ints] = {}  # F sums and the sum of the weights

    def sums(self, slots: Ints) -> sparse.csr_array:
        """`(B, F)` int64, sorted indices, no stored zeros."""
        hubs, plain = self._split(slots)
        parent, neighbor, weight = self.links.counted(slots[plain])
        parent = np.concatenate([np.arange(len(slots)), plain[parent]])
        neighbor = np.concatenate([slots, neighbor])
        weight = np.concatenate([np.full(len(slots), self.links.unit), weight])
        few = len(slots) * self.num_features <= self.dense
        found = (self._scatter if few else self._multiply)(parent, neighbor, weight, len(slots))
        if len(hubs):
            found = found + self._hub_matrix(slots, hubs)
        return found

    def _scatter(self, parent: Ints, neighbor: Ints, weight: Ints, size: int) -> sparse.csr_array:
        """Add up in a dense matrix: faster for a few nodes, whose number an event changes."""
        indptr, index, value = self.nodes.rows(neighbor)
        times = np.diff(indptr)
        total = np.zeros((size, self.num_features), dtype=np.int64)
        place = np.repeat(parent * self.num_features, times) + index
        np.add.at(total.reshape(-1), place, np.repeat(weight, times) * value)
        return _compress(total, np.arange(size), size)

    def _multiply(self, parent: Ints, neighbor: Ints, weight: Ints, size: int) -> sparse.csr_array:
        """A product of sparse matrices: faster for many nodes, which share neighbors."""
        distinct, column = np.unique(neighbor, return_inverse=True)
        take = sparse.csr_array((weight, (parent, column)), shape=(size, len(distinct)))
        found: sparse.csr_array = take @ self._matrix(distinct)
        found.sort_indices()
        found.eliminate_zeros()
        return found

    def degree(self, slots: Ints) -> Ints:
        """`(B,)` int64: the weights of all that counts, itself with weight 1 included."""
        hubs, plain = self._split(slots)
        parent, _, weight = self.links.counted(slots[plain])
        total = np.full(len(slots), self.links.unit)
        np.add.at(total, plain[parent], weight)
        for at in hubs:
            total[at] += self.hubs[int(slots[at])][-1]
        return total

    def change_edge(self, owner: int, neighbor: int, change: int) -> None:
        """Add a change of weight to the owner's sum, if it is kept."""
        hub = self.hubs.get(owner)
        if hub is None:
            return
        hub[self.features.row(neighbor, INDEX)] += change * self.features.row(
            neighbor, VALUE
        ).astype(np.int64)
        hub[-1] += change
        if 2 * self.links.out.length.cells[owner] < self.threshold:
            del self.hubs[owner]

    def change_row(self, slot: int, sign: int) -> None:
        """Add (or with sign -1 take away) a node's row in the sums that are kept and contain it."""
        if not self.hubs:
            return
        index = self.features.row(slot, INDEX)
        value = self.features.row(slot, VALUE).astype(np.int64) * sign
        for owner in self.hubs.keys() & set(self.links.neighbors(slot)[1]):
            at = self.links.find(self.links.out, owner, slot)[0]
            self.hubs[owner][index] += self.links.weight_at(owner, at) * value

    def _split(self, slots: Ints) -> tuple[Ints, Ints]:
        """The positions of hubs, whose sums are kept from now on, and of all others."""
        if self.links.limit is not None:
            return np.empty(0, dtype=np.int64), np.arange(len(slots))
        many = self.links.out.length.array[slots] > self.threshold
        for slot in slots[many].tolist():
            if slot not in self.hubs:
                self.hubs[slot] = self._collect(slot)
        return np.flatnonzero(many), np.flatnonzero(~many)

    def _collect(self, slot: int) -> Ints:
        _, neighbor, weight = self.links.counted(np.array([slot]))
        total = np.zeros(self.num_features + 1, dtype=np.int64)
        total[:-1] = weight @ self._matrix(neighbor)
        total[-1] = weight.sum()
        return total

    def _matrix(self, slots: Ints) -> sparse.csr_array:
        """The rows of slots as a matrix of int64."""
        indptr, index, value = self.nodes.rows(slots)
        shape = (len(slots), self.num_features)
        return sparse.csr_array((value.astype(np.int64), index, indptr), shape=shape)

    def _hub_matrix(self, slots: Ints, hubs: Ints) -> sparse.csr_array:
        kept = np.stack([self.hubs[int(slot)][:-1] for slot in slots[hubs]])
        return _compress(kept, hubs, len(slots))

    @property
    def nbytes(self) -> int:
        """The memory of the kept sums."""
        return sum(hub.nbytes for hub in self.hubs.values())


def _compress(dense: Ints, rows: Ints, size: int) -> sparse.csr_array:
    """A dense matrix as the `rows` (ascending) of a sparse one with `size` rows."""
    width = dense.shape[1]
    place = np.flatnonzero(dense)
    row, column = np.divmod(place, width)
    indptr = np.zeros(size + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows[row], minlength=size), out=indptr[1:])
    return sparse.csr_array((dense.reshape(-1)[place], column, indptr), shape=(size, width))

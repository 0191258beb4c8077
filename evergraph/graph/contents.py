"""What a growing graph holds at a moment, and all that can be asked of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.checks import check_positive
from evergraph.graph.frozen import freeze
from evergraph.graph.graph import Graph
from evergraph.graph.hops import Bools, Ints, Neighborhood, walk
from evergraph.graph.ids import Id
from evergraph.graph.links import Links
from evergraph.graph.nodes import Int32s, Nodes
from evergraph.graph.sums import NeighborSums


class Contents:
    """The half of `GrowingGraph` that changes nothing; see there for the arguments."""

    def __init__(
        self,
        num_features: int,
        *,
        directed: bool = False,
        components: int | None = None,
        hops: int = 2,
        cap: int | None = None,
    ) -> None:
        check_positive(num_features=num_features, hops=hops)
        check_positive(components=1 if components is None else components)
        check_positive(cap=1 if cap is None else cap)
        self.num_features = num_features
        self.directed = directed
        self.hops = hops
        self.cap = cap
        limit = None if cap is None else cap - 1
        self._nodes = Nodes()
        self._links = Links(self._nodes.keys, directed, components, limit)
        self._sums = NeighborSums(self._links, self._nodes, num_features)

    def __len__(self) -> int:
        """The number of nodes."""
        return len(self._nodes.slot_of)

    def __contains__(self, node: object) -> bool:
        return type(node) in (str, int) and node in self._nodes.slot_of

    @property
    def num_edges(self) -> int:
        """The number of edges."""
        return self._links.count

    @property
    def classes(self) -> dict[str, int]:
        """How many nodes have each label, by name."""
        return dict(sorted(self._nodes.classes.items()))

    def newest(self, count: int) -> list[Id]:
        """The ids of the nodes that came last, the last one first."""
        return list(islice(reversed(self._nodes.slot_of), count))

    @property
    def nbytes(self) -> int:
        """The memory of all arrays, ids and tables."""
        return self._nodes.nbytes + self._links.nbytes + self._sums.nbytes

    def slots(self, ids: Sequence[Id] | None = None) -> Ints:
        """The slots of nodes, or of all nodes in the order of their keys."""
        return self._nodes.sorted() if ids is None else self._nodes.find_all(ids)

    def present(self, slots: Ints) -> Bools:
        """Whether there is a node in each slot."""
        return self._nodes.present(slots)

    def ids(self, slots: Ints) -> list[Id]:
        """The ids of the nodes in slots."""
        self._nodes.check(slots)
        return [self._nodes.id_of[slot] for slot in slots.tolist()]

    def labels(self, slots: Ints) -> list[str | None]:
        """The labels of nodes, None where there is none."""
        self._nodes.check(slots)
        return [self._nodes.label[slot] for slot in slots.tolist()]

    def keys(self, slots: Ints) -> NDArray[np.uint64]:
        """The keys of nodes, see `ids.key`."""
        self._nodes.check(slots)
        return self._nodes.keys.array[slots]

    def times(self, slots: Ints) -> NDArray[np.float64]:
        """When nodes came, NaN where that is unknown."""
        self._nodes.check(slots)
        return self._nodes.time.array[slots]

    def rows(self, slots: Ints) -> tuple[Ints, Int32s, Int32s]:
        """The features of nodes, packed: `indptr`, `index`, `value` in units of 2**-16."""
        self._nodes.check(slots)
        return self._nodes.rows(slots)

    def sums(self, slots: Ints) -> sparse.csr_array:
        """`(B, F)` int64, exact: the rows of a node and its neighbors, times their weights.

        Weights are in units of 2**-10, a node itself counts with weight 1, and of a vector all
        components count. Divided by `degree` this is the mean m1.
        """
        self._nodes.check(slots)
        return self._sums.sums(slots)

    def degree(self, slots: Ints) -> Ints:
        """`(B,)` int64: the sum of the weights in `sums`."""
        self._nodes.check(slots)
        return self._sums.degree(slots)

    def counted(self, slots: Ints) -> tuple[Ints, Ints, Ints]:
        """The neighbors that `sums` counts beside the node itself, in the order of their keys.

        Returns:
            The position in `slots`, the neighbor's slot and its weight in units of 2**-10.
        """
        self._nodes.check(slots)
        return self._links.counted(slots)

    def neighborhood(
        self,
        slots: Ints,
        hops: int = 1,
        *,
        cap: int | None = None,
        self_loops: bool = True,
        causal: bool = False,
    ) -> Neighborhood:
        """All neighbors of a batch of nodes up to K hops, packed, as `Graph.neighborhood` has them.

        Nodes are slots, in the order of their keys.

        Args:
            slots: `(B,)`, repeats allowed.
            hops: K, at least 1.
            cap: at most so many neighbors per node and hop, those with the smallest keys; the self
                loop is always kept and is one of them.
            self_loops: whether a node is its own neighbor at hop 1, with weight 1.
            causal: whether a node sees (and walks through) only nodes and edges that came no
                later than itself. What has no time was always there, and a node without a time
                sees everything.
        """
        check_positive(hops=hops)
        check_positive(cap=1 if cap is None else cap)
        self._nodes.check(slots)
        weighted = self._links.weighted or self._links.components is not None
        weight = self._links.weights if weighted else None
        visible = self._visibility(slots) if causal else None
        keys = self._nodes.keys.array
        return walk(self._links, weight, slots, hops, cap, self_loops, visible, keys=keys)

    def _visibility(self, slots: Ints) -> Callable[[Ints, Ints, Ints], Bools]:
        limit = self._nodes.time.array[slots]

        def visible(owner: Ints, node: Ints, edge: Ints) -> Bools:
            now = limit[owner]
            later: Bools = (self._nodes.time.array[node] > now) | (self._links.times(edge) > now)
            return ~later

        return visible

    def freeze(self) -> tuple[Graph, list[Id]]:
        """The frozen `Graph` of this moment, and the ids of its nodes, in the order of their keys.

        Times are None unless all nodes (or all edges) have one, weights if all are 1.
        """
        graph = freeze(self._nodes, self._links, self.num_features)
        return graph, self.ids(self.slots())

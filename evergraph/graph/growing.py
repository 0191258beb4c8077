"""A graph that grows: nodes, edges and labels come, change and go at any time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from evergraph.checks import shorten
from evergraph.graph.bulk import put_links
from evergraph.graph.contents import Contents
from evergraph.graph.frozen import fixed_rows
from evergraph.graph.graph import Graph
from evergraph.graph.hops import Ints
from evergraph.graph.ids import (
    Id,
    check_id,
    check_ids,
    check_length,
    check_number,
    check_text,
    check_times,
)
from evergraph.graph.links import ONE, fixed_weight, fixed_weights
from evergraph.graph.nodes import INDEX, VALUE, Int32s, check_row, check_rows


class GrowingGraph(Contents):
    """Nodes with sparse fixed-point features, edges and labels; everything may change.

    All that can be read follows from the nodes, edges and labels as they are now, never from the
    order in which they came. A node has an id, which the user gives, and a slot, a number that
    stays while the node is there and is used again after it. What is None in `put_node` and
    `put_edge` stays as it was (a new edge has weight 1). Self loops are ignored, as in `Graph`.

    An event that is refused with an error changes nothing.

    Args:
        num_features: the width F of the features.
        directed: whether an edge counts from source to target only.
        components: the number of components of edge weights; None for plain numbers.
        hops: how many steps the rows reach of which `before` speaks.
        cap: how many neighbors count in `sums`, those with the smallest keys, the node itself
            being one of them; None for all.

    Attributes:
        before: called before an event with the slots (ascending, int64) whose rows it may change:
            their features, sums, sums of these, and so on, up to `hops`, or their labels. A node
            that will be added is among them, and one that will be deleted.

    Example:
        >>> graph = GrowingGraph(num_features=3)
        >>> graph.put_node("ann", [0, 2], [65536, 32768], label="human")
        >>> graph.put_node(7, [1], [65536])
        >>> graph.put_edge("ann", 7, weight=0.5)
        >>> slots = graph.slots(["ann"])
        >>> (graph.sums(slots).toarray() / graph.degree(slots)[:, None] / 65536).round(3).tolist()
        [[0.667, 0.333, 0.333]]
        >>> graph.delete_node(7)
        >>> graph.ids(graph.neighborhood(slots).nodes.numpy())
        ['ann']
    """

    before: Callable[[Ints], None] | None = None
    _told = False  # whether all that will change was announced

    def put_node(
        self,
        node: Id,
        index: ArrayLike,
        value: ArrayLike,
        *,
        label: str | None = None,
        time: float | None = None,
    ) -> None:
        """Add a node, or replace the features (and label and time, if given) of one.

        Args:
            node: the id, a string or an integer; 7 and "7" are two nodes.
            index: the features that are not zero, ascending.
            value: their values in units of 2^-16, from -2^24 to 2^24.
            label: the name of its class.
            time: when it came.
        """
        node = check_id(node)
        index, value = check_row(index, value, self.num_features)
        label = None if label is None else check_text("a label", label)
        time = None if time is None else check_number("a time", time)
        nodes = self._nodes
        slot = nodes.slot_of.get(node)
        if slot is None:
            self._announce_new((nodes.next_slot(),))
            slot = nodes.add(node)
            self._links.reserve(slot + 1)
            nodes.features.write(slot, index, value)
        elif not self._same_row(slot, index, value):
            self._announce((slot,), self.hops)
            self._sums.change_row(slot, -1)
            nodes.features.write(slot, index, value)
            self._sums.change_row(slot, 1)
        elif label is not None and label != nodes.label[slot]:
            self._announce((slot,), 0)
        if label is not None:
            nodes.set_label(slot, label)
        if time is not None:
            nodes.time.cells[slot] = time

    def _same_row(self, slot: int, index: Int32s, value: Int32s) -> bool:
        row = self._nodes.features.row
        return np.array_equal(row(slot, INDEX), index) and np.array_equal(row(slot, VALUE), value)

    def put_nodes(
        self,
        ids: Sequence[Id],
        indptr: ArrayLike,
        index: ArrayLike,
        value: ArrayLike,
        *,
        labels: Sequence[str | None] | None = None,
        times: ArrayLike | None = None,
    ) -> None:
        """Put many nodes; node i has the entries `indptr[i]:indptr[i + 1]`.

        A label None or a time NaN stays as it was.
        """
        counts, index, value = check_rows(indptr, index, value, len(ids), self.num_features)
        ids, keys = check_ids(ids)
        labels = [None] * len(ids) if labels is None else labels
        named = Counter(labels)
        del named[None]
        for name in named:
            check_text("a label", name)
        when = check_times(times, len(ids))
        check_length("labels", labels, len(ids))
        places = self._nodes.next_slots(ids)
        if places is None:
            bounds = np.r_[0, np.cumsum(counts)].tolist()
            for at, node in enumerate(ids):
                row = slice(bounds[at], bounds[at + 1])
                time = None if np.isnan(when[at]) else when[at]
                self.put_node(node, index[row], value[row], label=labels[at], time=time)
            return
        self._announce_new(places.values())
        slots = self._nodes.add_all(places, keys, labels, cast("Counter[str]", named))
        self._links.reserve(len(self._nodes.id_of))
        self._nodes.features.append(slots, counts, index, value)
        self._nodes.time.array[slots] = when

    def put_label(self, node: Id, label: str | None) -> None:
        """Label a node with the name of its class, or take its label away."""
        slot = self._nodes.find(node)
        label = None if label is None else check_text("a label", label)
        if label != self._nodes.label[slot]:
            self._announce((slot,), 0)
            self._nodes.set_label(slot, label)

    def put_edge(
        self,
        source: Id,
        target: Id,
        weight: float | Sequence[float] | None = None,
        time: float | None = None,
    ) -> None:
        """Add an edge between two nodes, or replace the weight and time (if given) of one."""
        one, other = self._nodes.find(source), self._nodes.find(target)
        fixed = None if weight is None else fixed_weight(weight, self._links.components)
        time = None if time is None else check_number("a time", time)
        if one != other:
            self._put_edge(one, other, fixed, time)

    def _put_edge(self, one: int, other: int, fixed: Any, time: float | None) -> None:
        links = self._links
        at, found = links.find(links.out, one, other)
        if not found:
            self._announce_edge(one, other)
            links.insert(one, other, at, fixed, time)
            self._change_edge(one, other, links.weight_at(one, at))
        else:
            old = links.weight_at(one, at)
            if fixed is not None and not links.has_weight(one, at, fixed):
                self._announce_edge(one, other)
            links.update(one, other, fixed, time)
            self._change_edge(one, other, links.weight_at(one, at) - old)

    def put_edges(
        self,
        sources: Sequence[Id],
        targets: Sequence[Id],
        weights: ArrayLike | None = None,
        times: ArrayLike | None = None,
    ) -> None:
        """Put many edges in their order; a time NaN stays as it was."""
        check_length("targets", targets, len(sources))
        source, target = self._nodes.find_ends(sources, targets)
        fixed: Any = None
        if weights is not None:
            fixed = fixed_weights(weights, len(source), self._links.components)
        when = None if times is None else check_times(times, len(source))
        proper = source != target
        source, target = source[proper], target[proper]
        fixed, when = (v if v is None else v[proper] for v in (fixed, when))
        if 64 * len(source) > self._links.count:  # sorting all is faster than inserting each
            if self.before is not None:
                self._announce(np.unique(np.r_[source, target]).tolist(), self.hops - 1)
            put_links(self._links, source, target, fixed, when)
            self._sums.hubs.clear()
            return
        for at, (one, other) in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
            weight = None if fixed is None else fixed[at]
            time = None if when is None or np.isnan(when[at]) else float(when[at])
            self._put_edge(one, other, weight, time)

    def delete_edge(self, source: Id, target: Id) -> None:
        """Delete an edge; an error if it is not there."""
        links = self._links
        one, other = self._nodes.find(source), self._nodes.find(target)
        if not links.find(links.out, one, other)[1]:
            raise ValueError(f"the graph has no edge from {shorten(source)} to {shorten(target)}")
        self._announce_edge(one, other)
        self._remove_edge(one, other)

    def delete_node(self, node: Id) -> None:
        """Delete a node with its edges and its label; an error if it is not there."""
        slot = self._nodes.find(node)
        self._announce((slot,), self.hops)
        targets, sources = self._links.neighbors(slot)
        for other in targets:
            self._remove_edge(slot, other)
        for other in sources if self.directed else ():
            self._remove_edge(other, slot)
        self._links.clear(slot)
        self._sums.hubs.pop(slot, None)
        self._nodes.remove(slot)

    def _remove_edge(self, one: int, other: int) -> None:
        at = self._links.find(self._links.out, one, other)[0]
        change = -self._links.weight_at(one, at)
        self._links.remove(one, other)
        self._change_edge(one, other, change)

    def _change_edge(self, one: int, other: int, change: int) -> None:
        if self._sums.hubs and change:
            self._sums.change_edge(one, other, change)
            if not self.directed:
                self._sums.change_edge(other, one, change)

    @contextmanager
    def told(self) -> Iterator[None]:
        """A block of events that `expect` was told of: only new nodes announce themselves in it.

        A row that changes reaches, in the graph as it is before, a node whose features or counted
        edges change; so what was near the nodes of all events then is all that changes.
        """
        self._told = True
        try:
            yield
        finally:
            self._told = False

    def expect(self, nodes: Iterable[Id], hops: int) -> None:
        """Tell `before` at once of all within some steps of these nodes, where they are there.

        It saves time before many events: they announce themselves too, and nothing is left to do.
        New edges change rows up to `hops - 1` steps from their ends, other features and deletions
        up to `hops`, labels only the node itself.
        """
        if self.before is not None:
            found = map(self._nodes.slot_of.get, nodes)
            self._announce({slot for slot in found if slot is not None}, hops)

    def _announce_edge(self, one: int, other: int) -> None:
        """Tell `before` of an edge: a row changes if its owner reaches an end that counts it."""
        if self.before is None or self._told:
            return
        links, ends = self._links, {one} if self.directed else {one, other}
        limit = links.limit
        if limit is None:
            touched = ends
        else:
            pairs = ((one, other), (other, one))
            touched = {a for a, b in pairs if a in ends and links.find(links.out, a, b)[0] < limit}
        self.before(_ascending(links.dependents(touched, self.hops - 1) | ends))

    def _announce(self, slots: Iterable[int], hops: int) -> None:
        if self.before is not None and not self._told:
            self.before(_ascending(self._links.dependents(slots, hops)))

    def _announce_new(self, slots: Iterable[int]) -> None:
        if self.before is not None:
            self.before(_ascending(set(slots)))

    def surroundings(self, ids: Sequence[Id]) -> GrowingGraph:
        """A graph of nodes and all within `hops` of them, in which they have the same rows.

        More can be put into it without a change to this one.
        """
        made = {"directed": self.directed, "hops": self.hops, "cap": self.cap}
        near = type(self)(self.num_features, **made)  # type: ignore[arg-type]
        reached = np.unique(self.slots(ids))
        edges: list[tuple[Ints, Ints, Ints]] = []
        for _ in range(self.hops):
            owner, node, weight = self.counted(reached)
            edges.append((reached[owner], node, weight))
            reached = np.union1d(reached, node)
        near.put_nodes(self.ids(reached), *self.rows(reached))
        source, target, weight = (np.concatenate(part) for part in zip(*edges, strict=True))
        near.put_edges(self.ids(source), self.ids(target), weight / ONE)
        return near

    @classmethod
    def from_graph(
        cls, graph: Graph, ids: Sequence[Id] | None = None, *, hops: int = 2, cap: int | None = None
    ) -> GrowingGraph:
        """A growing graph with the content of a frozen one; ids are node numbers by default.

        Features are rounded to 2^-16, weights to 2^-10; of repeated edges the first holds.
        """
        weight, time = graph.weight, graph.edge_time
        components = weight.shape[1] if weight is not None and weight.dim() == 2 else None
        made = cls(
            graph.num_features, directed=graph.directed, components=components, hops=hops, cap=cap
        )
        ids = range(graph.num_nodes) if ids is None else ids
        check_length("ids", ids, graph.num_nodes)
        names = dict(enumerate(graph.class_names))
        labels: list[str | None] | None = None
        if graph.labels is not None:
            found = graph.labels.tolist()
            labels = [None if label < 0 else names.get(label, str(label)) for label in found]
        times = None if graph.time is None else graph.time.cpu().numpy()
        made.put_nodes(ids, *fixed_rows(graph), labels=labels, times=times)
        source, target = ([ids[at] for at in row] for row in graph.edges.flip(1).tolist())
        flat = (
            None if part is None else part.detach().cpu().flip(0).numpy() for part in (weight, time)
        )
        made.put_edges(source, target, *flat)
        return made


def _ascending(slots: set[int]) -> Ints:
    return np.array(sorted(slots), dtype=np.int64)

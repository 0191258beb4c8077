"""Events that only add, stored and applied kind by kind: the same as one by one, and faster.

In a run, all nodes come first, then all edges, then all labels. Nothing tells it from the order in
which they came: an event that would is in no run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

import numpy as np

from evergraph.datasets.events import Event
from evergraph.graph.growing import GrowingGraph
from evergraph.graph.ids import Id, check_text
from evergraph.graph.links import MAX_WEIGHT
from evergraph.graph.records import Edge, node_values
from evergraph.graph.store import Store

SHORTEST = 16  # events that are worth a run
GONE = ("delete_node", "forget_node")


class Run:
    """Events that only add, checked, so that the store takes all of them.

    Attributes:
        events: in the order in which they came.
        released: the edges that waited for its nodes, once it is stored.
    """

    def __init__(self, store: Store, may_wait: bool) -> None:
        self.events: list[Event] = []
        self._store = store
        self._may_wait = may_wait
        self._rows: dict[str, list[tuple[Any, ...]]] = {
            "node": [], "edge": [], "waiting": [], "label": []
        }  # fmt: skip
        self._late: set[Id] = set()  # nodes that must not come any more
        self._new: list[int] = []  # which of the nodes were not there
        self.released: list[Edge] = []

    def add(self, event: Event, there: Callable[[Any], bool]) -> bool:
        """Take an event if it can be in this run; `there` tells whether a node is stored."""
        try:
            kind, row = self._row(event, there)
        except ValueError:  # the store says it better
            return False
        if row is None:
            return False
        self._rows[kind].append((len(self.events), *row))
        self.events.append(event)
        return True

    def _row(
        self, event: Event, there: Callable[[Any], bool]
    ) -> tuple[str, tuple[Any, ...] | None]:
        """Where it is stored and what; None if the event cannot be here."""
        kind = event.type
        if kind == "node":
            if event.id in self._late:
                return kind, None
            row = node_values(cast("Id", event.id), event.cells, event.label, event.time)
            if not there(event.id):
                self._new.append(len(self._rows["node"]))
            return kind, row
        if kind == "edge":
            source, target, weight = event.source, event.target, event.weight
            plain = weight is None or (type(weight) is float and 0 <= weight <= MAX_WEIGHT)
            both = there(source) and there(target)
            if not plain or source == target or not (both or self._may_wait):
                return kind, None
            ends = cast("tuple[Id, Id]", (source, target))
            values = self._store.edge_values(*ends, weight, event.time)
            if not both:
                self._late.update(end for end in ends if not there(end))
            return kind if both else "waiting", values
        if kind != "label" or event.label is None or not there(event.id):
            return kind, None
        self._late.add(cast("Id", event.id))
        return kind, (event.id, check_text("a label", event.label))

    def store(self) -> None:
        """Write all of it."""
        self.released = self._store.put_run(self._rows, self._new)

    def apply(self, graph: GrowingGraph, rows: Mapping[int, Any]) -> None:
        """Change the graph as the store was changed; `rows` are the features of node events."""
        nodes = [event for event in self.events if event.type == "node"]
        edges: list[tuple[Any, ...]] = [*self.released]
        edges += [row[1:] for row in self._rows["edge"]]
        if nodes:
            index, value = zip(*(rows[id(event)] for event in nodes), strict=True)
            graph.put_nodes(
                [cast("Id", event.id) for event in nodes],
                np.cumsum([0, *map(len, index)]), np.concatenate(index), np.concatenate(value),
                labels=[event.label for event in nodes],
                times=[np.nan if event.time is None else event.time for event in nodes],
            )  # fmt: skip
        if any(weight is not None or time is not None for _, _, weight, time in edges):
            for edge in edges:
                graph.put_edge(*edge)
        elif edges:
            graph.put_edges(*list(zip(*edges, strict=True))[:2])
        for _, node, label in self._rows["label"]:
            graph.put_label(node, label)


def runs_of(
    graph: GrowingGraph, store: Store, events: Iterable[Event], may_wait: bool
) -> Iterator[Run | Event]:
    """Runs and single events in order; each is stored, or refused, before the next is asked for."""
    new, gone = set[Id](), set[Id]()
    run = Run(store, may_wait)

    def there(node: Id) -> bool:
        return node in new or (node in graph and node not in gone)

    def ended() -> Iterator[Run | Event]:
        if len(run.events) < SHORTEST:
            yield from run.events
        else:
            yield run

    for event in events:
        if not run.add(event, there):
            if run.events:
                yield from ended()
                run = Run(store, may_wait)
            if not run.add(event, there):
                yield event
                run = Run(store, may_wait)
                if event.type in GONE and event.id is not None:
                    new.discard(event.id)
                    gone.add(event.id)
                continue
        if event.type == "node" and event.id is not None:
            new.add(event.id)
    yield from ended()

"""Which events are good, found out before any shard takes one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from evergraph.cluster.holding import Written
from evergraph.datasets.events import Event
from evergraph.datasets.report import Report
from evergraph.datasets.schema import Schema
from evergraph.graph.database import FileError
from evergraph.graph.ids import Id
from evergraph.graph.store import Store
from evergraph.model.events import REMOVED, places, refusal, store_event
from evergraph.model.folder import GRAPH, Settings

Pair = tuple[Id, Id]


def named(events: Sequence[Event]) -> list[Id]:
    """The nodes whose being there may decide about some events."""
    ends = ((e.id,) if e.id is not None else (e.source, e.target) for e in events)
    return sorted({node for pair in ends for node in pair if node is not None}, key=repr)


def deleted(events: Sequence[Event]) -> list[Pair]:
    """The edges whose being there decides about some events."""
    return sorted({places(e)[1:] for e in events if e.type in REMOVED["edge"]}, key=repr)


def good(
    events: Sequence[Event],
    rows: dict[int, Any],
    nodes: Sequence[Id],
    edges: Sequence[Pair],
    settings: Settings,
    report: Report,
    file: str,
) -> tuple[int, list[Event]]:
    """The events that a store would take that holds these nodes and edges.

    Edges that are dropped since an end is unknown are counted, and left out.

    Args:
        events: to be tried one after the other.
        rows: the encoded features of nodes by the identity of the event; without, it is refused.
        nodes: of those that are named, which are there.
        edges: of those that are to be deleted, which are there.
        settings: of the model.
        report: collects complaints.
        file: where events come from.
    """
    taken = []
    with (
        TemporaryDirectory() as folder,
        Store(Path(folder) / GRAPH, directed=settings.directed) as store,
        store.transaction(),
    ):
        tried = Written(store, Schema(()), settings)
        store.put_nodes((node, {}, None, None) for node in nodes)
        store.put_edges((*pair, None, None) for pair in edges)
        for event in events:
            if event.type == "node" and id(event) not in rows:
                continue
            try:
                taken.append((event, store_event(tried, event)))
            except FileError:
                raise
            except ValueError as error:
                report.note(refusal(event, error, file))
    waits = settings.unknown_ends == "wait"
    return len(taken), [e for e, found in taken if waits or e.type != "edge" or found]

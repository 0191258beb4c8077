"""The road of events into a model folder: store, graph and learner, in this order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

from evergraph.checks import shorten
from evergraph.datasets.columns import from_rows
from evergraph.datasets.events import Event, event_of
from evergraph.datasets.report import Problem, Report
from evergraph.datasets.schema import Schema
from evergraph.graph.database import FileError
from evergraph.graph.growing import GrowingGraph
from evergraph.graph.ids import Id
from evergraph.graph.links import fixed_weight
from evergraph.graph.records import Edge
from evergraph.graph.store import Store
from evergraph.learn.network import Todo
from evergraph.model.folder import Settings
from evergraph.model.record import Scored, forget_classes, record, score
from evergraph.model.runs import Run, runs_of
from evergraph.model.state import State
from evergraph.model.tables import ENDS_RULE, ENDS_WAY_OUT, as_id, plain

KEPT = ("node", "edge", "label")  # the types of events that take nothing away
REMOVED = {kind: (f"delete_{kind}", f"forget_{kind}") for kind in KEPT}
FORGETS = frozenset(f"forget_{kind}" for kind in KEPT)
FIELDS = ("type", "id", "source", "target", "label", "weight", "time")


class Stored(Protocol):
    """What events are checked against and written to."""

    @property
    def store(self) -> Store:
        """The graph on disk."""

    @property
    def schema(self) -> Schema:
        """Kinds of columns, with the statistics of the base nodes of the store."""

    @property
    def settings(self) -> Settings:
        """Which ends of edges may be unknown."""


@dataclass(frozen=True)
class Learned:
    """The events that were taken, and what was predicted for labels before they were learned."""

    taken: list[Event]
    scored: list[Scored]


def learn(
    state: State,
    events: Iterable[Event | Mapping[str, Any]],
    report: Report | None = None,
    *,
    file: str = "events",
    also: Callable[[list[Event]], None] | None = None,
    remembered: Mapping[Id, str] | None = None,
) -> Learned:
    """Take events in one transaction; see `Model.learn`.

    Args:
        state: of the model.
        events: to be taken.
        report: collects complaints.
        file: where events come from.
        also: called in the transaction with the events that are taken; what it writes to the
            store is written with them.
        remembered: classes that were predicted for nodes earlier; others are predicted now.
    """
    own, store = Report() if report is None else report, state.store
    state.settle()
    wanted = list(events_of(events, own, file))
    rows = encode(state.schema, [e for e in wanted if e.type == "node"], own, file)
    scored = score(state, wanted, remembered or {})
    taken: list[tuple[Event | Run, Any]] = []
    before = store.position
    read = (e for e in wanted if e.type != "node" or id(e) in rows)
    try:
        with store.transaction():
            for event in runs_of(state.graph, store, read, state.settings.unknown_ends == "wait"):
                if isinstance(event, Run):
                    event.store()
                    taken.append((event, event.released))
                    continue
                try:
                    taken.append((event, store_event(state, event)))
                except FileError:
                    raise
                except ValueError as error:
                    own.note(refusal(event, error, file))
            if report is None:
                own.check()
            each = (e.events if isinstance(e, Run) else (e,) for e, _ in taken)
            found = Learned([event for events in each for event in events], scored)
            todo = _finish(state, found, also)
        if state.network is not None and todo is not None:
            state.network.todo = todo
        expect(state.graph, found.taken, [made for e, made in taken if isinstance(made, list)])
        with state.lock, state.graph.told():
            stale = [apply_event(state.graph, event, rows, made) for event, made in taken]
            state.position = store.position
        if any(stale):
            state.load()
    except BaseException:
        state.read_schema()
        if store.position != before:  # stored, but not all of it is in memory
            state.reload()
        raise
    state.settle()
    if forgotten(found.taken):
        _purge(state)
    return found


def _finish(
    state: State, found: Learned, also: Callable[[list[Event]], None] | None
) -> Todo | None:
    """Write all that belongs to events besides the graph; returns what a network has to do."""
    store, gone = state.store, forgotten(found.taken)
    record(store, found.scored)
    todo = _note(state, found.taken)
    if also is not None:
        also(found.taken)
    if store.history.first is not None:
        store.history.mark(store.position, time.time())
        for event in gone:
            node, source, target = places(event)
            if event.type == "forget_edge":
                store.history.forget_edge(source, target)
            else:
                getattr(store.history, event.type)(node)
    if gone:
        forget_classes(store)
        store.set("forgetting", "1")
    return todo


def forget(
    state: State, nodes: Sequence[Id], edges: Sequence[tuple[Id, Id]], labels: Sequence[Id]
) -> None:
    """Take nodes, edges or labels out; see `Model.forget`."""
    learn(state, forget_events(nodes, edges, labels), file="forget")


def forget_events(
    nodes: Sequence[Id], edges: Sequence[tuple[Id, Id]], labels: Sequence[Id]
) -> list[Event]:
    """The events that take nodes, edges or labels out."""
    for given in (nodes, labels, *edges):
        if isinstance(given, str):
            raise ValueError(f"ids must be a list, an edge a pair of them, got {given!r}")
    events = [Event("forget_label", 0, id=as_id(node)) for node in labels]
    events += [Event("forget_edge", 0, source=as_id(a), target=as_id(b)) for a, b in edges]
    return events + [Event("forget_node", 0, id=as_id(node)) for node in nodes]


def forgotten(events: Iterable[Event]) -> list[Event]:
    """The events that delete without leaving a trace in the files."""
    return [event for event in events if event.type in FORGETS]


def _purge(state: State) -> None:
    try:
        state.purge()
    except (ValueError, OSError) as error:
        raise FileError(
            f"{error}; what was named is forgotten, but bytes of it are left in the files: the "
            "next learn or forget removes them first"
        ) from error


def events_of(events: Iterable[Any], report: Report, file: str) -> Iterator[Event]:
    """Events as they are; dictionaries mean what they would mean as lines of a file."""
    if isinstance(events, Mapping | str):
        raise ValueError(f"events must be a list of them, got {shorten(events)}; write [event]")
    for line, event in enumerate(events, 1):
        if isinstance(event, Event):
            yield event
            continue

        def complain(value: object, *rest: str, line: int = line) -> None:
            rule, way_out, column = rest
            report.add(file, line, column, value, rule, way_out)

        if not isinstance(event, Mapping):
            report.add(file, line, None, event, "an event must be a dictionary", "write its keys")
            continue
        row = {str(name): plain(value) for name, value in event.items()}
        if (found := event_of(row, line, complain)) is not None:
            yield found


def refusal(event: Event, error: ValueError, file: str) -> Problem:
    """What the store says against an event."""
    rule, _, value = str(error).partition(", got ")
    named = {name: v for name in FIELDS if (v := getattr(event, name)) is not None}
    return Problem(file, event.line or None, None, value or shorten(named), rule, "correct it")


def encode(schema: Schema, nodes: Sequence[Event], report: Report, file: str) -> dict[int, Any]:
    """The features of the events that bring nodes, by the identity of the event."""
    if not nodes:
        return {}
    found, lines = Report(), [event.line for event in nodes]
    cells = [event.cells for event in nodes]
    chunk = from_rows(cells, found, file=file, unit="line", lines=lines)
    indptr, index, value = schema.encode(chunk, found)
    if found.count:
        if len(nodes) == 1:
            for problem in found.problems:  # those about a whole column have no line
                report.note(replace(problem, line=lines[0], unit="line"))
            return {}
        half = len(nodes) // 2
        first = encode(schema, nodes[:half], report, file)
        return first | encode(schema, nodes[half:], report, file)
    bounds = zip(indptr[:-1].tolist(), indptr[1:].tolist(), strict=True)
    parts = ((index[a:b], value[a:b]) for a, b in bounds)
    return {id(event): part for event, part in zip(nodes, parts, strict=True)}


def store_event(state: Stored, event: Event) -> Any:
    """Write an event to the store; returns what else it brings about."""
    store = state.store
    node, source, target = places(event)
    if event.type == "node":
        return store.put_node(node, event.cells, event.label, event.time)
    if event.type == "edge":
        if isinstance(event.weight, list):
            raise ValueError(f"the weight of an edge must be one number, got {event.weight}")
        if event.weight is not None and fixed_weight(event.weight, None) < 0:
            raise ValueError(f"a weight must be 0 or more, got {event.weight}")
        if not _ends_may_come(state, source, target):
            return False
        return store.put_edge(source, target, event.weight, event.time)
    if event.type in REMOVED["edge"]:
        return store.delete_edge(source, target)
    if event.type in REMOVED["node"]:
        base = [cells for _, cells in store.bases(node)]
        store.delete_node(node)
        if base:
            state.schema.forget(base)
            store.set("schema", state.schema.to_json())
        return bool(base)
    return store.put_label(node, event.label)


def _note(state: State, events: Sequence[Event]) -> Todo | None:
    """Store what events give the network to do, with them."""
    if state.network is None:
        return None
    labels: dict[Id, str | None] = {}
    for event in events:
        if event.id is not None and (event.label is not None or event.type not in KEPT):
            labels.pop(event.id, None)
            labels[event.id] = event.label
    removed = any(event.type in (*REMOVED["node"], *REMOVED["edge"]) for event in events)
    todo = state.network.todo.after(state.graph, labels, removed)
    state.store.set("network", todo.to_json())
    return todo


def _ends_may_come(state: Stored, *ends: Id) -> bool:
    """Whether an edge is to be stored: both ends are there, or it may wait for them."""
    rule = state.settings.unknown_ends
    missing = [] if rule == "wait" else [end for end in ends if state.store.node(end) is None]
    if missing and rule == "error":
        raise ValueError(f"{ENDS_RULE}, got {shorten(missing[0])}; {ENDS_WAY_OUT}")
    return not missing


def expect(
    graph: GrowingGraph, events: Sequence[Event], released: Sequence[Sequence[Edge]]
) -> None:
    """Let the learner take out at once what events and released edges are about to change."""
    reach = dict.fromkeys(("edge", *REMOVED["edge"]), graph.hops - 1)
    reach |= dict.fromkeys(("node", *REMOVED["node"]), graph.hops)
    near: dict[int, set[Id]] = {}
    for kind in dict.fromkeys(event.type for event in events):
        found = near.setdefault(reach.get(kind, 0), set())
        alike = [event for event in events if event.type == kind]
        if alike[0].id is None:
            found.update(cast("Id", end) for e in alike for end in (e.source, e.target))
        else:
            found.update(cast("Id", e.id) for e in alike)
    near.setdefault(graph.hops - 1, set()).update(
        n for part in released for e in part for n in e[:2]
    )
    for hops, nodes in near.items():
        graph.expect(nodes, hops)


def apply_event(
    graph: GrowingGraph, event: Event | Run, rows: Mapping[int, Any], found: Any
) -> bool:
    """Change the graph as the store was changed; whether all has to be made anew."""
    if isinstance(event, Run):
        event.apply(graph, rows)
        return False
    node, source, target = places(event)
    if event.type == "node":
        graph.put_node(node, *rows[id(event)], label=event.label, time=event.time)
        for edge in found:
            graph.put_edge(*edge)
    elif event.type == "edge":
        if found and source != target:  # no node has an edge to itself
            graph.put_edge(source, target, event.weight, event.time)
    elif event.type in REMOVED["edge"]:
        if found:
            graph.delete_edge(source, target)
    elif event.type in REMOVED["node"]:
        graph.delete_node(node)
        return bool(found)  # statistics and landmarks may have changed
    else:
        graph.put_label(node, event.label)
    return False


def places(event: Event) -> tuple[Id, Id, Id]:
    """The node, source and target of an event; those that its type needs are there."""
    return cast("tuple[Id, Id, Id]", (event.id, event.source, event.target))

"""Models that went apart after one training: what each has learned since, as events."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from evergraph.checks import shorten
from evergraph.datasets.events import Event
from evergraph.graph.ids import Id
from evergraph.graph.records import Edge, Node
from evergraph.graph.store import Store
from evergraph.model.schemas import nodes_of
from evergraph.model.state import State

Pair = tuple[Id, Id]


@dataclass(frozen=True)
class Content:
    """All that a store holds, and what it held when statistics and landmarks were taken.

    Attributes:
        nodes: by their ids.
        bases: cells of base nodes, as they were then.
        labels: of base nodes, as they were then; those that were deleted are not among them.
        edges: base edges that are as they were, waiting or not.
        own: the other edges.
    """

    nodes: dict[Id, Node]
    bases: dict[Id, dict[str, Any]]
    labels: dict[Id, str]
    edges: dict[Pair, Edge]
    own: dict[Pair, Edge]

    @classmethod
    def of(cls, store: Store) -> Content:
        """The content of a store."""
        return cls(
            {node.id: node for part in nodes_of(store) for node in part},
            dict(store.bases()),
            dict(store.base_labels()),
            {(edge.source, edge.target): edge for edge in store.base_edges()},
            {(edge.source, edge.target): edge for edge in store.base_edges(False)},
        )

    def new(self) -> list[Node]:
        """The nodes that are not in the base."""
        return [node for node in self.nodes.values() if node.id not in self.bases]

    def changed_cells(self, node: Id) -> bool:
        """Whether the cells of a base node have been replaced."""
        return self.nodes[node].cells != self.bases[node]

    def changed_label(self, node: Id, base: str | None) -> bool:
        """Whether a base node has another label than it had."""
        return self.nodes[node].label != base


def brought(mine: State, other: State) -> list[Event]:
    """What another model has learned, as events for this one; an error if it is not disjoint."""
    _check_related(mine, other)
    here, there = Content.of(mine.store), Content.of(other.store)
    events, labels = [], []
    for node in there.new():
        _check_disjoint(node.id in here.nodes, "node", node.id)
        events.append(_node(node, node.label))
    for name in there.bases:
        node, same = there.nodes[name], here.nodes[name]
        changed = there.changed_cells(name)
        both = changed and here.changed_cells(name)
        moved = node.time != same.time and not (changed or here.changed_cells(name))
        _check_disjoint(both or moved, "node", name)
        if changed:
            events.append(_node(node))
        base = here.labels.get(name, there.labels.get(name))
        if there.changed_label(name, base):
            _check_disjoint(here.changed_label(name, base), "label of node", name)
            labels.append(_label(name, node.label))
    events += [_edge("delete_edge", pair) for pair in here.edges.keys() - there.edges.keys()]
    for pair, edge in there.own.items():
        _check_disjoint(pair in here.own, "edge", pair)
        events.append(_edge("edge", pair, edge))
    return events + labels


def taken_back(mine: State, other: State) -> list[Event]:
    """The events that undo `brought`; an error if what was brought is not there as it was."""
    _check_related(mine, other)
    if other.store.base_counts() != json.loads(str(other.store.get("base"))):
        raise ValueError(
            f"{other.path} has changed or deleted edges, or deleted labels, that both began with: "
            "what they were is not known; merge into a copy, and keep the original"
        )
    here, there = Content.of(mine.store), Content.of(other.store)
    events = []
    for node in there.new():
        _check_there(_plain(here.nodes.get(node.id)) == _plain(node), "node", node.id, other)
    for name in there.bases:
        node, same, base = there.nodes[name], here.nodes[name], there.labels.get(name)
        if there.changed_cells(name):
            _check_there(same.cells == node.cells, "node", name, other)
            events.append(Event("node", 0, id=name, cells=there.bases[name]))
        if there.changed_label(name, base):
            _check_there(same.label == node.label, "label of node", name, other)
            events.append(_label(name, base))
    for pair, edge in there.own.items():
        _check_there(here.own.get(pair) == edge, "edge", pair, other)
        events.append(_edge("delete_edge", pair))
    gone = {node.id for node in there.new()}
    events += [Event("delete_node", 0, id=name) for name in gone]
    kept = {**here.edges, **here.own}.items()  # edges of mine to what goes wait for it again
    return events + [
        _edge("edge", pair, edge)
        for pair, edge in kept
        if pair not in there.own and gone.intersection(pair)
    ]


def _check_related(mine: State, other: State) -> None:
    """Refuse models that do not come from one training, and networks, whose order matters."""
    if mine.network is not None or other.network is not None:
        raise ValueError(
            "models to merge must have learner='exact', got a network, which depends on the order "
            "of events; let one of them learn the events of the other instead"
        )
    for what, one, two in (
        ("settings", mine.settings, other.settings),
        ("kinds or statistics of columns", mine.schema.to_json(), other.schema.to_json()),
        ("nodes at train or refit", dict(mine.store.bases()), dict(other.store.bases())),
    ):
        if one != two:
            raise ValueError(
                f"models to merge must be copies of one that was trained, got other {what} in "
                f"{other.path}; let one of them learn the events of the other instead"
            )


def _check_disjoint(both: bool, what: str, name: object) -> None:
    if both:
        raise ValueError(
            f"models to merge must have learned different things, got {what} {shorten(name)} in "
            "both; delete it in one of them"
        )


def _check_there(there: bool, what: str, name: object, other: State) -> None:
    if not there:
        raise ValueError(
            f"only what was merged can be taken back, got {what} {shorten(name)} of {other.path}, "
            "which is not there, or not as it was"
        )


def _plain(node: Node | None) -> tuple[Any, ...] | None:
    return None if node is None else (node.cells, node.label, node.time)


def _node(node: Node, label: str | None = None) -> Event:
    return Event("node", 0, id=node.id, cells=node.cells, label=label, time=node.time)


def _label(node: Id, label: str | None) -> Event:
    return Event("delete_label" if label is None else "label", 0, id=node, label=label)


def _edge(kind: str, pair: Pair, edge: Edge | None = None) -> Event:
    weight, time = (None, None) if edge is None else (edge.weight, edge.time)
    given = list(weight) if isinstance(weight, tuple) else weight
    return Event(kind, 0, source=pair[0], target=pair[1], weight=given, time=time)

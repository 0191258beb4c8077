"""The road of questions: nodes of the graph or new ones, to their rows, to classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from evergraph.datasets.graph_tables import Nodes
from evergraph.datasets.schema import Schema
from evergraph.graph.growing import GrowingGraph
from evergraph.graph.ids import Id
from evergraph.learn.explain import explain
from evergraph.learn.solution import Solution
from evergraph.model.tables import Tables, as_id, plain
from evergraph.model.view import View
from evergraph.prediction import Explanation, Prediction

ROWS = 4096  # nodes that are predicted at a time

Floats = NDArray[np.float64]
T = TypeVar("T")
Part = tuple[list[Id], Floats, Floats, Floats]
"""Ids, rows, the probabilities of the closed form, and those that are told."""


def predict(
    view: View, nodes: Any, edges: Any, *, coverage: float = 0.9, id: str = "id"
) -> list[Prediction]:
    """What nodes are; see `Model.predict`."""
    return [one for one, _ in answers(view, nodes, edges, coverage=coverage, id=id)]


def answers(
    view: View, nodes: Any, edges: Any, *, coverage: float = 0.9, id: str = "id"
) -> Iterator[tuple[Prediction, Floats]]:
    """What nodes are, and the probabilities of all classes, `(K,)`."""
    parts = parts_of(view, nodes, edges, id)
    return told(view.solution, parts, coverage, view.network is not None)


def told(
    solution: Solution, parts: Iterable[Part], coverage: float, network: bool = False
) -> Iterator[tuple[Prediction, Floats]]:
    """What nodes are of which some parts are given, and the probabilities of all classes."""
    if not 0 < coverage <= 1:
        raise ValueError(f"coverage must be above 0 and at most 1, got {coverage}")
    names = np.array(solution.classes, dtype=object)
    for ids, rows, exact, likely in parts:
        novelty, inside = solution.novelty(rows), solution.label_sets(exact, coverage)
        best = likely.argmax(1).tolist()
        if network:
            inside[np.arange(len(best)), best] = True
        for node, k, p, new, row in zip(ids, best, likely, novelty, inside, strict=True):
            yield Prediction(node, str(names[k]), float(p[k]), float(new), tuple(names[row])), p


def explanation(view: View, node: Any, label: str | None) -> Explanation:
    """What spoke for a class; see `Model.explain`."""
    (name,) = view.graph.ids(view.graph.slots([as_id(node)]))
    if label is None:
        (found,) = predict(view, [name], None)
        label = found.label
    (slot,) = view.graph.slots([name]).tolist()
    parts = explain(view.solution, view.embedding, view.graph, slot, label)
    named = zip(view.graph.ids(parts.slots), parts.nodes.tolist(), strict=True)
    places = np.flatnonzero(parts.features)
    columns = view.schema.places()
    spoke = [(columns[place], float(parts.features[place])) for place in places.tolist()]
    return Explanation(name, label, parts.score, parts.bias, _by_size(named), _by_size(spoke))


def _by_size(parts: Iterable[tuple[T, float]]) -> tuple[tuple[T, float], ...]:
    return tuple(sorted(parts, key=lambda part: -abs(part[1])))


def parts_of(view: View, nodes: Any, edges: Any, id: str = "id") -> Iterator[Part]:
    """Some nodes at a time, since rows are wide."""
    return pieces(view, *_find(view, nodes, edges, id))


def pieces(
    view: View, ids: list[Id], slots: NDArray[np.int64], graph: GrowingGraph
) -> Iterator[Part]:
    """Some nodes of a graph at a time."""
    for start in range(0, len(ids), ROWS):
        part = slice(start, start + ROWS)
        yield ids[part], *view.probabilities(slots[part], graph)


def _find(
    view: View, nodes: Any, edges: Any, id: str
) -> tuple[list[Id], NDArray[np.int64], GrowingGraph]:
    """Ids and slots of nodes; new ones are seen in a graph of their surroundings."""
    graph = view.graph
    wanted = asked(nodes, edges, id, lambda: graph.ids(graph.slots()))
    if not isinstance(wanted, Tables):
        missing = [] if wanted is None else [node for node in wanted if node not in graph]
        if missing:
            raise ValueError(absent(missing[0]))
        slots = graph.slots(wanted)
        return graph.ids(slots), slots, graph
    ids, named = named_in(wanted)
    near = graph.surroundings([node for node in named if node in graph])
    put_asked(view.schema, wanted, near)
    return ids, near.slots(ids), near


def absent(node: Id) -> str:
    """What is said of a node that is asked for by its id alone, and is not in the graph."""
    return f"the graph has no node {node!r}: learn it first, or tell its features in a table"


def asked(
    nodes: Any, edges: Any, id: str, everything: Callable[[], list[Id]]
) -> Tables | list[Id] | None:
    """What is asked for: nodes of the graph by their ids, None for all of them, or new ones."""
    nodes = plain(nodes)
    kinds = {isinstance(n, Mapping) for n in nodes} if isinstance(nodes, list | tuple) else set()
    if len(kinds) > 1:
        raise ValueError("nodes must be all ids or all dictionaries, got both: ask for one kind")
    if True in kinds:
        nodes = [{"id": f"row {at}", **node} for at, node in enumerate(nodes)]
    elif nodes is None or isinstance(nodes, list | tuple):
        found = None if nodes is None else [as_id(node) for node in nodes]
        if edges is None:
            return found
        nodes = {"id": everything() if found is None else found}
    return Tables.read(nodes, edges, id=id)


def named_in(tables: Tables) -> tuple[list[Id], list[Id]]:
    """The ids of the nodes that are asked for, and of all that are named, ends of edges too."""
    ids = [node for part in tables.nodes for node in part.ids]
    ends = [end for part in tables.edges for link in part.records() for end in link[:2]]
    return ids, ids + ends


def put_asked(schema: Schema, tables: Tables, near: GrowingGraph) -> None:
    """Put new nodes and edges into a graph of their surroundings."""
    for part in tables.nodes:
        _put(schema, part, near)
    for links in tables.edges:
        for link in links.records():
            near.put_edge(*link)


def _put(schema: Schema, part: Nodes, near: GrowingGraph) -> None:
    """Put nodes with the features that were given; known ones without any stay as they are."""
    if not part.features.table.num_columns:
        return
    known = np.flatnonzero([node in near for node in part.ids])
    cells = part.features.take(known).table.to_pylist()
    bare = [all(cell in (None, "") for cell in row.values()) for row in cells]
    rows = np.setdiff1d(np.arange(len(part.ids)), known[bare])
    encoded = schema.encode(part.features.take(rows))
    near.put_nodes([part.ids[row] for row in rows.tolist()], *encoded)

"""The road of questions: nodes of the graph or new ones, to their rows, to classes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from evergraph.datasets.graph_tables import Nodes
from evergraph.graph.growing import GrowingGraph
from evergraph.graph.ids import Id
from evergraph.learn.explain import explain
from evergraph.model.tables import Tables, as_id, plain
from evergraph.model.view import View
from evergraph.prediction import Explanation, Prediction

ROWS = 4096  # nodes that are predicted at a time

Floats = NDArray[np.float64]
T = TypeVar("T")


def predict(
    view: View, nodes: Any, edges: Any, *, coverage: float = 0.9, id: str = "id"
) -> list[Prediction]:
    """What nodes are; see `Model.predict`."""
    return [one for one, _ in answers(view, nodes, edges, coverage=coverage, id=id)]


def answers(
    view: View, nodes: Any, edges: Any, *, coverage: float = 0.9, id: str = "id"
) -> Iterator[tuple[Prediction, Floats]]:
    """What nodes are, and the probabilities of all classes, `(K,)`."""
    if not 0 < coverage <= 1:
        raise ValueError(f"coverage must be above 0 and at most 1, got {coverage}")
    solution = view.solution
    names = np.array(solution.classes, dtype=object)
    for ids, rows, exact, likely in parts_of(view, nodes, edges, id):
        novelty, inside = solution.novelty(rows), solution.label_sets(exact, coverage)
        best = likely.argmax(1).tolist()
        if view.network is not None:
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


def parts_of(
    view: View, nodes: Any, edges: Any, id: str = "id"
) -> Iterator[tuple[list[Id], Floats, Floats, Floats]]:
    """Some nodes at a time, since rows are wide.

    Returns:
        Their ids, rows, the probabilities of the closed form, and those that are told.
    """
    ids, slots, graph = _find(view, nodes, edges, id)
    for start in range(0, len(ids), ROWS):
        part = slice(start, start + ROWS)
        yield ids[part], *view.probabilities(slots[part], graph)


def _find(
    view: View, nodes: Any, edges: Any, id: str
) -> tuple[list[Id], NDArray[np.int64], GrowingGraph]:
    """Ids and slots of nodes; new ones are seen in a graph of their surroundings."""
    graph, nodes = view.graph, plain(nodes)
    kinds = {isinstance(n, Mapping) for n in nodes} if isinstance(nodes, list | tuple) else set()
    if len(kinds) > 1:
        raise ValueError("nodes must be all ids or all dictionaries, got both: ask for one kind")
    if True in kinds:
        nodes = [{"id": f"row {at}", **node} for at, node in enumerate(nodes)]
    elif nodes is None or isinstance(nodes, list | tuple):
        nodes = None if nodes is None else [as_id(node) for node in nodes]
        if edges is None:
            slots = graph.slots(nodes)
            return graph.ids(slots), slots, graph
        nodes = {"id": graph.ids(graph.slots()) if nodes is None else nodes}
    tables = Tables.read(nodes, edges, id=id)
    links = [link for part in tables.edges for link in part.records()]
    ids = [node for part in tables.nodes for node in part.ids]
    named = (*ids, *(end for link in links for end in link[:2]))
    near = graph.surroundings([node for node in named if node in graph])
    for part in tables.nodes:
        _put(view, part, near)
    for link in links:
        near.put_edge(*link)
    return ids, near.slots(ids), near


def _put(view: View, part: Nodes, near: GrowingGraph) -> None:
    """Put nodes with the features that were given; known ones without any stay as they are."""
    if not part.features.table.num_columns:
        return
    known = np.flatnonzero([node in view.graph for node in part.ids])
    cells = part.features.take(known).table.to_pylist()
    bare = [all(cell in (None, "") for cell in row.values()) for row in cells]
    rows = np.setdiff1d(np.arange(len(part.ids)), known[bare])
    encoded = view.schema.encode(part.features.take(rows))
    near.put_nodes([part.ids[row] for row in rows.tolist()], *encoded)

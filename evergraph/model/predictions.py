"""The road of questions: nodes of the graph or new ones, to their rows, to classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.datasets.graph_tables import Nodes
from evergraph.graph.growing import GrowingGraph
from evergraph.graph.ids import Id
from evergraph.learn.solution import Solution
from evergraph.model.state import State
from evergraph.model.tables import Tables, as_id, plain

ROWS = 4096  # nodes that are predicted at a time

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Prediction:
    """What a node is: `id`, `label`, its `probability`, and how well it fits no class.

    Attributes:
        label_set: classes that hold the right one with the probability that was asked for; those
            of the closed form, and `label`.
    """

    id: Id
    label: str
    probability: float
    novelty: float
    label_set: tuple[str, ...]


def predict(
    state: State, nodes: Any, edges: Any, *, coverage: float = 0.9, id: str = "id"
) -> list[Prediction]:
    """What nodes are; see `Model.predict`."""
    if not 0 < coverage <= 1:
        raise ValueError(f"coverage must be above 0 and at most 1, got {coverage}")
    solution = solution_of(state)
    names = np.array(solution.classes, dtype=object)
    made: list[Prediction] = []
    for ids, rows, exact, likely in parts_of(state, nodes, edges, id):
        novelty, inside = solution.novelty(rows), solution.label_sets(exact, coverage)
        best = likely.argmax(1).tolist()
        if state.network is not None:
            inside[np.arange(len(best)), best] = True
        made += [
            Prediction(node, str(names[k]), float(p[k]), float(new), tuple(names[row]))
            for node, k, p, new, row in zip(ids, best, likely, novelty, inside, strict=True)
        ]
    return made


def solution_of(state: State) -> Solution:
    """The classifier of now; an error if there is nothing that it could know."""
    if not state.graph.classes:
        raise ValueError("nothing has been learned yet: the graph has no labels; learn some")
    return state.learner.solution()


def parts_of(
    state: State, nodes: Any, edges: Any, id: str = "id"
) -> Iterator[tuple[list[Id], Floats, Floats, Floats]]:
    """Some nodes at a time, since rows are wide.

    Returns:
        Their ids, rows, the probabilities of the closed form, and those that are told.
    """
    ids, slots, graph = _find(state, nodes, edges, id)
    solution = solution_of(state)
    for start in range(0, len(ids), ROWS):
        part = slice(start, start + ROWS)
        rows = state.learner.rows(slots[part], graph)
        exact = solution.probabilities(rows)
        yield ids[part], rows, exact, state.mixed(exact, solution.classes, slots[part], graph)


def _find(
    state: State, nodes: Any, edges: Any, id: str
) -> tuple[list[Id], NDArray[np.int64], GrowingGraph]:
    """Ids and slots of nodes; new ones are seen in a graph of their surroundings."""
    graph, nodes = state.graph, plain(nodes)
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
        _put(state, part, near)
    for link in links:
        near.put_edge(*link)
    return ids, near.slots(ids), near


def _put(state: State, part: Nodes, near: GrowingGraph) -> None:
    """Put nodes with the features that were given; known ones without any stay as they are."""
    if not part.features.table.num_columns:
        return
    known = np.flatnonzero([node in state.graph for node in part.ids])
    cells = part.features.take(known).table.to_pylist()
    bare = [all(cell in (None, "") for cell in row.values()) for row in cells]
    rows = np.setdiff1d(np.arange(len(part.ids)), known[bare])
    encoded = state.schema.encode(part.features.take(rows))
    near.put_nodes([part.ids[row] for row in rows.tolist()], *encoded)

"""Rows of nodes that shards own, and the surroundings of nodes that are asked about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from evergraph.cluster.asking import Shards
from evergraph.cluster.state import Joint
from evergraph.graph.growing import GrowingGraph
from evergraph.graph.ids import Id
from evergraph.graph.links import ONE
from evergraph.learn.solution import Solution
from evergraph.model import predictions
from evergraph.model.predictions import Part
from evergraph.model.tables import Tables
from evergraph.model.view import View


def parts_of(
    shards: Shards,
    joint: Joint,
    solution: Solution,
    nodes: Any,
    edges: Any,
    id: str,
) -> Iterator[Part]:
    """What is asked for, some nodes at a time, as one machine would cut it.

    Args:
        shards: which own the nodes.
        joint: what rows are made with.
        solution: that says probabilities.
        nodes: see `Model.predict`.
        edges: of new nodes.
        id: the column of ids.
    """
    wanted = predictions.asked(nodes, edges, id, shards.everything)
    if isinstance(wanted, Tables):
        ids, all_named = predictions.named_in(wanted)
        view = view_of(shards, joint, solution, all_named)
        near = view.graph
        predictions.put_asked(view.schema, wanted, near)
        yield from predictions.pieces(view, ids, near.slots(ids), near)
        return
    ids = shards.everything() if wanted is None else wanted
    missing = [] if wanted is None else sorted(set(ids) - set(shards.present(ids)), key=repr)
    if missing:
        raise ValueError(predictions.absent(missing[0]))
    for start in range(0, len(ids), predictions.ROWS):
        part = ids[start : start + predictions.ROWS]
        rows = np.empty((len(part), joint.embedding.size))
        for at, found in shards.owners("rows", part):
            rows[at] = found
        likely = solution.probabilities(rows)
        yield part, rows, likely, likely


def view_of(shards: Shards, joint: Joint, solution: Solution, ids: Sequence[Id]) -> View:
    """What answers questions about nodes, on a graph of their surroundings."""
    settings, width = joint.settings, max(joint.schema.width, 1)
    near = GrowingGraph(width, directed=settings.directed, hops=settings.hops, cap=settings.cap)
    reached = set(shards.present(ids))
    links = []
    for _ in range(settings.hops):
        found = [part for _, part in shards.owners("step", sorted(reached, key=repr))]
        links += found
        reached.update(node for _, targets, _ in found for node in targets)
    for _, (names, *rows) in shards.owners("features", sorted(reached, key=repr)):
        near.put_nodes(names, *rows)
    for sources, targets, weight in links:
        near.put_edges(sources, targets, weight / ONE)
    return View(solution, joint.embedding, near, joint.schema)

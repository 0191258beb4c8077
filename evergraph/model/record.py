"""How well a model does: on late labels before they are learned, and on what is held back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from evergraph.datasets.events import Event
from evergraph.graph.ids import Id
from evergraph.graph.store import Store
from evergraph.model.predictions import predict
from evergraph.model.state import State

CURVE = 200  # points of the record that are kept

Point = tuple[int, int, int]
"""A position in the events, and how many of how many labels up to it were predicted right."""


def score(state: State, events: Sequence[Event]) -> tuple[int, int]:
    """How many nodes that are about to get their first label would be predicted right.

    The classifier is solved again when there are a tenth more labels than it knew.
    """
    graph = state.graph
    late: dict[Id, str] = {
        e.id: e.label for e in events if e.id is not None and e.label is not None and e.id in graph
    }
    slots = graph.slots(list(late)) if late else np.zeros(0, dtype=np.int64)
    fresh = np.array([label is None for label in graph.labels(slots)], dtype=np.bool_)
    labels = sum(graph.classes.values())
    if not fresh.any() or len(graph.classes) < 2:
        return 0, 0
    if state.scorer is None or labels > 1.1 * state.scorer[0]:
        state.scorer = labels, state.learner.solution()
    solution = state.scorer[1]
    exact = solution.probabilities(state.learner.rows(slots[fresh]))
    best = state.mixed(exact, solution.classes, slots[fresh], graph).argmax(1)
    named = [solution.classes[k] for k in best.tolist()]
    truth = [late[node] for node in graph.ids(slots[fresh])]
    return sum(a == b for a, b in zip(named, truth, strict=True)), len(truth)


def curve(store: Store) -> list[Point]:
    """The record so far."""
    return [(at, right, seen) for at, right, seen in json.loads(str(store.get("curve") or "[]"))]


def record(store: Store, right: int, seen: int) -> None:
    """Add to the record; old points are joined in pairs when there are many."""
    if not seen:
        return
    points = [*curve(store), (store.position, right, seen)]
    if len(points) > CURVE:
        pairs = zip(points[::2], points[1::2], strict=False)
        tail = points[len(points) // 2 * 2 :]
        points = [(b[0], a[1] + b[1], a[2] + b[2]) for a, b in pairs] + tail
    store.set("curve", json.dumps(points))


def held_back(state: State) -> dict[str, dict[str, Any]]:
    """Accuracy on the splits whose labels are held back, with the counts that it comes from.

    `nodes` are in the split, `tested` of them have a label that is held back, and `right` of these
    are predicted as it says. A node that was labelled later is not held back any more.
    """
    found: dict[str, dict[str, Any]] = {}
    wanted: dict[Id, tuple[str, str]] = {}
    for node, split, label in state.store.held_back():
        counts = found.setdefault(split, {"nodes": 0, "tested": 0, "right": 0, "accuracy": None})
        counts["nodes"] += 1
        if label is not None and state.graph.classes:
            wanted[node] = split, label
    for one in predict(state, list(wanted), None) if wanted else ():
        split, label = wanted[one.id]
        found[split]["tested"] += 1
        found[split]["right"] += one.label == label
    for counts in found.values():
        if counts["tested"]:
            counts["accuracy"] = counts["right"] / counts["tested"]
    return found

"""How well a model does: on late labels before they are learned, and on what is held back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from evergraph.datasets.events import Event
from evergraph.graph.ids import Id
from evergraph.graph.store import Store
from evergraph.model.predictions import predict
from evergraph.model.state import State
from evergraph.prediction import Prediction

CURVE = 200  # points of the record that are kept
PAIRS = 10_000  # pairs of classes that are counted

Point = tuple[int, int, int]
"""A position in the events, and how many of how many labels up to it were predicted right."""


class Scored(NamedTuple):
    """What was predicted for a node before its first label was learned, and that label."""

    id: Id
    predicted: str
    truth: str


def score(state: State, events: Sequence[Event], remembered: Mapping[Id, str]) -> list[Scored]:
    """What is predicted for the nodes that are about to get their first label.

    A prediction that is remembered counts; others are made now. The classifier is solved again
    when there are a tenth more labels than it knew.
    """
    graph = state.graph
    late: dict[Id, str] = {
        e.id: e.label for e in events if e.id is not None and e.label is not None and e.id in graph
    }
    slots = graph.slots(list(late)) if late else np.zeros(0, dtype=np.int64)
    fresh = np.array([label is None for label in graph.labels(slots)], dtype=np.bool_)
    labels = sum(graph.classes.values())
    if not fresh.any() or len(graph.classes) < 2:
        return []
    nodes = graph.ids(slots[fresh])
    found = {node: remembered[node] for node in nodes if node in remembered}
    now = [node for node in nodes if node not in found]
    if now:
        if state.scorer is None or labels > 1.1 * state.scorer[0]:
            state.scorer = labels, state.learner.solution()
        view = state.view(state.scorer[1])
        likely = view.probabilities(graph.slots(now), graph)[2]
        best = likely.argmax(1).tolist()
        found |= {node: view.solution.classes[k] for node, k in zip(now, best, strict=True)}
    return [Scored(node, found[node], late[node]) for node in nodes]


def curve(store: Store) -> list[Point]:
    """The record so far."""
    return [(at, right, seen) for at, right, seen in json.loads(str(store.get("curve") or "[]"))]


def confusion(store: Store) -> dict[str, dict[str, int]]:
    """How often each class was predicted as each, over the whole record: by truth, by prediction.

    Of more than 10,000 pairs of classes, the first are counted.
    """
    found: dict[str, dict[str, int]] = json.loads(str(store.get("confusion") or "{}"))
    return found


def record(store: Store, scored: Sequence[Scored]) -> None:
    """Add to the record; old points are joined in pairs when there are many."""
    if not scored:
        return
    right = sum(one.predicted == one.truth for one in scored)
    points = [*curve(store), (store.position, right, len(scored))]
    if len(points) > CURVE:
        pairs = zip(points[::2], points[1::2], strict=False)
        tail = points[len(points) // 2 * 2 :]
        points = [(b[0], a[1] + b[1], a[2] + b[2]) for a, b in pairs] + tail
    store.set("curve", json.dumps(points))
    counts = confusion(store)
    count_pairs(counts, scored)
    store.set("confusion", json.dumps(counts))


def count_pairs(counts: dict[str, dict[str, int]], scored: Sequence[Scored]) -> None:
    """Add predictions to a confusion matrix."""
    size = sum(map(len, counts.values()))
    for one in scored:
        row = counts.setdefault(one.truth, {})
        if one.predicted in row or size < PAIRS:
            size += one.predicted not in row
            row[one.predicted] = row.get(one.predicted, 0) + 1


def forget_classes(store: Store) -> None:
    """Leave classes that no node has any more out of the record."""
    left = store.labels()
    kept = {
        truth: {name: count for name, count in row.items() if name in left}
        for truth, row in confusion(store).items()
        if truth in left
    }
    store.set("confusion", json.dumps(kept))


def held_back(state: State) -> dict[str, dict[str, Any]]:
    """Accuracy on the splits whose labels are held back, see `accuracies`."""
    kept = state.store.held_back()
    return accuracies(kept, bool(state.graph.classes), lambda ids: predict(state.view(), ids, None))


def accuracies(
    kept: Iterable[tuple[Id, str, str | None]],
    learned: bool,
    predicted: Callable[[list[Id]], list[Prediction]],
) -> dict[str, dict[str, Any]]:
    """Accuracy by split, with the counts that it comes from.

    `nodes` are in the split, `tested` of them have a label that is held back, and `right` of these
    are predicted as it says. A node that was labelled later is not held back any more.

    Args:
        kept: id, split and label of what is held back.
        learned: whether there are classes to predict.
        predicted: what nodes are.
    """
    found: dict[str, dict[str, Any]] = {}
    wanted: dict[Id, tuple[str, str]] = {}
    for node, split, label in kept:
        counts = found.setdefault(split, {"nodes": 0, "tested": 0, "right": 0, "accuracy": None})
        counts["nodes"] += 1
        if label is not None and learned:
            wanted[node] = split, label
    for one in predicted(list(wanted)) if wanted else ():
        split, label = wanted[one.id]
        found[split]["tested"] += 1
        found[split]["right"] += one.label == label
    for counts in found.values():
        if counts["tested"]:
            counts["accuracy"] = counts["right"] / counts["tested"]
    return found

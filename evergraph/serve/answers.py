"""Answers to questions: from the classifier that is shown, while the writer learns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from evergraph.checks import shorten
from evergraph.datasets.fields import FieldError, id_of
from evergraph.datasets.report import TableError
from evergraph.graph.ids import Id
from evergraph.graph.links import ONE
from evergraph.model.predictions import answers, explanation
from evergraph.serve.limits import RefusedError
from evergraph.serve.service import Service

KEYS = ("ids", "nodes", "edges", "coverage", "remember")
NEIGHBORS = 100  # that a node is answered with
PARTS = 50  # of an explanation; the rest is summed


def node_id(value: object) -> Id:
    """An id as events have it."""
    try:
        return id_of(value)
    except FieldError as error:
        raise RefusedError(422, f"{error.rule}, got {shorten(value)}; {error.way_out}") from None


def predict(service: Service, question: Mapping[str, Any]) -> dict[str, Any]:
    """What nodes are; those with an id and without a label are remembered until it comes.

    A question with `remember: false` leaves no trace: it is not scored and not counted.
    """
    nodes, edges, coverage = _checked(service, question)
    shown = service.need_shown()
    view = shown.view
    try:
        with shown.state.lock:
            if edges is None and not (nodes and isinstance(nodes[0], dict)):
                _check_known(view.graph, nodes)
            found = list(answers(view, nodes, edges, coverage=coverage))
            position = shown.state.position
            new = [one.id for one, _ in found if one.id in view.graph]
            labels = view.graph.labels(view.graph.slots(new)) if new else []
    except TableError as error:
        raise RefusedError(422, str(error)) from None
    except ValueError as error:
        raise RefusedError(422, str(error)) from None
    done = {node for node, label in zip(new, labels, strict=True) if label is not None}
    if question.get("remember", True):
        named = _named(question)
        labels_to_come = {one.id: one.label for one, _ in found if one.id in named - done}
        service.asked.remember(labels_to_come, position)
        service.monitor.predicted((one.novelty for one, _ in found), position)
    classes = view.solution.classes
    return {
        "version": shown.version,
        "position": position,
        "predictions": [
            {
                "id": one.id,
                "class": one.label,
                "probability": one.probability,
                "probabilities": dict(zip(classes, likely.tolist(), strict=True)),
                "label_set": list(one.label_set),
                "novelty": one.novelty,
            }
            for one, likely in found
        ],
    }


def _named(question: Mapping[str, Any]) -> set[Id]:
    """The ids that the client has given; nodes without one are numbered, and not remembered."""
    given = question.get("ids") or [
        node["id"] for node in question.get("nodes") or () if node.get("id") is not None
    ]
    return {node_id(value) for value in given}


def _checked(service: Service, question: Mapping[str, Any]) -> tuple[list[Any], Any, float]:
    """Nodes, edges and coverage of a question of the right form."""
    unknown = sorted(question.keys() - set(KEYS))
    if unknown:
        raise RefusedError(422, f"a question has {', '.join(KEYS)} only, got {shorten(unknown)}")
    ids, nodes, edges = (question.get(name) for name in KEYS[:3])
    most = service.limits.nodes
    for name, part in (("ids", ids), ("nodes", nodes), ("edges", edges)):
        if part is not None and not (isinstance(part, list) and len(part) <= most):
            size = f"{len(part):,}" if isinstance(part, list) else shorten(part)
            raise RefusedError(422, f"{name} must be a list of at most {most:,}, got {size}")
    if (ids is None) == (nodes is None):
        raise RefusedError(422, "a question needs ids, or nodes with their features: give one")
    for name, part in (("nodes", nodes), ("edges", edges)):
        if not all(isinstance(one, dict) for one in part or ()):
            raise RefusedError(422, f"{name} must be objects, got {shorten(part)}")
    coverage = question.get("coverage", 0.9)
    if isinstance(coverage, bool) or not isinstance(coverage, int | float):
        raise RefusedError(422, f"coverage must be a number, got {shorten(coverage)}")
    remember = question.get("remember", True)
    if not isinstance(remember, bool):
        raise RefusedError(422, f"remember must be true or false, got {shorten(remember)}")
    given = [node_id(one) for one in ids] if ids is not None else nodes
    return given or [], edges or None, float(coverage)


def _check_known(graph: Any, nodes: list[Id]) -> None:
    missing = [node for node in nodes if node not in graph]
    if missing:
        raise RefusedError(404, f"there is no node {shorten(missing[0])}: send it to /events first")


def node(service: Service, wanted: Id) -> dict[str, Any]:
    """A node with its features, label and neighbors."""
    model = service.need_model()
    with service.reading:
        found = service.reader.node(wanted)
    if found is None:
        raise RefusedError(404, f"there is no node {shorten(wanted)}")
    state, neighbors = model.state, []
    degree = 0
    with state.lock:
        graph = state.graph
        if wanted in graph:
            _, slots, weights = graph.counted(graph.slots([wanted]))
            degree = len(slots)
            slots, weights = slots[:NEIGHBORS], weights[:NEIGHBORS]
            near = zip(graph.ids(slots), (weights / ONE).tolist(), graph.labels(slots), strict=True)
            neighbors = [
                {"id": name, "weight": weight, "label": label} for name, weight, label in near
            ]
    return {
        "id": found.id,
        "features": found.cells,
        "label": found.label,
        "time": found.time,
        "degree": degree,
        "neighbors": neighbors,
    }


def explain(service: Service, wanted: Id, label: str | None) -> dict[str, Any]:
    """Which neighbors and features spoke for a class; the parts and the bias sum to the score."""
    shown = service.need_shown()
    try:
        with shown.state.lock:
            _check_known(shown.view.graph, [wanted])
            found = explanation(shown.view, wanted, label)
            position = shown.state.position
    except ValueError as error:
        raise RefusedError(422, str(error)) from None
    near, features = found.neighbors, found.features
    return {
        "id": found.id,
        "class": found.label,
        "version": shown.version,
        "position": position,
        "score": found.score,
        "bias": found.bias,
        "neighbors": [{"id": name, "part": part} for name, part in near[:PARTS]],
        "other_neighbors": float(np.sum([part for _, part in near[PARTS:]])),
        "features": [{"feature": name, "part": part} for name, part in features[:PARTS]],
        "other_features": float(np.sum([part for _, part in features[PARTS:]])),
    }

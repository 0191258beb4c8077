"""Nodes and edges as rows of the tables of a store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from evergraph.checks import shorten
from evergraph.graph.database import StoreError
from evergraph.graph.ids import Id, check_id, check_number, check_text

_CELLS = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class Node(NamedTuple):
    """A node as it is stored; `label_position` is the event that brought the label."""

    id: Id
    cells: dict[str, Any]
    label: str | None
    label_position: int | None
    time: float | None


class Edge(NamedTuple):
    """An edge as it is stored; None stands for weight 1."""

    source: Id
    target: Id
    weight: float | tuple[float, ...] | None
    time: float | None


def rank(node: Id) -> tuple[bool, Id]:
    """The order that SQLite gives ids: integers before texts."""
    return isinstance(node, str), node


def node_values(
    node: Id, cells: Mapping[str, Any], label: str | None = None, time: float | None = None
) -> tuple[Id, str, str | None, float | None]:
    """Id, cells as JSON, label and time; an error names what cannot be stored."""
    try:
        text = _CELLS.encode(dict(cells))
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(
            f"the cells of node {shorten(node)} must be what JSON can hold, got {shorten(cells)}: "
            f"{error}"
        ) from None
    label = None if label is None else check_text("a label", label)
    return check_id(node), text, label, time_value(time)


def time_value(time: float | None) -> float | None:
    """A time as a finite number."""
    return None if time is None else check_number("a time", time)


def weight_value(weight: Any) -> float | str | None:
    """A number as it is, a vector as JSON."""
    if weight is None:
        return None
    if isinstance(weight, str | bytes) or not hasattr(weight, "__len__"):
        return check_number("a weight", weight)
    return json.dumps([check_number("a weight", part) for part in weight])


def node_of(row: tuple[Any, ...]) -> Node:
    """The node of a row of the table."""
    node, cells, label, position, time, *_ = row
    return Node(node, json.loads(cells), label, position, time)


def edge_of(row: tuple[Any, ...]) -> Edge:
    """The edge of a row of the table."""
    source, target, weight, time, *_ = row
    vector = tuple(json.loads(weight)) if isinstance(weight, str) else weight
    return Edge(source, target, vector, time)

"""A stream for a first look: a graph that grows through the interface, at a chosen rate."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from evergraph.datasets import load
from evergraph.datasets.objects import dataset_tables
from evergraph.graph.ids import key
from evergraph.serve.client import Client, RefusedEventsError

LATE = 30  # nodes that come before a label is told
TICK = 0.1  # seconds between requests

Event = dict[str, Any]


def story(root: Path | None = None) -> tuple[Event, list[list[Event]]]:
    """A schema, and what happens node by node: the node, its edges, the label of an earlier one.

    It is Cora if the data is there, and else a generated graph.
    """
    try:
        data = load("cora" if root is not None and (root / "cora").exists() else "generated", root)
    except (ValueError, OSError):
        data = load("generated")
    nodes, edges = (part.table.to_pylist() for part in dataset_tables(data))
    nodes.sort(key=lambda node: (float(node.get("time") or 0), key(node["id"])))
    rank = {node["id"]: at for at, node in enumerate(nodes)}
    near: dict[int, list[Event]] = {}
    for edge in edges:
        pair = edge["source"], edge["target"]
        later = max(rank[end] for end in pair)
        near.setdefault(later, []).append({"type": "edge", "source": pair[0], "target": pair[1]})
    schema = {"name": "x", "kind": "vector", "size": data.graph.num_features}
    chapters = []
    for at, node in enumerate([*nodes, *([None] * LATE)]):
        chapter: list[Event] = []
        if node is not None:
            chapter = [{"type": "node", "id": node["id"], "x": node["x"]}, *near.get(at, ())]
        told = nodes[at - LATE] if at >= LATE else None
        if told is not None and told["label"] is not None:
            chapter.append({"type": "label", "id": told["id"], "label": told["label"]})
        chapters.append(chapter)
    return {"type": "schema", "columns": [schema]}, chapters


def play(
    url: str,
    token: str | None,
    rate: float,
    stop: threading.Event,
    *,
    root: Path | None = None,
    cafile: Path | None = None,
) -> int:
    """Send the story at `rate` events per second until it ends; returns how many were sent."""
    schema, chapters = story(root)
    sent, start = 0, time.monotonic()
    with Client(url, token, cafile=None if cafile is None else str(cafile)) as client:
        for part in _due(chapters, rate, start, stop):
            events = [event for chapter in part for event in chapter]
            with suppress(RefusedEventsError):  # about what was forgotten on the page
                client.learn([schema, *events] if not sent else events)
            sent += len(events)
            new = [event["id"] for event in events if event["type"] == "node"]
            if new and client.inspect()["version"] is not None:
                client.predict(new)
    return sent


def _due(
    chapters: list[list[Event]], rate: float, start: float, stop: threading.Event
) -> Iterator[list[list[Event]]]:
    """The chapters whose time has come."""
    at, sent = 0, 0
    while at < len(chapters) and not stop.is_set():
        part: list[list[Event]] = []
        while at < len(chapters) and sent <= (time.monotonic() - start) * rate and len(part) < 100:
            part.append(chapters[at])
            sent += len(chapters[at])
            at += 1
        if part:
            yield part
        stop.wait(TICK)

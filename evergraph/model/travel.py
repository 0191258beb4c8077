"""A model as it was: from the history in its store, for questions about the past."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

from evergraph.datasets.report import Report
from evergraph.datasets.schema import Schema
from evergraph.graph.store import Store
from evergraph.model.folder import GRAPH, check_new, new_folder, read_settings
from evergraph.model.record import curve
from evergraph.model.schemas import CHUNK, mark
from evergraph.model.state import State


def travel(path: Path, out: Path, offset: int | None, time: float | None) -> State:
    """Make a model folder of what another was; see `Model.at`."""
    settings = read_settings(path)
    if settings.learner != "exact":
        raise ValueError(
            "only the closed form follows from the graph of a moment, but this model has a "
            f"network (learner is {settings.learner!r}): its weights of then are not kept"
        )
    check_new(out)
    with new_folder(out):
        with Store(path / GRAPH, readonly=True) as store:
            place = _offset(store, offset, time)
            store.backup(out / GRAPH)
        copy = Store(out / GRAPH)
        try:
            with copy.transaction():
                _go_back(copy, place)
            state = State(out, copy, settings)
            state.purge()
        except BaseException:
            copy.close()
            raise
    return state


def compact(state: State, offset: int | None, time: float | None) -> None:
    """End the history before a moment; see `Model.compact`."""
    store = state.store
    now = offset is None and time is None
    place = _offset(store, store.position if now else offset, time)
    with store.transaction():
        store.history.compact(place)
    store.purge()


def _offset(store: Store, offset: int | None, time: float | None) -> int:
    if (offset is None) == (time is None):
        raise ValueError("a moment is an offset or a time: give one of the two")
    if offset is None:
        store.history.check(store.position, store.position)
        assert time is not None
        offset = store.history.offset_of(time)
    store.history.check(offset, store.position)
    return offset


def _go_back(store: Store, offset: int) -> None:
    """Take the graph and the schema back, with the statistics of the base of then."""
    kinds = store.history.undo(offset)
    columns = Schema.from_json(kinds or str(store.get("schema"))).columns
    schema, report = Schema(columns), Report()
    bases = store.bases()
    while part := [cells for _, cells in islice(bases, CHUNK)]:
        schema.fit(part, report)
    report.check()
    mark(store, schema)
    points = [point for point in curve(store) if point[0] <= offset]
    store.set("curve", json.dumps(points))
    store.set("confusion", None)
    store.rewind(offset)

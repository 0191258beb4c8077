"""Runs of events are stored and applied kind by kind: nothing tells it from one event at a time."""

import json
import random
from dataclasses import replace

import pytest

from evergraph.datasets.report import Report
from evergraph.datasets.schema import Schema
from evergraph.model import Model, Settings, runs

KINDS = ("node", "edge", "label", "delete_node", "delete_edge")
NAMES = "abcdefghijklmnop"
COLUMNS = [{"name": "age", "kind": "number"}]


def make(path, rule, directed):
    """A model with a history, of ten nodes."""
    schema = Schema.from_json(json.dumps({"version": 1, "columns": COLUMNS}))
    nodes = {"id": list(range(10)), "age": list(range(10)), "label": ["a", "b"] * 5}
    settings = replace(Settings(), unknown_ends=rule, directed=directed)
    model = Model.train(path, nodes, schema=schema, settings=settings)
    with model.store.transaction():
        model.store.history.begin(model.store.position, 1.0)
    return model


def events(chance, count):
    """Events of all kinds about few nodes, so that they get in each other's way."""
    found = []
    for _ in range(count):
        (kind,) = chance.choices(KINDS, (9, 9, 6, 1, 1))
        one, other = chance.choice(NAMES), chance.choice([*NAMES, 3])
        event = {"type": kind, "id": one}
        if kind.endswith("edge"):
            event = {"type": kind, "source": one, "target": other}
            event |= chance.choice([{}, {}, {"weight": 0.5}, {"weight": 2}, {"time": 3}])
        if kind == "node":
            event |= {"age": chance.choice([1, 2, 3, 4, 5, "x"])} | chance.choice(
                [{}, {"label": "b"}]
            )
        if kind == "label":
            event["label"] = chance.choice("ab")
        if kind == "delete_edge":
            event = {name: event[name] for name in ("type", "source", "target")}
        found.append(event)
    return found


def tables(model):
    """All rows of the store; those of a history by key in their order."""
    found = {}
    for table in ("node", "edge", "waiting"):
        found[table] = sorted(model.store._file.read(f"SELECT * FROM {table}"), key=repr)
        key = "id" if table == "node" else "source, target"
        sql = f"SELECT * FROM change_{table} ORDER BY {key}, number"
        found[f"change_{table}"] = [row[1:] for row in model.store._file.read(sql)]
    return found, model.store.position


def contents(model):
    """What memory holds, by ids."""
    graph = model.graph
    slots = graph.slots()
    ids = graph.ids(slots)
    owner, node, weight = graph.counted(slots)
    near = [(ids[at], *ends) for at, *ends in zip(owner, graph.ids(node), weight, strict=True)]
    rows = [part.tolist() for part in graph.rows(slots)]
    return ids, graph.labels(slots), near, rows, repr(graph.times(slots).tolist()), graph.newest(99)


@pytest.mark.parametrize("seed", range(12))
def test_a_run_leaves_what_single_events_leave(tmp_path, monkeypatch, seed):
    chance = random.Random(seed)
    rule, directed = chance.choice(["wait", "drop"]), chance.random() < 0.3
    together, alone = (make(tmp_path / name, rule, directed) for name in ("t", "a"))
    stored = []
    monkeypatch.setattr(runs.Run, "store", _counted(stored))
    for size in (40, 1, 25, 60):
        batch = events(chance, size)
        monkeypatch.setattr(runs, "SHORTEST", 1)
        together.learn(batch, report=(one := Report()))
        monkeypatch.setattr(runs, "SHORTEST", 2)  # no run has two events of a list of one
        reports = [Report() for _ in batch]
        for event, report in zip(batch, reports, strict=True):
            alone.learn([event], report=report)
        assert one.count == sum(report.count for report in reports)
        assert contents(together) == contents(alone)
    assert max(stored) > 2
    assert tables(together) == tables(alone)
    assert together.digest() == alone.digest()
    for model in (together, alone):
        model.close()
    with Model.open(tmp_path / "t") as again:
        assert again.digest() == Model.open(tmp_path / "a", readonly=True).digest()


def _counted(sizes):
    store = runs.Run.store

    def counted(self):
        sizes.append(len(self.events))
        store(self)

    return counted

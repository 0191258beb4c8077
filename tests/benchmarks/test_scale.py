"""The cost model finds the costs that measurements were made of."""

import numpy as np
import pytest

from benchmarks.scale import COSTS, by_size, model, needed, write_tables
from evergraph.datasets.graph_tables import read_edges, read_nodes


def measured(nodes, shards, citations=4.0):
    """A measurement in which a process costs 500, a node 7, a ghost 3 and an edge 2."""
    own = nodes / shards
    part = {"nodes": own, "ghosts": 2 * own * (1 - 1 / shards), "held_edges": own * (1 + shards)}
    spent = 500 + 7 * part["nodes"] + 3 * part["ghosts"] + 2 * part["held_edges"]
    part |= dict.fromkeys(COSTS, spent) | {"traffic": {"ghosts": 5, "ghosts_bytes": 50}}
    return {
        "nodes": nodes, "shards": shards, "citations": citations, "edges": 10, "seconds": 3.0,
        "clock": {"start": 1.0}, "processes": [part] * shards, "coordinator_peak_bytes": 1,
        "events": {"count": 10, "seconds_with_sums": 1.0, "sent": {"means_bytes": 30}},
    }  # fmt: skip


def test_costs_and_exponents_are_found():
    rows = [measured(1000, shards) for shards in (1, 3, 4)]
    rows += [measured(nodes, 2) for nodes in (300, 1000, 3000, 10000)]
    found = model(rows)
    for cost in COSTS:
        assert found[cost] == pytest.approx([500, 7, 3, 2], rel=1e-6)
        assert found["exponents"]["4.0"][cost] == pytest.approx(1.0)
    assert model(rows[:1]).keys() == {"by_size"}  # nodes and edges cannot be told apart
    line = by_size(rows[0])
    assert line["messages_per_edge"] == 0.5
    assert line["seconds_per_million_nodes"] == pytest.approx(2000.0)
    assert (line["seconds_per_million_events"], line["bytes_per_event"]) == (1e5, 3.0)
    first, second = needed(found, 4.0, machine_bytes=10**9, cores=32)
    for row in (first, second):
        assert row["memory_bytes"] <= 10**9 * row["machines"]
    assert 9 < second["machines"] / first["machines"] < 11


def test_files_hold_every_node_once_and_edges_among_them(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.scale.BLOCK", 200)
    nodes, edges = write_tables(tmp_path, 500, 2.0)
    ids = [node for part in read_nodes(nodes) for node in part.ids]
    assert sorted(ids) == list(range(500))
    ends = [(part.sources, part.targets) for part in read_edges(edges)]
    assert sum(len(sources) for sources, _ in ends) == 1000
    every = np.concatenate([np.array([*side]) for pair in ends for side in pair])
    assert set(every.tolist()) <= set(ids)

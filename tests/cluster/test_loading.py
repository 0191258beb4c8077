"""Any number of files, read by all shards at a time, are what one machine reads of them."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv as pacsv
from pyarrow import parquet

import evergraph
from evergraph.cluster.engine import LocalEngine
from evergraph.datasets.infer import Evidence, decide, evidence_of
from evergraph.datasets.report import TableError
from evergraph.datasets.schema import Schema
from evergraph.datasets.tables import read_tables
from evergraph.model import Settings
from tests.model.small_models import SMALL, people


def written(folder, table, cuts, formats=("csv",)):
    """A table in several files of a folder, whose names are in the order of the rows."""
    folder.mkdir(parents=True)
    rows = len(next(iter(table.values())))
    bounds = [0, *cuts, rows]
    for at, (start, end) in enumerate(pairwise(bounds)):
        part = pa.table({name: column[start:end] for name, column in table.items()})
        ending = formats[at % len(formats)]
        write = pacsv.write_csv if ending == "csv" else parquet.write_table
        write(part, str(folder / f"part-{at}.{ending}"))
    return folder


def both(tmp_path, nodes, edges, shards=3, **more):
    """A model and a cluster of the same tables."""
    model = evergraph.Model.train(tmp_path / "model", nodes, edges, **more)
    cluster = evergraph.Cluster.train(
        tmp_path / "cluster", nodes, edges, shards=shards, engine=LocalEngine, **more
    )
    return model, cluster


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("formats", [("csv",), ("parquet",), ("csv", "parquet")])
def test_files_of_a_folder_are_one_table(tmp_path, shards, formats):
    """Edges come again in other files with other weights: the last one counts."""
    nodes, edges = people()
    rng = np.random.default_rng(0)
    again = rng.permutation(len(edges["source"]))[:80]
    edges = {name: [*column, *(column[k] for k in again)] for name, column in edges.items()}
    edges["weight"] = rng.integers(1, 5, len(edges["source"])).tolist()
    edges["target"][:5] = [f"q{k}" for k in range(5)]  # these nodes are not there
    whole = evergraph.Model.train(tmp_path / "whole", nodes, edges, settings=SMALL)
    files = (
        written(tmp_path / "nodes", nodes, [10, 10, 90, 200], formats),  # one file has no rows
        written(tmp_path / "edges", edges, [250, 340], formats),
    )
    model, cluster = both(tmp_path, *files, shards, settings=SMALL)
    assert cluster.digest() == model.digest() == whole.digest()
    assert cluster.predict() == whole.predict()
    events = [{"type": "delete_node", "id": "p3"}, {"type": "label", "id": "p9", "label": "old"}]
    assert cluster.learn(events) == model.learn(events)
    assert cluster.digest() == model.digest()


@pytest.mark.parametrize("unknown", ["wait", "drop"])
def test_edges_to_unknown_nodes_are_treated_alike(tmp_path, unknown):
    nodes, edges = people()
    edges["target"][::7] = ["nobody"] * len(edges["target"][::7])
    folder = written(tmp_path / "edges", edges, [100])
    settings = Settings(landmarks=16, held_out=30, unknown_ends=unknown)
    model, cluster = both(tmp_path, nodes, folder, settings=settings)
    assert cluster.digest() == model.digest()
    assert cluster.inspect()["waiting_edges"] == model.inspect()["waiting_edges"]


def spoiled(kind, nodes, edges):
    """Tables with mistakes in several files."""
    if kind == "repeated":
        nodes["id"][7] = nodes["id"][100] = nodes["id"][230] = "p42"
        nodes["id"][8] = ""
    elif kind == "ends":
        edges["source"][3], edges["target"][-3] = "nobody", "nobody else"
    elif kind == "weights":
        edges["weight"] = [-1 if k in (5, 280) else 1 for k in range(len(edges["source"]))]
    elif kind == "misfit":
        nodes["age"] = ["old" if k in (4, 150) else age for k, age in enumerate(nodes["age"])]
    elif kind == "columns":
        nodes["surplus"] = nodes["age"]
    return nodes, edges


@pytest.mark.parametrize("kind", ["repeated", "ends", "weights", "misfit", "columns", "empty"])
def test_complaints_are_those_of_one_machine_and_leave_nothing(tmp_path, kind):
    nodes, edges = people()
    schema = Schema.infer({name: nodes[name] for name in ("age", "country", "joined")})
    nodes, edges = spoiled(kind, nodes, edges)
    nodes = {name: list(map(str, column)) for name, column in nodes.items()}
    if kind == "empty":
        nodes = {name: pa.array([], pa.string()) for name in nodes}
    files = written(tmp_path / "n", nodes, [90, 200]), written(tmp_path / "e", edges, [200])
    more = {"schema": schema, "settings": Settings(landmarks=16, unknown_ends="error")}
    with pytest.raises(TableError) as one:
        evergraph.Model.train(tmp_path / "model", *files, **more)
    with pytest.raises(TableError) as many:
        evergraph.Cluster.train(tmp_path / "cluster", *files, shards=2, engine=LocalEngine, **more)
    assert str(many.value) == str(one.value)
    assert many.value.count == one.value.count
    assert not (tmp_path / "cluster").exists()


def test_a_folder_without_tables_and_a_file_that_is_not_there_are_told(tmp_path):
    (tmp_path / "nodes").mkdir()
    with pytest.raises(TableError, match="must have files that end with"):
        evergraph.Cluster.train(tmp_path / "c", tmp_path / "nodes", engine=LocalEngine)
    with pytest.raises(TableError, match="a file that can be read is needed"):
        evergraph.Cluster.train(tmp_path / "c", tmp_path / "no.csv", engine=LocalEngine)
    assert not (tmp_path / "c").exists()


CELLS = ["1", "2.5", "true", "2024-05-31", "a b c d", "[1, 2]", "[1, 2, 3]", "", "007"]


def test_evidence_of_parts_adds_up_to_that_of_the_whole():
    rng = np.random.default_rng(0)
    for _ in range(200):
        some = rng.choice(CELLS, rng.integers(1, 4))
        table = {f"c{k}": rng.choice(some, 12).tolist() for k in range(3)}
        whole = decide(evidence_of(read_tables(table)))
        cut = int(rng.integers(1, 12))
        found = {}
        for rows in (slice(None, cut), slice(cut, None)):
            part = {name: column[rows] for name, column in table.items()}
            for name, evidence in evidence_of(read_tables(part)).items():
                found.setdefault(name, Evidence()).merge(evidence)
        assert decide(found) == whole, table

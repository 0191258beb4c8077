"""The user's own graphs: folders of tables, PyG data and NetworkX graphs."""

from __future__ import annotations

import csv
import importlib
import json
import tracemalloc
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import torch

from evergraph import link_continuum
from evergraph.datasets import from_networkx, from_pyg, from_tables, load, tables
from evergraph.evaluate.protocols import recut
from evergraph.graph.rows import SparseRows

Columns = dict[str, Sequence[Any]]
FORMATS = ["csv", "jsonl", "parquet"]

NODES: Columns = {
    "id": ["p1", "p2", "p3", "p4"],
    "label": ["theory", "vision", None, "theory"],
    "time": [2001, 1999, 2005, 2003],
    "split": ["train", "test", None, "train"],
    "x0": [0.5, 1.0, -2.0, 0.0],
    "x2": [2.0, 2.5, 0.0, 9.0],
    "x1": [1.0, 0.0, 3.0, 7.0],
}
EDGES: Columns = {
    "source": ["p1", "p3", "p3"],
    "target": ["p2", "p1", "p4"],
    "weight": [1.0, 0.5, 2.0],
}


def write(folder: Path, stem: str, columns: Columns, kind: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}.{kind}"
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif kind == "csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(columns))
            writer.writeheader()
            writer.writerows(
                {key: " ".join(map(str, v)) if isinstance(v, list) else v for key, v in row.items()}
                for row in rows
            )
    else:
        pyarrow = pytest.importorskip("pyarrow")
        parquet = importlib.import_module("pyarrow.parquet")
        parquet.write_table(pyarrow.table(dict(columns)), path)
    return folder


def make(folder: Path, nodes: Columns = NODES, edges: Columns = EDGES, kind: str = "csv") -> Path:
    write(folder, "nodes", nodes, kind)
    return write(folder, "edges", edges, kind)


def without(columns: Columns, *names: str) -> Columns:
    return {name: values for name, values in columns.items() if name not in names}


@pytest.mark.parametrize("kind", FORMATS)
def test_round_trip(tmp_path: Path, kind: str) -> None:
    dataset = load(make(tmp_path / "mine", kind=kind))
    graph = dataset.graph
    assert isinstance(graph.features, torch.Tensor)
    assert graph.features.tolist() == [
        [0.5, 1.0, 2.0],
        [1.0, 0.0, 2.5],
        [-2.0, 3.0, 0.0],
        [0.0, 7.0, 9.0],
    ]
    assert graph.edges.tolist() == [[0, 2, 2], [1, 0, 3]]
    assert graph.class_names == ("theory", "vision")
    assert graph.labels is not None
    assert graph.weight is not None
    assert graph.time is not None
    assert graph.labels.tolist() == [0, 1, -1, 0]
    assert graph.weight.tolist() == [1.0, 0.5, 2.0]
    assert graph.time.tolist() == [2001, 1999, 2005, 2003]
    assert graph.time.dtype == torch.int64
    assert (dataset.train.tolist(), dataset.test.tolist()) == ([0, 3], [1])
    assert (dataset.name, dataset.origin) == ("mine", str(tmp_path / "mine"))
    assert not graph.directed
    assert load(str(tmp_path / "mine"), directed=True).graph.directed


@pytest.mark.parametrize("kind", FORMATS)
def test_words_and_integers_and_vector_weights(tmp_path: Path, kind: str) -> None:
    nodes: Columns = {
        "id": [10, 20, 30],
        "label": [2, 0, -1],
        "words": [["graph", "deep", "graph"], [], ["deep"]],
    }
    edges: Columns = {
        "source": [10, 30],
        "target": [20, 10],
        "weight1": [1.0, 2.0],
        "weight0": [3.0, 4.0],
    }
    graph = load(make(tmp_path, nodes, edges, kind)).graph
    assert isinstance(graph.features, SparseRows)
    assert graph.features.to_dense().tolist() == [[1, 2], [0, 0], [1, 0]]  # deep, graph
    assert graph.labels is not None
    assert graph.labels.tolist() == [2, 0, -1]
    assert graph.class_names == ()
    assert graph.weight is not None
    assert graph.weight.tolist() == [[3.0, 1.0], [4.0, 2.0]]


@pytest.mark.parametrize("kind", FORMATS)
def test_word_numbers_are_feature_numbers(tmp_path: Path, kind: str) -> None:
    nodes: Columns = {"id": ["a", "b"], "words": [[3, 0], [3, 3]]}
    edges: Columns = {"source": ["a"], "target": ["b"]}
    dataset = load(make(tmp_path, nodes, edges, kind))
    assert isinstance(dataset.graph.features, SparseRows)
    assert dataset.graph.features.to_dense().tolist() == [[1, 0, 0, 1], [0, 0, 0, 2]]
    assert dataset.graph.labels is None
    assert (len(dataset.train), len(dataset.test)) == (0, 0)


def test_formats_may_be_mixed_and_columns_named_freely(tmp_path: Path) -> None:
    nodes: Columns = {"id": [1, 2], "age": [30, 40], "height": [1.8, 1.6], "time": [0.5, 1]}
    write(tmp_path, "nodes", nodes, "jsonl")
    graph = load(write(tmp_path, "edges", {"source": [1], "target": [2]}, "csv")).graph
    assert isinstance(graph.features, torch.Tensor)
    torch.testing.assert_close(graph.features, torch.tensor([[30.0, 1.8], [40.0, 1.6]]))
    assert graph.time is not None
    assert graph.time.tolist() == [0.5, 1.0]
    assert graph.weight is None


def test_without_a_split_classes_are_drawn_from(tmp_path: Path) -> None:
    nodes: Columns = {
        "id": list(range(50)),
        "label": ["even", "odd"] * 25,
        "x0": [0.0] * 50,
    }
    dataset = load(make(tmp_path, nodes, {"source": [0], "target": [1]}), seed=4)
    assert (len(dataset.train), len(dataset.test)) == (30, 10)


def test_many_blocks_are_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ROWS", 7)
    for reader in ("read_csv", "read_jsonl"):
        monkeypatch.setattr(tables, reader, partial(getattr(tables, reader), size=64))
    nodes: Columns = {"id": list(range(40)), "x0": [float(node) for node in range(40)]}
    edges: Columns = {"source": list(range(39)), "target": list(range(1, 40))}
    for kind in FORMATS:
        graph = load(make(tmp_path / kind, nodes, edges, kind)).graph
        assert isinstance(graph.features, torch.Tensor)
        assert graph.features[:, 0].tolist() == nodes["x0"]
        assert graph.edges.tolist() == [edges["source"], edges["target"]]


BAD_ROWS = [
    ("nodes", {"id": ["p1", "p2", "p3", "p1"]}, 4, "an id must be unique in the table, got 'p1'"),
    ("nodes", {"x1": [1.0, 2.0, float("nan"), 0.0]}, 3, "a finite number is needed"),
    ("nodes", {"x1": ["1", "high", "2", "3"]}, 2, "a finite number is needed, got 'high'"),
    ("nodes", {"x1": [1.0, 1e39, 2, 3]}, 2, "a finite number is needed, got '?1e.39"),
    ("nodes", {"time": [1.0, 2.0, 3.0, float("inf")]}, 4, "a time must"),
    ("nodes", {"time": [1.0, 2.0, None, 4.0]}, 3, "a time must be a finite number"),
    ("nodes", {"label": [0, 1, -2, 1]}, 3, "label must be a name, or an integer from 0 .* got -2"),
    ("nodes", {"label": [0, 1, 2**31, 1]}, 3, "below 2.31 .* got 2147483648; make it a name"),
    ("nodes", {"label": ["0", "1", "9" * 30, "1"]}, 3, "label must be a name, .* got 9999"),
    ("nodes", {"split": ["train", "test", "tst", ""]}, 3, "split must be train, .* got 'tst'"),
    ("nodes", {"split": ["train", "test", "test", ""]}, 3, "a test node must have a label"),
    ("edges", {"target": ["p2", "p1", "p9"]}, 3, "an edge must join two nodes .* got 'p9'"),
    ("edges", {"weight": [1.0, float("nan"), 1.0]}, 2, "a weight must be a number"),
    ("edges", {"time": [1.0, None, 1.0]}, 2, "a time must be a finite number"),
]


def test_large_class_numbers_cost_no_memory(tmp_path: Path) -> None:
    """A table from 0 to the largest label would take 7.5 GiB."""
    nodes: Columns = {"id": range(20), "label": [0, 10**9] * 10, "x0": [1.0] * 20}
    folder = make(tmp_path, nodes, {"source": [0], "target": [1]})
    tracemalloc.start()
    try:
        dataset = load(folder)
        cut, order = recut(dataset)
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()
    assert dataset.graph.labels is not None
    assert dataset.graph.labels[dataset.train].tolist().count(10**9) == 6
    assert len(dataset.test) == 4
    assert (order, cut.graph.edges.shape) == ((0, 10**9), (2, 1))


@pytest.mark.parametrize("words", ["7 1000000000", "3 " + "9" * 30])
def test_absurd_feature_numbers_are_refused(tmp_path: Path, words: str) -> None:
    folder = make(tmp_path, {"id": [0, 1], "words": ["0", words]}, {"source": [0], "target": [1]})
    message = f"must be below 16777216, got {words.split()[1]}; make them names"
    with pytest.raises(ValueError, match=message):
        load(folder)


def test_large_times_keep_their_value(tmp_path: Path) -> None:
    dataset = load(make(tmp_path, NODES | {"time": [0.0, 1e300, 2.0, 3.0]}))
    assert dataset.graph.time is not None
    assert dataset.graph.time.tolist() == [0.0, 1e300, 2.0, 3.0]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(("stem", "change", "row", "message"), BAD_ROWS)
def test_bad_rows_are_named(
    tmp_path: Path, kind: str, stem: str, change: Columns, row: int, message: str
) -> None:
    nodes = NODES | change if stem == "nodes" else NODES
    edges = EDGES | change if stem == "edges" else EDGES
    where = {"csv": f"line {row + 1}", "jsonl": f"line {row}", "parquet": f"row {row}"}[kind]
    column = next(iter(change))
    place = rf"{stem}\.{kind}, {where}(, column '({column}|label)')?: "
    if kind == "jsonl" and any(value != value or value == float("inf") for value in change[column]):
        message = "a line must be JSON .*(NaN|Infinity) is no JSON number"
    with pytest.raises(ValueError, match=f"{place}.*{message}"):
        load(make(tmp_path, nodes, edges, kind))


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        (without(NODES, "id"), EDGES, "nodes.csv, .* there must be a column 'id', got 'label"),
        (NODES, without(EDGES, "target"), "edges.csv, .* there must be a column 'target'"),
        (without(NODES, "x0", "x1", "x2"), EDGES, "there must be features: .* got 'none'"),
        (NODES | {"words": ["a", "b", "c", "d"]}, EDGES, "got 'words and x0, x2, x1'"),
        (NODES, EDGES | {"kind": [1, 2, 3]}, "edges.csv, column 'kind': a table of edges has"),
        (NODES, EDGES | {"weight0": [1, 2, 3]}, "one column weight, or weight0"),
        ({name: [] for name in NODES}, EDGES, "nodes.csv: a table of nodes must have a row"),
    ],
)
def test_bad_columns_are_named(
    tmp_path: Path, nodes: Columns, edges: Columns, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        load(make(tmp_path, nodes, edges))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("nodes.csv", "id,x0\na,1\nb\n", r"nodes\.csv, line 3: .* 2 cells, .* got '1 cells"),
        ("nodes.csv", "id,x0,x0\na,1,2\n", r"line 1, column 'x0': a column must occur once"),
        ("nodes.csv", "id,x0\n\na,\n", r"line 3, column 'x0': a finite number is needed, got ''"),
        ("nodes.jsonl", '{"id": 1, "x0": 1}\n{"id": 2\n', r"nodes\.jsonl, line 2: .*be JSON"),
        ("nodes.jsonl", '{"id": 1, "x0": 1}\n\n{"id": 2}\n', "line 3, column 'x0': .* got None"),
        ("nodes.jsonl", "[1, 2]\n", r"line 1: a line must be a JSON object, got \[1, 2\]"),
        ("nodes.jsonl", '{"id": 1, "x0": [1]}\n', "column 'x0': a finite number is needed, got"),
        ("nodes.jsonl", '{"id": 1, "words": 5}\n', "line 1, .*words must be a list or text, got 5"),
        ("nodes.parquet", "PAR1 but no more", r"nodes\.parquet: a file that can be read is needed"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "edges.csv").write_text("source,target\n1,1\n")
    with pytest.raises(ValueError, match=message):
        load(tmp_path)


def test_missing_and_doubled_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"one of nodes\.csv, .* but has none"):
        load(tmp_path)
    write(make(tmp_path), "edges", EDGES, "jsonl")
    with pytest.raises(ValueError, match=r"but has edges\.csv, edges\.jsonl; remove"):
        load(tmp_path)


def test_cells_of_any_length_are_read(tmp_path: Path) -> None:
    nodes: Columns = {"id": ["a", "b"], "words": ["w " * 90_000, "v"]}
    graph = load(make(tmp_path, nodes, {"source": ["a"], "target": ["b"]})).graph
    assert isinstance(graph.features, SparseRows)
    assert graph.features.to_dense().tolist() == [[0, 90_000], [1, 0]]


def test_all_complaints_come_at_once(tmp_path: Path) -> None:
    nodes = NODES | {"x0": ["a", 1.0, "b", 0.0]}
    with pytest.raises(ValueError, match="3 problems in the data") as error:
        load(make(tmp_path, nodes, EDGES | {"source": ["p1", "p8", "p3"]}))
    assert [word in str(error.value) for word in ("'a'", "'b'", "'p8'")] == [True] * 3


@pytest.mark.parametrize("kind", FORMATS)
def test_edges_may_have_times_and_large_weights(tmp_path: Path, kind: str) -> None:
    edges = EDGES | {"weight": [1e6, -2.5, 3.0], "time": [3, 1, 2]}
    graph = load(make(tmp_path, NODES, edges, kind)).graph
    assert graph.weight is not None
    assert graph.edge_time is not None
    assert (graph.weight.tolist(), graph.edge_time.tolist()) == ([1e6, -2.5, 3.0], [3, 1, 2])


def test_a_file_without_edges_is_a_graph_without_edges(tmp_path: Path) -> None:
    for number, text in enumerate(("", "source,target\n", "source,target,weight\n")):
        folder = write(tmp_path / str(number), "nodes", NODES, "csv")
        (folder / "edges.csv").write_text(text)
        graph = load(folder).graph
        assert (graph.edges.shape, graph.weight) == ((2, 0), None)


# PyG


def pyg_class(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch_geometric import data
    return getattr(data, name)


def pyg_data(**values: object) -> Any:
    return pyg_class("Data")(**values)


def test_from_pyg() -> None:
    x = torch.tensor([[0.0, 1.0], [2.0, 0.0], [0.0, 0.0]])
    edges = torch.tensor([[0, 1, 2], [1, 0, 1]])
    mask = torch.tensor([True, False, True])
    data = pyg_data(
        x=x,
        edge_index=edges,
        y=torch.tensor([[1], [0], [1]]),
        edge_attr=torch.rand(3, 2),
        node_year=torch.tensor([[5], [6], [7]]),
        train_mask=mask,
        test_mask=~mask,
    )
    dataset = from_pyg(data, name="mine")
    graph = dataset.graph
    assert graph.directed
    assert graph.labels is not None
    assert graph.time is not None
    assert (graph.labels.tolist(), graph.time.tolist()) == ([1, 0, 1], [5, 6, 7])
    assert torch.equal(graph.edges, edges)
    assert graph.weight is not None
    assert torch.equal(graph.weight, data.edge_attr)
    assert (dataset.train.tolist(), dataset.test.tolist()) == ([0, 2], [1])
    assert dataset.name == "mine"


def test_a_column_of_text_is_one_complaint_with_a_way_out() -> None:
    nodes = {"id": ["a", "b", "c"], "x": [1, 2, 3], "city": ["Rome", "Oslo", "Lima"]}
    with pytest.raises(ValueError, match="1 problem") as error:
        from_tables(nodes)
    assert "column 'city': features must be columns of numbers, got 'Rome'" in str(error.value)
    assert "use `evergraph train`" in str(error.value)


def events(**more: object) -> Any:
    source, target = torch.tensor([0, 0, 1, 0]), torch.tensor([2, 3, 2, 3])
    messages = torch.tensor([[1.0, 10.0], [3.0, 30.0], [5.0, 50.0], [7.0, 70.0]])
    given = {"src": source, "dst": target, "t": torch.tensor([4, 4, 6, 9]), "msg": messages}
    return pyg_class("TemporalData")(**{**given, **more})


def test_events_of_pyg_are_edges_in_time() -> None:
    data = from_pyg(events(), name="clicks")
    graph = data.graph
    assert (graph.num_nodes, len(graph.edge_time), graph.directed) == (4, 4, False)
    assert graph.edges.tolist() == [[0, 0, 1, 0], [2, 3, 2, 3]]
    assert graph.edge_time.tolist() == [4, 4, 6, 9]
    assert graph.time.tolist() == [4, 6, 4, 4]
    assert graph.labels is None
    messages = graph.features[:, 64:].tolist()  # of the first moment of a node, and no later one
    assert messages == [[2.0, 20.0], [5.0, 50.0], [1.0, 10.0], [3.0, 30.0]]
    degrees = graph.features[:, 63].exp().sub(1).round().tolist()
    assert degrees == [2.0, 1.0, 1.0, 1.0]
    assert sum(len(batch) for batch in link_continuum(graph, test_share=0.5)) > 0


def test_later_events_do_not_change_the_features_of_nodes_that_are_there() -> None:
    whole, part = events(), events()[:3]
    before, after = from_pyg(part).graph, from_pyg(whole).graph
    assert torch.equal(before.features, after.features)


def test_events_of_pyg_with_own_features_and_classes() -> None:
    given = {"x": torch.eye(5), "y": torch.tensor([0, 1, 0, 1, 1])}
    graph = from_pyg(events(**given)).graph
    assert torch.equal(graph.features, torch.eye(5))
    assert graph.time.tolist() == [4, 6, 4, 4, 10]  # the last node never comes
    assert graph.num_classes == 2
    given["x"], given["y"] = torch.eye(4), torch.tensor([0, 1, 0, 1])  # of the four events
    assert from_pyg(events(**given)).graph.labels is None


def test_events_that_cannot_be_read() -> None:
    with pytest.raises(ValueError, match="must have events, got none"):
        from_pyg(events()[:0])
    with pytest.raises(ValueError, match="src must be integers"):
        from_pyg(events(src=torch.rand(4)))


def test_frames_of_pandas_and_polars_are_a_data_set() -> None:
    nodes = {"id": ["a", "b", "c"], "x0": [1.0, 2.0, 3.0], "label": ["u", "v", "u"]}
    edges = {"source": ["a"], "target": ["c"], "weight": [0.5]}
    expected = from_tables(nodes, edges).graph
    for library in ("pandas", "polars"):
        frame = pytest.importorskip(library).DataFrame
        found = from_tables(frame(nodes), frame(edges), name="frames")
        assert found.name == "frames"
        assert torch.equal(found.graph.features, expected.features)
        assert torch.equal(found.graph.edges, expected.edges)
        assert found.graph.class_names == ("u", "v")
    assert len(from_tables(nodes).graph.edges[0]) == 0


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_from_pyg_sparse_and_undirected() -> None:
    x = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    edges = torch.tensor([[0, 1], [1, 0]])
    for form in (x.to_sparse_csr(), x.to_sparse_coo()):
        dataset = from_pyg(pyg_data(x=form, edge_index=edges, y=torch.tensor([0, 0])))
        assert isinstance(dataset.graph.features, SparseRows)
        assert torch.equal(dataset.graph.features.to_dense(), x)
        assert not dataset.graph.directed
        assert (len(dataset.train), len(dataset.test)) == (1, 1)
    assert from_pyg(pyg_data(x=x, edge_index=edges), directed=True).graph.directed


def test_bad_pyg_data() -> None:
    with pytest.raises(ValueError, match="must have 'x', got only edge_index"):
        from_pyg(pyg_data(edge_index=torch.zeros(2, 0, dtype=torch.long)))
    many = torch.ones(2, 10, dtype=torch.bool)
    data = pyg_data(
        x=torch.eye(2), edge_index=torch.tensor([[0], [1]]), train_mask=many, test_mask=~many
    )
    with pytest.raises(ValueError, match=r"train_mask must have shape \(N,\), got \(2, 10\)"):
        from_pyg(data)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"y": torch.tensor([0.0, 1.5])}, "y must be integers, class numbers, got torch.float32"),
        (
            {"edge_index": torch.tensor([[0.2], [1.0]])},
            r"edge_index must be integers, node numbers, got torch.float32; .*\.long\(\)",
        ),
        (
            {"train_mask": torch.tensor([0]), "test_mask": torch.tensor([1])},
            r"train_mask must be a bool mask of shape \(2,\), got torch.int64 of shape \(1,\)",
        ),
        ({"train_mask": torch.tensor([0, 1]), "test_mask": torch.tensor([1, 0])}, "bool mask"),
        (
            {"train_mask": torch.tensor([True, False])},
            "train_mask and test_mask must come together, got only train_mask",
        ),
        ({"train_mask": [0], "test_mask": [1]}, r"train_mask must be a bool mask .* got \[0\]"),
        (
            {"train_mask": torch.tensor([True]), "test_mask": torch.tensor([False])},
            r"bool mask of shape \(2,\), got torch.bool of shape \(1,\)",
        ),
    ],
)
def test_pyg_values_are_not_truncated(values: dict[str, Any], message: str) -> None:
    good = {"x": torch.eye(2), "edge_index": torch.tensor([[0], [1]]), "y": torch.tensor([0, 1])}
    with pytest.raises(ValueError, match=message):
        from_pyg(pyg_data(**(good | values)))


# NetworkX


@pytest.mark.parametrize("directed", [False, True])
def test_from_networkx(directed: bool) -> None:
    graph = networkx.DiGraph() if directed else networkx.Graph()
    graph.add_node("b", x=[1.0, 2.0], label="odd", time=3.0, split="train")
    graph.add_node("a", x=np.array([0.0, 4.0]), label="even", time=1.0, split="test")
    graph.add_node("c", x=(5.0, 6.0), time=2.0)
    graph.add_edge("a", "b", weight=0.5)
    graph.add_edge("c", "a", weight=2.0)
    dataset = from_networkx(graph)
    built = dataset.graph
    assert isinstance(built.features, torch.Tensor)
    assert built.features.tolist() == [[1.0, 2.0], [0.0, 4.0], [5.0, 6.0]]
    assert built.labels is not None
    assert built.time is not None
    assert (built.labels.tolist(), built.class_names) == ([1, 0, -1], ("even", "odd"))
    assert built.time.tolist() == [3.0, 1.0, 2.0]
    assert (dataset.train.tolist(), dataset.test.tolist()) == ([0], [1])
    near = built.neighborhood(torch.tensor([1]), self_loops=False)
    assert near.weight is not None
    found = dict(zip(near.nodes.tolist(), near.weight.tolist(), strict=True))
    assert found == ({0: 0.5} if directed else {0: 0.5, 2: 2.0})


def test_from_networkx_multigraphs_and_scalars() -> None:
    graph = networkx.MultiGraph()
    graph.add_nodes_from([(0, {"x": 1.0}), (1, {"x": 2.0})])
    graph.add_edge(0, 1, weight=[1.0, 2.0])
    graph.add_edge(0, 1, weight=[3.0, 4.0])
    built = from_networkx(graph).graph
    assert (built.num_edges, built.num_features) == (1, 1)
    assert built.weight is not None
    assert built.weight.shape == (2, 2)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ([{}, {}], "must have the node attribute 'x'"),
        ([{"x": 1.0}, {}], "node 1 must have 'x', as others have it"),
        ([{"x": [1.0]}, {"x": [1.0, 2.0]}], r"node 1 has \(2,\) and the first has \(1,\)"),
        ([{"x": 1.0}, {"x": "high"}], "number or a sequence .* node 1 is 'high'"),
        (
            [{"x": 1.0}, {"x": 1.0, "split": "tst"}],
            "node 1: split must be train, test, val .* 'tst'",
        ),
        ([{"x": 1.0, "time": 1}, {"x": 1.0}], "node 1 must have 'time'"),
        ([{"x": 1.0}, {"x": 1.0, "label": -2}], "node 1: label must be a name, .* got -2"),
    ],
)
def test_bad_networkx_graphs(attributes: list[dict[str, Any]], message: str) -> None:
    graph = networkx.Graph()
    graph.add_nodes_from(enumerate(attributes))
    with pytest.raises(ValueError, match=message):
        from_networkx(graph)

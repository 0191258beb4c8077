"""Tables of every origin give the same rows, and broken ones one report of all complaints."""

import contextlib
import gzip
import io
import json
import random
import sys

import networkx
import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import csv as pacsv
from pyarrow import feather, parquet

from evergraph.datasets.columns import from_rows
from evergraph.datasets.csv_blocks import read_csv
from evergraph.datasets.encoding import Column
from evergraph.datasets.generate import generate
from evergraph.datasets.graph_tables import read_edges, read_nodes
from evergraph.datasets.jsonl_blocks import read_jsonl
from evergraph.datasets.objects import dataset_tables, networkx_tables, pyg_tables
from evergraph.datasets.report import Report, TableError
from evergraph.datasets.schema import Schema
from evergraph.datasets.tables import read_tables

ROWS = [
    {"id": "ann", "age": 31, "country": "de", "joined": "2024-05-31", "paid": True, "label": "a"},
    {"id": 7, "age": None, "country": "", "joined": None, "paid": False, "label": None},
    {"id": "bob, jr", "age": 2.5, "country": 'f"r', "joined": "2023-01-01", "paid": None},
    {"id": "8", "age": 1e15, "country": "line\nend", "joined": "", "paid": True, "label": "b"},
]


def text(value):
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def as_csv(rows, end="\n", delimiter=","):
    names = list(rows[0])
    quoted = [[f'"{text(row.get(name))}"'.replace('f"r', 'f""r') for name in names] for row in rows]
    return (end.join(delimiter.join(line) for line in [names, *quoted]) + end).encode()


def as_jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def arrow_of(rows):
    columns = {name: [row.get(name) for row in rows] for name in rows[0]}
    return pa.table({**columns, "id": [text(row["id"]) for row in rows]})


def load(source, **options):
    """All of a table of nodes: ids, labels, the schema and the encoded rows."""
    report = Report()
    parts = list(read_nodes(source, report, **options))
    schema = Schema.infer(part.features for part in parts)
    for part in parts:
        schema.fit(part.features, report)
    encoded = [schema.encode(part.features, report) for part in parts]
    report.check()
    ids = [node for part in parts for node in part.ids]
    labels = [label for part in parts for label in part.labels or [None] * len(part.ids)]
    return ids, labels, schema.to_json(), np.concatenate([value for _, _, value in encoded])


def problems_of(source, read=read_nodes, **options):
    with pytest.raises(TableError) as error:
        list(read(source, **options))
    return error.value.problems


def write(tmp_path, name, data):
    path = tmp_path / name
    path.write_bytes(data)
    return path


@pytest.fixture
def sources(tmp_path):
    """The same table in every form that can be read."""
    table = arrow_of(ROWS)
    parquet.write_table(table, tmp_path / "t.parquet")
    feather.write_feather(table, str(tmp_path / "t.feather"))
    with pa.ipc.new_stream(str(tmp_path / "s.arrow"), table.schema) as stream:
        stream.write_table(table)
    return {
        "csv": write(tmp_path, "t.csv", as_csv(ROWS)),
        "text path": str(write(tmp_path, "u.csv", as_csv(ROWS))),
        "crlf": write(tmp_path, "crlf.csv", as_csv(ROWS, "\r\n")),
        "bom": write(tmp_path, "bom.csv", b"\xef\xbb\xbf" + as_csv(ROWS)),
        "tsv": write(tmp_path, "t.tsv", as_csv(ROWS, delimiter="\t")),
        "gzip": write(tmp_path, "t.csv.gz", gzip.compress(as_csv(ROWS))),
        "jsonl": write(tmp_path, "t.jsonl", as_jsonl(ROWS)),
        "no suffix": write(tmp_path, "data", as_jsonl(ROWS)),
        "csv stream": io.BytesIO(as_csv(ROWS)),
        "jsonl stream": io.BytesIO(as_jsonl(ROWS)),
        "parquet": tmp_path / "t.parquet",
        "parquet stream": io.BytesIO((tmp_path / "t.parquet").read_bytes()),
        "feather": tmp_path / "t.feather",
        "arrow stream": tmp_path / "s.arrow",
        "pyarrow": table,
        "batch": table.to_batches()[0],
        "columns": {name: [row.get(name) for row in ROWS] for name in ROWS[0]},
        "rows": ROWS,
    }


def test_every_form_gives_the_same_rows(sources):
    expected = load(sources["csv"])
    assert expected[:2] == (["ann", 7, "bob, jr", 8], ["a", None, None, "b"])
    for name, source in sources.items():
        found = load(source)
        assert found[:3] == expected[:3], name
        assert np.array_equal(found[3], expected[3]), name


def test_pandas_and_polars_give_the_same_rows():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    table = arrow_of(ROWS)
    expected = load(table)
    frames = [
        pandas.DataFrame({name: [row.get(name) for row in ROWS] for name in ROWS[0]}),
        pandas.DataFrame(arrow_of(ROWS).to_pydict()).set_index("country", drop=False),
        polars.from_arrow(table),
    ]
    for frame in frames:
        found = load(frame)
        assert found[:3] == expected[:3]
        assert np.array_equal(found[3], expected[3])


def test_standard_input_is_a_dash(monkeypatch):
    class Stdin:
        buffer = io.BytesIO(as_csv(ROWS))

    monkeypatch.setattr(sys, "stdin", Stdin)
    assert load("-")[0] == ["ann", 7, "bob, jr", 8]


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
@pytest.mark.parametrize("form", [as_csv, as_jsonl])
def test_blocks_of_any_size_give_the_same_rows(form, size):
    rows = [{"id": i, "text": f"a\n{i}, " * (i % 5), "n": i / 3} for i in range(50)]
    data = form(rows)
    read = read_csv if form is as_csv else read_jsonl
    chunks = list(read(io.BytesIO(data), report := Report(), file="f", size=size))
    assert report.count == 0
    found = [row for chunk in chunks for row in chunk.table.to_pylist()]
    assert [row["text"] for row in found] == [row["text"] for row in rows]
    mark = b'"%d"' if form is as_csv else b'"id": %d'
    starts = [1 + data[: data.index(mark % number)].count(b"\n") for number in range(50)]
    assert [line for chunk in chunks for line in chunk.lines] == starts


def test_memory_is_bounded_by_chunks():
    data = b"id,v\n" + b"".join(b"%d,%d\n" % (i, i) for i in range(20000))
    chunks = list(read_csv(io.BytesIO(data), Report(), file="f", size=1 << 14))
    assert sum(chunk.num_rows for chunk in chunks) == 20000
    assert max(chunk.num_rows for chunk in chunks) < 3000


def test_what_pyarrow_would_change_in_json_is_kept():
    """Dates in texts, integers beside floats, and integers beyond 64 bits."""
    rows = [
        {"id": "2024-01-01", "a": 2**53 + 1, "b": 2**70, "c": ["2024-01-01"]},
        {"id": "2024-01-02", "a": 0.5, "b": 1, "c": ["x"]},
    ]
    (chunk,) = read_tables(io.BytesIO(as_jsonl(rows)))
    assert chunk.table.to_pydict() == {
        "id": ["2024-01-01", "2024-01-02"],
        "a": [str(2**53 + 1), "0.5"],
        "b": [str(2**70), "1"],
        "c": [["2024-01-01"], ["x"]],
    }


def test_keys_may_differ_from_line_to_line():
    data = b'{"id": 1, "a": 2}\n\n{"id": 2, "b": "x"}\n'
    (chunk,) = read_tables(io.BytesIO(data))
    assert chunk.table.to_pylist() == [{"id": 1, "a": 2, "b": None}, {"id": 2, "a": None, "b": "x"}]
    assert list(chunk.lines) == [1, 3]


BROKEN = [
    ("csv", b"", 1, None, "must begin with a line of column names"),
    ("csv", b"\n\n", 1, None, "must begin with a line of column names"),
    ("csv", b"id,\n1,2\n", 1, "number 2", "a column must have a name"),
    ("csv", b"id,a,a\n1,2,3\n", 1, "a", "a column must occur once"),
    ("csv", b"\xff\xfei\x00d\x00", 1, None, "must be UTF-8"),
    ("csv", b"id,a\n1,2\n3\n4,5,6\n", 3, None, "must have 2 cells"),
    ("csv", b"id,a\n1,\xff\n", 2, None, "must be UTF-8"),
    ("csv", b'id,a\n1,"x\n', 2, None, "must end with a quote"),
    ("csv", b"name;age\n1;2\n", None, "id", "there must be a column 'id'"),
    ("csv", b"id,a\n", None, None, "must have a row"),
    ("csv", b"id\n1\n\n1\n", 4, "id", "must be unique"),
    ("csv", b"id,a\n,1\n", 2, "id", "1 to 1,024 bytes"),
    ("csv", b"id\n" + b"x" * 2**20 + b"\n", 2, "id", "1 to 1,024 bytes"),
    ("csv", b"id\na\0b\n", 2, "id", "without NUL"),
    ("csv", b"id,split\n1,often\n", 2, "split", "must be train, test, val"),
    ("csv", b"id,time\n1,soon\n", 2, "time", "a number or an ISO date"),
    ("csv", b"id,time\n1,1e300\n", 2, "time", "a number or an ISO date"),
    ("jsonl", b"", None, None, "must have a row"),
    ("jsonl", b'{"id": 1}\n{"id": \n', 2, None, "must be JSON"),
    ("jsonl", b'{"id": 1}\n[1]\n', 2, None, "must be a JSON object"),
    ("jsonl", b'{"id": 1}\n{"id": 2}{"id": 3}\n', 2, None, "must be JSON"),
    ("jsonl", b'{"id": 1, "a": NaN}\n', 1, None, "must be JSON"),
    ("jsonl", b'{"id": 1, "id": 2}\n', 1, None, "occurs twice"),
    ("jsonl", b'{"id": "\xff"}\n', 1, None, "must be UTF-8"),
    ("jsonl", b'{"id": "\\ud800"}\n', 1, "id", "a value must be a number, text"),
    ("jsonl", b'{"id": 1, "a": {"b": 1}}\n', 1, "a", "a value must be a number, text"),
    ("jsonl", b'{"id": 1, "a": [[1]]}\n', 1, "a", "a value must be a number, text"),
    ("jsonl", b'{"id": 1, "a": ' + b"[" * 10**5 + b"]" * 10**5 + b"}\n", 1, None, "nested too"),
    ("jsonl", b'{"id": true}\n', 1, "id", "must be text or an integer"),
    ("jsonl", b'{"id": 1.5}\n', 1, "id", "must be text or an integer"),
    ("jsonl", b'{"id": [1]}\n', 1, "id", "must be text or an integer"),
    ("jsonl", b'{"id": 1, "label": [1]}\n', 1, "label", "must be the name of a class"),
    ("parquet", b"PAR1 and then nothing", None, None, "a file that can be read"),
    ("parquet", b"", None, None, "a file that can be read"),
    ("arrow", b"ARROW1 and then nothing", None, None, "a file that can be read"),
]


@pytest.mark.parametrize(("form", "data", "line", "column", "rule"), BROKEN)
def test_broken_files_are_reported(form, data, line, column, rule):
    problem = problems_of(io.BytesIO(data), format=form)[0]
    assert (problem.line, problem.column) == (line, column)
    assert rule in problem.rule
    assert problem.way_out
    assert len(problem.value) < 80


def test_what_is_not_broken_is_read():
    data = b"id,a\n1,x\n2\n3,\xff\n4,y\n4,z\n"
    report = Report()
    parts = list(read_nodes(io.BytesIO(data), report))
    assert [node for part in parts for node in part.ids] == [1, 4]
    assert [row["a"] for part in parts for row in part.features.table.to_pylist()] == ["x", "y"]
    assert sorted(problem.line for problem in report.problems) == [3, 4, 6]


def test_a_report_shows_twenty_and_counts_all():
    data = b"id,a\n" + b"1\n" * 50
    with pytest.raises(TableError) as error:
        list(read_nodes(io.BytesIO(data)))
    assert error.value.count == len(error.value.problems) == 50
    assert str(error.value).count("\n") == 21
    assert str(error.value).endswith("and 30 more")


def test_a_missing_file_is_reported(tmp_path):
    problem = problems_of(tmp_path / "none.csv")[0]
    assert "a file that can be read is needed" in problem.rule
    assert problem.file.endswith("none.csv")


def test_other_objects_are_refused():
    with pytest.raises(ValueError, match=r"a table must be a path.*got int"):
        list(read_tables(3))
    with pytest.raises(ValueError, match="format must be one of csv, tsv"):
        list(read_tables(io.BytesIO(b""), format="xml"))


@pytest.mark.parametrize("column", ["text", b"bytes", 5])
def test_columns_must_be_sequences(column):
    with pytest.raises(TableError, match="a column must be a sequence"):
        list(read_tables({"id": [1], "a": column}))


def test_columns_must_have_the_same_length():
    with pytest.raises(TableError, match="the same length"):
        list(read_tables({"id": [1, 2], "a": [1]}))


def test_types_of_arrow_without_counterpart_are_reported():
    table = pa.table(
        {
            "id": pa.array([1], pa.uint8()),
            "a": pa.array([{"x": 1}]),
            "b": pa.array([b"\xff"]),
            "c": pa.array([2**63], pa.uint64()),
            "d": pa.array([1], pa.duration("s")),
        }
    )
    found = problems_of(table)
    assert [problem.column for problem in found] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("data", "ids", "expected"),
    [
        (b"ann,bob\nbob,cy\n", ["ann", "bob"], [("ann", "bob"), ("bob", "cy")]),
        (b"ann,bob\nbob,ann\n", ["bob", "x", "ann"], [("ann", "bob"), ("bob", "ann")]),
        (b"ann,7\n7,bob\n", ["ann", "7", "bob"], [("ann", 7), (7, "bob")]),
        (b"7,8\n8,9\n", [7, 8, 9], [(7, 8), (8, 9)]),
        (b"ann , bob\nbob,ann\n", ["ann", "bob", "ann "], [("ann", "bob"), ("bob", "ann")]),
        (b"3f,0a\n-1,0a\n", ["0a", "3f", "-1"], [("3f", "0a"), (-1, "0a")]),
        (b"", ["ann"], []),
        (b"ann,bob\n", [], [("ann", "bob")]),
    ],
)
def test_ends_are_the_same_whatever_ids_are_known(data, ids, expected):
    for among in (None, ids):
        parts = read_edges(io.BytesIO(b"source,target\n" + data), among=among)
        pairs = [zip(part.sources, part.targets, strict=True) for part in parts]
        assert [pair for some in pairs for pair in some] == expected


def test_complaints_about_ends_are_the_same_whatever_ids_are_known():
    data = b"source,target\nann,bob\n,ann\nbob,a\0b\n"
    for ids in (None, ["ann", "bob"]):
        found = problems_of(io.BytesIO(data), read_edges, among=ids)
        assert [(problem.line, problem.column) for problem in found] == [
            (3, "source"),
            (4, "target"),
        ]


def test_what_was_parsed_once_is_not_parsed_again():
    (nodes,) = read_nodes({"id": [1, 2], "age": ["1", "old"]})
    schema = Schema([Column("age", "number")])
    for _ in range(2):  # the second time from what the chunk remembers
        report = Report()
        schema.encode(nodes.features, report)
        assert [(problem.line, problem.value) for problem in report.problems] == [(2, "'old'")]
    assert len(nodes.features.parsed) == 1


def test_edges_have_ends_weights_and_times():
    data = b"source,target,weight,time\nann,7,,2024-01-01\n7,bob,0.5,3\n"
    parts = list(read_edges(io.BytesIO(data)))
    (part,) = [part for part in parts if part.sources]
    assert (part.sources, part.targets) == (["ann", 7], [7, "bob"])
    assert part.weights.tolist() == [1.0, 0.5]
    assert part.times.tolist() == [19723.0, 3.0]
    assert list(part.chunk.lines) == [2, 3]
    assert [edge.weights for edge in read_edges({"source": [1], "target": [2]})] == [None]


@pytest.mark.parametrize(
    "columns",
    [{"weight0": [1, 3], "weight1": [2, 4]}, {"weight": [[1, 2], [3.0, 4.0]]}],
)
def test_edges_may_have_vectors(columns):
    (part,) = read_edges({"source": [1, 2], "target": [2, 3], **columns})
    assert part.weights.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("columns", "rule"),
    [
        ({"target": [1]}, "there must be a column 'source'"),
        ({"source": [1], "target": [2], "weight": ["heavy"]}, "from -16384 to 16384"),
        ({"source": [1], "target": [2], "weight": [1e300]}, "from -16384 to 16384"),
        ({"source": [1], "target": [2], "weight": [True]}, "a number is needed"),
        ({"source": [1, 2], "target": [2, 3], "weight": [[1, 2], [3]]}, "lists of 1 numbers"),
        ({"source": [1], "target": [2], "weight1": [1]}, "without gaps"),
        ({"source": [1], "target": [2], "color": ["red"]}, "source, target, weight and time"),
        ({"source": [None], "target": [2]}, "must be text or an integer"),
        ({"source": [2.5], "target": [2]}, "must be text or an integer"),
    ],
)
def test_broken_edges_are_reported(columns, rule):
    assert rule in problems_of(columns, read_edges)[0].rule


def test_ids_written_as_integers_are_integers_in_every_format():
    names = ["7", " 8", "-9", "007", "-0", "+1", str(2**63 - 1), str(2**63), "1.0"]
    expected = [7, 8, -9, "007", "-0", "+1", 2**63 - 1, str(2**63), "1.0"]
    assert load({"id": names})[0] == expected
    assert load({"id": ["7", "8"]})[0] == [7, 8]
    assert load({"id": [7.0, 8.0]})[0] == [7, 8]


def test_data_sets_become_tables():
    dataset = generate("citation", 0, "generated")
    nodes, edges = dataset_tables(dataset)
    ids, labels, state, _ = load(nodes)
    graph = dataset.graph
    assert ids == list(range(graph.num_nodes))
    assert json.loads(state)["columns"][0]["kind"] == "vector"
    names = graph.class_names or [str(number) for number in range(graph.num_classes)]
    assert labels == [names[label] for label in graph.labels.tolist()]
    parts = list(read_edges(edges))
    assert [node for part in parts for node in part.sources] == graph.edges[0].tolist()
    assert [node for part in parts for node in part.targets] == graph.edges[1].tolist()
    (splits,) = [part.splits for part in read_nodes(nodes)]
    assert [row for row, part in enumerate(splits) if part == "train"] == sorted(
        dataset.train.tolist()
    )


def test_pyg_graphs_become_tables():
    data_type = pytest.importorskip("torch_geometric.data").Data
    data = data_type(
        x=torch.tensor([[1.0, 0.0], [0.0, 2.0]]),
        edge_index=torch.tensor([[0], [1]]),
        y=torch.tensor([1, 0]),
        edge_attr=torch.tensor([[0.5, 2.0]]),
    )
    nodes, edges = pyg_tables(data)
    rows = nodes.table.select(["id", "x", "label"]).to_pylist()
    assert rows[1] == {"id": 1, "x": {"index": [1], "value": [2.0]}, "label": "0"}
    assert [part.weights.tolist() for part in read_edges(edges)] == [[[0.5, 2.0]]]


def test_networkx_graphs_become_tables():
    graph = networkx.DiGraph()
    graph.add_node("ann", age=31, x=np.array([1.0, 2.0]), label="a")
    graph.add_node(7, age=None, x=[3, 4], joined="2024-01-01")
    graph.add_edge("ann", 7, weight=0.5, color="red")
    nodes, edges = networkx_tables(graph)
    ids, labels, state, _ = load(nodes)
    assert (ids, labels) == (["ann", 7], ["a", None])
    kinds = {column["name"]: column["kind"] for column in json.loads(state)["columns"]}
    assert kinds == {"age": "number", "x": "vector", "joined": "date"}
    (part,) = read_edges(edges)
    assert (part.sources, part.targets, part.weights.tolist()) == (["ann"], [7], [0.5])


def test_networkx_ids_must_be_ids():
    graph = networkx.Graph([((1, 2), frozenset("a"))])
    with pytest.raises(TableError, match="a value must be a number, text"):
        networkx_tables(graph)


NASTY = [
    b"", b"x", b"7", b"-1", b"1e300", b"-inf", b"nan", b"NaN", b"1e-320", b"2024-02-30",
    b"\xff\xfe", b"\0", b'"', b'""', b'"a', b'a"b', b"a,b", b'"a,b"', b'"a\nb"', b"\r", b"\r\n",
    b"\n", b"\n\n", b"x" * 2000, b"9" * 400, b"\xef\xbb\xbf", "é\u2028".encode(), b"true",
    b"[1, 2]", b"[", b"0x10", b" ", b"\t", b";", b"null", b"\xed\xa0\x80", b"99999999999999999999",
    b"24:00", b"+5",
]  # fmt: skip
JSON = [
    b"null", b"1", b"1.5", b"-1e300", b"1e999", b"NaN", b"Infinity", b'"x"', b'"\\u0000"', b"[]",
    b'"\\ud800"', b'"\xff"', b"true", b"[1, 2]", b"[1, null]", b'["a", 1]', b"[[1]]", b"{}", b"tru",
    b'{"index": [0], "value": [1]}', b'{"index": [-1], "value": [1, 2]}',
    b'{"index": 1, "value": 2}', b'{"a": {"b": []}}', b'"2024-01-01"', b"9" * 30, b"9" * 5000,
    b"-0", b'"' + b"y" * 3000 + b'"',
    b'{"index": ["a"], "value": [null]}', b'{"index": [0, 0], "value": [1, 1]}', b'"2024-01-01T99"',
]  # fmt: skip


def fuzzed(rng):
    """A table of three columns with some nasty cells, lines or bytes, and its format."""
    form = rng.choice(["csv", "jsonl"])
    rows = rng.randint(0, 6)
    names = [b"id", rng.choice([b"age", b"id", b"label", b"time", b"x0", b"split"]), b"c"]
    lines = []
    for row in range(rows):
        if form == "csv":
            cells = [rng.choice([b"%d" % row, rng.choice(NASTY)]) for _ in names]
            lines.append(b",".join(cells[: rng.choice([3, 3, 3, 3, 2, 4])]))
        else:
            cells = [rng.choice([b"%d" % row, rng.choice(JSON)]) for _ in names]
            pairs = [b'"%s": %s' % pair for pair in zip(names, cells, strict=True)]
            rng.shuffle(pairs)
            lines.append(b"{" + b", ".join(pairs[: rng.choice([3, 3, 3, 2, 0])]) + b"}")
    data = (b",".join(names) + b"\n" if form == "csv" and rng.random() < 0.9 else b"") + (
        rng.choice([b"\n", b"\n", b"\r\n"]).join(lines)
    )
    if rng.random() < 0.2:
        data = bytearray(data)
        for _ in range(rng.randint(1, 5)):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
        data = bytes(data)
    return form, data if rng.random() < 0.9 else data[: rng.randint(0, len(data))]


def test_fuzzed_tables_end_in_rows_or_one_report():
    rng = random.Random(0)
    clean = Schema.infer({"age": [1], "label": ["a"], "time": [1], "x0": [1], "c": [1.5]})
    read = refused = 0
    for _ in range(2000):
        form, data = fuzzed(rng)
        report = Report()
        for nodes in read_nodes(io.BytesIO(data), report, format=form):
            indptr, index, value = clean.encode(nodes.features, report)
            assert len(indptr) == len(nodes.ids) + 1
            assert len(index) == len(value) == indptr[-1]
            Schema.infer(nodes.features)
        try:
            load(io.BytesIO(data), format=form)
            read += 1
        except TableError as error:
            refused += 1
            for problem in error.problems:
                assert problem.rule
                assert problem.way_out
                assert len(problem.value) < 80
                assert problem.line is not None or "column" in problem.rule or "row" in problem.rule
                assert problem.line is None or 1 <= problem.line <= data.count(b"\n") + 2
    assert read > 50
    assert refused > 1000


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_fuzzed_binary_files_end_in_rows_or_one_report(form, tmp_path):
    path = tmp_path / "t"
    table = arrow_of(ROWS)
    if form == "parquet":
        parquet.write_table(table, path)
    else:
        feather.write_feather(table, str(path), compression="uncompressed")
    whole, rng = path.read_bytes(), random.Random(0)
    for _ in range(200):
        data = bytearray(whole[: rng.choice([len(whole), rng.randrange(len(whole))])])
        for _ in range(rng.randint(0, 8)):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
        with contextlib.suppress(TableError):
            load(io.BytesIO(bytes(data)), format=form)


def test_pyarrow_agrees_on_clean_files(tmp_path):
    lines = [b"%d,%d.5,x\n" % (number, number) for number in range(99)]
    path = write(tmp_path, "t.csv", b"id,a,b\n" + b"".join(lines))
    parts = list(read_nodes(path))
    found = [value for part in parts for value in part.features.table.column("a").to_pylist()]
    assert [float(value) for value in found] == pacsv.read_csv(path).column("a").to_pylist()


def test_rows_without_keys_are_rows():
    assert from_rows([{}, {}], Report()).num_rows == 2


def test_columns_of_vector_weights_in_csv():
    (first, rest) = read_edges(io.BytesIO(b"source,target,weight0,weight1\na,b,1,2\nb,c,3,4\n"))
    assert first.weights.shape == (0, 2)
    assert rest.weights.tolist() == [[1, 2], [3, 4]]


def test_a_column_is_complained_about_once():
    report = Report()
    list(read_edges(io.BytesIO(b"source,target,kind\na,b,1\n"), report))
    assert [problem.column for problem in report.problems] == ["kind"]


def test_carriage_returns_alone_are_named():
    report = Report()
    list(read_nodes(io.BytesIO(b"id,age\ra,1\rb,2\r"), report))
    assert "lines must end with a line feed" in str(report.problems[0])

"""Event files: order, positions, and what is malformed."""

import gzip
import io
import json
import random

import pytest

from evergraph.datasets.events import KEYS, Event, Position, read_events
from evergraph.datasets.report import Report, TableError

LINES = [
    {"type": "node", "id": "ann", "age": 31, "tags": ["a"], "label": "x", "time": "1970-01-03"},
    {"type": "edge", "source": "ann", "target": 7, "weight": 0.5, "time": 3},
    {"type": "edge", "source": "ann", "target": "8", "weight": [1, 2.5]},
    {"type": "label", "id": 7, "label": 3},
    {"type": "delete_label", "id": 7},
    {"type": "delete_edge", "source": "ann", "target": 7},
    {"type": "delete_node", "id": "ann"},
    {"type": "forget_label", "id": 7},
    {"type": "forget_edge", "source": "ann", "target": 7},
    {"type": "forget_node", "id": "ann"},
]
DATA = "".join(json.dumps(line) + "\n" for line in LINES).encode()
CSV = (
    b"type,id,source,target,label,weight,time,age\n"
    b'node,"an\nn",,,x,,1970-01-03,31\n'
    b"edge,,ann,7,,0.5,3,\n\n"
    b"label,7,,,3,,,\n"
)


def events_of(source, report=None, **options):
    return [event for events, _ in read_events(source, report, **options) for event in events]


def problem_of(line, **options):
    with pytest.raises(TableError) as error:
        events_of(io.BytesIO(line), **options)
    (problem,) = error.value.problems
    return problem


def test_events_come_in_order():
    events = events_of(io.BytesIO(DATA))
    assert [event.type for event in events] == [line["type"] for line in LINES]
    assert {event.type for event in events} == set(KEYS)
    assert events[0] == Event(
        "node", 1, id="ann", cells={"age": 31, "tags": ["a"]}, label="x", time=2.0
    )
    assert events[1] == Event("edge", 2, source="ann", target=7, weight=0.5, time=3.0)
    assert (events[2].target, events[2].weight) == (8, [1, 2.5])
    assert events[3] == Event("label", 4, id=7, label="3")


def test_csv_events_have_a_type_column():
    events = events_of(io.BytesIO(CSV), format="csv")
    assert events == [
        Event("node", 3, id="an\nn", cells={"age": "31"}, label="x", time=2.0),
        Event("edge", 4, source="ann", target=7, weight=0.5, time=3.0),
        Event("label", 6, id=7, label="3"),
    ]


@pytest.mark.parametrize("name", ["e.jsonl", "e.jsonl.gz", "e"])
def test_events_come_from_paths(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(gzip.compress(DATA) if name.endswith("gz") else DATA)
    assert events_of(path) == events_of(io.BytesIO(DATA))
    assert events_of(str(path), start=Position(1, DATA.index(b"\n") + 1))[0].line == 2


@pytest.mark.parametrize(("data", "form"), [(DATA, "jsonl"), (CSV, "csv")])
@pytest.mark.parametrize("size", [1, 2, 100])
def test_reading_resumes_at_every_position(data, form, size):
    whole = events_of(io.BytesIO(data), format=form)
    read = []
    for events, position in read_events(io.BytesIO(data), size=size, format=form):
        read += events
        assert len(events) <= size
        assert data[: position.offset].endswith(b"\n")
        rest = events_of(io.BytesIO(data), start=position, format=form)
        assert read + rest == whole
    assert position.offset == len(data)


def test_a_shorter_file_cannot_be_resumed():
    with pytest.raises(ValueError, match=r"at least the 9,999 bytes .* it is another file"):
        events_of(io.BytesIO(DATA), start=Position(3, 9999))


MALFORMED = [
    (b"{", None, "must be JSON"),
    (b"\xff", None, "must be UTF-8"),
    (b"[]", None, "must be a JSON object"),
    (b'{"type": "node", "id": 1, "a": NaN}', None, "must be JSON"),
    (b'{"type": "node", "id": 1, "id": 2}', None, "occurs twice"),
    (b'{"id": 1}', "type", "the type must be one of node, edge"),
    (b'{"type": ["node"], "id": 1}', "type", "the type must be one of"),
    (b'{"type": "node"}', "id", "an event of type node needs it"),
    (b'{"type": "edge", "source": 1}', "target", "an event of type edge needs it"),
    (b'{"type": "node", "id": 1.5}', "id", "must be text or an integer"),
    (b'{"type": "node", "id": true}', "id", "must be text or an integer"),
    (b'{"type": "node", "id": ""}', "id", "1 to 1,024 bytes"),
    (b'{"type": "node", "id": "' + b"x" * 2**20 + b'"}', "id", "1 to 1,024 bytes"),
    (b'{"type": "node", "id": "\\u0000"}', "id", "without NUL"),
    (b'{"type": "node", "id": "\\ud800"}', "id", "valid text"),
    (b'{"type": "node", "id": 1' + b"0" * 30 + b"}", "id", "64 bits"),
    (b'{"type": "node", "id": 1, "a": {"b": 1}}', "a", "a value must be a number"),
    (b'{"type": "node", "id": 1, "\\ud800": 1}', "\ud800", "name of a column must be valid"),
    (b'{"type": "node", "id": 1, "time": "soon"}', "time", "a number or an ISO date"),
    (b'{"type": "node", "id": 1, "time": 1e300}', "time", "must lie within"),
    (b'{"type": "node", "id": 1, "time": [1]}', "time", "a number is needed"),
    (b'{"type": "edge", "source": 1, "target": 2, "weight": 1e9}', "weight", "from -16384"),
    (b'{"type": "edge", "source": 1, "target": 2, "weight": "x"}', "weight", "from -16384"),
    (b'{"type": "edge", "source": 1, "target": 2, "weight": [1, null]}', "weight", "from -16384"),
    (b'{"type": "edge", "source": 1, "target": 2, "color": 1}', "color", "type, source, target"),
    (b'{"type": "label", "id": 1}', "label", "needs it"),
    (b'{"type": "label", "id": 1, "label": " "}', "label", "must not be empty"),
    (b'{"type": "label", "id": 1, "label": ["a"]}', "label", "must be the name of a class"),
    (b'{"type": "delete_node", "id": 1, "age": 3}', "age", "has type, id only"),
]


@pytest.mark.parametrize(("line", "column", "rule"), MALFORMED)
def test_malformed_events_are_refused(line, column, rule):
    problem = problem_of(b'{"type": "node", "id": 0}\n\n' + line + b"\n")
    assert (problem.line, problem.column) == (3, column)
    assert rule in problem.rule
    assert problem.way_out
    assert len(problem.value) < 80


@pytest.mark.parametrize(
    ("data", "line", "rule"),
    [
        (b"", 0, "must begin with distinct column names"),
        (b"id,label\n1,a\n", 1, "must begin with distinct column names"),
        (b"type,type\nnode,1\n", 1, "must begin with distinct column names"),
        (b"type,id\nnode\n", 2, "must have 2 cells"),
        (b"type,id\nnode,\xff\n", 2, "must be UTF-8"),
        (b'type,id\nnode,"a\n', 2, "must be CSV"),
        (b"type,id\nnode,\n", 2, "needs it"),
    ],
)
def test_malformed_csv_events_are_refused(data, line, rule):
    problem = problem_of(data, format="csv")
    assert problem.line == line
    assert rule in problem.rule


def test_reading_stops_at_the_first_malformed_line_unless_there_is_a_report():
    data = DATA + b"{\n" + DATA + b"[]\n" + DATA
    reading = read_events(io.BytesIO(data), size=3)
    found = [next(reading) for _ in range(4)]
    assert [len(events) for events, _ in found] == [3, 3, 3, 1]
    assert found[-1][1] == Position(len(LINES), len(DATA))
    with pytest.raises(TableError) as error:
        next(reading)
    assert error.value.problems[0].line == len(LINES) + 1
    report = Report()
    assert len(events_of(io.BytesIO(data), report)) == 3 * len(LINES)
    assert [problem.line for problem in report.problems] == [11, 22]


def test_fuzzed_events_are_read_or_refused():
    rng, report, read = random.Random(0), Report(), 0
    for _ in range(3000):
        data = bytearray(rng.choice(DATA.splitlines()))
        for _ in range(rng.randint(0, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        data = bytes(data).replace(b"\n", b" ") + b"\n"
        before = report.count
        events = events_of(io.BytesIO(data), report, format=rng.choice(["jsonl", "csv"]))
        assert len(events) + (report.count > before) >= 1 or not data.strip()
        read += len(events)
    assert 300 < read < 2700


def test_a_missing_file_is_reported(tmp_path):
    with pytest.raises(TableError, match="a file that can be read"):
        events_of(tmp_path / "none.jsonl")


def test_formats_and_sizes_are_checked():
    with pytest.raises(ValueError, match="the format of events must be one of jsonl, csv, tsv"):
        events_of(io.BytesIO(b""), format="parquet")
    with pytest.raises(ValueError, match="size must be at least 1"):
        events_of(io.BytesIO(b""), size=0)

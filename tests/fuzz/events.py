"""Events for a model folder, malformed in all ways: each is refused and changes nothing."""

import atexit
import io
import json
import random
import shutil
import tempfile
from functools import cache
from pathlib import Path

from hypothesis import strategies as st

from evergraph.datasets.events import KEYS, read_events
from evergraph.datasets.report import Report
from evergraph.model import Model, Settings
from tests.fuzz.files import SCRATCH
from tests.fuzz.invariants import refusal

NODES = 120
VALUES = (
    None, True, "", " ", "x", "\0", "\ud800", "ü\u200b", "7", "007", 7, -1, 0, 1.5, 1e300, -1e300,
    1e-320, 10**9, 10**30, -(10**30), 2**63, [], [1, 2], [None], ["a", 1], [[1]], {}, {"a": 1},
    {"index": [1], "value": [2.0]}, "2024-13-45", "1e999", "nan", "9" * 400, "i" * 2000,
)  # fmt: skip
RAW = (
    b"NaN", b"Infinity", b"-Infinity", b"01", b"1e400", b"\xff", b"9" * 5000, b"[" * 5000, b"'a'",
    b'"' + b"m" * 2**20 + b'"',
)  # fmt: skip
CHANGES = ("value", "value", "value", "raw", "raw", "gone", "more", "twice", "cut", "byte", "row")


@st.composite
def events(draw):
    """A line of an event file, changed in one or two ways."""
    kind = draw(st.sampled_from(sorted(KEYS)))
    who = st.sampled_from((*(f"n{k}" for k in range(NODES)), "nobody", "guest"))
    event = {"type": kind, **{name: draw(who) for name in KEYS[kind]}}
    if kind == "label":
        event["label"] = draw(st.sampled_from("ab"))
    if kind == "node":
        event |= {"age": draw(st.integers(0, 90)), "country": "de", "likes": [1.0, 2.0]}
    if kind == "edge":
        event["weight"] = draw(st.sampled_from((0.5, 1, 2)))
    row = {json.dumps(name): json.dumps(value).encode() for name, value in event.items()}
    twice = b""
    for _ in range(draw(st.integers(1, 2))):
        change = draw(st.sampled_from(CHANGES))
        name = draw(st.sampled_from(sorted(row))) if row else '"id"'
        if change == "more":
            name = json.dumps(draw(st.sampled_from(("size", "", "age ", "x" * 3000))))
        if change in ("value", "more"):
            row[name] = json.dumps(draw(st.sampled_from(VALUES))).encode()
        elif change == "raw":
            row[name] = draw(st.sampled_from(RAW))
        elif change == "gone":
            row.pop(name, None)
        elif change == "twice":
            twice = name.encode() + b": 1, "
        else:
            return _broken(draw, _line(row, twice), change)
    return _line(row, twice)


def _line(row, more):
    return b"{" + more + b", ".join(k.encode() + b": " + v for k, v in row.items()) + b"}"


def _broken(draw, line, change):
    """A line whose text is damaged."""
    place = draw(st.integers(0, len(line)))
    if change == "cut":
        return line[:place]
    if change == "byte":
        return line[:place] + bytes([draw(st.integers(0, 255))]) + line[place:]
    return b"[" + line + b"]"


@cache
def folder():
    """A small model folder."""
    place = tempfile.TemporaryDirectory(dir=SCRATCH)
    atexit.register(place.cleanup)
    chance = random.Random(0)
    nodes = {
        "id": [f"n{k}" for k in range(NODES)],
        "age": [chance.uniform(10, 90) for _ in range(NODES)],
        "country": [chance.choice(("de", "fr")) for _ in range(NODES)],
        "likes": [[chance.gauss(0, 1), chance.gauss(0, 1)] for _ in range(NODES)],
        "label": [chance.choice("ab") for _ in range(NODES)],
    }
    ends = [[f"n{chance.randrange(NODES)}" for _ in range(300)] for _ in range(2)]
    edges = dict(zip(("source", "target"), ends, strict=True))
    path = Path(place.name) / "model"
    Model.train(path, nodes, edges, settings=Settings(landmarks=8)).close()
    return path


@cache
def model():
    """The model of the folder, opened in a copy that trials share while nothing changes it."""
    copy = folder().with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    made = Model.open(shutil.copytree(folder(), copy))
    made.digest()
    return made


def trial(line):
    """An event is learned, or refused with line, rule and value, and then nothing has changed."""
    used, report, taken = model(), Report(), []
    before = used.digest(), used.store.position, len(used.graph), used.graph.num_edges

    def feed():
        for part, _ in read_events(io.BytesIO(line + b"\n"), report):
            taken.append(used.learn(part, report))

    assert refusal(feed) is None, "an event with a report must never raise"
    position = used.store.position
    if report.count:
        after = used.digest(), position, len(used.graph), used.graph.num_edges
        assert after == before, "it was refused, but something has changed"
        for problem in report.problems:
            text = str(problem)
            assert all(part in text for part in (": ", ", got ", "; ")), text
            assert len(text) < 600, f"{len(text)} letters"
            assert problem.line is not None or not line.strip(), text
        return "refused"
    assert position == before[1] + sum(taken)
    if sum(taken):
        used.close()
        model.cache_clear()
    return "learned" if sum(taken) else "blank"

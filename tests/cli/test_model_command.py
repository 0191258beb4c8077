"""A new user's story in the shell, and what may go wrong with a model folder."""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time

import aimed
import kill_learn
import numpy as np
import pyarrow.parquet as parquet
import pytest
import traced
from typer.testing import CliRunner

from evergraph.cli import app

EVERGRAPH = [sys.executable, "-m", "evergraph"]
CLASSES = ("admin", "buyer", "guest", "seller", "writer")


def shell(*arguments, code=0, text=None, **options):
    """Run a command: in a process of its own only if it reads or needs options of one."""
    words = list(map(str, arguments))
    if text is None and not options:
        made = CliRunner().invoke(app, words)
        if made.exception is not None and not isinstance(made.exception, SystemExit):
            raise made.exception
        found, out, err = made.exit_code, made.stdout, made.stderr
    else:
        given = None if text is None else text.encode()
        command = [*EVERGRAPH, *words]
        done = subprocess.run(command, capture_output=True, input=given, check=False, **options)
        found, out, err = done.returncode, done.stdout.decode(), done.stderr.decode()
    assert found == code, err
    assert "Traceback" not in err, err
    return out, err


def from_json(*arguments, **options):
    return json.loads(shell(*arguments, "--json", **options)[0])


def users(folder, size=2000, seed=0):
    """Users in raw units with gaps, who mostly know their own kind; returns the hidden classes."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 5, size)
    age = (25 + 7 * kind + rng.normal(0, 11, size)).round()
    income = (20_000 + 9_000 * ((kind * 2) % 5) + rng.normal(0, 15_000, size)).round(2)
    codes = np.array(["de", "fr", "it", "pl", "us"])
    country = codes[np.where(rng.random(size) < 0.45, kind, rng.integers(0, 5, size))]
    shown = rng.random(size) < 0.6
    lines = ["id,age,income,joined,country,label"]
    for user in range(size):
        joined = f"20{rng.integers(18, 25)}-{rng.integers(1, 13):02}-{rng.integers(1, 29):02}"
        cells = [f"{age[user]:.0f}", f"{income[user]}", joined, country[user]]
        cells = ["" if rng.random() < 0.03 else cell for cell in cells]
        lines.append(",".join([f"u{user}", *cells, CLASSES[kind[user]] if shown[user] else ""]))
    ends = rng.integers(0, size, (12_000, 2))
    kept = ends[(kind[ends[:, 0]] == kind[ends[:, 1]]) | (rng.random(12_000) < 0.15)]
    folder.mkdir()
    (folder / "nodes.csv").write_text("\n".join(lines) + "\n")
    pairs = [f"u{a},u{b}" for a, b in kept[: 2 * size].tolist()]
    (folder / "edges.csv").write_text("\n".join(["source,target", *pairs, "u1,nobody"]) + "\n")
    flat = np.stack([age, income, *(country == code for code in codes)], axis=1)
    return {f"u{k}": CLASSES[kind[k]] for k in np.flatnonzero(~shown)}, flat, kind, shown


def plain_accuracy(flat, kind, shown):
    """What logistic regression gets without a graph."""
    from sklearn.linear_model import LogisticRegression

    scaled = (flat - flat.mean(0)) / flat.std(0)
    return LogisticRegression().fit(scaled[shown], kind[shown]).score(scaled[~shown], kind[~shown])


def test_the_story_of_a_new_user(tmp_path):
    hidden, *table = users(tmp_path / "data")
    model, out = tmp_path / "model", tmp_path / "told.csv"
    printed, _ = shell("train", tmp_path / "data", "--out", model)
    assert all(word in printed for word in ("income", "number", "country", "category", "date"))
    shell("predict", model, "--out", out)
    told = dict(line.split(",")[:2] for line in out.read_text().splitlines()[1:])
    accuracy = np.mean([told[user] == label for user, label in hidden.items()])
    assert plain_accuracy(*table) < 0.7
    assert accuracy > 0.73

    event = {"type": "node", "id": "a1", "age": 99, "income": 250_000, "label": "affiliate"}
    before = from_json("inspect", model)
    assert from_json("learn", model, "-", text=json.dumps(event))["learned"] == 1
    after = from_json("inspect", model)
    assert list(after["classes"]) == ["admin", "affiliate", *CLASSES[1:]]
    assert (after["nodes"], after["labels"]) == (before["nodes"] + 1, before["labels"] + 1)
    again = {one["id"]: one["class"] for one in from_json("predict", model)}
    assert np.mean([again[user] == label for user, label in hidden.items()]) > accuracy - 0.01
    assert np.mean([again[user] == told[user] for user in told]) > 0.98

    (tmp_path / "new.csv").write_text("id,age,income,country\nx,25,21000,de\n7,53,48000,us\n")
    (tmp_path / "links.csv").write_text("source,target\nx,u1\nx,7\n")
    asked = ["predict", model, tmp_path / "new.csv", "--edges", tmp_path / "links.csv"]
    rows = shell(*asked)[0].splitlines()
    assert rows[0] == "id,class,probability,novelty"
    assert [row.split(",")[0] for row in rows[1:]] == ["x", "7"]
    shell("forget", model, "--node", "a1")
    assert from_json("inspect", model)["digest"] == before["digest"]
    assert "waiting edges" in shell("inspect", model)[0]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    model, events = kill_learn.prepare(folder, 1500)
    return folder, model, events


@pytest.fixture
def model(made, tmp_path):
    return shutil.copytree(made[1], tmp_path / "model")


def test_train_takes_names_schemas_and_other_id_columns(tmp_path):
    data = tmp_path / "data"
    users(data, 100)
    nodes = (data / "nodes.csv").read_text().replace("id,age", "user,age", 1)
    (data / "nodes.csv").write_text(nodes)
    kinds = tmp_path / "kinds.json"
    one = ["train", data, "--id", "user", "--out"]
    shell(*one, tmp_path / "one", "--schema-out", kinds)
    text = kinds.read_text()
    assert '{"name": "income", "kind": "number"}' in text
    same = from_json(*one, tmp_path / "same", "--schema", kinds)
    assert same["digest"] == from_json("inspect", tmp_path / "one")["digest"]
    kinds.write_text(text.replace('"income", "kind": "number"', '"income", "kind": "drop"'))
    other = from_json(*one, tmp_path / "other", "--schema", kinds)
    assert other["digest"] != same["digest"]
    found = from_json("train", "generated", "--out", tmp_path / "named")
    assert found["nodes"] == 2000
    counts = found["held_back"]["test"]
    assert found["labels"] + counts["tested"] == 2000
    assert counts["tested"] == counts["nodes"] > 100
    assert counts["accuracy"] == counts["right"] / counts["tested"] > 0.5
    printed = shell("inspect", tmp_path / "named")[0]
    assert f"{counts['accuracy']:.3f} of {counts['tested']:,} tested" in printed
    (tmp_path / "ids.jsonl").write_text('{"user": "u3"}\n')
    asked = ["predict", tmp_path / "one", tmp_path / "ids.jsonl", "--id", "user"]
    assert from_json(*asked)[0]["id"] == "u3"


def test_refit_takes_statistics_and_kinds_again(model, made, tmp_path):
    start = from_json("inspect", model)
    from_json("learn", model, made[2])
    found = from_json("refit", model)
    assert found["position"] == start["position"] + 1500
    assert found == from_json("inspect", model)
    assert [line["kind"] for line in found["schema"]] == [line["kind"] for line in start["schema"]]
    assert found["schema"] != start["schema"]
    kinds = tmp_path / "kinds.json"
    kinds.write_text(shell("inspect", model, "--schema")[0])
    assert from_json("refit", model, "--schema", kinds)["digest"] == found["digest"]
    text = kinds.read_text()
    for change, words in (
        (('"kind": "number"', '"kind": "numeric"'), "kinds.json: the kind of column 'age' must"),
        (('"name": "age"', '"name": "years"'), "column 'years': a column of the schema must be"),
        (('"columns"', '"lines"'), "kinds.json: a schema must be JSON with version and columns"),
    ):
        kinds.write_text(text.replace(*change))
        error = shell("refit", model, "--schema", kinds, code=2)[1]
        assert words in " ".join(error.split())
    assert from_json("inspect", model)["digest"] == found["digest"]
    kinds.write_text(text.replace('"kind": "number"', '"kind": "drop"'))
    other = from_json("refit", model, "--schema", kinds)
    assert other["digest"] != found["digest"]
    assert {line["kind"] for line in other["schema"]} == {"drop", "category"}


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_predictions_are_written_in_three_formats(model, tmp_path, ending):
    out = tmp_path / f"told.{ending}"
    expected = from_json("predict", model, "--out", out)
    if ending == "parquet":
        assert parquet.read_table(out).to_pylist() == expected
    elif ending == "jsonl":
        assert [json.loads(line) for line in out.read_text().splitlines()] == expected
    else:
        rows = [line.split(",") for line in out.read_text().splitlines()]
        assert rows[0] == list(expected[0])
        assert [float(row[2]) for row in rows[1:]] == [one["probability"] for one in expected]


def test_forgetting_takes_many_at_once_and_all_or_none(model):
    start = from_json("inspect", model)["digest"]
    text = "".join(
        json.dumps(event) + "\n"
        for event in (
            {"type": "node", "id": "7", "age": 3},
            {"type": "node", "id": "b", "age": 4},
            {"type": "edge", "source": "u1", "target": 7},
            {"type": "edge", "source": "u2", "target": "u3"},
            {"type": "edge", "source": "u2", "target": "u4"},
            {"type": "label", "id": "b", "label": "new"},
        )
    )
    learned = from_json("learn", model, "-", text=text)["digest"]
    edges = ["--edge", "u3", "u2", "--edge", "u2", "u4"]
    _, error = shell("forget", model, *edges, "--node", "7", "--node", "nobody", code=2)
    assert "no node 'nobody'" in error
    assert from_json("inspect", model)["digest"] == learned
    found = from_json("forget", model, *edges, "--node", "7", "--label", "b")
    assert found["forgotten"] == {"nodes": 1, "edges": 2, "labels": 1}
    assert from_json("forget", model, "--node", "b")["digest"] == start


def test_a_resumed_file_continues_where_it_ended(model, tmp_path, made):
    lines = made[2].read_text().splitlines(keepends=True)
    path = tmp_path / "events.jsonl"
    path.write_text("".join(lines[:700]))
    assert from_json("learn", model, path, "--chunk", "64")["learned"] == 700
    assert from_json("learn", model, path, "--resume")["learned"] == 0
    path.write_text("".join(lines))
    assert from_json("learn", model, path, "--resume")["learned"] == len(lines) - 700
    path.write_text("".join(lines[5:]))
    assert "another file" in shell("learn", model, path, "--resume", code=2)[1]


def test_killed_at_random_moments_it_ends_the_same(tmp_path):
    assert kill_learn.trials(tmp_path, 5, random.Random(1), 1500) == 0


@pytest.mark.parametrize(
    ("name", "how", "step"),
    [
        ("learn", "kill", 13), ("learn", "power", 11), ("learn", "full", 13),
        ("forget", "tear", 17), ("forget", "broken", 19), ("train", "power", 5),
        ("refit", "kill", 7),
    ],
)  # fmt: skip
def test_disturbed_inside_its_commits_it_ends_the_same(tmp_path, name, how, step):
    """Each call that changes a file has its turn in `make crash`."""
    if not traced.allowed(tmp_path):
        pytest.skip("tracing needs Linux on x86-64, and the right to trace children")
    found = aimed.every_call(tmp_path, name, how, step)
    assert not found["failures"]
    assert sum(found["outcomes"].values()) > 3


def test_two_writers_at_once_learn_a_file_once(tmp_path):
    assert kill_learn.two_writers(tmp_path, 2) == 0


def test_a_network_that_is_killed_ends_with_the_same_bits(tmp_path):
    assert kill_learn.trials(tmp_path, 3, random.Random(2), 700, "both") == 0


def test_a_network_learns_on_the_same_road(tmp_path):
    users(tmp_path / "data", size=300)
    folder = tmp_path / "model"
    error = shell("train", tmp_path / "data", "--out", folder, "--learner", "tree", code=2)[1]
    assert "learner must be one of exact, network, both, got 'tree'" in error
    shown = shell("train", tmp_path / "data", "--out", folder, "--learner", "both")[0]
    assert "network: remembered" in shown
    told = "The weights of the network keep the influence of what is forgotten."
    assert told in shell("forget", folder, "--node", "u1")[0]
    assert from_json("forget", folder, "--node", "u2")["warning"] == told
    found = from_json("inspect", folder)
    assert found["settings"]["learner"] == "both"
    assert found["network"]["learned"] + found["network"]["waiting"] >= found["labels"]


@pytest.mark.parametrize(("kind", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_keep_what_came_through_a_pipe(model, made, kind, code):
    lines = made[2].read_bytes().splitlines(keepends=True)
    command = [*EVERGRAPH, "learn", str(model), "-", "--chunk", "10"]
    before = from_json("inspect", model)["position"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, **pipes) as process:
        process.stdin.write(b"".join(lines[:25]) + lines[25][:9])
        process.stdin.flush()
        deadline = time.monotonic() + 60
        while from_json("inspect", model)["position"] < before + 20 and time.monotonic() < deadline:
            time.sleep(0.1)
        os.kill(process.pid, kind)
        process.wait(timeout=60)  # though the pipe is still open
        error = process.stderr.read().decode()
    assert process.returncode == code, error
    assert "Interrupted. All that was learned is saved" in error
    assert from_json("inspect", model)["position"] == before + 25
    more = from_json("learn", model, "-", "--resume", text=b"".join(lines[:40]).decode())
    assert more["learned"] == 15


def one_line(error):
    lines = error.strip().splitlines()
    assert len(lines) == 1, error
    return lines[0]


def test_a_full_disk_is_told_in_a_line_and_nothing_is_lost(model, made, tmp_path):
    events, digest = made[2], from_json("inspect", model)["digest"]
    room = (model / "graph.sqlite").stat().st_size + 20_000

    def little_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    arguments = ["learn", model, events, "--chunk", "500", "--json"]
    _, error = shell(*arguments, code=2, preexec_fn=little_room)
    assert one_line(error).startswith("Error: cannot write")
    found = from_json("inspect", model)
    assert found["position"] % 500 == 200
    done = from_json("learn", model, events, "--resume")
    assert (done["refused"], done["position"]) == (0, 1700)
    assert done["digest"] != digest
    _, error = shell(
        "train", "generated", "--out", tmp_path / "new", code=2, preexec_fn=little_room
    )
    assert "Error:" in error
    assert not (tmp_path / "new").exists()


def test_a_second_writer_is_told_and_readers_are_not_held_up(model, made):
    from evergraph.model import Model

    with Model.open(model):
        assert "written by another process" in one_line(
            shell("learn", model, made[2], "--json", code=2)[1]
        )
        assert "written by another process" in one_line(
            shell("forget", model, "--node", "u1", code=2)[1]
        )
        assert from_json("inspect", model)["nodes"] == 200


def test_a_folder_that_cannot_be_written_can_be_asked(model, made, tmp_path):
    place = tmp_path / "readonly"
    place.mkdir()
    bind = f"mount --bind {model} {place} && mount -o remount,bind,ro {place}"
    inside = ["unshare", "--mount", "sh", "-c"]
    if subprocess.run([*inside, bind], capture_output=True, check=False).returncode:
        pytest.skip("a read-only mount needs rights that this process does not have")

    def ask(*arguments):
        command = " ".join([*EVERGRAPH, *map(str, arguments)])
        return subprocess.run(
            [*inside, f"{bind} && {command}"], capture_output=True, text=True, check=False
        )

    assert ask("inspect", place, "--json").returncode == 0
    refused = ask("learn", place, made[2], "--json")
    assert refused.returncode == 2
    assert "make file and folder writable" in one_line(refused.stderr)


def malformed(count):
    """Lines that must be refused, each for one reason, of many kinds in turn."""
    kinds = [
        lambda k: b'{"type": "node", "id": "x%d", "age": "old"}' % k,
        lambda k: b'{"type": "node", "id": "x%d", "age": [1, 2, 3]}' % k,
        lambda k: b'{"type": "node", "id": "x%d", "size": %d}' % (k, k),
        lambda k: b'{"type": "node", "id": "x%d", "age": NaN}' % k,
        lambda k: b'{"type": "node", "id": "x%d", "age": 1e300}' % k,
        lambda k: b'{"type": "node", "id": "x%d", "age": {"a": 1}}' % k,
        lambda k: b'{"type": "node", "id": %d.5}' % k,
        lambda k: b'{"type": "node", "id": "u1", "time": "soon"}',
        lambda k: b'{"type": "label", "id": "u%d", "label": 1000000000}' % (k % 200),
        lambda k: b'{"type": "label", "id": "nobody%d", "label": "a"}' % k,
        lambda k: b'{"type": "label", "id": "u1", "label": ["a"]}',
        lambda k: b'{"type": "node", "id": "%s"}' % (b"i" * (1 << 20)),
        lambda k: b'{"type": "node", "id": "\xff\xfe%d"}' % k,
        lambda k: b'{"type": "node", "id": "\\ud800"}',
        lambda k: b'{"type": "edge", "source": "u1", "target": "u2", "weight": [1, 2]}',
        lambda k: b'{"type": "edge", "source": "u1", "target": "u2", "weight": -1}',
        lambda k: b'{"type": "edge", "source": "u1", "target": "u2", "weight": 1e9}',
        lambda k: b'{"type": "edge", "source": "u1"}',
        lambda k: b'{"type": "delete_edge", "source": "u1", "target": "nobody"}',
        lambda k: b'{"type": "delete_node", "id": "nobody%d"}' % k,
        lambda k: b'{"type": "explode", "id": "u1"}',
        lambda k: b'{"type": "node", "id": 1%s}' % (b"0" * 30),
        lambda k: b"[1, 2]",
        lambda k: b'{"type": "node", "id": "x", "id": "y"}',
        lambda k: b"[" * 5000,
    ]
    return [kinds[k % len(kinds)](k) for k in range(count)]


def cycles(number):
    """Adding and deleting, which leaves nothing; the second deletion is refused."""
    node = b'{"type": "node", "id": "c%d", "age": 3, "label": "b"}' % number
    edge = b'{"type": "edge", "source": "c%d", "target": "u1"}' % number
    gone = b'{"type": "delete_node", "id": "c%d"}' % number
    return [node, edge, gone, gone, node, gone]


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_malformed_events_are_refused_with_rule_and_value(model, tmp_path, count):
    before = from_json("inspect", model)
    bad, path = malformed(count), tmp_path / "bad.jsonl"
    lines = [
        line for k, one in enumerate(bad) for line in (one, *(cycles(k) if k % 50 == 0 else ()))
    ]
    path.write_bytes(b"\n".join(lines) + b"\n")
    _, error = shell("learn", model, path, code=1)
    told = [line for line in error.splitlines() if line.startswith("Refused: ")]
    refused = count + count // 50
    assert len(told) == refused
    assert all(", line " in line and ", got " in line and "; " in line for line in told)
    assert max(map(len, told)) < 600
    places = {int(line.split(", line ")[1].split(":")[0].split(",")[0]) for line in told}
    assert len(places) == refused
    after = from_json("inspect", model)
    assert after["digest"] == before["digest"]
    assert after["position"] == before["position"] + 5 * (count // 50)


def test_what_is_no_model_or_no_data_is_told(tmp_path, model):
    (tmp_path / "empty").mkdir()
    for arguments, words in (
        (["inspect", tmp_path / "nothing"], "is no model folder"),
        (["learn", model, tmp_path / "nothing.jsonl"], "files that can be read"),
        (["train", tmp_path / "empty", "--out", tmp_path / "m"], "must have one of nodes.csv"),
        (["train", "generated", "--out", model], "is there already"),
        (["predict", model, "--format", "xls"], "must be one of csv, jsonl, parquet"),
        (["predict", model, "-"], "there must be a column 'id'"),
        (["forget", model], "nothing to forget"),
        (["forget", model, "--edge", "a"], "needs two ids"),
    ):
        given = "x,y\n1,2\n" if arguments[-1] == "-" else None
        _, error = shell(*arguments, code=2, text=given)
        assert words in " ".join(error.split()), error
    assert not (tmp_path / "m").exists()

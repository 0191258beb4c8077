"""`evergraph serve`, `at` and `compact` as users run them, the lines of the docs among them."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from served import COLUMNS, SCHEMA, edges, lines, node, serve
from typer.testing import CliRunner

import evergraph
from evergraph.cli import app
from evergraph.datasets.schema import Schema
from evergraph.model import Model
from evergraph.serve.client import Client

ROOT = Path(evergraph.__file__).parents[1]
DOCS = (ROOT / "docs" / "serve.md").read_text()
EVENTS = [*(node(k) for k in range(140)), *edges()]


def command(*arguments):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    return [sys.executable, "-m", "evergraph", *map(str, arguments)], env


def run(*arguments):
    """A command in this process, which has imported all that is heavy."""
    return CliRunner().invoke(app, list(map(str, arguments)))


@contextmanager
def started(*arguments):
    """A service in a process of its own, and its first lines."""
    line, env = command("serve", *arguments, "--quiet")
    process = subprocess.Popen(line, env=env, stdout=subprocess.PIPE, text=True)
    try:
        yield process, [process.stdout.readline() for _ in range(4)]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as made:
        return made.getsockname()[1]


def test_kills_lose_nothing_and_repeat_nothing(tmp_path):
    port, done = free_port(), []
    client = Client(f"http://127.0.0.1:{port}", retries=30)

    def send():
        client.learn([SCHEMA])
        parts = (EVENTS[start : start + 5] for start in range(0, len(EVENTS), 5))
        done.extend(map(client.learn, parts))

    sender = threading.Thread(target=send)
    sender.start()
    for target in (30, 60, len(EVENTS)):
        with started(tmp_path / "model", "--port", port) as (process, _):
            while sum(done) < target and sender.is_alive():
                sender.join(0.02)
            if target == len(EVENTS):
                sender.join()
                digest, position = client.digest(), client.inspect()["position"]
                process.send_signal(signal.SIGTERM)
                process.wait(30)
            else:
                process.send_signal(signal.SIGKILL)
    client.close()
    assert (sum(done), position) == (len(EVENTS), len(EVENTS))
    text = json.dumps({"version": 1, "columns": COLUMNS})
    with Model.create(tmp_path / "direct", Schema.from_json(text)) as model:
        model.learn(EVENTS[:64])
        model.refit()
        model.learn(EVENTS[64:])
        assert model.digest() == digest
    with evergraph.open(tmp_path / "model") as model:
        assert model.digest() == digest


def test_the_first_lines_can_be_pasted(tmp_path):
    with started(tmp_path / "model", "--port", "0") as (_, first):
        url = re.search(r"http://127\.0\.0\.1:\d+", first[0])[0]
        assert all(line.startswith(f"  curl {url}/") for line in first[1:])
        if shutil.which("curl") is None:
            pytest.skip("curl is not installed")
        for number, line in enumerate(first[1:]):
            words = ["curl", "-s", *re.findall(r"http\S+", line), "-d", line.split("'")[1]]
            found = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
            assert found["predictions" if number == 2 else "accepted"], found


def test_errors_are_one_line(tmp_path):
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    with taken:
        for arguments, words in (
            (["serve"], "a model folder is needed: give MODEL, or try --demo"),
            (["serve", tmp_path / "m", "--host", "0.0.0.0"], "needs a token and TLS"),
            (["serve", tmp_path / "m", "--token-file", tmp_path / "t"], "cannot be read"),
            (["serve", tmp_path / "m", "--port", port], "choose another --port"),
            (["at", tmp_path / "m", "--offset", "3"], "is no model folder"),
            (["at", tmp_path / "m", "--time", "soon"], "a time must be like"),
        ):
            done = run(*arguments)
            assert (done.exit_code, words in done.stderr) == (2, True), done.stderr
            assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_at_and_compact_show_the_past(tmp_path):
    with serve(tmp_path / "model") as made:
        made.client.learn([SCHEMA, *EVENTS[:140]])
        made.settle()
        digest = made.client.digest()
        then = made.client.predict(["p3"])[0]
        moment = made.client.inspect()["time"]
        made.client.learn([{"type": "label", "id": "p3", "label": "third"}])
        busy = run("at", tmp_path / "model", "--offset", "140", "--node", "p3", "--json")
        found = json.loads(busy.stdout)  # while it is being served
        assert (found["digest"], found["position"]) == (digest, 140)
        assert found["predictions"][0]["class"] == then.label
        assert "being written by another process" in run("compact", tmp_path / "model").stderr
    done = run("at", tmp_path / "model", "--time", moment, "--out", tmp_path / "then", "--json")
    assert json.loads(done.stdout)["digest"] == digest
    with evergraph.open(tmp_path / "then") as model:
        assert model.digest() == digest
        assert model.predict(["p3"]) == [then]
    assert run("at", tmp_path / "model", "--offset", "140").exit_code == 0
    assert json.loads(run("compact", tmp_path / "model", "--json").stdout)["history"] == 141
    done = run("at", tmp_path / "model", "--offset", "140")
    assert (done.exit_code, "offset must be from 141 to 141" in done.stderr) == (2, True)


def block(kind, number=0):
    return re.findall(rf"```{kind}\n(.*?)```", DOCS, re.DOTALL)[number]


def test_the_lines_of_the_docs_run(tmp_path, capsys):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    (tmp_path / "events.jsonl").write_bytes(
        lines([{"type": "node", "id": "p0", "age": 70}, {"type": "node", "id": "p1", "age": 5}])
    )
    with serve(tmp_path / "model", settings=evergraph.Settings()) as made:
        script = block("sh", 1)
        assert len(script.strip().splitlines()) == 11
        script = script.replace("http://127.0.0.1:8000", made.url).replace(
            "curl ", "curl -sfw '\\n' "
        )
        done = subprocess.run(
            ["bash", "-e", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found = [json.loads(line) for line in done.stdout.splitlines()]
        assert [one["accepted"] for one in found[:4]] == [0, 1, 1, 2]
        assert found[4]["predictions"][0]["class"] == "author"
        assert found[5]["accepted"] == 1
        assert found[6]["scored"][0]["truth"] == "author"
        assert found[9]["digest"]["before"] != found[9]["digest"]["after"]
        code = block("python")
        assert len([line for line in code.splitlines() if line.strip()]) == 10
        exec(compile(code.replace("http://127.0.0.1:8000", made.url), "docs/serve.md", "exec"), {})
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 4
    assert "'truth': 'young'" in told[1]


def test_the_demo_plays(tmp_path):
    with started("--demo", "--port", "0", "--rate", "400") as (_, first):
        url = re.search(r"http://127\.0\.0\.1:\d+", first[0])[0]
        with Client(url) as client:
            for _ in range(300):
                state = client.inspect()
                if state["prequential"]["scored"] > 50:
                    break
                threading.Event().wait(0.1)
            assert state["prequential"]["scored"] > 50
            assert state["counts"]["refused"] == 0
            assert state["version"] is not None

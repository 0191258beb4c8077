"""The same on actors of Ray, killed and refused; skipped where Ray is not installed."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import evergraph
from evergraph.cli import app
from evergraph.cluster import engine as engines
from evergraph.cluster.engine import RayEngine
from tests.cluster.histories import history
from tests.model.small_models import SMALL, people

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'evergraph[ray]'")
pytestmark = pytest.mark.filterwarnings("ignore")  # those of Ray, about itself


@pytest.fixture(scope="module", autouse=True)
def machine():
    """One cluster of Ray for all tests, small, and ended with them."""
    os.environ["RAY_AUTH_MODE"] = "disabled"
    _, began = engines.connect(None, 3, 100_000_000)
    yield
    if began:
        ray.shutdown()


def tables():
    nodes, edges = people()
    nodes["label"] = [label if k % 3 else None for k, label in enumerate(nodes["label"])]
    return nodes, edges


def test_two_actors_give_the_digest_of_one_machine(tmp_path):
    model = evergraph.Model.train(tmp_path / "model", *tables(), settings=SMALL)
    with evergraph.Cluster.train(tmp_path / "c", *tables(), settings=SMALL) as cluster:
        assert cluster.digest() == model.digest()
        events = [e for e in history(3, 120) if e.get("age") != "no number"]
        report = evergraph.datasets.report.Report()
        model.learn(events, evergraph.datasets.report.Report())
        cluster.learn(events, report)
        assert cluster.digest() == model.digest()
        assert cluster.predict() == model.predict()
        about = cluster.inspect()["shards"]
        assert len({part["pid"] for part in about} | {os.getpid()}) == 3
        assert sum(part["traffic"]["means"] for part in about) > 0
        with pytest.raises(ValueError, match="being written by another process"):
            evergraph.Cluster.open(tmp_path / "c")


def test_killed_actors_catch_up(tmp_path):
    """A process is killed while it is idle, and others while they learn."""
    model = evergraph.Model.train(tmp_path / "model", *tables(), settings=SMALL)
    with evergraph.Cluster.train(tmp_path / "c", *tables(), shards=2, settings=SMALL) as cluster:
        kill(cluster, 0)
        assert cluster.digest() == model.digest()
        events = list(history(4, 60))
        killer = threading.Timer(0.05, kill, (cluster, 1))
        killer.start()
        for start in range(0, 60, 10):
            part = events[start : start + 10]
            for one in (model, cluster):
                one.learn(part, evergraph.datasets.report.Report())
        killer.join()
        assert cluster.digest() == model.digest()
    with evergraph.Cluster.open(tmp_path / "c") as again:
        assert again.digest() == model.digest()


def kill(cluster, place):
    os.kill(pids(cluster)[place], signal.SIGKILL)
    time.sleep(0.05)


def pids(cluster):
    engine = cluster.shards.engine
    return [
        ray.get(actor.run.remote(token, "about"))["pid"]
        for actor, token in zip(engine._actors, engine._tokens, strict=True)
    ]


def test_another_version_on_a_shard_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(engines, "__version__", "0.0.9")
    with pytest.raises(ValueError, match=r"same evergraph, got 0\.0\.9 here"):
        RayEngine([Path(tmp_path / "shard-0")], SMALL)


def test_a_cluster_that_is_not_there_is_told(monkeypatch):
    def nobody(**_):
        raise ConnectionError("no answer")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", nobody)
    with pytest.raises(OSError, match=r"could be used at 127\.0\.0\.1:1 \(no answer\)"):
        engines.connect("127.0.0.1:1", 1, 10**8)


def test_train_on_the_command_line_prints_the_same_digest(tmp_path):
    nodes, edges = tables()
    (tmp_path / "data").mkdir()
    for name, table in (("nodes", nodes), ("edges", edges)):
        lines = zip(*table.values(), strict=True)
        text = [",".join("" if cell is None else str(cell) for cell in line) for line in lines]
        (tmp_path / "data" / f"{name}.csv").write_text("\n".join([",".join(table), *text]) + "\n")
    more = ("--engine", "ray", "--shards", "2")
    one, two = (
        CliRunner().invoke(
            app, ["train", str(tmp_path / "data"), "--out", str(out), "--json", *own]
        )
        for out, own in ((tmp_path / "one", ()), (tmp_path / "two", more))
    )
    found = json.loads(two.stdout)
    assert found["digest"] == json.loads(one.stdout)["digest"]
    assert found["shards"] == len(found["processes"]) == 2
    assert found["seconds"] > 0

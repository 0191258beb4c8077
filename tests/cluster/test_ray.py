"""Shards, experiments and ranks on actors of Ray, killed and refused; skipped without Ray.

All tests share one small cluster of Ray, and most of them one folder of shards.
"""

import json
import os
import resource
import signal
import threading
import time

import pytest
import torch
from typer.testing import CliRunner

import evergraph
from evergraph import FGN, Replay, Training, node_continuum
from evergraph.cli import app
from evergraph.cluster import engine as engines
from evergraph.cluster.engine import RayEngine
from evergraph.cluster.launch import on_ranks
from evergraph.cluster.tasks import on_ray
from evergraph.datasets.generate import Growth, generate
from evergraph.datasets.report import Report
from evergraph.evaluate.config import Config
from evergraph.evaluate.search import search
from evergraph.graph.database import FileError
from evergraph.learn.parallel import ParallelLearner, part_of
from evergraph.learn.ranks import Ranks
from evergraph.learn.shared import SharedReservoir
from experiments.engines import compared, untimed
from tests.cluster.histories import history
from tests.model.small_models import SMALL, people

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'evergraph[ray]'")
pytestmark = pytest.mark.filterwarnings("ignore")  # those of Ray, about itself


@pytest.fixture(scope="module", autouse=True)
def machine():
    """One cluster of Ray for all tests, small, and ended with them."""
    os.environ["RAY_AUTH_MODE"] = "disabled"
    _, began = engines.connect(None, 5, 100_000_000)
    yield
    if began:
        ray.shutdown()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model and the folder of a cluster of the same tables, by the command; both as JSON."""
    folder = tmp_path_factory.mktemp("ray")
    nodes, edges = people()
    nodes["label"] = [label if k % 3 else None for k, label in enumerate(nodes["label"])]
    for name, table, cut in (("nodes", nodes, 100), ("edges", edges, 90)):
        lines = list(zip(*table.values(), strict=True))
        (folder / "data" / name).mkdir(parents=True)
        for at, part in enumerate((lines[:cut], lines[cut:])):
            text = [",".join("" if cell is None else str(cell) for cell in line) for line in part]
            file = folder / "data" / name / f"{at}.csv"
            file.write_text("\n".join([",".join(table), *text]) + "\n")
    settings = ("--set", "landmarks=16", "--set", "held_out=30", "--json")
    more = ("--engine", "ray", "--shards", "2")
    found = []
    for out, own in (("one", ()), ("two", more)):
        command = ["train", str(folder / "data"), "--out", str(folder / out), *settings, *own]
        run = CliRunner().invoke(app, command)
        assert run.exit_code == 0, run.output
        found.append(json.loads(run.stdout))
    return folder, *found


@pytest.fixture(scope="module")
def pair(trained):
    folder, *_ = trained
    with evergraph.open(folder / "one") as model, evergraph.Cluster.open(folder / "two") as cluster:
        yield model, cluster


def learn_both(pair, events):
    for one in pair:
        one.learn(events, Report())


def test_train_on_the_command_line_prints_the_same_digest(trained):
    """Each shard reads one of the files."""
    _, one, two = trained
    assert two["digest"] == one["digest"]
    assert two["shards"] == len(two["processes"]) == 2
    assert len({part["pid"] for part in two["processes"]} | {os.getpid()}) == 3
    for name in ("rows", "ghosts", "means"):
        assert sum(part["traffic"][name] for part in two["processes"]) > 0
    assert two["seconds"] > 0


def test_two_actors_follow_one_machine(pair):
    model, cluster = pair
    learn_both(pair, [e for e in history(3, 120) if e.get("age") != "no number"])
    assert cluster.digest() == model.digest()
    assert cluster.predict() == model.predict()
    with pytest.raises(ValueError, match="being written by another process"):
        RayEngine([cluster.path / "shard-0"], SMALL)


def about(cluster, place):
    return cluster.shards.steady(lambda: cluster.shards.all("about"))[place]["pid"]


def test_killed_actors_catch_up(pair):
    """A process is killed while it is idle, and another while they learn."""
    model, cluster = pair
    os.kill(about(cluster, 0), signal.SIGKILL)
    time.sleep(0.05)
    assert cluster.digest() == model.digest()
    events = list(history(4, 60))
    killer = threading.Timer(0.05, os.kill, (about(cluster, 1), signal.SIGKILL))
    killer.start()
    for start in range(0, 60, 10):
        learn_both(pair, events[start : start + 10])
    killer.join()
    assert cluster.digest() == model.digest()


def test_a_full_disk_on_one_shard_is_told_and_the_change_is_finished_later(pair):
    """The process of a shard cannot make files longer, as on a disk that is full."""
    model, cluster = pair
    pid, free = about(cluster, 1), (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    events = [{"type": "node", "id": f"n{k}", "country": "x" * 900} for k in range(400)]
    largest = max(f.stat().st_size for f in (cluster.path / "shard-1").iterdir())
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (largest + 20_000, resource.RLIM_INFINITY))
    try:
        with pytest.raises(FileError, match=r"cannot write .*shard-1"):
            cluster.learn(events)
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, free)
    model.learn(events)
    assert cluster.digest() == model.digest()


def test_another_version_on_a_shard_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(engines, "__version__", "0.0.9")
    with pytest.raises(ValueError, match=r"same evergraph, got 0\.0\.9 here"):
        RayEngine([tmp_path / "shard-0"], SMALL)


@pytest.mark.parametrize("kind", [ConnectionError, Exception])  # the latter on busy machines
def test_a_cluster_that_is_not_there_is_told(monkeypatch, kind):
    def nobody(**_):
        raise kind("no answer")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", nobody)
    with pytest.raises(OSError, match=r"could be used at 127\.0\.0\.1:1 \(no answer\)"):
        engines.connect("127.0.0.1:1", 1, 10**8)


def test_more_shards_than_cpus_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"shards must be at most as many .* got 6 for"):
        RayEngine([tmp_path / f"shard-{place}" for place in range(6)], SMALL)


# -- experiments ------------------------------------------------------------------------------


def test_each_item_gets_its_result_and_errors_are_raised():
    found = dict(on_ray(lambda x: x * x, [3, 5, 7]))
    assert found == {0: 9, 1: 25, 2: 49}
    with pytest.raises(ZeroDivisionError):
        list(on_ray(lambda x: 1 // x, [1, 0]))


def test_cells_over_ray_are_those_of_one_process():
    """A search, and an experiment."""
    data = generate(Growth(nodes=200, features=40))
    config = Config(dataset="generated", method="analytic", memory=0)
    serial = search(config, data, seeds=(0,))
    assert search(config, data, seeds=(0,), run=on_ray) == serial
    assert compared([config], 1, data)["equal"]


def test_a_comparison_over_ray_is_the_serial_one_and_is_resumed(tmp_path):
    parts = ["compare", "--dataset", "generated", "--methods", "analytic", "--models", "fgn,gcn"]
    parts += ["--memory", "20", "--json"]

    def results(*more):
        run = CliRunner().invoke(app, [*parts, *map(str, more)])
        assert run.exit_code == 0, run.output
        return json.loads(run.stdout)["results"]

    serial = results()
    out = tmp_path / "out.json"
    assert untimed(results("--engine", "ray", "--out", out)) == untimed(serial)
    first = json.loads(out.read_text())
    first["results"] = first["results"][:1]
    first["results"][0]["mark"] = "taken from the file"
    out.write_text(json.dumps(first))
    again = results("--engine", "ray", "--out", out)
    assert again[0].pop("mark") == "taken from the file"
    assert untimed(again) == untimed(serial)


# -- ranks ------------------------------------------------------------------------------------


def test_ranks_on_ray_learn_what_one_learns():
    def losses(ranks):
        torch.manual_seed(0)
        network = FGN(20, layer="transform", channels=(4,), features=(8,), norm="none")
        memory = SharedReservoir(20, 0, ranks)
        learner = ParallelLearner(network, Replay(), memory, Training(lr=0.1), ranks=ranks)
        found = []
        for batch in list(part_of(node_continuum(data), ranks))[:4]:
            learner.observe(batch)
            found.append(learner.joint_loss)
        return found

    data = generate(Growth(nodes=120, classes=3, features=20))
    assert on_ranks(losses, 2) == pytest.approx(losses(Ranks()), abs=1e-5)

"""Shards give the digest and the predictions of one machine, to the last bit."""

from dataclasses import replace
from operator import attrgetter

import numpy as np
import pytest

import evergraph
from evergraph.cluster import asking
from evergraph.cluster import engine as engines
from evergraph.cluster.engine import LocalEngine, ShardLost
from evergraph.cluster.folder import Change
from evergraph.cluster.partition import home, homes, keys_of
from evergraph.cluster.shard import Shard
from evergraph.datasets.events import Event
from evergraph.datasets.report import Report
from evergraph.graph.database import FileError
from evergraph.graph.store import Store
from evergraph.model import Settings
from tests.cluster.histories import batches, history
from tests.model.small_models import SMALL, people

NEW = {"id": ["x", "p4"], "age": [33, None], "country": ["de", None], "joined": ["", ""]}
NEW_EDGES = {"source": ["x", "x"], "target": ["p1", "p4"]}


def pair(tmp_path, shards=2, settings=SMALL, opener=LocalEngine, hidden=3, **more):
    """A model and a cluster of the same tables; some labels are not known."""
    nodes, edges = people()
    nodes["label"] = [label if k % hidden else None for k, label in enumerate(nodes["label"])]
    edges = {**edges, **more}
    edges["target"][:5] = [f"q{k}" for k in range(5)]  # these nodes are not there yet
    tables = nodes, edges
    model = evergraph.Model.train(tmp_path / "model", *tables, settings=settings)
    cluster = evergraph.Cluster.train(
        tmp_path / "cluster", *tables, shards=shards, settings=settings, engine=opener
    )
    return model, cluster


def assert_equal(model, cluster):
    assert cluster.digest() == model.digest()
    assert cluster.predict() == model.predict()
    assert np.array_equal(cluster.predict_proba(), model.predict_proba())


def learn_both(model, cluster, events, label=""):
    complaints = [Report(), Report()]
    taken = [one.learn(events, report) for one, report in zip((model, cluster), complaints)]  # noqa: B905
    assert taken[0] == taken[1], label
    assert complaints[0].problems == complaints[1].problems


@pytest.mark.parametrize("shards", [1, 2, 3, 4])
def test_digest_and_predictions_are_those_of_one_machine(tmp_path, shards):
    model, cluster = pair(tmp_path, shards)
    assert_equal(model, cluster)
    assert cluster.predict(NEW, NEW_EDGES) == model.predict(NEW, NEW_EDGES)
    assert cluster.predict([{"age": 51}]) == model.predict([{"age": 51}])
    assert cluster.predict_proba_one("p7") == model.predict_proba_one("p7")
    mine, theirs = cluster.inspect(), model.inspect()
    for name in ("nodes", "edges", "waiting_edges", "labels", "classes", "digest", "schema"):
        assert mine[name] == theirs[name], name
    assert sum(part["nodes"] for part in mine["shards"]) == theirs["nodes"]
    one, other = cluster.explain("p3"), model.explain("p3")
    assert (one.label, dict(one.neighbors).keys()) == (other.label, dict(other.neighbors).keys())
    assert one.score == pytest.approx(other.score)


@pytest.mark.parametrize(
    ("seed", "shards", "settings"),
    [
        (0, 2, SMALL),
        (1, 3, replace(SMALL, directed=True)),
        (2, 3, replace(SMALL, cap=3)),
        (3, 4, replace(SMALL, hops=1, unknown_ends="drop")),
        (4, 2, replace(SMALL, unknown_ends="error", cap=2, directed=True)),
        (5, 4, SMALL),
    ],
)
def test_any_history_ends_in_the_same_state(tmp_path, seed, shards, settings):
    """Refusals too are the same, and the state after each batch."""
    if settings.unknown_ends == "error":  # without the table of edges, which has such ends
        nodes, _ = people()
        model = evergraph.Model.train(tmp_path / "model", nodes, settings=settings)
        cluster = evergraph.Cluster.train(
            tmp_path / "cluster", nodes, shards=shards, settings=settings, engine=LocalEngine
        )
    else:
        model, cluster = pair(tmp_path, shards, settings)
    rng = np.random.default_rng(seed)
    for at, events in enumerate(batches(history(seed, 250), rng)):
        learn_both(model, cluster, events, f"batch {at}")
        if at % 3 == 0:
            assert cluster.digest() == model.digest(), f"batch {at}"
    assert_equal(model, cluster)
    model.refit()
    cluster.refit()
    assert_equal(model, cluster)
    cluster.close()
    with evergraph.Cluster.open(tmp_path / "cluster", engine=LocalEngine) as again:
        assert_equal(model, again)


class Mortal(LocalEngine):
    """Shards of one process that die at random moments, before a call or after it."""

    rng = np.random.default_rng(0)
    deaths = 0
    risk = 0.0

    def __init__(self, folders, settings):
        super().__init__(folders, settings)
        self._how = folders, settings

    def each(self, method, arguments):
        results = []
        for place, (one, args) in enumerate(zip(self._made, arguments, strict=True)):
            dies = self.rng.random() < self.risk
            if not dies or self.rng.random() < 0.5:
                results.append(attrgetter(method)(one)(*args))
            if dies:
                one.close()
                folders, settings = self._how
                self._made[place] = Shard(str(folders[place]), place, self.shards, settings)
                Mortal.deaths += 1
                raise ShardLost("killed")
        return results


def test_shards_that_die_come_back_and_catch_up(tmp_path, monkeypatch):
    monkeypatch.setattr(Mortal, "deaths", 0)
    monkeypatch.setattr(Mortal, "risk", 0.04)
    monkeypatch.setattr(asking, "PATIENCE", 200)
    model, cluster = pair(tmp_path, 3, opener=Mortal)
    rng = np.random.default_rng(7)
    for events in batches(history(7, 300), rng):
        learn_both(model, cluster, events)
    assert_equal(model, cluster)
    assert Mortal.deaths > 20


def test_a_coordinator_that_died_is_resumed(tmp_path):
    """Of a change that was written down, one shard has taken it and the other has not."""
    model, cluster = pair(tmp_path, 2)
    events = [
        Event("node", 1, id="q1", cells={"age": 44.0, "country": "it"}, label="old"),
        Event("edge", 2, source="q1", target="p3"),
        Event("delete_node", 3, id="p5"),
    ]
    number = 1 + max(cluster.shards.all("holding.progress"))
    Change(number, events).write(tmp_path / "cluster")
    from evergraph.cluster.partition import route

    cluster.shards.engine._made[1].learn(number, route(events, 2)[1])
    cluster.close()
    model.learn(events)
    with evergraph.Cluster.open(tmp_path / "cluster", engine=LocalEngine) as again:
        assert_equal(model, again)


def test_a_train_that_was_killed_goes_on(tmp_path, monkeypatch):
    nodes, edges = people()
    model = evergraph.Model.train(tmp_path / "model", nodes, edges, settings=SMALL)

    def begin(**more):
        given = {"nodes": nodes, "edges": edges, "shards": 2, "settings": SMALL, **more}
        return evergraph.Cluster.train(tmp_path / "cluster", engine=LocalEngine, **given)

    with monkeypatch.context() as patch:

        def stop(*_):
            raise KeyboardInterrupt

        patch.setattr("evergraph.cluster.state.State.join", stop)
        with pytest.raises(KeyboardInterrupt):
            begin()
    with pytest.raises(ValueError, match="repeat its train"):
        evergraph.Cluster.open(tmp_path / "cluster", engine=LocalEngine)
    with pytest.raises(ValueError, match="begun with other tables"):
        begin(nodes={**nodes, "label": nodes["label"][::-1]})
    with pytest.raises(ValueError, match="begun with 2 shards"):
        begin(shards=3)
    with begin() as cluster:
        assert_equal(model, cluster)
    with pytest.raises(ValueError, match="is there already"):
        begin()


def test_forgetting_leaves_no_byte_on_any_shard(tmp_path):
    model, cluster = pair(tmp_path, 2)
    secret = {"type": "node", "id": "secret-person", "age": 12345.5, "country": "fr"}
    edges = [{"type": "edge", "source": "secret-person", "target": f"p{k}"} for k in range(9)]
    before = cluster.digest()
    cluster.learn([secret, *edges])
    files = list((tmp_path / "cluster").rglob("*"))
    there = [file for file in files if file.is_file() and b"12345.5" in file.read_bytes()]
    assert len({file.parent for file in there}) == 2  # its owner, and a ghost on the other shard
    cluster.forget(nodes=["secret-person"])
    assert cluster.digest() == before == model.digest()
    for file in (tmp_path / "cluster").rglob("*"):
        assert not file.is_file() or b"secret-person" not in file.read_bytes(), file
        assert not file.is_file() or b"12345.5" not in file.read_bytes(), file


def test_a_ghost_goes_with_its_last_edge(tmp_path):
    _, cluster = pair(tmp_path, 2)
    before = cluster.inspect()["ghosts"]
    one = next(f"p{k}" for k in range(240) if home(f"p{k}", 2) == 0)
    cluster.learn([{"type": "node", "id": "z1", "age": 3}, {"type": "node", "id": "z2", "age": 3}])
    other = next(node for node in ("z1", "z2", "p1") if home(node, 2) == 1)
    cluster.learn([{"type": "edge", "source": one, "target": other}])
    assert cluster.inspect()["ghosts"] > before
    cluster.learn([{"type": "delete_edge", "source": one, "target": other}])
    assert cluster.inspect()["ghosts"] == before


@pytest.mark.parametrize("setting", [{"hops": 3}, {"learner": "network"}])
def test_what_a_cluster_cannot_do_is_refused(tmp_path, setting):
    with pytest.raises(ValueError, match=r"on a cluster|a cluster learns"):
        evergraph.Cluster.train(tmp_path / "c", *people(), settings=Settings(**setting))
    with pytest.raises(ValueError, match="shards must be"):
        evergraph.Cluster.train(tmp_path / "c", *people(), shards=0)
    assert not (tmp_path / "c").exists()


def test_a_full_disk_is_told_and_the_change_is_finished_later(tmp_path, monkeypatch):
    """One shard has taken a change, the other could not; whatever is asked next finishes it."""
    model, cluster = pair(tmp_path, 2)
    gone = [next(f"p{k}" for k in range(9, 240) if home(f"p{k}", 2) == shard) for shard in (0, 1)]
    events = [{"type": "delete_node", "id": node} for node in gone]
    put, full = Store.delete_node, [cluster.shards.engine._made[1].holding.store]

    def delete_node(store, node):
        if store in full:
            raise FileError("database or disk is full; free some space and repeat what failed")
        put(store, node)

    monkeypatch.setattr(Store, "delete_node", delete_node)
    with pytest.raises(FileError, match="full; free some space"):
        cluster.learn(events)
    with pytest.raises(FileError, match="full; free some space"):
        cluster.predict(["p0"])
    full.clear()
    model.learn(events)
    with pytest.raises(ValueError, match="has no node"):  # it was deleted already
        cluster.learn(events)
    assert_equal(model, cluster)


def test_homes_are_those_of_each():
    ids = ["ann", 7, "7", -1]
    assert homes(keys_of(ids), 5).tolist() == [home(node, 5) for node in ids]
    assert homes(keys_of([]), 3).tolist() == []


def test_ray_that_is_not_installed_is_told(tmp_path, monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr("evergraph.extras.import_module", missing)
    with pytest.raises(ValueError, match=r"pip install 'evergraph\[ray\]'"):
        engines.connect(None, 1, 10**8)

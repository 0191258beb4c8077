"""Odd questions and events, interrupts and damaged folders: a clear error, and nothing changes."""

import json
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from small_models import SMALL, people

import evergraph
from evergraph.datasets.report import TableError
from evergraph.datasets.schema import Schema
from evergraph.graph.growing import GrowingGraph
from evergraph.graph.ids import key
from evergraph.graph.store import Store
from evergraph.learn.exact import ELIGIBLE
from evergraph.model import Model, Settings, state
from evergraph.testing.faults import inject


@pytest.fixture
def model(tmp_path):
    with Model.train(tmp_path / "model", *people(), settings=SMALL) as made:
        yield made


def test_known_nodes_without_cells_keep_their_features(model):
    plain = model.predict(["p0"])[0]
    guest = {"id": "guest", "age": 52, "country": "it"}
    both = model.predict([{"id": "p0"}, guest])
    assert both[0] == plain
    assert both[1] == model.predict([guest])[0]
    csv = model.predict({"id": ["p0", "guest"], "age": ["", "52"], "country": ["", "it"]})
    assert csv == both
    changed = model.predict_proba([{"id": "p0", "age": 5, "country": "de"}])
    assert changed[0, 1] > 1000 * model.predict_proba(["p0"])[0, 1]


def test_weights_of_asked_edges_obey_the_same_rules(model):
    guest = {"id": "guest", "age": 52}
    edge = {"source": ["guest"], "target": ["p0"]}
    with pytest.raises(TableError, match="a weight must be 0 or more, got -3"):
        model.predict([guest], {**edge, "weight": [-3.0]})
    with pytest.raises(TableError, match="the weight of an edge must be one number"):
        model.predict([guest], {**edge, "weight0": [1.0], "weight1": [2.0]})


def test_without_labels_there_is_nothing_to_predict(tmp_path):
    with Model.train(tmp_path / "model", {"id": [1, 2], "age": [3, 4]}, settings=SMALL) as model:
        for ask in (model.predict, model.predict_proba):
            with pytest.raises(ValueError, match="the graph has no labels"):
                ask()
        model.learn([{"type": "label", "id": 1, "label": "a"}])
        assert [one.label for one in model.predict()] == ["a", "a"]


def test_a_class_that_is_held_out_whole_is_known(tmp_path):
    able = [str(number) for number in sorted(range(2000), key=key)[:3]]
    assert all(key(int(name)) < ELIGIBLE for name in able)
    nodes, _ = people()
    with Model.train(tmp_path / "model", nodes, settings=SMALL) as model:
        new = [{"type": "node", "id": n, "age": 3, "country": "us", "label": "baby"} for n in able]
        model.learn(new)
        model.state.learner.refresh()
        assert model.state.learner._held >= set(model.graph.slots([int(n) for n in able]).tolist())
        assert model.predict_proba(able).shape == (3, 3)
        assert model.classes == ["baby", "old", "young"]
        assert {one.label for one in model.predict(able)} == {"baby"}
    only = {"id": able[:1], "age": [3], "label": ["x"]}
    with Model.train(tmp_path / "one", only, settings=SMALL) as model:
        assert model.predict_one(able[0]) == "x"


def test_dictionaries_mean_what_lines_of_event_files_mean(tmp_path):
    nodes = {"id": ["1", "2", "c"], "weight": [1, 2, 3], "label": ["0", "1", "0"]}
    with Model.train(tmp_path / "model", nodes, settings=SMALL) as model:
        model.learn(
            [
                {"type": "node", "id": "7", "weight": 5.0},
                {"type": "node", "id": np.int64(8), "weight": np.float32(0.5), "label": 1},
                {"type": "edge", "source": "7", "target": 8, "weight": "2"},
            ]
        )
        assert model.store.node(7).cells == {"weight": 5.0}
        assert (model.store.node(8).label, model.store.node(8).cells) == ("1", {"weight": 0.5})
        assert [one.id for one in model.predict(["7", np.int64(8)])] == [7, 8]
        assert [e.weight for e in model.store.edges()] == [2.0]
        with pytest.raises(TableError, match="events, line 2, column 'label': an event of type"):
            model.learn([{"type": "node", "id": "x"}, {"type": "label", "id": 7}])
        with pytest.raises(TableError, match="a value must be a number, text, boolean or flat"):
            model.learn([{"type": "node", "id": "x", "weight": {"a": 1}}])
        with pytest.raises(TableError, match=r"one number, got \[1.0, 2.0\]; correct it"):
            model.learn([{"type": "edge", "source": 7, "target": 8, "weight": [1, 2]}])
        model.forget(edges=[("8", "7")], nodes=["8"])
        assert "8" not in model.graph
        with pytest.raises(TableError, match=r"forget: the store has no node 8, got .'type'"):
            model.forget(nodes=["8"])


def test_an_edge_of_an_unknown_node_to_itself_changes_nothing(model):
    digest, edges = model.digest(), model.graph.num_edges
    model.learn([{"type": "edge", "source": n, "target": n} for n in ("nobody", "p0")])
    assert (model.digest(), model.graph.num_edges) == (digest, edges)
    assert model.inspect()["waiting_edges"] == 0


def test_interrupted_anywhere_memory_and_file_agree(tmp_path):
    """As Ctrl-C does it in a notebook: before the commit, inside it, or behind it."""
    nodes, edges = people(40)
    settings = Settings(landmarks=4, held_out=10)
    Model.train(tmp_path / "made", nodes, edges, settings=settings).close()
    events = [
        {"type": "node", "id": "new", "age": 33, "country": "de"},
        {"type": "edge", "source": "new", "target": "p1"},
        {"type": "delete_node", "id": "p2"},
        {"type": "label", "id": "new", "label": "old"},
    ]
    states = set()

    def learn():
        model.learn(events)
        model.digest()

    number, calls = 0, 1  # 0 only counts
    while number <= calls:
        place = shutil.copytree(tmp_path / "made", tmp_path / str(number))
        with Model.open(place) as model:
            calls = max(calls, inject(learn, number=number).calls)
            found = model.digest(), model.store.position
            with Model.open(place, readonly=True) as other:
                assert (other.digest(), other.store.position) == found, number
        states.add(found)
        shutil.rmtree(place)
        number += 1 + calls // 60
    assert len(states) == 2


def _damage(statement):
    def damage(folder):
        with closing(sqlite3.connect(folder / "graph.sqlite")) as db:
            db.execute(statement)
            db.commit()

    return damage


def _settings(**changes):
    def damage(folder):
        values = json.loads((folder / "model.json").read_text())
        values["settings"] |= changes
        (folder / "model.json").write_text(json.dumps(values))

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "graph.sqlite").unlink(), "graph.sqlite is not there: restore it"),
        (lambda f: (f / "graph.sqlite").write_bytes(b""), "holds no model: restore it|is empty"),
        (_damage("DELETE FROM meta WHERE key = 'schema'"), "holds no model: restore it"),
        (_damage("UPDATE meta SET value = 'x' WHERE key = 'position'"), "is damaged .*'x'"),
        (_damage("UPDATE node SET cells = '{' WHERE id = 'p1'"), "is damaged .*Expecting"),
        (_damage("DROP TABLE edge"), "no such table: edge"),
        (_settings(hops="two"), "hops must be an integer of at least 1, got 'two'"),
        (_settings(landmarks=2.5), "landmarks must be an integer of at least 0, got 2.5"),
        (_settings(cap=0), "cap must be an integer of at least 1, got 0"),
        (_settings(directed="no"), "directed must be true or false, got 'no'"),
        (_settings(linear=["y"]), "blocks must be among"),
        (_settings(unheard=1), "unheard"),
    ],
)
@pytest.mark.parametrize("readonly", [True, False])
def test_damaged_folders_are_told_in_a_line(model, tmp_path, damage, message, readonly):
    model.close()
    damage(tmp_path / "model")
    files = {file.name for file in (tmp_path / "model").iterdir() if "sqlite-" not in file.name}
    with pytest.raises(ValueError, match=message) as error:
        evergraph.open(tmp_path / "model", readonly=readonly)
    assert "\n" not in str(error.value)
    left = {file.name for file in (tmp_path / "model").iterdir() if "sqlite-" not in file.name}
    assert left == files


def test_train_takes_the_place_of_what_a_crash_has_torn(tmp_path):
    place = tmp_path / "model"
    place.mkdir()
    (place / ".unfinished").touch()
    (place / "graph.sqlite").write_bytes(b"torn" * 2000)
    (place / "mine.txt").write_text("precious")
    with Model.train(place, *people(), settings=SMALL) as model:
        assert len(model.graph) == 240
    assert (place / "mine.txt").read_text() == "precious"
    assert not (place / ".unfinished").exists()


def test_damaged_sums_are_forgotten_too(model, tmp_path):
    model.learn([{"type": "node", "id": "new", "age": 40, "label": "qqsecretqq"}])
    model.save()
    model.close()
    (tmp_path / "model" / "learner.safetensors.damaged").write_bytes(b"qqsecretqq")
    with evergraph.open(tmp_path / "model") as again:
        again.forget(nodes=["new"])
    held = [f.name for f in (tmp_path / "model").iterdir() if b"qqsecretqq" in f.read_bytes()]
    assert held == []


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda m: m.predict([None]), "an id must be text or an integer, got None"),
        (lambda m: m.predict([{"age": 3}, "p1"]), "all ids or all dictionaries"),
        (lambda m: m.predict(["p1"], coverage=-1), "coverage must be above 0 .* got -1"),
        (lambda m: m.predict(["p1"], coverage=float("nan")), "coverage must be above 0"),
        (lambda m: m.predict(5), "a table must be a path, .* got int"),
        (lambda m: m.learn([None]), "line 1: an event must be a dictionary, got None"),
        (lambda m: m.learn({"type": "delete_node", "id": "p1"}), "events must be a list"),
        (lambda m: m.learn([{"type": "node", "id": "x", 5: 3}]), "column '5': a column must be in"),
        (lambda m: m.forget(nodes="p1"), "ids must be a list, .* got 'p1'"),
        (lambda m: m.forget(edges=["p1", "p2"]), "an edge a pair of them, got 'p1'"),
    ],
)
def test_odd_questions_and_events_change_nothing(model, ask, message):
    before = model.digest(), model.store.position
    with pytest.raises(ValueError, match=message):
        ask(model)
    assert (model.digest(), model.store.position) == before


def test_ids_may_come_as_an_array(model):
    assert model.predict(np.array(["p1", "p2"])) == model.predict(["p1", "p2"])


def test_only_a_writer_saves(model, tmp_path):
    reading = evergraph.open(tmp_path / "model", readonly=True)
    with reading, pytest.raises(ValueError, match="is open for reading only"):
        reading.save()
    model.close()
    with pytest.raises(ValueError, match="is closed: open it again"):
        model.save()


def test_edges_that_are_read_in_parts_keep_weights_and_times(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "CHUNK", 3)
    schema = Schema.infer({"a": [1.0, 2.5]}).fit({"a": [1.0, 2.5]})
    links = [(k, k + 1, {7: 2.0}.get(k), {1: 5.0, 8: 6.0}.get(k)) for k in range(11)]
    wanted, found = (GrowingGraph(schema.width, directed=True) for _ in range(2))
    with Store(tmp_path / "graph.sqlite", directed=True) as store:
        with store.transaction():
            store.put_nodes((k, {"a": float(k)}, None, None) for k in range(12))
            store.put_edges(links)
        state.fill(found, store, schema)
    for k in range(12):
        _, *row = schema.encode([{"a": float(k)}])
        wanted.put_node(k, *row)
    for link in links:
        wanted.put_edge(*link)
    for one, other in zip(_edges(found), _edges(wanted), strict=True):
        assert np.array_equal(one, other, equal_nan=True)


def _edges(graph):
    slots = graph.slots(range(12))
    owner, other, weight = graph.counted(slots)
    return owner, graph.ids(other), weight, graph._links.times(graph._links.step(slots)[2])

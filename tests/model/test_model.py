"""The model folder: what happens to the graph, in any order, and what it answers."""

import json
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from small_models import SMALL, people

import evergraph
from evergraph.datasets.report import Report, TableError
from evergraph.graph.ids import key
from evergraph.learn.exact import ELIGIBLE
from evergraph.model import Model, Settings
from evergraph.testing.faults import inject


@pytest.fixture
def model(tmp_path):
    with Model.train(tmp_path / "model", *people(), settings=SMALL) as made:
        yield made


def test_a_model_predicts_ids_names_and_probabilities(model):
    found = model.predict(["p0", "p1"])
    assert [one.id for one in found] == ["p0", "p1"]
    assert all(one.label in ("old", "young") and 0.5 <= one.probability <= 1 for one in found)
    nodes, _ = people()
    right = [one.label == nodes["label"][int(one.id[1:])] for one in model.predict()]
    assert np.mean(right) > 0.9
    assert np.allclose(model.predict_proba(["p0"]).sum(), 1)


def test_it_opens_again_to_the_same_digest(model, tmp_path):
    digest, found = model.digest(), model.predict(["p3"])
    model.close()
    with evergraph.open(tmp_path / "model") as again:
        assert again.digest() == digest
        assert again.predict(["p3"]) == found


def test_damaged_sums_are_made_again(model, tmp_path):
    digest = model.digest()
    model.close()
    (tmp_path / "model" / "learner.safetensors").write_bytes(b"no sums")
    with evergraph.open(tmp_path / "model") as again:
        assert again.digest() == digest


def test_events_in_any_order_give_one_digest(tmp_path):
    nodes, edges = people()
    size = 200  # the rest comes as events
    first = {name: column[:size] for name, column in nodes.items()}
    rest = [{name: column[k] for name, column in nodes.items()} for k in range(size, 240)]
    events = [{"type": "node", **{k: v for k, v in node.items() if k != "label"}} for node in rest]
    events += [{"type": "label", "id": node["id"], "label": node["label"]} for node in rest]
    events += [
        {"type": "edge", "source": a, "target": b} for a, b in zip(*edges.values(), strict=True)
    ]
    digests = set()
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(events)).tolist()
        order.sort(key=lambda k: events[k]["type"] == "label")  # labels need their node
        with Model.train(tmp_path / str(seed), first, settings=SMALL) as made:
            for start in range(0, len(order), 37 + 50 * seed):
                made.learn([events[k] for k in order[start : start + 37 + 50 * seed]])
                if seed == 1:
                    made.predict(["p0"])  # which solves
            digests.add(made.digest())
    assert len(digests) == 1


@pytest.mark.parametrize("which", ["base", "landmark", "later"])
def test_a_forgotten_node_leaves_no_trace(tmp_path, which):
    nodes, edges = people()
    with Model.train(tmp_path / "with", nodes, edges, settings=SMALL) as model:
        one = {"base": "p7", "landmark": min(model.state.landmarks), "later": "xyzzy-guest"}[which]
        if which == "later":
            model.learn(
                [
                    {
                        "type": "node",
                        "id": one,
                        "age": 77.25,
                        "country": "qqcountryqq",
                        "label": "old",
                    },
                    {"type": "edge", "source": one, "target": "p1"},
                ]
            )
        model.forget(nodes=[one])
        digest = model.digest()
        with pytest.raises(ValueError, match=one):
            model.predict([one])
    kept = [k for k, name in enumerate(nodes["id"]) if name != one]
    others = {name: [column[k] for k in kept] for name, column in nodes.items()}
    pairs = [p for p in zip(*edges.values(), strict=True) if one not in p]
    left = {"source": [a for a, _ in pairs], "target": [b for _, b in pairs]}
    with Model.train(tmp_path / "without", others, left, settings=SMALL) as never:
        assert never.digest() == digest
    for file in (tmp_path / "with").iterdir():
        assert one.encode() + b"," not in file.read_bytes()
        assert b"qqcountryqq" not in file.read_bytes()
    if which == "later":
        assert all(one.encode() not in f.read_bytes() for f in (tmp_path / "with").iterdir())


def test_forgotten_edges_and_labels_leave_no_trace(model):
    before = model.digest()
    model.learn([{"type": "node", "id": "new", "age": 40}])
    alone = model.digest()
    model.learn([{"type": "edge", "source": "p1", "target": "new", "weight": 2.0}])
    model.learn([{"type": "label", "id": "new", "label": "third"}])
    assert model.digest() != alone
    model.forget(labels=["new"], edges=[("new", "p1")])
    assert model.digest() == alone
    model.forget(nodes=["new"])
    assert model.digest() == before


def test_new_nodes_are_predicted_as_if_they_were_there(model):
    guest = {"id": "guest", "age": 52, "country": "it"}
    edges = {"source": ["guest", "guest"], "target": ["p0", "p9"]}
    digest = model.digest()
    (asked,) = model.predict([guest], edges)
    (alone,) = model.predict([{"age": 52, "country": "it"}])
    assert model.digest() == digest
    solution = model.state.learner.solution()
    model.learn([{"type": "node", **guest}])
    assert model.predict_one("guest").label == alone.label
    model.learn([{"type": "edge", "source": "guest", "target": t} for t in ("p0", "p9")])
    rows = model.state.learner.rows(model.graph.slots(["guest"]))
    assert asked.probability == pytest.approx(solution.probabilities(rows).max(), abs=1e-12)


def test_a_sixth_class_does_not_move_the_names(model, tmp_path):
    before = {one.id: one.label for one in model.predict()}
    events = [
        {"type": "node", "id": f"a{k}", "age": 5 + k % 3, "country": "us", "label": "affiliate"}
        for k in range(30)
    ]
    model.learn(events)
    model.save()
    model.close()
    with evergraph.open(tmp_path / "model") as again:
        assert again.classes == ["affiliate", "old", "young"]
        after = {one.id: one.label for one in again.predict()}
    assert np.mean([after[node] == label for node, label in before.items()]) > 0.97
    assert np.mean([after[f"a{k}"] == "affiliate" for k in range(30)]) > 0.9


def test_refused_events_are_reported_and_change_nothing(model):
    digest, position, report = model.digest(), model.store.position, Report()
    bad = [
        {"type": "node", "id": "x", "age": "old"},
        {"type": "label", "id": "nobody", "label": "old"},
        {"type": "delete_node", "id": "nobody"},
        {"type": "delete_edge", "source": "p0", "target": "nobody"},
        {"type": "edge", "source": "p0", "target": "p1", "weight": float("nan")},
    ]
    assert model.learn(bad, report) == 0
    assert report.count == len(bad)
    assert (model.digest(), model.store.position) == (digest, position)
    for event in bad:
        with pytest.raises(ValueError, match=r".+"):
            model.learn([event])
    assert (model.digest(), model.store.position) == (digest, position)
    assert model.learn([*bad, {"type": "node", "id": "x", "age": 3}], Report()) == 1


def test_a_transaction_that_fails_gives_statistics_back(model):
    digest = model.digest()
    events = [{"type": "delete_node", "id": "p1"}, {"type": "delete_node", "id": "nobody"}]
    with pytest.raises(ValueError, match="nobody"):
        model.learn(events)
    assert model.digest() == digest
    assert model.predict_one("p1").id == "p1"


def test_edges_wait_for_their_nodes(model):
    digest = model.digest()
    model.learn([{"type": "edge", "source": "p0", "target": "coming"}])
    assert model.digest() == digest
    assert model.inspect()["waiting_edges"] == 1
    model.learn([{"type": "node", "id": "coming", "age": 20}])
    assert model.inspect()["waiting_edges"] == 0
    assert (
        model.graph.num_edges == len({*map(frozenset, zip(*people()[1].values(), strict=True))}) + 1
    )


def test_late_labels_are_scored_before_they_are_learned(model):
    events = [{"type": "node", "id": f"n{k}", "age": [25, 60][k % 2]} for k in range(40)]
    model.learn(events)
    labels = [{"type": "label", "id": f"n{k}", "label": ["young", "old"][k % 2]} for k in range(40)]
    model.learn(labels)
    found = model.inspect()
    assert found["curve"][-1][2] == 40
    assert found["prequential_accuracy"] > 0.8


def test_all_complaints_about_tables_come_at_once_and_nothing_is_written(tmp_path):
    nodes = {"id": ["a", "a", ""], "age": ["1", "x", "3"], "label": ["l", "m", "n"]}
    with pytest.raises(TableError, match="problems in the data"):
        Model.train(tmp_path / "model", nodes, {"source": ["a"]})
    assert not (tmp_path / "model").exists()


def test_folders_that_are_none_are_refused(tmp_path):
    with pytest.raises(ValueError, match="is no model folder"):
        evergraph.open(tmp_path / "nothing")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "precious.txt").write_text("mine")
    with pytest.raises(ValueError, match="is there already"):
        Model.train(tmp_path / "there", *people())


def test_no_held_out_node_is_a_landmark(model):
    """Its row would be unlike those of nodes to come, and sets would cover too little."""
    model.state.learner.refresh()
    held = model.graph.ids(np.array(sorted(model.state.learner._held)))
    assert len(held) > 10
    assert len(model.state.landmarks) == SMALL.landmarks
    assert not model.state.landmarks & set(held)


def test_labels_of_other_splits_are_held_back_and_tested(tmp_path):
    nodes, edges = people()
    splits = [["train", "", "test", "val"][k % 4] for k in range(240)]
    hidden = [None if k % 4 > 1 else label for k, label in enumerate(nodes["label"])]
    nodes["label"][2] = None  # in the split, but there is nothing to test
    with Model.train(tmp_path / "a", {**nodes, "split": splits}, edges, settings=SMALL) as model:
        found = model.inspect()
        assert (found["nodes"], found["labels"]) == (240, 120)
        with Model.train(tmp_path / "b", {**nodes, "label": hidden}, edges, settings=SMALL) as same:
            assert model.digest() == same.digest()
            assert same.inspect()["held_back"] == {}
            told = {one.id: one.label for one in same.predict()}
        right = [told[f"p{k}"] == nodes["label"][k] for k in range(2, 240, 4)]
        counts = {"nodes": 60, "tested": 59, "right": sum(right), "accuracy": sum(right) / 59}
        assert found["held_back"]["test"] == counts
        assert found["held_back"]["valid"]["tested"] == 60
        model.refit()
        assert model.inspect()["held_back"] == found["held_back"]
        model.learn([{"type": "label", "id": "p6", "label": "old"}])
        model.forget(nodes=["p10"], labels=["p14"])
        counts = model.inspect()["held_back"]["test"]
        assert (counts["nodes"], counts["tested"]) == (57, 56)


def test_what_cannot_be_tested_is_not_counted_as_tested(tmp_path):
    nodes = {"id": ["a", "b"], "n": [1, 2], "label": ["x", "y"], "split": ["test", "test"]}
    with Model.train(tmp_path / "model", nodes, settings=SMALL) as model:
        counts = {"nodes": 2, "tested": 0, "right": 0, "accuracy": None}
        assert model.inspect()["held_back"] == {"test": counts}


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
        assert model.predict_one(able[0]).label == "x"


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

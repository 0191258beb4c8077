"""The model folder: what happens to the graph, in any order, and what it answers."""

import numpy as np
import pytest
from small_models import SMALL, people

import evergraph
from evergraph.datasets.report import Report, TableError
from evergraph.model import Model


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
    assert model.predict_one("guest") == alone.label
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
    assert model.predict_one("p1") in model.classes


def test_edges_wait_for_their_nodes(model):
    digest = model.digest()
    model.learn([{"type": "edge", "source": "p0", "target": "coming"}])
    assert model.digest() == digest
    assert model.inspect()["waiting_edges"] == 1
    model.learn([{"type": "delete_edge", "source": "coming", "target": "p0"}])
    assert model.inspect()["waiting_edges"] == 0
    model.learn([{"type": "edge", "source": "p0", "target": "coming"}])
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


def test_an_explanation_names_neighbors_and_columns(model):
    found = model.explain("p0")
    assert found.label == model.predict(["p0"])[0].label
    assert sum(part for _, part in found.neighbors) + found.bias == pytest.approx(found.score)
    assert sum(part for _, part in found.features) + found.bias == pytest.approx(found.score)
    assert "p0" in dict(found.neighbors)
    assert "age" in dict(found.features)
    other = model.explain("p0", {"old": "young", "young": "old"}[found.label])
    assert other.score < found.score
    with pytest.raises(ValueError, match="nobody"):
        model.explain("nobody")

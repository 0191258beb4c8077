"""The history of a model: every offset can be gone back to, and what is forgotten is in none."""

import random

import pytest
from small_models import SMALL, people

import evergraph
from evergraph.graph import Store
from evergraph.graph.database import StoreError
from evergraph.model import Model, Settings
from evergraph.model.record import confusion

NAMES = [f"p{k}" for k in range(12)] + [f"n{k}" for k in range(6)]


def begin(model):
    with model.store.transaction():
        model.store.history.begin(model.store.position, 0.0)
    return model


@pytest.fixture
def model(tmp_path):
    nodes, edges = people(60)
    with Model.train(tmp_path / "model", nodes, edges, settings=SMALL) as made:
        yield begin(made)


def random_event(rng):
    a, b = rng.sample(NAMES, 2)
    return rng.choice(
        [
            {
                "type": "node",
                "id": a,
                "age": rng.randint(1, 99),
                "label": rng.choice(["old", None]),
            },
            {"type": "node", "id": a, "country": "de", "time": rng.random() / 3},
            {"type": "edge", "source": a, "target": b, "weight": rng.random() / 3},
            {"type": "edge", "source": a, "target": b},
            {"type": "label", "id": a, "label": rng.choice(["old", "young", "third"])},
            {"type": "delete_label", "id": a},
            {"type": "delete_edge", "source": a, "target": b},
            {"type": "delete_node", "id": a},
        ]
    )


def content(store):
    """Everything that the tables hold, floats to the last bit."""
    return (
        list(store.nodes()),
        list(store._file.read("SELECT * FROM node ORDER BY id")),
        list(store.edges()),
        list(store.waiting()),
        list(store.base_edges()),
        list(store.held_back()),
    )


def test_every_offset_is_there_to_the_bit(model, tmp_path):
    rng = random.Random(0)
    known = {}
    for _ in range(60):
        try:
            model.learn([random_event(rng) for _ in range(rng.choice([1, 1, 3]))])
        except ValueError:
            continue
        known[model.store.position] = model.digest(), content(model.store)
        if len(known) == 20:
            model.refit()
            known[model.store.position] = model.digest(), content(model.store)
    assert len(known) > 25
    chosen = rng.sample(sorted(known), 12)
    for offset in chosen:
        with Model.at(tmp_path / "model", tmp_path / f"at{offset}", offset=offset) as then:
            assert (then.digest(), content(then.store)) == known[offset]
            assert then.store.position == offset
            assert then.store.history.first is None
        with evergraph.open(tmp_path / f"at{offset}") as again:
            assert again.digest() == known[offset][0]


def test_events_inside_a_transaction_have_offsets(model, tmp_path):
    start = model.store.position
    events = [{"type": "node", "id": f"n{k}", "age": k} for k in range(3)]
    model.learn([{"type": "edge", "source": "n0", "target": "n1"}, *events])
    with Model.at(tmp_path / "model", tmp_path / "then", offset=start + 2) as then:
        assert "n0" in then.graph
        assert "n1" not in then.graph
        assert [edge[:2] for edge in then.store.waiting()] == [("n0", "n1")]


def test_times_name_transactions_and_never_go_back(model, tmp_path, monkeypatch):
    times = iter([100.0, 200.0, 150.0])
    monkeypatch.setattr("evergraph.model.events.time.time", lambda: next(times))
    for k in range(3):
        model.learn([{"type": "node", "id": f"n{k}", "age": k}])
    for time, last in ((199.0, "n0"), (200.0, "n2"), (1e9, "n2")):
        with Model.at(tmp_path / "model", tmp_path / f"{time}", time=time) as then:
            assert max(node.id for node in then.store.nodes() if str(node.id)[0] == "n") == last
    with pytest.raises(StoreError, match="must not be before the history"):
        Model.at(tmp_path / "model", tmp_path / "none", time=-1.0)
    assert not (tmp_path / "none").exists()


def test_forgotten_things_are_in_no_moment_and_in_no_file(model, tmp_path):
    model.learn([{"type": "node", "id": "zzguestzz", "country": "zzlandzz", "label": "zzclasszz"}])
    model.learn([{"type": "edge", "source": "zzguestzz", "target": "p1"}])
    model.learn([{"type": "node", "id": "zzguestzz", "country": "zzotherzz"}])
    after = model.store.position
    model.learn(
        [{"type": "node", "id": "n1", "age": 3}, {"type": "forget_node", "id": "zzguestzz"}]
    )
    with Model.at(tmp_path / "model", tmp_path / "then", offset=after) as then:
        assert "zzguestzz" not in then.graph
        assert "n1" not in then.graph
    model.close()
    for folder in ("model", "then"):
        for file in (tmp_path / folder).iterdir():
            assert b"zz" not in file.read_bytes(), file


def test_a_forgotten_label_or_edge_is_in_no_moment(model, tmp_path):
    model.learn([{"type": "edge", "source": "p0", "target": "p9", "weight": 2}])
    model.learn([{"type": "label", "id": "p3", "label": "zzclasszz"}])
    offset = model.store.position
    events = [{"type": "forget_label", "id": "p3"}, {"type": "node", "id": "n1"}]
    model.learn([*events, {"type": "forget_edge", "source": "p9", "target": "p0"}])
    with Model.at(tmp_path / "model", tmp_path / "then", offset=offset) as then:
        assert then.store.node("p3").label is None
        assert ("p0", "p9") not in [edge[:2] for edge in then.store.edges()]


def test_a_deleted_base_node_comes_back_with_its_statistics(model, tmp_path):
    offset, digest = model.store.position, model.digest()
    model.learn([{"type": "delete_node", "id": "p1"}])
    with Model.at(tmp_path / "model", tmp_path / "then", offset=offset) as then:
        assert then.digest() == digest


def test_compacting_ends_the_history(model, tmp_path):
    start = model.store.position
    for k in range(5):
        model.learn([{"type": "node", "id": f"n{k}", "age": k}])
    digest = model.digest()
    model.compact(offset=start + 3)
    with pytest.raises(StoreError, match=rf"offset must be from {start + 3} to {start + 5}"):
        Model.at(tmp_path / "model", tmp_path / "early", offset=start + 2)
    with Model.at(tmp_path / "model", tmp_path / "then", offset=start + 3) as then:
        assert "n2" in then.graph
        assert "n3" not in then.graph
    model.compact()
    assert model.store.history.first == start + 5
    assert model.digest() == digest


def test_moments_that_cannot_be_are_refused(tmp_path):
    nodes, edges = people(60)
    with Model.train(tmp_path / "model", nodes, edges, settings=SMALL) as made:
        with pytest.raises(StoreError, match="there is no history"):
            Model.at(tmp_path / "model", tmp_path / "then", offset=0)
        begin(made)
    for moment in ({}, {"offset": 3, "time": 3.0}):
        with pytest.raises(ValueError, match="give one of the two"):
            Model.at(tmp_path / "model", tmp_path / "then", **moment)
    network = Settings(landmarks=4, held_out=4, learner="both")
    Model.train(tmp_path / "network", nodes, edges, settings=network).close()
    with pytest.raises(ValueError, match="has a network"):
        Model.at(tmp_path / "network", tmp_path / "then", offset=0)


def test_a_history_can_begin_once_and_end(tmp_path):
    with Store(tmp_path / "graph.sqlite") as store:
        with store.transaction():
            store.history.begin(0, 1.0)
            store.history.begin(7, 2.0)
            store.put_node("ann", {})
            store.history.set_predicted({"ann": "human", 7: "bot"})
            store.history.set_answer("key", "3", "about")
        assert store.history.first == 0
        assert store.history.predicted(["ann", 7, "eve"]) == {"ann": "human", 7: "bot"}
        assert store.history.answer("key") == ("3", "about")
        with store.transaction():
            store.history.forget_node("ann")
        assert store.history.predicted(["ann", 7]) == {7: "bot"}
        assert store.history.answer("key") == ("3", None)
        with store.transaction():
            store.history.end()
            store.put_node("bob", {})
        assert store.history.first is None


def test_the_record_counts_pairs_of_classes(model):
    model.learn([{"type": "node", "id": f"n{k}", "age": 20 + 30 * (k % 2)} for k in range(6)])
    labels = [{"type": "label", "id": f"n{k}", "label": ["young", "old"][k % 2]} for k in range(6)]
    model.learn(labels)
    counts = confusion(model.store)
    assert sum(n for row in counts.values() for n in row.values()) == 6
    assert set(counts) == {"young", "old"}
    right = sum(counts[name].get(name, 0) for name in counts)
    assert model.inspect()["prequential_accuracy"] == right / 6


def test_an_empty_model_takes_nodes_and_is_refitted(tmp_path):
    nodes, edges = people(60)
    with Model.train(tmp_path / "one", nodes, edges, settings=SMALL) as whole:
        schema, digest = whole.schema, whole.digest()
    with Model.create(tmp_path / "two", schema, settings=SMALL) as model:
        assert len(model.graph) == 0
        rows = [{name: column[k] for name, column in nodes.items()} for k in range(60)]
        model.learn([{"type": "node", **row} for row in rows])
        pairs = zip(*edges.values(), strict=True)
        model.learn([{"type": "edge", "source": a, "target": b} for a, b in pairs])
        assert model.digest() != digest
        model.refit()
        assert model.digest() == digest

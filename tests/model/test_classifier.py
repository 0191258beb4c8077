"""The verbs of scikit-learn and river on a model folder."""

import numpy as np
import pyarrow as pa
import pytest
from small_models import SMALL, people

import evergraph
from evergraph.model import GraphClassifier, Model


def test_tables_of_all_kinds_are_fitted_alike():
    nodes, edges = people()
    y = nodes.pop("label")
    nodes["joined"] = [day or None for day in nodes["joined"]]
    rows = [dict(zip(nodes, row, strict=True)) for row in zip(*nodes.values(), strict=True)]
    frames = (nodes, pa.table(nodes), rows)
    made = [GraphClassifier(settings=SMALL).fit(table, y, edges) for table in frames]
    assert len({one.model_.digest() for one in made}) == 1
    one = made[0]
    assert one.classes_.tolist() == ["old", "young"]
    assert one.score(nodes["id"], y) > 0.9
    new = pa.table({"id": ["x", "y"], "age": [22.0, 58.0], "country": ["de", "it"]})
    links = {"source": ["x", "y"], "target": ["p0", "p1"]}
    likely = one.predict_proba(new, links)
    assert likely.shape == (2, 2)
    assert np.allclose(likely.sum(1), 1)
    assert (one.classes_[likely.argmax(1)] == one.predict(new, links)).all()
    for other in made:
        other.model_.close()


def test_partial_fit_is_what_learning_the_events_gives(tmp_path):
    nodes, edges = people()
    half = {name: column[:120] for name, column in nodes.items()}
    rest = {name: column[120:] for name, column in nodes.items()}
    with Model.train(tmp_path / "events", half, settings=SMALL) as model:
        model.learn(
            {"type": "node", **dict(zip(rest, row, strict=True))}
            for row in zip(*rest.values(), strict=True)
        )
        pairs = zip(*edges.values(), strict=True)
        model.learn([{"type": "edge", "source": a, "target": b} for a, b in pairs])
        digest = model.digest()
    labels = half.pop("label"), rest.pop("label")
    made = GraphClassifier(tmp_path / "tables", SMALL).partial_fit(half, labels[0])
    assert made.partial_fit(rest, labels[1], edges).model_.digest() == digest
    with pytest.raises(ValueError, match="a column split belongs to fit"):
        made.partial_fit({**rest, "split": ["test"] * 120}, labels[1])
    with pytest.raises(ValueError, match="must have a class per row, 120, got 3"):
        made.partial_fit(rest, [1, 2, 3])
    with pytest.raises(ValueError, match="got both"):
        made.partial_fit({**rest, "label": labels[1]}, labels[1])
    assert made.model_.digest() == digest
    made.model_.close()
    with pytest.raises(ValueError, match="is there already"):
        GraphClassifier(tmp_path / "tables").fit(half, labels[0])
    with evergraph.open(tmp_path / "tables") as again:
        assert again.digest() == digest


def test_arrays_are_numbered_and_classes_keep_their_types():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 150)
    x = rng.normal(0, 1, (150, 4)) + 3 * y[:, None]
    known = [None if k % 5 == 0 else label for k, label in enumerate(y)]
    made = GraphClassifier(settings=SMALL).fit(x, known)
    assert made.classes_.tolist() == [0, 1, 2]
    assert made.score(x, y) > 0.9
    made.partial_fit(x[:2], [7, None])
    assert len(made.model_.graph) == 152
    assert made.classes_.tolist() == [0, 1, 2, 7]
    assert made.predict([0, 151]).dtype == made.classes_.dtype
    made.model_.close()


def test_river_learns_and_predicts_dictionaries(tmp_path):
    nodes, edges = people()
    with Model.train(tmp_path / "model", {**nodes, "label": [None] * 240}, edges) as model:
        asked = {"age": 25, "country": "de"}
        assert model.predict_one(asked) is None
        assert model.predict_proba_one(asked) == {}
        rows = [dict(zip(nodes, row, strict=True)) for row in zip(*nodes.values(), strict=True)]
        for row in rows[:60]:
            model.learn_one({k: v for k, v in row.items() if k != "label"}, row["label"])
        model.learn_one({"type": "label", "id": "p100", "label": nodes["label"][100]})
        assert model.inspect()["labels"] == 61
        assert model.predict_one(asked) == "young"
        likely = model.predict_proba_one(asked)
        assert list(likely) == ["old", "young"]
        assert sum(likely.values()) == pytest.approx(1)

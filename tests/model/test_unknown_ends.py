"""Edges to nodes that are not there: they wait, are dropped, or are refused."""

import pytest

from evergraph.model import Model, Settings

NODES = {"id": range(40), "age": [20, 50] * 20, "label": ["young", "old"] * 20}
EDGES = {"source": [0, 1, 99], "target": [2, "ann", 3], "weight": [1.0, 2.0, 3.0]}


def train(path, rule):
    return Model.train(path, NODES, EDGES, settings=Settings(landmarks=4, unknown_ends=rule))


def test_they_wait_unless_told_otherwise(tmp_path):
    with train(tmp_path / "model", "wait") as model:
        assert (model.graph.num_edges, len(list(model.store.waiting()))) == (1, 2)
        model.learn([{"type": "node", "id": "ann", "age": 3}])
        assert model.graph.num_edges == 2


def test_they_can_be_dropped(tmp_path):
    with train(tmp_path / "model", "drop") as model:
        assert [(edge.source, edge.weight) for edge in model.store.edges()] == [(0, 1.0)]
        before = model.digest()
        model.learn([{"type": "edge", "source": 1, "target": "ann"}])
        assert model.digest() == before
        assert not list(model.store.waiting())
        model.learn([{"type": "node", "id": "ann", "age": 3}])
        model.learn([{"type": "edge", "source": 1, "target": "ann"}])
        assert model.graph.num_edges == 2


def test_they_can_be_an_error(tmp_path):
    with pytest.raises(ValueError, match="2 problems") as caught:
        train(tmp_path / "model", "error")
    assert "column 'target': both ends of an edge must be nodes that are there, got 'ann'" in str(
        caught.value
    )
    assert "column 'source'" in str(caught.value)
    assert not (tmp_path / "model").exists()
    settings = Settings(landmarks=4, unknown_ends="error")
    with Model.train(tmp_path / "model", NODES, settings=settings) as model:
        before = model.digest()
        with pytest.raises(ValueError, match="must be nodes that are there, got 'ann'; add"):
            model.learn([{"type": "edge", "source": 1, "target": "ann"}])
        assert model.digest() == before
    with pytest.raises(ValueError, match="unknown_ends must be one of wait, drop"):
        Settings(unknown_ends="lose")

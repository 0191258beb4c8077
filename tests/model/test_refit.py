"""Refit: statistics, landmarks and kinds of columns are taken again, as a whole or not at all."""

import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import SMALL, people, row, table

import evergraph
from evergraph.datasets.report import TableError
from evergraph.datasets.schema import Column, Schema
from evergraph.model import Model, Settings, schemas


def test_refit_gives_what_training_on_the_final_tables_gives(tmp_path):
    nodes, edges = people()
    half = {name: column[:120] for name, column in nodes.items()}
    later = [row(nodes, k) for k in range(120, 240)]
    moved = {**row(nodes, 3), "age": 99.5, "country": "xx"}
    with Model.train(tmp_path / "grown", half, edges, settings=SMALL) as model:
        model.learn([{"type": "node", **row} for row in (*later, moved)])
        model.forget(nodes=["p5"])
        before = model.digest()
        model.refit()
        grown = model.digest()
        assert grown != before
        model.refit()
        assert model.digest() == grown
        told = model.predict()
        assert dict(model.store.bases())["p3"]["age"] == 99.5
    with evergraph.open(tmp_path / "grown") as again:
        assert again.digest() == grown
    rows = [moved if k == 3 else row(nodes, k) for k in range(240) if k != 5]
    pairs = [p for p in zip(*edges.values(), strict=True) if "p5" not in p]
    final = {"source": [a for a, _ in pairs], "target": [b for _, b in pairs]}
    with Model.train(tmp_path / "fresh", table(rows), final, settings=SMALL) as fresh:
        # the order of the columns is the table's: that of the first training is kept
        fresh.refit(Schema(model.schema.columns))
        assert fresh.digest() == grown
        assert sorted(fresh.predict(), key=str) == sorted(told, key=str)


def test_sums_of_other_landmarks_are_not_taken_up(tmp_path):
    """A category changes no statistics: only the landmark tells that the sums are old."""
    with Model.train(tmp_path / "model", *people(), settings=SMALL) as model:
        one = min(model.state.landmarks)
        cells = dict(model.store.bases(one))[one]
        model.learn([{"type": "node", "id": one, **cells, "country": "elsewhere"}])
        model.save()
        with model.store.transaction():  # killed before the sums are written again
            schemas.refit(model.store)
    shutil.copytree(tmp_path / "model", tmp_path / "anew")
    (tmp_path / "anew" / "learner.safetensors").unlink()
    with evergraph.open(tmp_path / "model") as again, evergraph.open(tmp_path / "anew") as anew:
        assert again.digest() == anew.digest()


def test_a_schema_of_other_kinds_is_taken_or_refused_as_a_whole(tmp_path):
    nodes, edges = people()
    with Model.train(tmp_path / "model", nodes, edges, settings=SMALL) as model:
        digest, kinds = model.digest(), {c.name: c for c in model.schema.columns}
        bad = [
            ({"age": Column("age", "boolean")}, "column 'age': true or false is needed"),
            ({"age": Column("agee", "number")}, r"'agee'.*'number'; correct its name \(.*age\)"),
            ({"age": None}, "'age': a column of the data must be in the schema.*kind \"drop\""),
        ]
        for change, words in bad:
            other = Schema(c for c in {**kinds, **change}.values() if c is not None)
            with pytest.raises(TableError, match=words):
                model.refit(other)
            assert model.digest() == digest
            with pytest.raises(TableError, match=words):
                Model.train(tmp_path / "bad", nodes, edges, schema=other)
            assert not (tmp_path / "bad").exists()
        other = Schema({**kinds, "age": Column("age", "drop")}.values())
        model.refit(other)
        assert model.schema.columns == other.columns
        model.learn([{"type": "node", "id": "new", "age": 3, "country": "de"}])
        model.forget(nodes=["new"])
        with Model.train(tmp_path / "o", nodes, edges, schema=other, settings=SMALL) as fresh:
            assert fresh.digest() == model.digest()
        model.refit(Schema(kinds.values()))  # cells of dropped columns are kept
        assert model.digest() == digest


TINY = Settings(landmarks=4, held_out=4)
KINDS = Schema([Column("age", "number"), Column("country", "category", 8)])
names = st.sampled_from([f"p{k}" for k in range(9)])
ages = st.none() | st.integers(0, 99)
countries = st.none() | st.sampled_from(["de", "fr"])
labels = st.none() | st.sampled_from(["old", "young"])
changes = st.one_of(
    st.tuples(st.just("node"), names, ages, countries, labels),
    st.tuples(st.just("node"), names, ages, countries, labels),
    st.tuples(st.just("edge"), names, names),
    st.tuples(st.just("label"), names, labels),
    st.tuples(st.just("delete_node"), names),
    st.tuples(st.just("delete_edge"), names, names),
    st.just(("refit",)),
    st.just(("restart",)),
)


class History:
    """The tables that a history of events leaves, and the events themselves."""

    def __init__(self):
        self.nodes = {
            f"p{k}": {"age": 20 + 9 * k, "country": "de", "label": "old"} for k in range(4)
        }
        self.edges = {("p0", "p1")}

    def event(self, kind, *values):
        """What `Model.learn` is given; None if it would be refused."""
        if kind == "node":
            name, age, country, label = values
            cells = {"age": age, "country": country}
            kept = self.nodes.get(name, {}).get("label") if label is None else label
            self.nodes[name] = {**cells, "label": kept}
            return {"type": "node", "id": name, **cells, "label": label}
        if "edge" in kind:
            pair = tuple(sorted(values))
            if kind == "edge" and values[0] != values[1]:
                self.edges.add(pair)
            elif pair not in self.edges:
                return None
            else:
                self.edges.remove(pair)
            return {"type": kind, "source": values[0], "target": values[1]}
        if values[0] not in self.nodes:
            return None
        if kind == "delete_node":
            del self.nodes[values[0]]
            self.edges = {pair for pair in self.edges if values[0] not in pair}
            return {"type": kind, "id": values[0]}
        self.nodes[values[0]]["label"] = values[1]
        return {
            "type": "label" if values[1] else "delete_label",
            "id": values[0],
            "label": values[1],
        }

    def train(self, path):
        """A model of the tables as they are now."""
        rows = [{"id": name, **cells} for name, cells in self.nodes.items()]
        pairs = {"source": [a for a, _ in self.edges], "target": [b for _, b in self.edges]}
        return Model.train(
            path, table(rows), pairs if self.edges else None, schema=KINDS, settings=TINY
        )


@settings(max_examples=60)
@given(history=st.lists(changes, max_size=14))
def test_after_any_history_refit_is_train(history):
    with tempfile.TemporaryDirectory() as place:
        plain = History()
        model = plain.train(Path(place) / "grown")
        for kind, *values in history:
            if kind == "refit":
                model.refit()
            elif kind == "restart":
                model.close()
                model = evergraph.open(Path(place) / "grown")
            elif (event := plain.event(kind, *values)) is not None:
                model.learn([event])
        with model:
            if plain.nodes:
                model.refit()
                with plain.train(Path(place) / "fresh") as fresh:
                    assert model.digest() == fresh.digest()


def killed_at(path, statement):
    """Refit in another process, which is killed before a statement; False if it came to its end."""
    process = os.fork()
    if not process:
        model, left = evergraph.open(path), [statement]

        def count(_):
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        model.store._file.connection.set_trace_callback(count)
        model.refit()
        os._exit(0)
    return os.waitpid(process, 0)[1] == signal.SIGKILL


def test_killed_at_any_statement_it_is_the_old_or_the_new_model(tmp_path):
    nodes, edges = people(60)
    with Model.train(tmp_path / "start", nodes, edges, settings=SMALL) as model:
        model.learn([{"type": "node", "id": f"n{k}", "age": 200 + k} for k in range(20)])
        old = model.digest()
    shutil.copytree(tmp_path / "start", tmp_path / "whole")
    with evergraph.open(tmp_path / "whole") as model:
        model.refit()
        new = model.digest()
    found, statement = [], 0
    while True:
        path = tmp_path / str(statement)
        shutil.copytree(tmp_path / "start", path)
        killed = killed_at(path, statement)
        with evergraph.open(path) as model:
            found.append(model.digest())
            model.refit()
            assert model.digest() == new
        if not killed:
            break
        statement += 1
    assert statement > 8
    assert found == sorted(found, key=[old, new].index)
    assert {*found} == {old, new}

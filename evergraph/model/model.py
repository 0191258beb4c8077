"""A model folder: feed it what happens to a graph, in any order, and ask it at any time.

    graph.sqlite         nodes, edges, labels, and the position in the stream of events
    model.json           settings, classes, kinds of columns
    learner.safetensors  the sums of the closed form, at a position
    network.safetensors  the network, if the settings ask for one

Events are durable when `learn` has taken them. What is in memory, and in learner.safetensors,
follows from graph.sqlite and can be made again: to the same digest, whatever the history. What
the network has still to do is in graph.sqlite; its weights follow from the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.datasets.events import Event
from evergraph.datasets.report import Report
from evergraph.datasets.schema import Schema
from evergraph.graph.database import FileError
from evergraph.graph.growing import GrowingGraph
from evergraph.graph.ids import Id
from evergraph.graph.store import Store
from evergraph.model import events as road
from evergraph.model import merging, predictions
from evergraph.model.folder import GRAPH, Settings, check_new, read_settings
from evergraph.model.record import curve, held_back
from evergraph.model.schemas import refit
from evergraph.model.state import State, new_state
from evergraph.model.tables import Tables
from evergraph.model.travel import compact, travel
from evergraph.prediction import Explanation, Prediction


class Model:
    """A growing graph on disk and a classifier that always follows it.

    Make one with `train`, open one with `evergraph.open`.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> place = TemporaryDirectory()
        >>> nodes = {"id": range(60), "age": [20, 50] * 30, "label": ["young", "old"] * 30}
        >>> model = Model.train(place.name + "/model", nodes, {"source": [0], "target": [2]})
        >>> model.learn_one({"type": "node", "id": "ann", "age": 49})
        >>> model.predict(["ann"])[0].label
        'old'
        >>> model.forget(nodes=["ann"])
        >>> model.close()
        >>> place.cleanup()
    """

    def __init__(self, state: State) -> None:
        self.state = state

    @classmethod
    def train(
        cls,
        path: Path | str,
        nodes: Any,
        edges: Any = None,
        *,
        schema: Schema | None = None,
        settings: Settings = Settings(),  # noqa: B008
        id: str = "id",
    ) -> Model:
        """Make a model folder from tables of nodes and edges; see `read_nodes`, `read_edges`.

        Kinds of columns are inferred unless a schema is given, and standardized over these nodes.
        All complaints about the tables come in one error, and nothing is written then.
        """
        path = Path(path)
        check_new(path)
        tables = Tables.read(nodes, edges, id=id).with_known_ends(settings.unknown_ends)
        return cls(new_state(path, tables, tables.fit(schema), settings))

    @classmethod
    def create(
        cls,
        path: Path | str,
        schema: Schema,
        *,
        settings: Settings = Settings(),  # noqa: B008
    ) -> Model:
        """Make a model folder of an empty graph: kinds of columns, and no statistics yet.

        `refit` takes statistics and landmarks when there are nodes.
        """
        check_new(Path(path))
        return cls(new_state(Path(path), Tables([], []), Schema(schema.columns), settings))

    @classmethod
    def at(
        cls,
        path: Path | str,
        out: Path | str,
        *,
        offset: int | None = None,
        time: float | None = None,
    ) -> Model:
        """Make a model folder of what another was at a moment of its history.

        The history begins when the model is first served. Forgotten things are not in it, nor is
        a network.

        Args:
            path: the model folder; it may be in use.
            out: the folder to make.
            offset: how many events it had taken.
            time: seconds since 1970, in place of an offset.
        """
        return cls(travel(Path(path), Path(out), offset, time))

    @classmethod
    def open(cls, path: Path | str, *, readonly: bool = False) -> Model:
        """Open a model folder; nothing else is needed."""
        path = Path(path)
        settings = read_settings(path)
        if not (path / GRAPH).is_file():
            raise FileError(f"{path / GRAPH} is not there: restore it from a copy")
        store = Store(path / GRAPH, readonly=readonly)
        try:
            with store.snapshot():
                state = State(path, store, settings)
            state.settle()
            if not readonly and store.get("forgetting"):
                state.purge()
        except BaseException:
            store.close()
            raise
        return cls(state)

    def close(self) -> None:
        """Give the folder free for others."""
        self.store.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def store(self) -> Store:
        """The graph on disk."""
        return self.state.store

    @property
    def graph(self) -> GrowingGraph:
        """The graph in memory."""
        return self.state.graph

    @property
    def schema(self) -> Schema:
        """Kinds of columns and their statistics."""
        return self.state.schema

    @property
    def settings(self) -> Settings:
        """What the model was made with."""
        return self.state.settings

    @property
    def classes(self) -> list[str]:
        """The names of the classes, sorted."""
        return list(self.graph.classes)

    def learn(
        self,
        events: Iterable[Event | Mapping[str, Any]],
        report: Report | None = None,
        *,
        note: tuple[str, str] | None = None,
        file: str = "events",
    ) -> int:
        """Take events in one transaction: all that are good, durably; returns how many.

        Args:
            events: as `read_events` gives them, or dictionaries with the same keys.
            report: collects complaints about events that are refused; without it, the first one
                is raised and nothing is taken.
            note: a name and a value for the store, written in the same transaction.
            file: where the events come from, for complaints.
        """
        also = None if note is None else lambda _: self.store.set(*note)
        return len(road.learn(self.state, events, report, file=file, also=also).taken)

    def learn_one(self, x: Mapping[str, Any], y: str | None = None) -> None:
        """Take one event, a dictionary as a line of an event file holds it; as river has it.

        Args:
            x: a node with its id and features, unless its `type` says something else.
            y: the label of the node.
        """
        self.learn([{"type": "node", **x, **({} if y is None else {"label": y})}])

    def forget(
        self,
        nodes: Sequence[Id] = (),
        edges: Sequence[tuple[Id, Id]] = (),
        labels: Sequence[Id] = (),
    ) -> None:
        """Take nodes, edges or labels out with all their traces, in memory and in the files.

        The weights of a network keep their influence; what it remembers is made anew.
        """
        road.forget(self.state, nodes, edges, labels)

    def refit(self, schema: Schema | None = None) -> None:
        """Take statistics of columns and landmarks again, over all nodes that are there now.

        Afterwards the model is what `train` makes of its graph, the network too. It happens
        durably as a whole, or not at all.

        Args:
            schema: other kinds of columns; None keeps them.
        """
        state = self.state
        with self.store.transaction():
            refit(self.store, schema)
            fresh = State(state.path, state.store, state.settings)
        self.state = fresh
        self.save()

    def merge(self, other: Model) -> None:
        """Learn all that another model has learned since both came from one `train` or `refit`.

        The digest is then that of learning both. They must have learned different things: an error
        if they have changed the same node, label or edge. Edges of this model to a node that the
        other has deleted again stay, and wait for it.
        """
        self.learn(merging.brought(self.state, other.state))

    def unmerge(self, other: Model) -> None:
        """Take out again what `merge` brought; an error if it is not there as it was."""
        self.learn(merging.taken_back(self.state, other.state))

    def predict(
        self, nodes: Any = None, edges: Any = None, *, coverage: float = 0.9, id: str = "id"
    ) -> list[Prediction]:
        """What nodes are: of the graph by their ids, or new ones with features, not to be stored.

        Args:
            nodes: a list of ids; or a table, as `train` takes it; None for all of the graph.
            edges: of new nodes, a table.
            coverage: how often label sets shall hold the right class.
            id: the column of ids in a table of nodes.
        """
        return predictions.predict(self.state.view(), nodes, edges, coverage=coverage, id=id)

    def predict_one(self, x: Id | Mapping[str, Any]) -> str | None:
        """The class of one node, an id or a dictionary of features; None if no class is known."""
        return self.predict([x])[0].label if self.classes else None

    def predict_proba_one(self, x: Id | Mapping[str, Any]) -> dict[str, float]:
        """Probabilities of the classes by their names, of one node."""
        found = self.predict_proba([x])[0].tolist() if self.classes else []
        return dict(zip(self.classes, found, strict=True))

    def predict_proba(self, nodes: Any = None, edges: Any = None) -> NDArray[np.float64]:
        """Probabilities of the classes, `(n, K)`, in the order of `classes`."""
        view = self.state.view()
        parts = [likely for *_, likely in predictions.parts_of(view, nodes, edges)]
        return np.concatenate([np.zeros((0, len(view.solution.classes))), *parts])

    def explain(self, node: Id, label: str | None = None) -> Explanation:
        """Which neighbors and features spoke for a class, in parts that sum to the score.

        Args:
            node: an id of the graph.
            label: the class; None for the one that is predicted.
        """
        return predictions.explanation(self.state.view(), node, label)

    def compact(self, offset: int | None = None, time: float | None = None) -> None:
        """End the history before a moment, by default now; the file shrinks."""
        compact(self.state, offset, time)

    def digest(self) -> str:
        """A hash of all that decides a prediction: equal for equal graphs, after any history.

        With a network, for equal histories: the same events in the same transactions.
        """
        return self.state.digest()

    def save(self) -> None:
        """Write the sums, so that the next `open` need not make them again, and the network."""
        self.state.save()

    def inspect(self) -> dict[str, Any]:
        """Counts, classes, schema, accuracy over time, and the digest."""
        points = curve(self.store)
        right, seen = (sum(point[k] for point in points) for k in (1, 2))
        return {
            "nodes": len(self.graph),
            "edges": self.graph.num_edges,
            "waiting_edges": sum(1 for _ in self.store.waiting()),
            "labels": sum(self.graph.classes.values()),
            "classes": self.graph.classes,
            "position": self.store.position,
            "held_back": held_back(self.state),
            "prequential_accuracy": right / seen if seen else None,
            "prequential_labels": seen,
            "curve": [list(point) for point in points],
            "history": self.store.history.first,
            "schema": self.schema.describe(),
            "settings": asdict(self.settings),
            "network": None if self.state.network is None else self.state.network.counts(),
            "bytes": self.graph.nbytes,
            "digest": self.digest(),
        }


def open(path: Path | str, *, readonly: bool = False) -> Model:
    """Open a model folder; nothing else is needed.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as place:
        ...     nodes = {"id": range(60), "age": [20, 50] * 30, "label": ["young", "old"] * 30}
        ...     Model.train(place + "/model", nodes).close()
        ...     with open(place + "/model", readonly=True) as model:
        ...         model.predict_one(3)
        'old'
    """
    return Model.open(path, readonly=readonly)

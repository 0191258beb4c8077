"""A model in several places: the verbs of `Model`, and its digest to the last bit."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from evergraph.cluster.asking import Shards
from evergraph.cluster.checking import deleted, good, named
from evergraph.cluster.engine import Engine, Opener, RayEngine
from evergraph.cluster.folder import ABOUT, Change, Plan
from evergraph.cluster.loading import load, pieces_of
from evergraph.cluster.state import State
from evergraph.cluster.surroundings import parts_of, view_of
from evergraph.datasets.events import Event
from evergraph.datasets.report import Report, TableError
from evergraph.datasets.schema import Schema
from evergraph.datasets.tables import name_of
from evergraph.graph.ids import Id
from evergraph.model import predictions
from evergraph.model.events import encode, events_of, forget_events, forgotten
from evergraph.model.folder import Settings
from evergraph.model.predictions import Part
from evergraph.model.record import accuracies
from evergraph.model.schemas import check_columns
from evergraph.model.state import joined_digest
from evergraph.prediction import Explanation, Prediction

Floats = NDArray[np.float64]
T = TypeVar("T")


class Cluster:
    """A growing graph in shards, and a classifier that always follows it.

    Nodes are distributed by a hash of their ids. Each shard is a process with a store of its own;
    this object asks them, joins their sums, and solves. Digest and predictions are those of a
    `Model` of the same graph, to the last bit. Make one with `train`, open one with `open`.

    A shard that dies is started again by Ray; what was under way is repeated. If this process dies,
    `open` (or `train`, with the same tables) goes on where it was.

    Attributes:
        shards: which are asked.
        state: what is known of them.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from evergraph.cluster.engine import LocalEngine
        >>> place = TemporaryDirectory()
        >>> nodes = {"id": range(60), "age": [20, 50] * 30, "label": ["young", "old"] * 30}
        >>> cluster = Cluster.train(place.name + "/cluster", nodes, engine=LocalEngine)  # not Ray
        >>> cluster.predict_one({"id": "ann", "age": 49})
        'old'
        >>> cluster.close()
        >>> place.cleanup()
    """

    def __init__(self, path: Path, plan: Plan, engine: Engine) -> None:
        self.path, self.plan = path, plan
        self.shards = Shards(engine)
        self.state = State(self.shards, plan.settings)
        self._pending: Change | None = None  # that some shards have not taken yet

    @classmethod
    def train(
        cls,
        path: Path | str,
        nodes: Any,
        edges: Any = None,
        *,
        shards: int = 2,
        schema: Schema | None = None,
        settings: Settings = Settings(),  # noqa: B008
        id: str = "id",
        address: str | None = None,
        engine: Opener | None = None,
    ) -> Cluster:
        """Make the folder of a cluster from tables, as `Model.train` makes a model folder.

        Args:
            path: the folder; one that a killed `train` has left is completed.
            nodes: a table; the files of a folder are read by all shards at a time.
            edges: a table, or a folder.
            shards: how many parts the graph has.
            schema: kinds of columns.
            settings: of the model.
            id: the column of ids.
            address: of a cluster of Ray; None uses this machine.
            engine: makes another engine than Ray.
        """
        path, plan = Path(path), Plan(shards, settings)
        is_repeated = _check_folder(path, plan)
        pieces = pieces_of(nodes, edges, id)
        plan.write(path)
        begun = time.perf_counter()
        made = cls(path, plan, _open(plan, path, address, engine))
        steady, timed = made.shards.steady, made.shards.timed
        made.shards.clock["start"] = time.perf_counter() - begun
        try:
            with timed("load"):
                about = pieces, schema, settings.unknown_ends, name_of(nodes)
                steady(lambda: load(made.shards, *about))
            with timed("follow"):
                steady(made.state.join)
            with timed("sums"):
                steady(made.state.gather)
            made.plan = Plan(shards, settings, ready=True)
            made.plan.write(path)
        except TableError:
            made.close()
            if not is_repeated:
                shutil.rmtree(path)  # made above, and nothing was stored
            raise
        except BaseException:
            made.close()
            raise
        return made

    @classmethod
    def open(
        cls, path: Path | str, *, address: str | None = None, engine: Opener | None = None
    ) -> Cluster:
        """Open the folder of a cluster, and finish what was under way."""
        path = Path(path)
        plan = Plan.read(path)
        if not plan.ready:
            raise ValueError(f"{path} is not complete: repeat its train, which goes on")
        made = cls(path, plan, _open(plan, path, address, engine))
        try:
            change = Change.read(path)
            made.shards.steady(made.state.know)
            if change is not None:
                made._make(change)
        except BaseException:
            made.close()
            raise
        return made

    def close(self) -> None:
        """End the shards and give their folders free."""
        self.shards.engine.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the verbs of Model -------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        """What the model was made with."""
        return self.plan.settings

    @property
    def schema(self) -> Schema:
        """Kinds of columns and their statistics."""
        return self.state.joint.schema

    @property
    def classes(self) -> list[str]:
        """The names of the classes, sorted."""
        learned = self._steady(self.state.gather)
        return sorted({*learned.sums.counts, *learned.held.labels})

    def learn(
        self,
        events: Iterable[Event | Mapping[str, Any]],
        report: Report | None = None,
        *,
        file: str = "events",
    ) -> int:
        """Take events, all that are good, durably; returns how many. See `Model.learn`."""
        own = Report() if report is None else report
        wanted = list(events_of(events, own, file))
        rows = encode(self.schema, [e for e in wanted if e.type == "node"], own, file)
        pairs = deleted(wanted)
        shards = self.shards
        nodes, edges = self._steady(lambda: (shards.present(named(wanted)), shards.linked(pairs)))
        count, taken = good(wanted, rows, nodes, edges, self.settings, own, file)
        if report is None:
            own.check()
        if taken:
            self._change(taken)
        return count

    def learn_one(self, x: Mapping[str, Any], y: str | None = None) -> None:
        """Take one event, see `Model.learn_one`."""
        self.learn([{"type": "node", **x, **({} if y is None else {"label": y})}])

    def forget(
        self,
        nodes: Sequence[Id] = (),
        edges: Sequence[tuple[Id, Id]] = (),
        labels: Sequence[Id] = (),
    ) -> None:
        """Take nodes, edges or labels out with all their traces, on all shards."""
        self.learn(forget_events(nodes, edges, labels), file="forget")

    def refit(self, schema: Schema | None = None) -> None:
        """Take statistics of columns and landmarks again, over all nodes that are there now."""
        if schema is not None:
            there = self._steady(lambda: self.shards.all("holding.columns"))
            present = set().union(*there)
            known = [name for column in self.schema.columns for name in column.sources]
            check_columns(schema, present, known)
        self._change((), Schema((schema or self.schema).columns).to_json())

    def predict(
        self, nodes: Any = None, edges: Any = None, *, coverage: float = 0.9, id: str = "id"
    ) -> list[Prediction]:
        """What nodes are: their rows are made where they live. See `Model.predict`."""

        def found() -> list[Prediction]:
            solution, parts = self.state.solution(), self._parts(nodes, edges, id)
            return [one for one, _ in predictions.told(solution, parts, coverage)]

        return self._steady(found)

    def predict_one(self, x: Id | Mapping[str, Any]) -> str | None:
        """The class of one node, an id or a dictionary of features; None if no class is known."""
        return self.predict([x])[0].label if self.classes else None

    def predict_proba(self, nodes: Any = None, edges: Any = None) -> Floats:
        """Probabilities of the classes, `(n, K)`, in the order of `classes`."""

        def found() -> Floats:
            parts = [likely for *_, likely in self._parts(nodes, edges, "id")]
            return np.concatenate([np.zeros((0, len(self.state.solution().classes))), *parts])

        return self._steady(found)

    def predict_proba_one(self, x: Id | Mapping[str, Any]) -> dict[str, float]:
        """Probabilities of the classes by their names, of one node."""
        names = self.classes
        found = self.predict_proba([x])[0].tolist() if names else []
        return dict(zip(names, found, strict=True))

    def explain(self, node: Id, label: str | None = None) -> Explanation:
        """Which neighbors and features spoke for a class, see `Model.explain`."""

        def found() -> Explanation:
            view = view_of(self.shards, self.state.joint, self.state.solution(), [node])
            return predictions.explanation(view, node, label)

        return self._steady(found)

    def digest(self) -> str:
        """A hash of all that decides a prediction: that of a `Model` of the same graph."""
        learned = self._steady(self.state.gather)
        return joined_digest(self.state.joint.fingerprint(), learned.digest(), "")

    def inspect(self) -> dict[str, Any]:
        """Counts over all shards and of each, schema, accuracy on what is held back, digest."""
        shards = self.shards
        each = self._steady(lambda: shards.all("counts"))
        about = self._steady(lambda: shards.all("about"))
        classes = sum((Counter(one["classes"]) for one in each), Counter[str]())
        kept = self._steady(lambda: list(chain.from_iterable(shards.all("holding.held_back"))))
        names = ("nodes", "edges", "waiting_edges", "ghosts")
        return {
            **{name: sum(one[name] for one in each) for name in names},
            "classes": dict(sorted(classes.items())),
            "labels": sum(classes.values()),
            "held_back": accuracies(kept, bool(classes), self.predict),
            "schema": self.schema.describe(),
            "shards": [{**one, **part} for one, part in zip(each, about, strict=True)],
            "digest": self.digest(),
        }

    def _change(self, events: Sequence[Event], refit: str | None = None) -> None:
        """Write a change down and make it."""
        progress = self._steady(lambda: self.shards.all("holding.progress"))
        change = Change(1 + max(progress), events, refit)
        change.write(self.path)
        self._make(change)

    def _make(self, change: Change) -> None:
        """Let all shards take a change; once, however often this is repeated."""
        self._pending = change
        try:
            self.shards.steady(lambda: self.state.make(change))
            if forgotten(change.events):
                self.shards.steady(lambda: self.shards.all("holding.purge"))
            Change.done(self.path)
        except BaseException:
            self.state.lose()
            raise
        self._pending = None

    def _steady(self, work: Callable[[], T]) -> T:
        """Finish a change that has failed, then do something, however often shards die."""
        if self._pending is not None:
            self._make(self._pending)
        return self.shards.steady(work)

    def _parts(self, nodes: Any, edges: Any, id: str) -> Iterator[Part]:
        """What is asked for, some nodes at a time."""
        return parts_of(self.shards, self.state.joint, self.state.solution(), nodes, edges, id)


def _check_folder(path: Path, plan: Plan) -> bool:
    """Whether a `train` with this plan was begun in a folder; an error if something else was."""
    if not (path.exists() and any(path.iterdir())):
        return False
    if not (path / ABOUT).exists() or (there := Plan.read(path)).ready:
        raise ValueError(f"{path} is there already: move it, or choose another path")
    if there != plan:
        raise ValueError(
            f"{path} was begun with {there.shards} shards and other settings or {plan.shards} "
            "shards are asked for now: repeat what was begun, or remove the folder"
        )
    return True


def _open(plan: Plan, path: Path, address: str | None, engine: Opener | None) -> Engine:
    folders = plan.folders(path)
    if engine is not None:
        return engine(folders, plan.settings)
    return RayEngine(folders, plan.settings, address)

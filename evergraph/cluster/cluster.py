"""A model in several places: the verbs of `Model`, and its digest to the last bit."""

from __future__ import annotations

import hashlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from evergraph.cluster.checking import deleted, good, named
from evergraph.cluster.engine import Engine, Opener, RayEngine, ShardLost
from evergraph.cluster.folder import ABOUT, Change, Plan
from evergraph.cluster.partition import Load, home, homes, loads, route
from evergraph.datasets.events import Event
from evergraph.datasets.report import Report
from evergraph.datasets.schema import Schema
from evergraph.feature_graph.fixed_point import Embedding, Rows
from evergraph.graph.growing import GrowingGraph
from evergraph.graph.ids import Id, order_of
from evergraph.graph.links import ONE
from evergraph.learn.exact import Learned
from evergraph.learn.solution import Holdout, Solution
from evergraph.learn.sums import Sums
from evergraph.model import predictions
from evergraph.model.events import encode, events_of, forget_events, forgets
from evergraph.model.folder import Settings
from evergraph.model.predictions import Part
from evergraph.model.record import accuracies
from evergraph.model.schemas import check_columns
from evergraph.model.state import (
    Base,
    fingerprint,
    first_landmarks,
    joined_digest,
    landmark_rows,
)
from evergraph.model.tables import Tables
from evergraph.model.view import View
from evergraph.prediction import Explanation, Prediction

PATIENCE = 20  # times in a row that something is repeated because a shard died

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
        clock: wall-clock seconds by step: `load`, `follow` (the first `messages` included), `sums`.

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
        self.path, self.plan, self.engine = path, plan, engine
        self.clock: dict[str, float] = defaultdict(float)
        self._stale = False  # whether a shard lacks the means of its ghosts
        self._learned: Learned | None = None
        self._solved: Solution | None = None

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
            nodes: a table.
            edges: a table.
            shards: how many parts the graph has.
            schema: kinds of columns.
            settings: of the model.
            id: the column of ids.
            address: of a cluster of Ray; None uses this machine.
            engine: makes another engine than Ray.
        """
        path, plan = Path(path), Plan(shards, settings)
        if path.exists() and any(path.iterdir()):
            if not (path / ABOUT).exists() or (there := Plan.read(path)).ready:
                raise ValueError(f"{path} is there already: move it, or choose another path")
            if there != plan:
                raise ValueError(
                    f"{path} was begun with {there.shards} shards and other settings or {shards} "
                    "shards are asked for now: repeat what was begun, or remove the folder"
                )
        tables = Tables.read(nodes, edges, id=id).with_known_ends(settings.unknown_ends)
        columns = tables.fit(schema)
        plan.write(path)
        made = cls(path, plan, _open(plan, path, address, engine))
        try:
            with made._timed("load"):
                made._steady(partial(made._load, tables, columns))
            with made._timed("follow"):
                made._steady(made._join)
            with made._timed("sums"):
                made._steady(made._gather)
            made.plan = Plan(shards, settings, ready=True)
            made.plan.write(path)
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
            made._stale = True
            change = Change.read(path)
            made._steady(made._know)
            if change is not None:
                made._make(change)
        except BaseException:
            made.close()
            raise
        return made

    def close(self) -> None:
        """End the shards and give their folders free."""
        self.engine.close()

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
    def classes(self) -> list[str]:
        """The names of the classes, sorted."""
        learned = self._steady(self._gather)
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
        nodes, edges = self._steady(lambda: (self._present(named(wanted)), self._linked(pairs)))
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
            present = set().union(*self._steady(lambda: self._all("columns")))
            known = [name for column in self.schema.columns for name in column.sources]
            check_columns(schema, present, known)
        self._change((), Schema((schema or self.schema).columns).to_json())

    def predict(
        self, nodes: Any = None, edges: Any = None, *, coverage: float = 0.9, id: str = "id"
    ) -> list[Prediction]:
        """What nodes are: their rows are made where they live. See `Model.predict`."""

        def found() -> list[Prediction]:
            solution = self._solution()
            parts = self._parts(solution, nodes, edges, id)
            return [one for one, _ in predictions.told(solution, parts, coverage)]

        return self._steady(found)

    def predict_one(self, x: Id | Mapping[str, Any]) -> str | None:
        """The class of one node, an id or a dictionary of features; None if no class is known."""
        return self.predict([x])[0].label if self.classes else None

    def predict_proba(self, nodes: Any = None, edges: Any = None) -> Floats:
        """Probabilities of the classes, `(n, K)`, in the order of `classes`."""

        def found() -> Floats:
            solution = self._solution()
            parts = [likely for *_, likely in self._parts(solution, nodes, edges, "id")]
            return np.concatenate([np.zeros((0, len(solution.classes))), *parts])

        return self._steady(found)

    def predict_proba_one(self, x: Id | Mapping[str, Any]) -> dict[str, float]:
        """Probabilities of the classes by their names, of one node."""
        names = self.classes
        found = self.predict_proba([x])[0].tolist() if names else []
        return dict(zip(names, found, strict=True))

    def explain(self, node: Id, label: str | None = None) -> Explanation:
        """Which neighbors and features spoke for a class, see `Model.explain`."""
        return self._steady(
            lambda: predictions.explanation(self._view(self._solution(), [node]), node, label)
        )

    def digest(self) -> str:
        """A hash of all that decides a prediction: that of a `Model` of the same graph."""
        names = [name for name, _ in self._landmarks]
        about = fingerprint(self.settings, self.schema, names, self._compared)
        return joined_digest(about, self._steady(self._gather).digest(), "")

    def inspect(self) -> dict[str, Any]:
        """Counts over all shards and of each, schema, accuracy on what is held back, digest."""
        counts = self._counted()
        kept = chain.from_iterable(self._steady(lambda: self._all("held_back")))
        back = accuracies(kept, bool(counts["classes"]), self.predict)
        about = self._steady(lambda: self._all("about"))
        each = [{**one, **part} for one, part in zip(counts.pop("each"), about, strict=True)]
        return {
            **counts,
            "labels": sum(counts["classes"].values()),
            "held_back": back,
            "schema": self.schema.describe(),
            "shards": each,
            "digest": self.digest(),
        }

    def _counted(self) -> dict[str, Any]:
        each = self._steady(lambda: self._all("counts"))
        names = ("nodes", "edges", "waiting_edges", "ghosts")
        classes = sum((Counter(one["classes"]) for one in each), Counter())
        total = {name: sum(one[name] for one in each) for name in names}
        return {**total, "classes": dict(sorted(classes.items())), "each": each}

    # -- loading, changing, joining -----------------------------------------------------------

    def _load(self, tables: Tables, columns: Schema) -> None:
        """Send tables to the shards, from where each has stopped."""
        begun = self._all("progress")
        marks = {number: mark for number, mark in begun if mark is not None}

        def parts() -> Iterator[list[tuple[int, Load, Schema, str]]]:
            found = hashlib.sha256(columns.to_json().encode())
            for number, part in enumerate(loads(tables, self.plan.shards), 1):
                for one in part:
                    found.update(_content(one))
                mark = found.hexdigest()
                if marks.get(number, mark) != mark:
                    raise ValueError(
                        f"{self.path} was begun with other tables: repeat its train with these, "
                        "or remove the folder"
                    )
                yield [(number, one, columns, mark) for one in part]

        self.engine.stream("load", parts())

    def _join(self) -> None:
        """Join the statistics and landmarks of all shards, and let them follow."""
        joint, *others = (Schema.from_json(text) for text in self._all("share"))
        for other in others:
            joint.merge(other)
        count = self.settings.landmarks
        chosen = first_landmarks(chain.from_iterable(self._all("landmarks", count)), count)
        self._all("follow", joint.to_json(), chosen)
        self._note(joint, chosen)
        self._send_means(everything=True)

    def _know(self) -> None:
        """Take statistics and landmarks from the shards."""
        text, chosen = self._all("followed")[0]
        self._note(Schema.from_json(text), chosen)

    def _note(self, schema: Schema, landmarks: Sequence[Base]) -> None:
        self.schema, self._landmarks = schema, landmarks
        self._compared: Rows = landmark_rows(schema, landmarks)
        settings, width = self.settings, max(schema.width, 1)
        self.embedding = Embedding(settings.blocks, width, settings.hops, self._compared)

    def _change(self, events: Sequence[Event], refit: str | None = None) -> None:
        """Write a change down and make it."""
        number = 1 + max(number for number, _ in self._steady(lambda: self._all("progress")))
        change = Change(number, events, refit)
        change.write(self.path)
        self._make(change)

    def _make(self, change: Change) -> None:
        """Let all shards take a change; once, however often this is repeated."""
        self._steady(partial(self._drive, change))
        if any(map(forgets, change.events)):
            self._steady(lambda: self._all("purge"))
        Change.done(self.path)

    def _drive(self, change: Change) -> None:
        self._learned = self._solved = None
        if change.refit is not None:
            self._all("refit", change.number, Schema.from_json(change.refit))
            self._join()
            return
        each = route(change.events, self.plan.shards)
        stale = self.engine.each("learn", [(change.number, part) for part in each])
        if self.plan.shards > 1:
            with self._timed("messages"):
                self.engine.exchange("give_ghosts", "take_ghosts")
        if any(stale):
            self._join()
        else:
            self._send_means(everything=False)

    def _send_means(self, everything: bool) -> None:
        if self.plan.shards > 1 and self.settings.hops > 1:
            with self._timed("messages"):
                for wave in range(max(self._all("border", everything or self._stale))):
                    self.engine.exchange("give_means", "take_means", wave)
        self._stale = False

    def _gather(self) -> Learned:
        """The sums and the holdout of all shards, joined."""
        if self._learned is None:
            if self._stale:
                self._send_means(everything=True)
            keys = self._all("settle")
            limit = self.settings.held_out
            cut = sorted(chain.from_iterable(keys))[:limit][-1:]
            counts = [sum(key <= cut[0] for key in own) if cut else 0 for own in keys]
            found = self.engine.each("collect", [(count,) for count in counts])
            sums = Sums(self.embedding.size)
            for part, _ in found:
                sums.merge(part)
            held = [one for _, one in found]
            key = np.concatenate([one.keys for one in held])
            order = np.argsort(key, kind="stable")
            rows = np.concatenate([one.rows for one in held])[order]
            labels = list(chain.from_iterable(one.labels for one in held))
            holdout = Holdout(rows, [labels[at] for at in order.tolist()], key[order] % 4 == 0)
            self._learned = Learned(
                self.embedding, self._compared, None, limit, sums, holdout
            )  # fmt: skip
        return self._learned

    def _solution(self) -> Solution:
        if self._solved is None:
            if not self.classes:
                raise ValueError(
                    "nothing has been learned yet: the graph has no labels; learn some"
                )
            self._solved = self._gather().prepare()()
        return self._solved

    # -- asking -------------------------------------------------------------------------------

    def _parts(self, solution: Solution, nodes: Any, edges: Any, id: str) -> Iterator[Part]:
        """What is asked for, some nodes at a time, as one machine would cut it."""
        wanted = predictions.asked(nodes, edges, id, self._everything)
        if isinstance(wanted, Tables):
            ids, all_named = predictions.named_in(wanted)
            view = self._view(solution, all_named)
            near = view.graph
            predictions.put_asked(view.schema, wanted, near)
            yield from predictions.pieces(view, ids, near.slots(ids), near)
            return
        ids = self._everything() if wanted is None else wanted
        missing = [] if wanted is None else sorted(set(ids) - set(self._present(ids)), key=repr)
        if missing:
            raise ValueError(f"the graph has no node {missing[0]!r}: put it first")
        for start in range(0, len(ids), predictions.ROWS):
            part = ids[start : start + predictions.ROWS]
            rows = np.empty((len(part), self.embedding.size))
            for at, found in self._ask("rows", part):
                rows[at] = found
            likely = solution.probabilities(rows)
            yield part, rows, likely, likely

    def _view(self, solution: Solution, ids: Sequence[Id]) -> View:
        """What answers questions about nodes, on a graph of their surroundings."""
        settings, width = self.settings, max(self.schema.width, 1)
        near = GrowingGraph(width, directed=settings.directed, hops=settings.hops, cap=settings.cap)
        reached = set(self._present(ids))
        links = []
        for _ in range(settings.hops):
            found = [part for _, part in self._ask("step", sorted(reached, key=repr))]
            links += found
            reached.update(node for _, targets, _ in found for node in targets)
        for _, (names, *rows) in self._ask("features", sorted(reached, key=repr)):
            near.put_nodes(names, *rows)
        for sources, targets, weight in links:
            near.put_edges(sources, targets, weight / ONE)
        return View(solution, self.embedding, near, self.schema)

    def _everything(self) -> list[Id]:
        """All nodes in the order of their keys."""
        ids, keys = zip(*self._all("ids"), strict=True)
        listed = list(chain.from_iterable(ids))
        return [listed[at] for at in order_of(np.concatenate(keys)).tolist()]

    def _present(self, ids: Sequence[Id]) -> list[Id]:
        """Those of some nodes that are there."""
        found = self._ask("known", ids)
        return [ids[k] for at, there in found for k, is_there in zip(at, there) if is_there]  # noqa: B905

    def _linked(self, pairs: Sequence[tuple[Id, Id]]) -> list[tuple[Id, Id]]:
        """Those of some edges that are there, waiting or not."""
        parts: list[list[tuple[Id, Id]]] = [[] for _ in range(self.plan.shards)]
        for pair in pairs:
            parts[home(pair[0], self.plan.shards)].append(pair)
        there = self.engine.each("linked", [(part,) for part in parts])
        return [
            pair
            for part, found in zip(parts, there, strict=True)
            for pair, is_there in zip(part, found, strict=True)
            if is_there
        ]

    def _ask(self, method: str, ids: Sequence[Id]) -> list[tuple[list[int], Any]]:
        """Ask the owners of nodes: the places of their nodes in `ids`, and what they answer."""
        owner = homes(ids, self.plan.shards)
        places = [np.flatnonzero(owner == shard).tolist() for shard in range(self.plan.shards)]
        wanted = [([ids[at] for at in place],) for place in places]
        found = self.engine.each(method, wanted)
        return [(place, one) for place, one in zip(places, found, strict=True) if place]

    @contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        """Count the seconds of a step."""
        begun = time.perf_counter()
        yield
        self.clock[step] += time.perf_counter() - begun

    def _all(self, method: str, *arguments: Any) -> list[Any]:
        return self.engine.each(method, [arguments] * self.plan.shards)

    def _steady(self, work: Callable[[], T]) -> T:
        """Do something that may be repeated, again and again while shards die and come back."""
        for attempt in range(PATIENCE):
            try:
                return work()
            except ShardLost as error:
                self._learned = self._solved = None
                self._stale = True
                self.engine.revive()
                if attempt == PATIENCE - 1:
                    raise ConnectionError(
                        f"a shard has died {PATIENCE} times in a row: {error}; look at its logs, "
                        "usually it lacks memory"
                    ) from error
        raise AssertionError


def _open(plan: Plan, path: Path, address: str | None, engine: Opener | None) -> Engine:
    folders = plan.folders(path)
    if engine is not None:
        return engine(folders, plan.settings)
    return RayEngine(folders, plan.settings, address)


def _content(part: Load) -> bytes:
    """What tells the tables of one load from others."""
    nodes, edges = part.nodes, part.edges
    named = () if nodes is None else (nodes.ids, nodes.labels)
    linked = () if edges is None else (edges.sources, edges.targets)
    cells = b"" if nodes is None else nodes.features.table.slice(0, 1).to_pydict()
    return repr((named, linked, cells)).encode()

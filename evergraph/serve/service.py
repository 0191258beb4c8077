"""A model folder in service: events in, answers out, and what both sides share."""

from __future__ import annotations

import copy
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evergraph.datasets.events import Event
from evergraph.datasets.schema import Schema
from evergraph.graph.ids import Id
from evergraph.graph.store import Store
from evergraph.learn.solution import Solution
from evergraph.model import Model, Settings
from evergraph.model.events import learn
from evergraph.model.folder import GRAPH, SETTINGS
from evergraph.model.record import confusion, curve
from evergraph.model.state import State
from evergraph.model.view import View
from evergraph.serve.commit import Commit
from evergraph.serve.jobs import Job, Progress, inferred
from evergraph.serve.limits import Limits, RefusedError
from evergraph.serve.monitor import Monitor
from evergraph.serve.writer import Writer

GROWTH = (64, 256, 1024, 4096, 16384)  # nodes at which a model that began empty is refitted
NEWEST = 8  # nodes that a page offers
REMEMBERED = 10_000  # predictions that wait to be stored


@dataclass(frozen=True)
class Shown:
    """What readers see: a classifier that does not change, and when it was made.

    Attributes:
        view: classifier and graph.
        state: whose lock is held while the graph changes.
        version: the offset of the events that the classifier knows.
    """

    view: View
    state: State
    version: int


class Service:
    """Learns and answers at the same time.

    Args:
        path: the model folder; if there is none, the first events make it.
        limits: bounds on what clients may do.
        settings: of a model that is made.
        failed: called with errors that nobody waits for.

    Attributes:
        model: None until there is one; only the writer changes it.
        shown: what answers questions, None until something was learned.
    """

    def __init__(
        self,
        path: Path | str,
        limits: Limits = Limits(),  # noqa: B008
        settings: Settings = Settings(),  # noqa: B008
        failed: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        self.path, self.limits, self.settings = Path(path), limits, settings
        self.monitor = Monitor()
        self.model: Model | None = None
        self.shown: Shown | None = None
        self._store: Store | None = None  # of readers
        self.reading = threading.Lock()  # held while readers read the store
        self._guard = threading.Lock()  # of what readers share with the writer
        self._asked: dict[Id, str] = {}  # predictions that wait to be stored
        self._schema: tuple[Schema, Schema] | None = None  # the model's and a copy for readers
        self._solved = -1, -1  # the position and the number of the state that was solved last
        self._refit_at: int | None = None
        self._scorer: tuple[object, Solution] | None = None  # a learner and what it gave
        self.writer = Writer(limits, self._commit, self._prepare, self._save, failed)

    def start(self) -> None:
        """Open the model, if there is one, and begin to work."""
        if (self.path / SETTINGS).exists():
            self._open(Model.open(self.path))
        self.writer.start()

    def close(self) -> None:
        """Finish what waits, save, and give the folder free."""
        self.writer.close()
        if self._store is not None:
            self._store.close()
        if self.model is not None:
            self.model.close()

    # -- the writer ---------------------------------------------------------------------------

    def _open(self, model: Model, refit_at: int | None = None) -> None:
        """Take a model into service: with a history from now on."""
        store = model.store
        with store.transaction():
            store.history.begin(store.position, time.time())
            if refit_at is not None:
                store.set("refit at", refit_at)
        points = curve(store)
        self.monitor.start(sum(p[1] for p in points), sum(p[2] for p in points), confusion(store))
        self.model = model
        self._refit_if_due()
        self._store = Store(self.path / GRAPH, readonly=True)
        self._fit_caches()
        self._show_now()

    def _refit_if_due(self) -> None:
        """Refit a model that began empty, when it has grown enough; again after a kill."""
        assert self.model is not None
        kept = self.model.store.get("refit at")
        self._refit_at = None if kept is None else int(kept)
        while self._refit_at is not None and len(self.model.graph) >= self._refit_at:
            self.model.refit()
            later = [size for size in GROWTH if size > len(self.model.graph)]
            self._refit_at = later[0] if later else None
            with self.model.store.transaction():
                self.model.store.set("refit at", self._refit_at)

    def _commit(self, jobs: list[Job]) -> None:
        """Store the events of jobs in one transaction, or a few, and answer."""
        start = time.monotonic()
        while self.model is None and jobs:
            try:
                self._create(jobs[0])
            except RefusedError as error:
                jobs.pop(0).done.set_exception(error)
        model = self.model
        if model is None:
            return
        if self._scorer is not None and self._scorer[0] is model.state.learner:
            model.state.scorer = sys.maxsize, self._scorer[1]
        for job in jobs:
            if job.schema is not None and job.schema.columns != model.schema.columns:
                job.refusals.append((1, "the model has another schema already; leave this one out"))
        with self._guard:
            asked, self._asked = self._asked, {}
        self.monitor.took(0, sum(len(job.refusals) for job in jobs), [], model.store.position)
        commit = Commit(model, jobs, asked, self.limits.classes)
        while (part := commit.next(self._refit_at)) is not None:
            graph = model.graph
            learned = commit.store(part)
            self.monitor.took(
                len(learned.taken), commit.refused, learned.scored, model.store.position
            )
            self._refit_if_due()
            if model.graph is not graph or self.shown is None:  # who labels first may ask next
                self._show_now()
        self._fit_caches()
        commit.answer()
        for _ in jobs:
            self.monitor.lasted("events", time.monotonic() - start)

    def _fit_caches(self) -> None:
        """Let SQLite keep pages in proportion to the graph."""
        if self.model is not None and self._store is not None:
            rows = len(self.model.graph) + self.model.graph.num_edges
            for store in (self.model.store, self._store):
                store.fit_cache(rows)

    def _create(self, job: Job) -> None:
        """Make an empty model with the schema that the first events have."""
        schema = job.schema or inferred(job.events)
        model = Model.create(self.path, schema, settings=self.settings)
        self._open(model, refit_at=GROWTH[0])

    def _prepare(self) -> Callable[[], None] | None:
        """A function that solves and shows, if the model has changed since the last time."""
        model = self.model
        if model is None:
            return None
        state, now = model.state, (model.state.position, id(model.state.learner))
        if now == self._solved or not state.graph.classes:
            return None
        self._solved = now
        solve, start = state.learner.prepare(), time.monotonic()
        if self._schema is None or self._schema[0] is not state.schema:
            self._schema = state.schema, Schema.from_json(state.schema.to_json())
        schema, network = self._schema[1], copy.deepcopy(state.network)
        alone, learner = state.settings.learner == "network", state.learner
        parts = learner.embedding, state.graph

        def show() -> None:
            solution = solve()
            view = View(solution, *parts, schema, network, alone=alone)
            self.shown = Shown(view, state, now[0])
            self._scorer = learner, solution
            self.monitor.lasted("solve", time.monotonic() - start)

        return show

    def _show_now(self) -> None:
        """Solve at once: readers must not see a graph that is there no more."""
        self._solved = -1, -1
        show = self._prepare()
        if show is None:
            self.shown = None
        else:
            show()

    def _save(self) -> None:
        if self.model is not None:
            self.model.save()

    def forget(self, node: Id) -> Future[dict[str, Any]]:
        """Unlearn a node; the digests before and after."""

        def make() -> dict[str, Any]:
            model = self.model
            if model is None or node not in model.graph:
                raise RefusedError(404, f"there is no node {node!r}")
            with self._guard:
                self._asked.pop(node, None)
            before = model.digest()
            learn(model.state, [Event("forget_node", 0, id=node)], file="request")
            self.monitor.start(
                self.monitor.counts["right"], self.monitor.counts["scored"], confusion(model.store)
            )
            self._show_now()
            after = model.digest()
            return {
                "forgotten": node,
                "digest": {"before": before, "after": after},
                "position": model.store.position,
            }

        return self.writer.call(make)

    def digest(self) -> Future[dict[str, Any]]:
        """The digest of now, and its offset."""

        def make() -> dict[str, Any]:
            model = self.need_model()
            return {"digest": model.digest(), "position": model.store.position}

        return self.writer.call(make)

    def progress(self, key: str) -> Future[tuple[Progress, list[tuple[int, str]]]]:
        """How far the events of a key were stored, and which lines were refused."""

        def make() -> tuple[Progress, list[tuple[int, str]]]:
            found = None if self.model is None else self.model.store.history.answer(key)
            if found is None:
                return Progress(), []
            about = [(line, reason) for line, reason in json.loads(found[1] or "[]")]
            return Progress(**json.loads(found[0])), about

        return self.writer.call(make)

    # -- readers ------------------------------------------------------------------------------

    def need_model(self) -> Model:
        """The model; refused while there is none."""
        if self.model is None:
            raise RefusedError(409, "there is no model yet: send a schema and nodes to /events")
        return self.model

    def need_shown(self) -> Shown:
        """What answers questions; refused while nothing was learned."""
        self.need_model()
        if self.shown is None:
            raise RefusedError(409, "nothing has been learned yet: send some labels to /events")
        return self.shown

    def remember(self, found: Mapping[Id, str]) -> None:
        """Keep predictions until their labels come; they are stored with the next events."""
        with self._guard:
            for node, label in found.items():
                self._asked.pop(node, None)
                self._asked[node] = label
            while len(self._asked) > REMEMBERED:
                del self._asked[next(iter(self._asked))]

    @property
    def reader(self) -> Store:
        """The store, for reading; hold `reading` meanwhile."""
        self.need_model()
        assert self._store is not None
        return self._store

    def state(self) -> dict[str, Any]:
        """What the monitor does not know: sizes, classes, versions."""
        model, shown = self.model, self.shown
        found: dict[str, Any] = {
            "position": 0, "nodes": 0, "edges": 0, "classes": {}, "newest": []
        }  # fmt: skip
        if model is not None:
            state = model.state
            with state.lock:
                sizes = state.position, len(state.graph), state.graph.num_edges
                parts = *sizes, state.graph.classes, state.graph.newest(NEWEST)
                found = dict(zip(found, parts, strict=True))
        right, tested = (0, 0) if shown is None else shown.view.solution.held_out
        accuracy = right / tested if tested else None
        return {
            "model": model is not None,
            "version": None if shown is None else shown.version,
            **found,
            "queue": self.writer.waiting,
            "held_out": {"right": right, "tested": tested, "accuracy": accuracy},
        }

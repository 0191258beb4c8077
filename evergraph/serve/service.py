"""A model folder in service: events in, answers out, and what both sides share."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from evergraph.datasets.events import Event
from evergraph.graph.ids import Id
from evergraph.graph.store import Store
from evergraph.model import Model, Settings
from evergraph.model.events import forgotten, learn
from evergraph.model.folder import GRAPH, SETTINGS
from evergraph.model.record import confusion, curve
from evergraph.serve.asked import Asked
from evergraph.serve.commit import Commit
from evergraph.serve.jobs import Job, Progress, inferred
from evergraph.serve.limits import Limits, RefusedError
from evergraph.serve.monitor import Monitor
from evergraph.serve.shown import Display, Shown
from evergraph.serve.writer import Writer

GROWTH = (64, 256, 1024, 4096, 16384)  # nodes at which a model that began empty is refitted
NEWEST = 8  # nodes that a page offers


class Service:
    """Learns and answers at the same time.

    Args:
        path: the model folder; if there is none, the first events make it.
        limits: bounds on what clients may do.
        settings: of a model that is made.
        failed: called with errors that nobody waits for.

    Attributes:
        model: None until there is one; only the writer changes it.
        asked: predictions that wait for their labels.
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
        self.asked = Asked()
        self._display = Display(self.monitor)
        self._store: Store | None = None  # of readers
        self.reading = threading.Lock()  # held while readers read the store
        self._refit_at: int | None = None
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
        self._display.at_once(model.state)

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
        self._display.score_with(model.state)
        jobs = self._in_turn(model, jobs)
        for job in jobs:
            if job.schema is not None and job.schema.columns != model.schema.columns:
                job.refusals.append((1, "the model has another schema already; leave this one out"))
        self.monitor.took(0, sum(len(job.refusals) for job in jobs), [], model.store.position)
        commit = Commit(model, jobs, self.asked.take(), self.limits.classes)
        try:
            while (part := commit.next(self._refit_at)) is not None:
                self._store_part(model, commit, part)
        finally:
            self.asked.give_back(commit.asked)
        self._fit_caches()
        commit.answer()
        for _ in jobs:
            self.monitor.lasted("events", time.monotonic() - start)

    def _store_part(self, model: Model, commit: Commit, part: list[Event]) -> None:
        """Store some events of a commit, and refit or show what must not wait."""
        graph = model.graph
        learned = commit.store(part)
        position = model.store.position
        self.monitor.took(len(learned.taken), commit.refused, learned.scored, position)
        gone = forgotten(learned.taken)
        if gone:
            nodes = [event.id for event in gone if event.id is not None]
            self.asked.forgotten(nodes, position)
        self._refit_if_due()
        if model.graph is not graph or self.shown is None:  # who labels first may ask next
            self._display.at_once(model.state)

    def _in_turn(self, model: Model, jobs: list[Job]) -> list[Job]:
        """The jobs that follow what is stored of their requests; others are refused.

        A client that has given up and tries again may meet its own first request, still on its way.
        """
        kept: list[Job] = []
        stored: dict[str, int] = {}
        for job in jobs:
            if job.key is not None:
                lines = stored.get(job.key)
                if lines is None:
                    lines = self._progress(model, job.key)[0].lines
                if lines != job.before.lines:
                    reason = "the same request is on its way already: send it again later"
                    job.done.set_exception(RefusedError(503, reason, retry=1.0))
                    continue
                stored[job.key] = lines + job.lines
            kept.append(job)
        return kept

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
        return None if self.model is None else self._display.prepare(self.model.state)

    def _save(self) -> None:
        if self.model is not None:
            self.model.save()

    def forget(self, node: Id) -> Future[dict[str, Any]]:
        """Unlearn a node; the digests before and after."""

        def make() -> dict[str, Any]:
            model = self.model
            if model is None or node not in model.graph:
                raise RefusedError(404, f"there is no node {node!r}")
            before = model.digest()
            learn(model.state, [Event("forget_node", 0, id=node)], file="request")
            self.monitor.start(
                self.monitor.counts["right"], self.monitor.counts["scored"], confusion(model.store)
            )
            self.asked.forgotten([node], model.store.position)
            self._display.at_once(model.state)
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
            return (Progress(), []) if self.model is None else self._progress(self.model, key)

        return self.writer.call(make)

    @staticmethod
    def _progress(model: Model, key: str) -> tuple[Progress, list[tuple[int, str]]]:
        found = model.store.history.answer(key)
        if found is None:
            return Progress(), []
        about = [(line, reason) for line, reason in json.loads(found[1] or "[]")]
        return Progress(**json.loads(found[0])), about

    # -- readers ------------------------------------------------------------------------------

    @property
    def shown(self) -> Shown | None:
        """What answers questions, None until something was learned."""
        return self._display.shown

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

"""The one thread that writes: events into the store, in groups, and requests for a new classifier.

What waits is taken together and stored in one transaction; only then are the requests answered.
The classifier is solved in a second thread from sums that do not change, and shown to readers when
it is ready: neither questions nor events wait for it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from evergraph.serve.jobs import Call, Job
from evergraph.serve.limits import Limits, RefusedError

T = TypeVar("T")
IDLE = 5.0  # seconds without work after which sums are saved
SHARE = 3.0  # the writer takes at most a quarter of the time that events leave to prepare
BUSY = 9.0  # and a tenth if they leave none


class Writer:
    """Runs jobs one after the other, and keeps the classifier up to date.

    Args:
        limits: bounds on what waits.
        commit: stores jobs together; sets their results.
        prepare: gives a function that solves, or None if nothing has changed.
        save: called when there is nothing to do, and at the end.
        failed: called with errors of `prepare`, of solving and of `save`; work goes on.
    """

    def __init__(
        self,
        limits: Limits,
        commit: Callable[[list[Job]], None],
        prepare: Callable[[], Callable[[], None] | None],
        save: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self.limits = limits
        self._commit, self._prepare, self._save, self._failed = commit, prepare, save, failed
        self._queue: deque[Job | Call] = deque()
        self._waiting = 0  # events in the queue
        self._wake = threading.Condition()
        self._closing = self._ended = False
        self._solve: Callable[[], None] | None = None
        self._looked = 0.0, 0.0  # when the classifier was prepared last, and how long it took
        self._idle = 0.0  # seconds without work since then
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for target, name in ((self._run, "writer"), (self._solver, "solver"))
        ]

    def start(self) -> None:
        """Begin to work."""
        for thread in self._threads:
            thread.start()

    @property
    def alive(self) -> bool:
        """Whether both threads run."""
        return all(thread.is_alive() for thread in self._threads)

    @property
    def waiting(self) -> int:
        """How many events wait."""
        return self._waiting

    def submit(self, job: Job) -> Future[Any]:
        """Let a block of events wait for its turn; refused if too many wait."""
        with self._wake:
            self._check_open()
            if self._queue and self._waiting + len(job.events) > self.limits.queue:
                raise RefusedError(
                    429,
                    f"at most {self.limits.queue:,} events may wait, and {self._waiting:,} do: "
                    "send them again later",
                    retry=1.0,
                )
            self._queue.append(job)
            self._waiting += len(job.events)
            self._wake.notify_all()
        return job.done

    def call(self, make: Callable[[], T]) -> Future[T]:
        """Run something in the writer, behind all that waits."""
        made = Call(make)
        with self._wake:
            self._check_open()
            if len(self._queue) >= self.limits.queue:
                raise RefusedError(429, "too many requests wait: try again later", retry=1.0)
            self._queue.append(made)
            self._wake.notify_all()
        return made.done

    def _check_open(self) -> None:
        if self._closing:
            raise RefusedError(503, "the service is stopping: send it again to the next", retry=1.0)

    def close(self) -> None:
        """Do what waits, save, and end."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _run(self) -> None:
        worked, unsaved = time.monotonic(), False
        while True:
            waited = time.monotonic()
            with self._wake:
                ready = self._wake.wait_for(lambda: self._queue or self._closing, 0.05)
                jobs = self._take()
            self._idle += time.monotonic() - waited
            if jobs:
                self._work(jobs)
                worked, unsaved = time.monotonic(), True
            elif ready:
                break
            elif unsaved and time.monotonic() - worked > IDLE:
                unsaved = False
                self._guarded(self._save)
            if self._solve is None and self._is_due():
                self._guarded(self._look)
        self._guarded(self._save)
        with self._wake:
            self._ended = True
            self._wake.notify_all()

    def _is_due(self) -> bool:
        """Whether the classifier may be prepared again."""
        ended, lasted = self._looked
        return self._idle >= SHARE * lasted or time.monotonic() >= ended + BUSY * lasted

    def _look(self) -> None:
        """Hand the solver what has changed, if it has nothing to do."""
        start = time.monotonic()
        made = self._prepare()
        end = time.monotonic()
        self._looked, self._idle = (end, end - start), 0.0
        if made is not None:
            with self._wake:
                self._solve = made
                self._wake.notify_all()

    def _take(self) -> list[Job | Call]:
        """The next call, or the blocks of events that fit into one transaction."""
        taken: list[Job | Call] = []
        size = 0
        while self._queue:
            job = self._queue[0]
            if isinstance(job, Call):
                return taken or [self._queue.popleft()]
            if taken and size + len(job.events) > self.limits.commit:
                break
            size += len(job.events)
            taken.append(self._queue.popleft())
        self._waiting -= size
        return taken

    def _work(self, jobs: list[Job | Call]) -> None:
        """Do jobs; whatever fails is told to those who wait for it."""
        try:
            if isinstance(jobs[0], Call):
                jobs[0].done.set_result(jobs[0].make())
            else:
                self._commit([job for job in jobs if isinstance(job, Job)])
        except BaseException as error:
            for job in jobs:
                if not job.done.done():
                    job.done.set_exception(error)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self._looked, self._idle = (time.monotonic(), 1.0 / SHARE), 0.0
            self._failed(error)

    def _solver(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._solve is not None or self._ended)
                solve = self._solve
            if solve is None:
                return
            self._guarded(solve)
            with self._wake:
                self._solve = None
                self._wake.notify_all()

"""Events of several requests in one transaction, and what each request is answered."""

from __future__ import annotations

import json
from collections.abc import Mapping

from evergraph.checks import shorten
from evergraph.datasets.events import Event
from evergraph.datasets.report import Problem, Report
from evergraph.graph.ids import Id
from evergraph.model import Model
from evergraph.model.events import Learned, learn
from evergraph.serve.jobs import Job, Progress, reason_of


class Commit:
    """Jobs that are stored together.

    Args:
        model: that learns.
        jobs: in the order in which they came.
        asked: predictions of nodes, to be stored with the events.
        classes: how many there may be.

    Attributes:
        refused: how many events of the last part were refused.
    """

    def __init__(
        self, model: Model, jobs: list[Job], asked: Mapping[Id, str], classes: int
    ) -> None:
        self.model, self.jobs, self.asked, self.classes = model, jobs, dict(asked), classes
        self.refused = 0
        self._owners = [(job, event.line) for job in jobs for event in job.events]
        events = (event for job in jobs for event in job.events)
        self._events = [
            event if event.line == at else event._replace(line=at)
            for at, event in enumerate(events, 1)
        ]
        self._done = 0  # events that are stored or refused
        self._stored = {id(job): job.before for job in jobs}
        self._began = False

    def next(self, refit_at: int | None) -> list[Event] | None:
        """The events up to the next refit; None at the end.

        A model that is refitted at a number of nodes is so at the same event, however events are
        grouped: the digest follows from their order.
        """
        if self._began and self._done == len(self._events):
            return None
        self._began = True
        stop = len(self._events)
        if refit_at is not None:
            room, seen = refit_at - len(self.model.graph), set[Id]()
            for at in range(self._done, stop):
                event = self._events[at]
                if event.type == "node" and event.id is not None:
                    if event.id not in self.model.graph:
                        seen.add(event.id)
                    if len(seen) >= room:
                        stop = at + 1
                        break
        return self._events[self._done : stop]

    def store(self, part: list[Event]) -> Learned:
        """Store some events, with the progress of their requests."""
        refusals: list[tuple[int, str]] = []
        report = Report(lambda problem: refusals.append(_place(problem)))
        good = self._few_classes(part, refusals)
        history = self.model.store.history
        labelled = {event.id for event in good if event.label is not None and event.id is not None}
        stored = history.predicted(labelled)
        remembered = stored | {
            node: label for node, label in self.asked.items() if node in labelled
        }
        end, found = self._done + len(part), dict(self._stored)

        def also(taken: list[Event]) -> None:
            history.set_predicted({n: c for n, c in self.asked.items() if n not in labelled})
            history.drop_predicted(stored)
            self._answers(taken, refusals, end, found)

        learned = learn(
            self.model.state, good, report, file="request", also=also, remembered=remembered
        )
        self._done, self._stored, self.asked = end, found, {}
        self.refused = len(refusals)
        for at, reason in refusals:
            job, line = self._owners[at - 1]
            job.refusals.append((line, reason))
        brought = {e.id: self._owners[e.line - 1][0] for e in learned.taken if e.label is not None}
        for one in learned.scored:
            if one.id in brought:
                brought[one.id].scored.append(one)
        return learned

    def _few_classes(self, part: list[Event], refusals: list[tuple[int, str]]) -> list[Event]:
        """The events that do not bring more classes than there may be."""
        known = set(self.model.graph.classes)
        good = []
        for event in part:
            if event.label is not None and event.label not in known:
                if len(known) >= self.classes:
                    reason = (
                        f"there may be {self.classes:,} classes at the most, got one more, "
                        f"{shorten(event.label)}; use one that is known"
                    )
                    refusals.append((event.line, reason))
                    continue
                known.add(event.label)
            good.append(event)
        return good

    def _answers(
        self,
        taken: list[Event],
        refusals: list[tuple[int, str]],
        end: int,
        found: dict[int, Progress],
    ) -> None:
        """Work out how far requests are, and store it for those that have a key."""
        accepted: dict[int, int] = {}
        for event in taken:
            owner = id(self._owners[event.line - 1][0])
            accepted[owner] = accepted.get(owner, 0) + 1
        refused: dict[int, list[tuple[int, str]]] = {}
        for at, reason in refusals:
            job, line = self._owners[at - 1]
            refused.setdefault(id(job), []).append((line, reason))
        before = 0
        for job in self.jobs:
            first, before = before, before + len(job.events)
            finished = bool(job.events) and before <= self._done
            if finished or end <= first < len(self._owners):
                continue
            lines = job.lines
            if before > end:
                lines = self._owners[end - 1][1] - job.before.lines
            old = found[id(job)]
            about = sorted({*job.refusals, *refused.get(id(job), ())})
            about = [one for one in about if one[0] <= job.before.lines + lines]
            found[id(job)] = Progress(
                job.before.lines + lines,
                job.digest(lines) if job.key is not None else "",
                old.accepted + accepted.get(id(job), 0),
                job.before.refused + len(about),
                self.model.store.position,
            )
            if job.key is not None:
                self._keep(job, found[id(job)], about)

    def _keep(self, job: Job, progress: Progress, about: list[tuple[int, str]]) -> None:
        history = self.model.store.history
        assert job.key is not None
        old = history.answer(job.key)
        earlier = [] if old is None else json.loads(old[1] or "[]")
        earlier = [one for one in earlier if one[0] <= job.before.lines]
        history.set_answer(job.key, progress.to_json(), json.dumps([*earlier, *about]))

    def answer(self) -> None:
        """Tell all requests how far they are."""
        for job in self.jobs:
            job.done.set_result(self._stored[id(job)])


def _place(problem: Problem) -> tuple[int, str]:
    return problem.line or 1, reason_of(problem)

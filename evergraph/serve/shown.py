"""What readers see: classifiers that do not change, swapped when a new one is ready."""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from evergraph.datasets.schema import Schema
from evergraph.learn.solution import Solution
from evergraph.model.state import State
from evergraph.model.view import View
from evergraph.serve.monitor import Monitor


@dataclass(frozen=True)
class Shown:
    """A classifier, and when it was made.

    Attributes:
        view: classifier and graph.
        state: whose lock is held while the graph changes.
        version: the offset of the events that the classifier knows.
    """

    view: View
    state: State
    version: int


class Display:
    """Keeps a classifier for readers; the writer alone calls its methods.

    Args:
        monitor: is told how long it takes to solve.

    Attributes:
        shown: what answers questions, None until something was learned.
    """

    def __init__(self, monitor: Monitor) -> None:
        self.shown: Shown | None = None
        self._monitor = monitor
        self._schema: tuple[Schema, Schema] | None = None  # the model's and a copy for readers
        self._solved = -1, -1  # the position and the number of the state that was solved last
        self._scorer: tuple[object, Solution] | None = None  # a learner and what it gave

    def prepare(self, state: State) -> Callable[[], None] | None:
        """A function that solves and shows, if the model has changed since the last time."""
        now = state.position, id(state.learner)
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
            self._monitor.lasted("solve", time.monotonic() - start)

        return show

    def at_once(self, state: State) -> None:
        """Solve now: readers must not see a graph that is there no more."""
        self._solved = -1, -1
        show = self.prepare(state)
        if show is None:
            self.shown = None
        else:
            show()

    def score_with(self, state: State) -> None:
        """Let the classifier that is shown predict for labels that come unasked."""
        if self._scorer is not None and self._scorer[0] is state.learner:
            state.scorer = sys.maxsize, self._scorer[1]

"""A learner whose state is always what learning from scratch on today's graph would give.

Rows follow from a node and its neighborhood as they are now. Before the graph changes, the rows
that may change are taken out of the sums; before the next solve they come in again as they are
then. Sums are exact, so that nothing is left of what was taken out.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.feature_graph.fixed_point import Blocks, Embedding, Rows, divide
from evergraph.graph.growing import GrowingGraph
from evergraph.learn.solution import Choice, Holdout, Solution
from evergraph.learn.sums import Sums

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
CHUNK = 1024  # rows that are made at a time
ELIGIBLE = 2**64 // 8  # nodes with keys below this may be held out
HELD_OUT = 400  # of them, those with the smallest keys


def hop_means(graph: GrowingGraph, slots: Ints, hops: int) -> list[Rows]:
    """The means of 1 to K steps, self loops included, as integer rows of these nodes."""
    levels, steps = [slots], []
    for _ in range(hops - 1):
        step, members = graph.closed(levels[-1])
        steps.append(step)
        levels.append(members)
    found = divide(graph.sums(levels[-1]), graph.degree(levels[-1]))
    means = [found[np.searchsorted(levels[-1], slots)]] if hops > 1 else [found]
    for back in range(hops - 1, 0, -1):
        here = levels[back - 1]
        found = divide((steps[back - 1] @ found).tocsr(), graph.degree(here))
        means.append(found if back == 1 else found[np.searchsorted(here, slots)])
    return means


class ExactLearner:
    """Closed form on a growing graph.

    Args:
        graph: which tells the learner before it changes.
        width: F, the number of features.
        blocks: what rows are made of.
        landmarks: features of the landmark nodes, in the order of their keys.
        choice: settings; None lets the holdout choose whenever the state has changed.
    """

    def __init__(
        self,
        graph: GrowingGraph,
        width: int,
        blocks: Blocks,
        landmarks: Rows,
        choice: Choice | None = None,
    ) -> None:
        self.graph, self.choice, self._landmarks = graph, choice, landmarks
        self.embedding = Embedding(blocks, width, graph.hops, landmarks)
        self.sums = Sums(self.embedding.size)
        self._inside: set[int] = set()  # slots whose rows are in the sums
        self._outside: set[int] = set()  # labelled slots whose rows may have to come in
        self._held: set[int] = set()  # slots that were held out at the last refresh
        self._solved: Solution | None = None
        graph.before = self.before
        self._outside.update(graph.labelled())

    def rows(self, slots: Ints) -> Floats:
        """Rows `(n, D)` of nodes as they are now."""
        x = self.graph.rows(slots)
        return self.embedding(x, hop_means(self.graph, slots, self.graph.hops))

    def before(self, slots: Ints) -> None:
        """Take out of the sums what is about to change."""
        changing = slots.tolist()
        self._put(sorted(self._inside.intersection(changing)), -1)
        self._outside.update(changing)
        self._solved = None

    def refresh(self) -> None:
        """Bring into the sums what is missing, as it is now."""
        held = set(self.holdout_slots().tolist())
        self._put(sorted(held & self._inside), -1)
        coming = (self._outside | self._held) - held - self._inside
        self._put(sorted(s for s in coming if self.graph.label(s) is not None), 1)
        self._outside, self._held = set(), held

    def _put(self, slots: list[int], sign: int) -> None:
        for start in range(0, len(slots), CHUNK):
            part = slots[start : start + CHUNK]
            labels = [str(self.graph.label(slot)) for slot in part]
            self.sums.add(self.rows(np.array(part, dtype=np.int64)), labels, sign)
        (self._inside.update if sign > 0 else self._inside.difference_update)(slots)

    def holdout_slots(self) -> Ints:
        """The labelled nodes that are held out: those with the smallest keys."""
        slots = np.array(self.graph.labelled(), dtype=np.int64)
        keys = self.graph.keys(slots)
        slots, keys = slots[keys < ELIGIBLE], keys[keys < ELIGIBLE]
        return np.asarray(slots[np.argsort(keys, kind="stable")[:HELD_OUT]])

    def holdout(self) -> Holdout:
        """Rows and labels of what is held out; every other key chooses."""
        slots = self.holdout_slots()
        labels = [str(self.graph.label(slot)) for slot in slots.tolist()]
        return Holdout(self.rows(slots), labels, self.graph.keys(slots) % 2 == 0)

    def digest(self) -> str:
        """A hash of all that decides a prediction."""
        self.refresh()
        found = hashlib.sha256()
        self._describe(found)
        self.sums.update(found)
        held = self.holdout()
        found.update(repr(held.labels).encode() + held.rows.tobytes() + held.chooses.tobytes())
        return found.hexdigest()

    def _describe(self, found: Any) -> None:
        blocks = json.dumps(asdict(self.embedding.blocks), sort_keys=True)
        found.update(f"{blocks} {self.embedding.hops} {self.choice}".encode())
        for part in (self._landmarks.indptr, self._landmarks.indices, self._landmarks.data):
            found.update(np.asarray(part, dtype=np.int64).tobytes())

    def solution(self) -> Solution:
        """The classifier of now; solved again only if the state has changed."""
        if self._solved is None:
            self.refresh()
            self._solved = Solution(self.sums, self.embedding, self.holdout(), self.choice)
        return self._solved

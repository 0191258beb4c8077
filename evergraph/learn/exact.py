"""A learner whose state is always what learning from scratch on today's graph would give.

Rows follow from a node and its neighborhood as they are now. Before the graph changes, the rows
that may change are taken out of the sums; before the next solve they come in again as they are
then. Sums are exact, so that nothing is left of what was taken out.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.feature_graph.fixed_point import Blocks, Embedding, Rows, divide
from evergraph.graph.arena import Column
from evergraph.graph.growing import GrowingGraph
from evergraph.graph.hops import Bools
from evergraph.graph.ids import Id, key
from evergraph.learn.kept_rows import KeptRows
from evergraph.learn.solution import Choice, Holdout, Solution
from evergraph.learn.sums import Sums

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
SELF = 2**10  # the weight of a node in its own mean: one
CHUNK = 1024  # rows that are made at a time
ELIGIBLE = 2**64 // 8  # nodes with keys below this may be held out


def landmark_order(node: Id) -> tuple[bool, int]:
    """Nodes that come first in this order are landmarks: by key, those that may be held out last.

    A node that is its own landmark has a row unlike those of nodes to come, so that it could not
    calibrate.
    """
    found = key(node)
    return found < ELIGIBLE, found


def hop_means(graph: GrowingGraph, slots: Ints, hops: int) -> list[Rows]:
    """The means of 1 to K steps, self loops included, as integer rows of these nodes.

    The mean of k steps is the mean of the neighbors' means of k - 1 steps.
    """
    levels, steps = [slots], []  # whose means are needed, from K steps down to one
    for _ in range(hops - 1):
        step, members = _step(graph, levels[-1])
        steps.append(step)
        levels.append(members)
    found = divide(graph.sums(levels[-1]), graph.degree(levels[-1]))
    means = [found[np.searchsorted(levels[-1], slots)] if steps else found]
    for level, step in zip(levels[-2::-1], steps[::-1], strict=True):
        found = divide(sparse.csr_array(step @ found), graph.degree(level))
        means.append(found if level is slots else found[np.searchsorted(level, slots)])
    return means


def _step(graph: GrowingGraph, slots: Ints) -> tuple[Rows, Ints]:
    """Weights of all that counts in a mean of these nodes, and which nodes the columns are."""
    owner, node, weight = graph.counted(slots)
    members, column = np.unique(np.concatenate([slots, node]), return_inverse=True)
    own = np.arange(len(slots))
    values = np.concatenate([np.full(len(slots), SELF, dtype=np.int64), weight])
    place = np.concatenate([own, owner]), column
    return sparse.csr_array((values, place), shape=(len(slots), len(members))), members


def feature_rows(graph: GrowingGraph, slots: Ints) -> Rows:
    """The features of nodes, `(n, F)` int64."""
    indptr, index, value = graph.rows(slots)
    shape = len(slots), graph.num_features
    return sparse.csr_array((value.astype(np.int64), index, indptr), shape=shape)


def rows_of(embedding: Embedding, graph: GrowingGraph, slots: Ints) -> Floats:
    """Rows `(n, D)` of nodes of a graph as they are now."""
    return embedding(feature_rows(graph, slots), hop_means(graph, slots, graph.hops))


def steps_of(graph: GrowingGraph, slot: Ints, hops: int) -> list[tuple[Ints, Floats]]:
    """For each mean of one node, the nodes that are in it (ascending) and their shares of it."""
    members, share = slot, np.ones(1)
    found: list[tuple[Ints, Floats]] = []
    for _ in range(hops):
        step, reached = _step(graph, members)
        share = np.asarray((share / graph.degree(members)) @ step).ravel()
        members = reached
        found.append((members, share))
    return found


@dataclass(frozen=True)
class Learned:
    """All that a solution follows from, made in one place or joined from several.

    Attributes:
        embedding: that made the rows.
        landmarks: features of the landmark nodes.
        choice: settings, None lets the holdout choose.
        limit: how many labelled nodes are held out at the most.
        sums: of the items that are not held out.
        held: those that are, in the order of keys.
    """

    embedding: Embedding
    landmarks: Rows
    choice: Choice | None
    limit: int
    sums: Sums
    held: Holdout

    def digest(self) -> str:
        """A hash of all that decides a prediction: equal for equal graphs."""
        blocks = json.dumps(asdict(self.embedding.blocks), sort_keys=True)
        found = hashlib.sha256(
            f"{blocks} {self.embedding.hops} {self.choice} {self.limit}".encode()
        )
        for part in (self.landmarks.indptr, self.landmarks.indices, self.landmarks.data):
            found.update(np.asarray(part, dtype=np.int64).tobytes())
        self.sums.update(found)
        held = self.held
        found.update(repr(held.labels).encode() + held.rows.tobytes() + held.chooses.tobytes())
        return found.hexdigest()

    def prepare(self) -> Callable[[], Solution]:
        """All that is needed to solve, as it is now: the solving itself may happen elsewhere."""
        sums, held = self._shared()
        return partial(Solution, sums.copy(), self.embedding, held, self.choice)

    def _shared(self) -> tuple[Sums, Holdout]:
        """What solves and what is held out, with classes that are held out whole among the first.

        Which these are follows from the sums and the holdout, so that the digest covers it.
        """
        held = self.held
        alone = np.array([name not in self.sums.counts for name in held.labels], dtype=np.bool_)
        if not alone.any():
            return self.sums, held
        sums = Sums(self.embedding.size)
        sums.merge(self.sums)
        labels = np.array(held.labels, dtype=object)
        sums.add(held.rows[alone], labels[alone].tolist())
        return sums, Holdout(held.rows[~alone], labels[~alone].tolist(), held.chooses[~alone])


class ExactLearner:
    """Closed form on a growing graph.

    Args:
        graph: which tells the learner before it changes.
        blocks: what rows are made of.
        landmarks: features of the landmark nodes, see `landmark_order`.
        choice: settings; None lets the holdout choose whenever the state has changed.
        held_out: how many labelled nodes are held out at the most: those with the smallest keys,
            among an eighth of all keys.
    """

    def __init__(
        self,
        graph: GrowingGraph,
        blocks: Blocks,
        landmarks: Rows,
        choice: Choice | None = None,
        held_out: int = 400,
    ) -> None:
        self.graph, self.choice, self._landmarks = graph, choice, landmarks
        self.held_out = held_out
        self.embedding = Embedding(blocks, graph.num_features, graph.hops, landmarks)
        self._start()
        graph.before = self.before

    def _start(self) -> None:
        """Know nothing; the next refresh brings everything in."""
        self.sums = Sums(self.embedding.size)
        self._kept = KeptRows(self.embedding.size)
        self._inside = Column(np.bool_)  # of each slot, whether its row is in the sums
        self._changed: set[int] | None = None  # slots that may have to come in; None for all
        self._eligible: dict[int, int] = {}  # keys of labelled slots that may be held out
        self._ranked: list[tuple[int, int]] = []  # the same as sorted pairs of key and slot
        self._held: set[int] = set()  # slots that were held out at the last refresh
        self._solved: Solution | None = None

    def rows(self, slots: Ints) -> Floats:
        """Rows `(n, D)` of nodes as they are now."""
        return rows_of(self.embedding, self.graph, slots)

    def before(self, slots: Ints) -> None:
        """Take out of the sums what is about to change."""
        changing = slots.tolist()
        try:
            self._put(slots[self._is_inside(slots)], -1)
        except BaseException:
            self._start()
            raise
        self._kept.drop(changing)
        if self._changed is not None:
            self._changed.update(changing)
        self._solved = None

    def refresh(self) -> None:
        """Bring into the sums what is missing, as it is now."""
        try:
            labelled, held = self._note_labels(), self._first_ranked()
            self._put(held[self._is_inside(held)], -1)
            back = sorted(self._held & self._eligible.keys())
            coming = np.union1d(labelled, np.array(back, dtype=np.int64))
            coming = coming[~np.isin(coming, held)]
            self._put(coming[~self._is_inside(coming)], 1)
        except BaseException:  # half of it may be in the sums
            self._start()
            raise
        self._changed, self._held = set(), set(held.tolist())

    def restore(self, sums: Sums) -> None:
        """Take over sums that were made of the graph as it is now."""
        labelled, held = self._note_labels(), self._first_ranked()
        inside = np.setdiff1d(labelled, held, assume_unique=True)
        if sums.size != self.sums.size or len(sums) != len(inside):
            raise ValueError("sums of another graph")
        self.sums, self._inside, self._held = sums, Column(np.bool_), set(held.tolist())
        self._mark(inside, True)
        self._changed, self._solved = set(), None

    def eligible_keys(self, count: int) -> list[int]:
        """The smallest keys of what may be held out, ascending, as of the last refresh."""
        return [own for own, _ in self._ranked[:count]]

    def _first_ranked(self) -> Ints:
        """The slots that are to be held out now."""
        first = [slot for _, slot in self._ranked[: self.held_out]]
        return np.array(sorted(first), dtype=np.int64)

    def _is_inside(self, slots: Ints) -> Bools:
        """Whether the rows of slots are in the sums."""
        known, found = self._inside.array, np.zeros(len(slots), dtype=np.bool_)
        there = slots < len(known)
        found[there] = known[slots[there]]
        return found

    def _mark(self, slots: Ints, inside: bool) -> None:
        """Note of ascending slots whether their rows are in the sums."""
        if len(slots):
            self._inside.reserve(int(slots[-1]) + 1)
            self._inside.array[slots] = inside

    def _note_labels(self) -> Ints:
        """The changed slots that have a label; who may be held out is brought up to date."""
        if self._changed is None:
            there = np.sort(self.graph.slots())
        else:
            changed = np.array(sorted(self._changed), dtype=np.int64)
            there = changed[self.graph.present(changed)]
        named = (label is not None for label in self.graph.labels(there))
        labelled = there[np.fromiter(named, dtype=np.bool_, count=len(there))]
        keys = self.graph.keys(labelled)
        able = keys < ELIGIBLE
        self._rank(dict(zip(labelled[able].tolist(), keys[able].tolist(), strict=True)))
        return labelled

    def _rank(self, able: dict[int, int]) -> None:
        """Keep `_ranked` sorted: one by one if few have changed, so that the cost is theirs."""
        out = {s: self._eligible[s] for s in self._changed or () if s in self._eligible}
        gone = [(own, slot) for slot, own in out.items() if able.get(slot) != own]
        new = [(own, slot) for slot, own in able.items() if out.get(slot) != own]
        for _, slot in gone:
            del self._eligible[slot]
        self._eligible.update((slot, own) for own, slot in new)
        if len(gone) + len(new) > 64:
            self._ranked = sorted((own, slot) for slot, own in self._eligible.items())
            return
        for pair in gone:
            del self._ranked[bisect_left(self._ranked, pair)]
        for pair in new:
            insort(self._ranked, pair)

    def _put(self, slots: Ints, sign: int) -> None:
        for start in range(0, len(slots), CHUNK):
            part = slots[start : start + CHUNK]
            rows = self._kept.rows(part, self.rows, keep=sign > 0)
            self.sums.add(rows, list(map(str, self.graph.labels(part))), sign)
            self._mark(part, sign > 0)

    def holdout(self) -> Holdout:
        """Rows and labels of what is held out, in the order of keys; every fourth key chooses."""
        self.refresh()
        slots = np.array(sorted(self._held, key=self._eligible.__getitem__), dtype=np.int64)
        labels = list(map(str, self.graph.labels(slots)))
        rows = self._kept.rows(slots, self.rows)
        return Holdout(rows, labels, self.graph.keys(slots) % 4 == 0)

    def learned(self) -> Learned:
        """What the solution of now follows from."""
        held = self.holdout()
        parts = self.embedding, self._landmarks, self.choice, self.held_out
        return Learned(*parts, self.sums, held)

    def digest(self) -> str:
        """A hash of all that decides a prediction: equal for equal graphs."""
        return self.learned().digest()

    def solution(self) -> Solution:
        """The classifier of now; solved again only if the graph has changed."""
        if self._solved is None:
            self._solved = self.prepare()()
        return self._solved

    def prepare(self) -> Callable[[], Solution]:
        """All that is needed to solve, as it is now: the solving itself may happen elsewhere."""
        return self.learned().prepare()

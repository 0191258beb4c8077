"""One shard: a store, the graph of its own nodes and their ghosts, and the sums of its items."""

from __future__ import annotations

import os
import resource
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from evergraph import __version__
from evergraph.cluster.graph import Means, ShardGraph
from evergraph.cluster.holding import Ghost, Holding
from evergraph.cluster.reader import Reader
from evergraph.datasets.events import Event
from evergraph.datasets.report import Report
from evergraph.datasets.schema import Schema
from evergraph.graph.ids import Id
from evergraph.learn.exact import ExactLearner
from evergraph.learn.sums import Sums
from evergraph.model.events import REMOVED, apply_event, encode, expect, places
from evergraph.model.folder import Settings
from evergraph.model.state import Base, fill, landmark_rows

WAVE = 20_000  # means that are sent to each shard at a time


@dataclass(frozen=True)
class Held:
    """Items of a shard that are held out: keys, rows `(n, D)` and labels."""

    keys: NDArray[np.uint64]
    rows: NDArray[np.float64]
    labels: list[str]


class Shard:
    """The nodes that hash to one number, in a folder; the actor of a cluster.

    Everything that changes the store has a number and happens once, so that all can be repeated
    after a crash. The store is read again when the shard is made.

    Args:
        path: its folder.
        place: its number.
        shards: how many there are.
        settings: of the model.

    Attributes:
        holding: what is on disk.
        reader: of tables.
        schema: with the statistics of the base nodes of all shards.
    """

    schema: Schema
    graph: ShardGraph
    learner: ExactLearner

    def __init__(self, path: str, place: int, shards: int, settings: Settings) -> None:
        self.place, self.shards, self.settings = place, shards, settings
        self.holding = Holding(Path(path), place, shards, settings)
        self.reader = Reader(place, shards)
        self._last: Sequence[Event] = ()
        self._leaving = np.zeros(0, dtype=np.int64)
        self.traffic: Counter[str] = Counter()
        self._wake()

    def close(self) -> None:
        """Give the folder free for others."""
        self.holding.store.close()

    def about(self) -> dict[str, Any]:
        """The process: version of the program, peak memory, CPU time, and what was received."""
        return {
            "pid": os.getpid(),
            "version": __version__,
            "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            "cpu_seconds": time.process_time(),
            "traffic": dict(self.traffic + self.reader.received),
        }

    def load(self) -> None:
        """Store the tables that the reader has; it forgets them."""
        self.holding.load(self.reader.share, self.reader.tables())
        self.reader.begin()
        pa.default_memory_pool().release_unused()  # the graph needs the room of the tables

    def follow(self, joint: str, landmarks: Sequence[Base]) -> None:
        """Take statistics and landmarks of all shards, and make the graph and the sums anew."""
        self.holding.follow(joint, landmarks)
        self._wake()

    def _wake(self) -> None:
        """Make all that is in memory from the store; means of ghosts have to come yet."""
        if (followed := self.holding.followed()) is None:
            return
        joint, landmarks = followed
        settings, self.schema = self.settings, Schema.from_json(joint)
        made = {"directed": settings.directed, "hops": settings.hops, "cap": settings.cap}
        width = max(self.schema.width, 1)
        self.graph = ShardGraph(width, self.place, self.shards, **made)
        fill(self.graph, self.holding.store, self.schema)
        compared = landmark_rows(self.schema, landmarks)
        held_out = settings.held_out // self.shards  # about as many as `settle` will say
        self.learner = ExactLearner(self.graph, settings.blocks, compared, held_out=held_out)
        self._last = ()

    # -- events -------------------------------------------------------------------------------

    def learn(self, number: int, events: Sequence[Event]) -> bool:
        """Take events that are known to be good; whether they delete base nodes of this shard.

        Edges to foreign nodes wait until the ghost comes.
        """
        self._last = events
        if number > self.holding.batch:
            try:
                self._learn(number, events)
            except BaseException:
                self._wake()
                raise
        return self.holding.store.get("stale") == number

    def _learn(self, number: int, events: Sequence[Event]) -> None:
        nodes = [e for e in events if e.type == "node"]
        rows = encode(self.schema, nodes, Report(), "events")
        found, needless = self.holding.write(number, events)
        expect(self.graph, events, [made for made in found if isinstance(made, list)])
        for event, made in zip(events, found, strict=True):
            foreign = event.type in REMOVED["node"] and not self.holding.owns(places(event)[0])
            if not foreign or made:
                apply_event(self.graph, event, rows, made)
        for node in needless:
            self.graph.delete_node(node)

    # -- what goes from shard to shard --------------------------------------------------------

    def give_ghosts(self) -> list[list[Ghost] | None]:
        """For each shard the nodes that it needs since the last events."""
        return self.holding.wanted(self._last)

    def take_ghosts(self, *parcels: list[Ghost] | None) -> None:
        """Store ghosts that own nodes have edges to; the edges that waited for them are there."""
        ghosts = (ghost for parcel in parcels for ghost in parcel or ())
        done = self.holding.put_ghosts(ghosts)
        events = [event for event, _ in done]
        self._receive("ghosts", len(events), sum(len(repr(event.cells)) for event in events))
        rows = encode(self.schema, events, Report(), "ghosts")
        expect(self.graph, events, [released for _, released in done])
        for event, released in done:
            apply_event(self.graph, event, rows, released)

    def border(self, everything: bool) -> int:
        """Look for means to send, all or those that may have changed; returns in how many waves."""
        self._leaving = self.graph.border(everything)
        return -(-len(self._leaving) // WAVE)

    def give_means(self, wave: int) -> list[Means | None]:
        """For each shard the means of own nodes that it holds ghosts of."""
        return self.graph.means_for(self._leaving[wave * WAVE : (wave + 1) * WAVE])

    def take_means(self, *parcels: Means | None) -> None:
        """Take the means of ghosts."""
        for means in parcels:
            if means is not None:
                self.graph.put_means(means)
                self._receive("means", len(means.ids), means.nbytes)

    def _receive(self, what: str, count: int, nbytes: int) -> None:
        self.traffic[what] += count
        self.traffic[f"{what}_bytes"] += nbytes

    # -- what the coordinator asks for --------------------------------------------------------

    def settle(self) -> list[int]:
        """Bring the sums up to date; the smallest keys of what may be held out."""
        self.learner.refresh()
        return self.learner.eligible_keys(self.settings.held_out)

    def collect(self, held_out: int) -> tuple[Sums, Held]:
        """The sums without so many items that are held out, and these."""
        self.learner.held_out = held_out
        learned = self.learner.learned()
        keys = np.array(self.learner.eligible_keys(held_out), dtype=np.uint64)
        return learned.sums.copy(), Held(keys, learned.held.rows, learned.held.labels)

    def rows(self, ids: Sequence[Id]) -> NDArray[np.int32]:
        """Rows `(n, D)` of own nodes: integers of 20 bits."""
        slots = self.graph.slots(ids)
        parts = np.split(slots, range(1024, len(slots), 1024))
        return np.concatenate([self.learner.rows(part).astype(np.int32) for part in parts])

    def known(self, ids: Sequence[Id]) -> list[bool]:
        """Which own nodes are there."""
        return [node in self.graph for node in ids]

    def ids(self) -> tuple[list[Id], NDArray[np.uint64]]:
        """All own nodes in the order of their keys, and these."""
        slots = self.graph.own()
        return self.graph.ids(slots), self.graph.keys(slots)

    def step(self, ids: Sequence[Id]) -> tuple[list[Id], list[Id], NDArray[np.int64]]:
        """The neighbors of own nodes that count: sources, targets, weights in units of 2**-10."""
        slots = self.graph.slots(ids)
        owner, node, weight = self.graph.counted(slots)
        return self.graph.ids(slots[owner]), self.graph.ids(node), weight

    def features(self, ids: Sequence[Id]) -> tuple[Any, ...]:
        """Own nodes and their encoded features."""
        return ids, *self.graph.rows(self.graph.slots(ids))

    def counts(self) -> dict[str, Any]:
        """How much this shard owns, and how many ghosts it holds."""
        nodes, store = self.graph.own(), self.holding.store
        return {
            "nodes": len(nodes),
            "ghosts": len(self.graph) - len(nodes),
            "held_edges": self.graph.num_edges,
            "edges": self.graph.count_edges(),
            "waiting_edges": self.holding.count(store.waiting()),
            "classes": self.graph.classes,
            "bytes": self.graph.nbytes,
        }

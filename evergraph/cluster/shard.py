"""One shard: a store, the graph of its own nodes and their ghosts, and the sums of its items."""

from __future__ import annotations

import json
import os
import resource
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph import __version__
from evergraph.cluster.graph import Means, ShardGraph
from evergraph.cluster.partition import Load, home, homes
from evergraph.datasets.events import Event
from evergraph.datasets.report import Report
from evergraph.datasets.schema import Schema
from evergraph.graph.ids import Id
from evergraph.graph.records import Edge
from evergraph.graph.store import Store
from evergraph.learn.exact import ExactLearner
from evergraph.learn.sums import Sums
from evergraph.model.events import REMOVED, apply_event, encode, expect, places, store_event
from evergraph.model.folder import GRAPH, Settings
from evergraph.model.schemas import nodes_of
from evergraph.model.state import Base, fill, first_landmarks, landmark_rows
from evergraph.model.tables import Tables

WAVE = 20_000  # means that are sent to each shard at a time

Ghost = tuple[Id, dict[str, Any]]
"""Id and cells of a node of another shard."""


@dataclass(frozen=True)
class Written:
    """What the events of own nodes change on disk: see `evergraph.model.events.Stored`."""

    store: Store
    schema: Schema
    settings: Settings


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
        schema: with the statistics of the base nodes of all shards.
    """

    schema: Schema
    graph: ShardGraph
    learner: ExactLearner

    def __init__(self, path: str, place: int, shards: int, settings: Settings) -> None:
        self.place, self.shards, self.settings = place, shards, settings
        self.store = Store(Path(path) / GRAPH, directed=settings.directed)
        self._last: Sequence[Event] = ()
        self._leaving = np.zeros(0, dtype=np.int64)
        self.traffic: Counter[str] = Counter()
        if self.store.get("joint") is not None:
            self._wake()

    def close(self) -> None:
        """Give the folder free for others."""
        self.store.close()

    def about(self) -> dict[str, Any]:
        """The process and the version of the program; peak memory and what was received."""
        peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        own = {"pid": os.getpid(), "version": __version__, "peak_bytes": peak}
        return {**own, "traffic": dict(self.traffic)}

    @property
    def batch(self) -> int:
        """The number of the last change that is in the store."""
        return int(self.store.get("batch") or 0)

    def progress(self) -> tuple[int, str | None]:
        """The number of the last change, and the mark of the last load."""
        mark = self.store.get("mark")
        return self.batch, None if mark is None else str(mark)

    # -- loading ------------------------------------------------------------------------------

    def load(self, number: int, part: Load, columns: Schema, mark: str) -> None:
        """Store some rows of tables as base; of foreign nodes, ghosts without labels."""
        if number <= self.batch:
            return
        text = self.store.get("schema")
        share = Schema(columns.columns) if text is None else Schema.from_json(str(text))
        nodes = [] if part.nodes is None else [part.nodes]
        edges = [] if part.edges is None else [part.edges]
        with self.store.transaction():
            Tables(nodes, edges).put(self.store)
            if part.ghosts is not None:
                ghosts = replace(part.ghosts, labels=None, splits=None)
                self.store.put_nodes(ghosts.records())
                self._receive("ghosts", len(ghosts.ids), ghosts.features.table.nbytes)
            if part.nodes is not None or text is None:
                if part.nodes is not None:
                    share.fit(part.nodes.features)
                self.store.set("schema", share.to_json())
            self.store.set("batch", number)
            self.store.set("mark", mark)

    def share(self) -> str:
        """The schema with the statistics of this shard's base nodes."""
        return str(self.store.get("schema"))

    def landmarks(self, count: int) -> list[Base]:
        """Own base nodes that are the first in the order of landmarks."""
        own = (base for base in self.store.bases() if self._owns(base[0]))
        return first_landmarks(own, count)

    def follow(self, joint: str, landmarks: Sequence[Base]) -> None:
        """Take statistics and landmarks of all shards, and make the graph and the sums anew."""
        with self.store.transaction():
            self.store.set("joint", joint)
            self.store.set("landmarks", json.dumps(landmarks))
        self._wake()

    def followed(self) -> tuple[str, list[Base]]:
        """The statistics and landmarks of all shards, as they came last."""
        return str(self.store.get("joint")), self._landmarks()

    def _landmarks(self) -> list[Base]:
        return [(node, cells) for node, cells in json.loads(str(self.store.get("landmarks")))]

    def _wake(self) -> None:
        """Make all that is in memory from the store; means of ghosts have to come yet."""
        settings = self.settings
        self.schema = Schema.from_json(str(self.store.get("joint")))
        made = {"directed": settings.directed, "hops": settings.hops, "cap": settings.cap}
        width = max(self.schema.width, 1)
        self.graph = ShardGraph(width, self.place, self.shards, **made)
        fill(self.graph, self.store, self.schema)
        compared = landmark_rows(self.schema, self._landmarks())
        held_out = settings.held_out // self.shards  # about as many as `settle` will say
        self.learner = ExactLearner(self.graph, settings.blocks, compared, held_out=held_out)
        self._last = ()

    def _owns(self, node: Id) -> bool:
        return home(node, self.shards) == self.place

    # -- events -------------------------------------------------------------------------------

    def learn(self, number: int, events: Sequence[Event]) -> bool:
        """Take events that are known to be good; whether they delete base nodes of this shard.

        Edges to foreign nodes wait until the ghost comes.
        """
        self._last = events
        if number > self.batch:
            try:
                self._learn(number, events)
            except BaseException:
                self._wake()
                raise
        return self.store.get("stale") == number

    def _learn(self, number: int, events: Sequence[Event]) -> None:
        store, done = self.store, []
        own = [e for e in events if e.type == "node"]
        rows = encode(self.schema, own, Report(), "events")
        settings = replace(self.settings, unknown_ends="wait")  # here for ghosts that will come
        written = Written(store, Schema.from_json(self.share()), settings)
        loose: set[Id] = set()
        with store.transaction():
            for event in events:
                loose.update(self._ends(event))
                found = self._store(written, event)
                done.append((event, found))
                if found is True and event.type in REMOVED["node"] and self._owns(places(event)[0]):
                    store.set("stale", number)  # it was a base node
            ghosts = [node for node in sorted(loose, key=str) if self._is_needless(node)]
            for node in ghosts:
                store.delete_node(node)
            store.set("batch", number)
        expect(self.graph, events, [found for _, found in done if isinstance(found, list)])
        for event, found in done:
            self._apply(event, rows, found)
        for node in ghosts:
            self.graph.delete_node(node)

    def _ends(self, event: Event) -> Iterator[Id]:
        """Foreign nodes that lose an edge by an event."""
        node, source, target = places(event)
        edges: Iterator[Edge] = iter(())
        if event.type in REMOVED["node"]:
            edges = self.store.edges_of(node)
        elif event.type in REMOVED["edge"]:
            edges = iter([Edge(source, target, None, None)])
        yield from (end for edge in edges for end in edge[:2] if not self._owns(end))

    def _is_needless(self, node: Id) -> bool:
        """Whether there is a ghost that no edge leads to."""
        there = self.store.node(node) is not None
        return there and next(self.store.edges_of(node), None) is None

    def _store(self, written: Written, event: Event) -> Any:
        """Write an event; returns what else it brings about."""
        node = places(event)[0]
        if event.type not in REMOVED["node"] or self._owns(node):
            return store_event(written, event)
        if self.store.node(node) is not None:
            self.store.delete_node(node)
            return True
        for edge in list(self.store.edges_of(node)):  # that wait for a ghost
            self.store.delete_edge(edge.source, edge.target)
        return False

    def _apply(self, event: Event, rows: dict[int, Any], found: Any) -> None:
        """Change the graph as the store was changed."""
        foreign = event.type in REMOVED["node"] and not self._owns(places(event)[0])
        if not foreign or found:
            apply_event(self.graph, event, rows, found)

    def refit(self, number: int, columns: Schema) -> None:
        """Take statistics of own nodes again, which become the base."""
        if number <= self.batch:
            return
        fresh = Schema(columns.columns)
        for part in nodes_of(self.store):
            fresh.fit([node.cells for node in part if self._owns(node.id)])
        with self.store.transaction():
            self.store.rebase()
            self.store.set("schema", fresh.to_json())
            self.store.set("batch", number)

    def columns(self) -> set[str]:
        """The columns of own nodes."""
        nodes = (node for part in nodes_of(self.store) for node in part if self._owns(node.id))
        return {name for node in nodes for name in node.cells}

    def purge(self) -> None:
        """Leave nothing of what was deleted in the file."""
        self.store.purge()

    # -- what goes from shard to shard --------------------------------------------------------

    def give_ghosts(self) -> list[list[Ghost] | None]:
        """For each shard the nodes that it needs since the last events."""
        wanted: dict[int, set[Id]] = defaultdict(set)
        for event in self._last:
            if event.type == "node":
                node = places(event)[0]
                for edge in self.store.edges_of(node):
                    other = edge.target if edge.source == node else edge.source
                    wanted[home(other, self.shards)].add(node)
            elif event.type == "edge":
                _, *ends = places(event)
                for one, other in (ends, ends[::-1]):
                    if self._owns(one):
                        wanted[home(other, self.shards)].add(one)
        wanted.pop(self.place, None)
        found: list[list[Ghost] | None] = [None] * self.shards
        for shard, names in wanted.items():
            nodes = (self.store.node(name) for name in sorted(names, key=str))
            found[shard] = [(node.id, node.cells) for node in nodes if node is not None] or None
        return found

    def take_ghosts(self, *parcels: list[Ghost] | None) -> None:
        """Store ghosts that own nodes have edges to; the edges that waited for them are there."""
        done: list[tuple[Event, list[Edge]]] = []
        with self.store.transaction():
            for node, cells in (ghost for parcel in parcels for ghost in parcel or ()):
                if next(self.store.edges_of(node), None) is not None:
                    released = self.store.put_node(node, cells)
                    done.append((Event("node", 0, id=node, cells=cells), released))
                    self._receive("ghosts", 1, len(repr(cells)))
        rows = encode(self.schema, [event for event, _ in done], Report(), "ghosts")
        expect(self.graph, [event for event, _ in done], [released for _, released in done])
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

    def linked(self, pairs: Sequence[tuple[Id, Id]]) -> list[bool]:
        """Which edges of own nodes are there, waiting or not."""
        return [self.store.edge(*pair) is not None for pair in pairs]

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

    def held_back(self) -> list[tuple[Id, str, str | None]]:
        """Id, split and label of what is held back."""
        return list(self.store.held_back())

    def counts(self) -> dict[str, Any]:
        """How much this shard owns, and how many ghosts it holds."""
        nodes = self.graph.own()
        return {
            "nodes": len(nodes),
            "ghosts": len(self.graph) - len(nodes),
            "edges": self._owned(self.store.edges()),
            "waiting_edges": self._owned(self.store.waiting()),
            "classes": self.graph.classes,
            "bytes": self.graph.nbytes,
        }

    def _owned(self, edges: Iterator[Edge]) -> int:
        """How many edges begin at own nodes: each is in the count of one shard."""
        total = 0
        while part := [edge.source for edge in islice(edges, 10_000)]:
            total += int((homes(part, self.shards) == self.place).sum())
        return total

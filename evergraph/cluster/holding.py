"""What a shard has on disk: its own nodes with all their edges, and ghosts at the foreign ends."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

from evergraph.cluster.partition import home, homes, keys_of
from evergraph.datasets.events import Event
from evergraph.datasets.schema import Schema
from evergraph.graph.ids import Id
from evergraph.graph.records import Edge
from evergraph.graph.store import Store
from evergraph.model.events import REMOVED, places, store_event
from evergraph.model.folder import GRAPH, Settings
from evergraph.model.schemas import nodes_of
from evergraph.model.state import Base, landmarks_in
from evergraph.model.tables import Tables

Ghost = tuple[Id, dict[str, Any]]
"""Id and cells of a node of another shard."""


@dataclass(frozen=True)
class Written:
    """What the events of own nodes change on disk: see `evergraph.model.events.Stored`."""

    store: Store
    schema: Schema
    settings: Settings


class Holding:
    """The store of a shard, in which every numbered change happens once.

    Args:
        path: its folder.
        place: the number of the shard.
        shards: how many there are.
        settings: of the model.
    """

    def __init__(self, path: Path, place: int, shards: int, settings: Settings) -> None:
        self.path, self.place, self.shards, self.settings = path, place, shards, settings
        self.store = Store(path / GRAPH, directed=settings.directed)

    @property
    def batch(self) -> int:
        """The number of the last change that is in the store."""
        return int(self.store.get("batch") or 0)

    def owns(self, node: Id) -> bool:
        """Whether a node belongs to this shard."""
        return self.shards == 1 or home(node, self.shards) == self.place

    # -- tables -------------------------------------------------------------------------------

    def load(self, share: Schema, tables: Iterable[tuple[Tables, bool, bytes]]) -> None:
        """Store tables as base, each in a transaction; ghosts without labels.

        What was stored before the process died is left out, and must be the same.
        """
        found = sha256(share.to_json().encode())
        parts = [(Tables([], []), False, b"")]
        for number, (part, is_ghosts, content) in enumerate((*parts, *tables), 1):
            found.update(content)
            mark = found.hexdigest()
            if number == self.batch and mark != self.store.get("mark"):
                raise ValueError(
                    f"{self.path.parent} was begun with other tables: repeat its train with these, "
                    "or remove the folder"
                )
            if number <= self.batch:
                continue
            with self.store.transaction():
                if is_ghosts:
                    for nodes in part.nodes:
                        self.store.put_nodes(nodes.records())
                else:
                    part.put(self.store)
                self.store.set("schema", share.to_json())
                self.store.set("batch", number)
                self.store.set("mark", mark)

    def share(self) -> str:
        """The schema with the statistics of this shard's base nodes."""
        return str(self.store.get("schema"))

    def landmarks(self, count: int) -> list[Base]:
        """Own base nodes that are the first in the order of landmarks."""
        return landmarks_in(self.store, count, self.owns)

    def follow(self, joint: str, landmarks: Sequence[Base]) -> None:
        """Store statistics and landmarks of all shards."""
        with self.store.transaction():
            self.store.set("joint", joint)
            self.store.set("landmarks", json.dumps(landmarks))

    def followed(self) -> tuple[str, list[Base]] | None:
        """The statistics and landmarks of all shards, as they came last; None before."""
        joint = self.store.get("joint")
        if joint is None:
            return None
        listed = json.loads(str(self.store.get("landmarks")))
        return str(joint), [(node, cells) for node, cells in listed]

    def refit(self, number: int, columns: Schema) -> None:
        """Take statistics of own nodes again, which become the base."""
        if number <= self.batch:
            return
        fresh = Schema(columns.columns)
        for part in nodes_of(self.store):
            fresh.fit([node.cells for node in part if self.owns(node.id)])
        with self.store.transaction():
            self.store.rebase()
            self.store.set("schema", fresh.to_json())
            self.store.set("batch", number)

    # -- events -------------------------------------------------------------------------------

    def write(self, number: int, events: Sequence[Event]) -> tuple[list[Any], list[Id]]:
        """Store events that are known to be good.

        Returns:
            For each event what it brought about, and the ghosts that have lost their last edge.
        """
        found, loose = [], set[Id]()
        settings = replace(self.settings, unknown_ends="wait")  # here for ghosts that will come
        written = Written(self.store, Schema.from_json(self.share()), settings)
        with self.store.transaction():
            for event in events:
                loose.update(self._ends(event))
                found.append(self._store(written, event))
                is_base = found[-1] is True and event.type in REMOVED["node"]
                if is_base and self.owns(places(event)[0]):
                    self.store.set("stale", number)
            needless = [node for node in sorted(loose, key=str) if self._is_needless(node)]
            for node in needless:
                self.store.delete_node(node)
            self.store.set("batch", number)
        return found, needless

    def _store(self, written: Written, event: Event) -> Any:
        """Write an event; returns what else it brings about."""
        node = places(event)[0]
        if event.type not in REMOVED["node"] or self.owns(node):
            return store_event(written, event)
        if self.store.node(node) is not None:
            self.store.delete_node(node)
            return True
        for edge in list(self.store.edges_of(node)):  # that wait for a ghost
            self.store.delete_edge(edge.source, edge.target)
        return False

    def _ends(self, event: Event) -> Iterator[Id]:
        """Foreign nodes that lose an edge by an event."""
        node, source, target = places(event)
        edges: Iterator[Edge] = iter(())
        if event.type in REMOVED["node"]:
            edges = self.store.edges_of(node)
        elif event.type in REMOVED["edge"]:
            edges = iter([Edge(source, target, None, None)])
        yield from (end for edge in edges for end in edge[:2] if not self.owns(end))

    def _is_needless(self, node: Id) -> bool:
        """Whether there is a ghost that no edge leads to."""
        there = self.store.node(node) is not None
        return there and next(self.store.edges_of(node), None) is None

    def wanted(self, events: Sequence[Event]) -> list[list[Ghost] | None]:
        """For each shard the own nodes that it needs as ghosts since some events."""
        wanted: dict[int, set[Id]] = defaultdict(set)
        for event in events:
            if event.type == "node":
                node = places(event)[0]
                for edge in self.store.edges_of(node):
                    other = edge.target if edge.source == node else edge.source
                    wanted[home(other, self.shards)].add(node)
            elif event.type == "edge":
                _, *ends = places(event)
                for one, other in (ends, ends[::-1]):
                    if self.owns(one):
                        wanted[home(other, self.shards)].add(one)
        wanted.pop(self.place, None)
        found: list[list[Ghost] | None] = [None] * self.shards
        for shard, names in wanted.items():
            nodes = (self.store.node(name) for name in sorted(names, key=str))
            found[shard] = [(node.id, node.cells) for node in nodes if node is not None] or None
        return found

    def put_ghosts(self, ghosts: Iterable[Ghost]) -> list[tuple[Event, list[Edge]]]:
        """Store ghosts that own nodes have edges to, each with the edges that waited for it."""
        done: list[tuple[Event, list[Edge]]] = []
        with self.store.transaction():
            for node, cells in ghosts:
                if next(self.store.edges_of(node), None) is not None:
                    released = self.store.put_node(node, cells)
                    done.append((Event("node", 0, id=node, cells=cells), released))
        return done

    # -- questions ----------------------------------------------------------------------------

    def progress(self) -> int:
        """The number of the last change."""
        return self.batch

    def columns(self) -> set[str]:
        """The columns of own nodes."""
        nodes = (node for part in nodes_of(self.store) for node in part if self.owns(node.id))
        return {name for node in nodes for name in node.cells}

    def linked(self, pairs: Sequence[tuple[Id, Id]]) -> list[bool]:
        """Which edges of own nodes are there, waiting or not."""
        return [self.store.edge(*pair) is not None for pair in pairs]

    def held_back(self) -> list[tuple[Id, str, str | None]]:
        """Id, split and label of what is held back."""
        return list(self.store.held_back())

    def count(self, edges: Iterator[Edge]) -> int:
        """How many edges begin at own nodes: each is in the count of one shard."""
        total = 0
        while part := [edge.source for edge in islice(edges, 10_000)]:
            total += int((homes(keys_of(part), self.shards) == self.place).sum())
        return total

    def purge(self) -> None:
        """Leave nothing of what was deleted in the file."""
        self.store.purge()

"""A growing graph on disk: nodes, edges and labels in one SQLite file, all or nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from evergraph.checks import shorten
from evergraph.graph.database import CACHE, Database, FileError, StoreError
from evergraph.graph.history import History
from evergraph.graph.ids import Id, check_id, check_text
from evergraph.graph.records import (
    Edge,
    Node,
    edge_of,
    node_of,
    node_values,
    rank,
    time_value,
    weight_value,
)

VERSION = 2
ROW = 512  # bytes of pages for a node or an edge, about
T = TypeVar("T")

Value = str | bytes | int | float | None
Rows = Sequence[tuple[Any, ...]]

# Ids have no declared type, so that 7 and '7' are two ids.
_EDGES = """
    source NOT NULL, target NOT NULL, weight, time REAL, base INTEGER,
    PRIMARY KEY (source, target)
"""
_SCHEMA = f"""
CREATE TABLE node (
    id NOT NULL PRIMARY KEY, cells TEXT NOT NULL, label TEXT, label_position INTEGER, time REAL,
    base TEXT, base_label TEXT
) WITHOUT ROWID;
CREATE TABLE edge ({_EDGES}) WITHOUT ROWID;
CREATE TABLE waiting ({_EDGES}) WITHOUT ROWID;
CREATE INDEX edge_target ON edge (target);
CREATE INDEX waiting_target ON waiting (target);
CREATE TABLE held_back (id NOT NULL PRIMARY KEY, split TEXT NOT NULL, label TEXT) WITHOUT ROWID;
CREATE TABLE meta (key TEXT NOT NULL PRIMARY KEY, value) WITHOUT ROWID;
INSERT INTO meta VALUES ('position', 0);
"""
_BOTH = "EXISTS (SELECT 1 FROM node WHERE id = {}) AND EXISTS (SELECT 1 FROM node WHERE id = {})"
_PUT_NODE = """
INSERT INTO node
VALUES (?1, ?2, ?3, iif(?3 IS NULL, NULL, ?5), ?4, ?6, iif(?6 IS NULL, NULL, ?3))
ON CONFLICT DO UPDATE SET
    base = iif(excluded.base IS NULL AND base = '' AND cells <> excluded.cells, cells,
               coalesce(excluded.base, base)),
    base_label = coalesce(excluded.base_label, base_label),
    cells = excluded.cells,
    label_position = iif(excluded.label IS NULL OR excluded.label = label,
                         label_position, excluded.label_position),
    label = coalesce(excluded.label, label), time = coalesce(excluded.time, time)
"""
_PUT_LABEL = """
UPDATE node SET label_position = iif(label IS ?2, label_position, ?3), label = ?2,
    base_label = iif(?2 IS NULL, NULL, base_label)
WHERE id = ?1
"""
_UPDATE_EDGE = """
ON CONFLICT DO UPDATE SET
    base = iif(coalesce(excluded.weight, weight) IS weight
               AND coalesce(excluded.time, time) IS time,
               coalesce(excluded.base, base), excluded.base),
    weight = coalesce(excluded.weight, weight), time = coalesce(excluded.time, time)
"""
_PUT_EDGE = (
    f"INSERT INTO {{}} SELECT ?1, ?2, ?3, ?4, ?5 WHERE {{}} ({_BOTH.format('?1', '?2')}) "
    + _UPDATE_EDGE
)
_ADD_EDGE = "INSERT INTO {} VALUES (?1, ?2, ?3, ?4, NULL)" + _UPDATE_EDGE
_RELEASED = _BOTH.format("source", "target")
_SHOW = "DELETE FROM held_back WHERE id = ?1"
_OF_EDGE = "WHERE source = ?1 AND target = ?2"
_OF_NODE = "WHERE source = ?1 OR target = ?1"


class Store:
    """The content of a growing graph in a file; made if it is not there.

    Every change happens in a transaction, which is in the file as a whole when its block has
    ended, whatever happens to the process or the machine, and not at all before. One process
    writes at a time; others may read. Edges whose ends are not both there wait for them. What is
    None stays as it was, as in `GrowingGraph`, and self loops are ignored.

    Args:
        path: the file.
        directed: whether an edge and its mirror are two edges; None takes it from the file.
        readonly: whether to open an existing file for reading only.

    Attributes:
        history: what the store was before each event, once `history.begin` was called.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> folder = TemporaryDirectory()
        >>> store = Store(Path(folder.name) / "graph.sqlite")
        >>> with store.transaction():
        ...     store.put_edge("ann", 7)
        ...     store.put_node("ann", {"age": 31}, label="human")
        ...     store.put_node(7, {"age": None})
        False
        []
        [Edge(source=7, target='ann', weight=None, time=None)]
        >>> store.position, [node.id for node in store.nodes()]
        (3, [7, 'ann'])
        >>> store.close()
        >>> folder.cleanup()
    """

    def __init__(
        self, path: Path | str, *, directed: bool | None = None, readonly: bool = False
    ) -> None:
        self.path, self.readonly = Path(path), readonly
        self._file = Database(self.path, _SCHEMA, VERSION, readonly)
        self._file.define("event_position", lambda: self._position)
        self.history = History(self._file)
        try:
            self._position = self._stored_position()
            known = self.get("directed")
            if known is None and not readonly:
                with self.transaction():
                    self.set("directed", int(bool(directed)))
            self.directed = bool(directed if known is None else known)
            if directed not in (None, self.directed):
                raise StoreError(
                    f"{path} was made with directed={self.directed}, got directed={directed}"
                )
        except BaseException:
            self.close()
            raise

    def fit_cache(self, rows: int) -> None:
        """Keep pages in memory for a graph of so many nodes and edges, and not for its history.

        A history grows for ever and is hardly read: it would fill any cache.
        """
        size = min(max(ROW * rows, 1 << 22), CACHE)
        self._file.cache(1 << (size - 1).bit_length())

    def close(self) -> None:
        """Give the file free for others."""
        self._file.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A block whose changes happen all, durably, when it ends, or not at all if it fails."""
        before = self._position
        try:
            with self._file.transaction():
                yield
                self.set("position", self._position)
        except BaseException:
            self._position = before
            with suppress(StoreError):  # an interrupt may come when all is in the file already
                self._position = self._stored_position()
            raise

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """A block that reads the state of one moment, whatever another process writes."""
        with self._file.snapshot():
            self._position = self._stored_position()
            yield

    def _stored_position(self) -> int:
        return next(self._decoded(int, iter([self.get("position")])))

    def _decoded(self, make: Callable[[Any], T], rows: Iterator[Any]) -> Iterator[T]:
        """What rows of the file stand for."""
        for row in rows:
            try:
                yield make(row)
            except (ValueError, TypeError) as error:
                raise FileError(
                    f"{self.path} is damaged ({error}); restore it from a copy"
                ) from error

    @property
    def position(self) -> int:
        """How many events were accepted."""
        return self._position

    def rewind(self, position: int) -> None:
        """Count from an earlier position on; for a store whose content was taken back to it."""
        self._position = position

    def get(self, key: str) -> Value:
        """What `set` stored under a name, or None."""
        found: tuple[Value] | None = next(
            self._file.read("SELECT value FROM meta WHERE key = ?", (key,)), None
        )
        return None if found is None else found[0]

    def set(self, key: str, value: Value) -> None:
        """Store a value of the user's under a name."""
        self._file.write("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def put_node(
        self,
        node: Id,
        cells: Mapping[str, Any],
        label: str | None = None,
        time: float | None = None,
    ) -> list[Edge]:
        """Add a node or replace its cells (and label and time, if given).

        Returns:
            The edges that waited for it and are there now.
        """
        values = node_values(node, cells, label, time)
        self._file.write(_PUT_NODE, (*values, self._position, None))
        released = self._release(f"({_OF_NODE[6:]}) AND", values[:1])
        self._position += 1
        return released

    def put_nodes(
        self,
        nodes: Iterable[tuple[Id, Mapping[str, Any], str | None, float | None]],
        *,
        base: bool = False,
    ) -> list[Edge]:
        """Put many nodes, given as id, cells, label and time; returns the released edges.

        With `base`, their cells and labels of now are kept for `bases` and `base_labels`, whatever
        replaces them later.
        """
        first, mark = self._position, "" if base else None
        values = [(*node_values(*node), first + at, mark) for at, node in enumerate(nodes)]
        self._file.write_all(_PUT_NODE, values)
        released = self._release("", ())
        self._position += len(values)
        return released

    def put_run(self, run: Mapping[str, Rows], new: Sequence[int]) -> list[Edge]:
        """Put what events bring that only add, kind by kind, each row behind its event's place.

        No node comes again behind its label, or behind an edge that waits for it: then all is as
        if it came in order, the history included.

        Args:
            run: `node` rows with place, id, cells, label and time, as `node_values` gives them;
                `edge` rows with place, source, target, weight and time, as `edge_values`, whose
                ends differ and are there when the event comes; `waiting` rows, whose ends are not;
                `label` rows with place, id and label, whose nodes are there.
            new: which of the nodes were not there.

        Returns:
            The edges that waited for the nodes and are there now.
        """
        first, count, nodes = self._position, sum(map(len, run.values())), run["node"]

        def placed(kind: str) -> Iterator[tuple[Any, ...]]:
            for row in run[kind]:  # triggers ask for the position while a row is written
                self._position = first + row[0]
                yield row[1:]

        values = ((*row, self._position, None) for row in placed("node"))
        self._file.write_all(_PUT_NODE, values)
        released: list[Edge] = []
        if any(True for _ in self._file.read("SELECT 1 FROM waiting LIMIT 1")):
            for at in reversed(new):  # an edge comes with the later one of its ends
                self._position = first + nodes[at][0]
                released += self._release(f"({_OF_NODE[6:]}) AND", nodes[at][1:2])
        for table in ("edge", "waiting"):
            self._file.write_all(_ADD_EDGE.format(table), placed(table))
        self._file.write_all(_PUT_LABEL, ((*row, self._position) for row in placed("label")))
        self._position = first + count
        return released

    def edge_values(
        self, source: Id, target: Id, weight: Any, time: float | None
    ) -> tuple[Id, Id, float | str | None, float | None]:
        """An edge as it is stored; an error names what cannot be."""
        return (*self._pair(source, target), weight_value(weight), time_value(time))

    def _release(self, which: str, values: Sequence[Id]) -> list[Edge]:
        """Move those edges that need not wait any more."""
        found = list(self._file.read(f"SELECT * FROM waiting WHERE {which} {_RELEASED}", values))
        if found:
            self._file.write_all(_PUT_EDGE.format("edge", ""), found)
            self._file.write(f"DELETE FROM waiting WHERE {which} {_RELEASED}", values)
        return [edge_of(row) for row in found]

    def put_label(self, node: Id, label: str | None) -> None:
        """Label a node, or take its label away; an error if the node is not there."""
        label = None if label is None else check_text("a label", label)
        position = None if label is None else self._position
        if not self._file.write(_PUT_LABEL, (check_id(node), label, position)):
            raise StoreError(f"the store has no node {shorten(node)}: put it first")
        if label is None:
            self._file.write(_SHOW, (node,))
        self._position += 1

    def hold_back(self, labels: Iterable[tuple[Id, str, str | None]]) -> None:
        """Keep labels apart, given as id, split and label; deleting node or label deletes them."""
        values = [(check_id(node), split, label) for node, split, label in labels]
        self._file.write_all("INSERT OR REPLACE INTO held_back VALUES (?, ?, ?)", values)

    def held_back(self) -> Iterator[tuple[Id, str, str | None]]:
        """Id, split and label of what is held back: of nodes that have no other label by now."""
        sql = "SELECT h.* FROM held_back h JOIN node USING (id) WHERE node.label IS NULL"
        return self._file.read(f"{sql} ORDER BY id")

    def rebase(self) -> None:
        """Take all nodes, labels and edges as base, as they are now."""
        self._file.write("UPDATE node SET base = '', base_label = label")
        for table in ("edge", "waiting"):
            self._file.write(f"UPDATE {table} SET base = 1")

    def delete_node(self, node: Id) -> None:
        """Delete a node and all its edges, waiting ones too; an error if it is not there."""
        values = (check_id(node),)
        if not self._file.write("DELETE FROM node WHERE id = ?", values):
            raise StoreError(f"the store has no node {shorten(node)}")
        for table in ("edge", "waiting"):
            self._file.write(f"DELETE FROM {table} {_OF_NODE}", values)
        self._file.write(_SHOW, values)
        self._position += 1

    def put_edge(
        self, source: Id, target: Id, weight: Any = None, time: float | None = None
    ) -> bool:
        """Add an edge or replace its weight and time (if given); False if it has to wait."""
        return not self.put_edges([(source, target, weight, time)])

    def put_edges(
        self, edges: Iterable[tuple[Id, Id, Any, float | None]], *, base: bool = False
    ) -> int:
        """Put many edges, given as source, target, weight and time; returns how many wait.

        With `base`, they are among `base_edges` until they are changed or deleted.
        """
        mark = 1 if base else None
        values = [(*self.edge_values(*edge), mark) for edge in edges]
        proper = [edge for edge in values if edge[0] != edge[1]]
        there = self._file.write_all(_PUT_EDGE.format("edge", ""), proper)
        waiting = len(proper) - there
        if waiting:
            self._file.write_all(_PUT_EDGE.format("waiting", "NOT"), proper)
        self._position += len(values)
        return waiting

    def delete_edge(self, source: Id, target: Id) -> bool:
        """Delete an edge, False if it had to wait; an error if it is not there."""
        pair = self._pair(source, target)
        there = self._file.write(f"DELETE FROM edge {_OF_EDGE}", pair)
        if not there and not self._file.write(f"DELETE FROM waiting {_OF_EDGE}", pair):
            raise StoreError(f"the store has no edge from {shorten(source)} to {shorten(target)}")
        self._position += 1
        return bool(there)

    def _pair(self, source: Id, target: Id) -> tuple[Id, Id]:
        """The ends of an edge as they are stored: undirected ones in the order of SQLite."""
        one, other = check_id(source), check_id(target)
        if self.directed or rank(one) <= rank(other):
            return one, other
        return other, one

    def node(self, node: Id) -> Node | None:
        """A node, or None if it is not there."""
        sql = "SELECT * FROM node WHERE id = ?"
        found = next(self._file.read(sql, (check_id(node),)), None)
        return None if found is None else node_of(found)

    def nodes(self) -> Iterator[Node]:
        """All nodes in the order of their ids, integers first."""
        return self._decoded(node_of, self._file.read("SELECT * FROM node ORDER BY id"))

    def labels(self) -> frozenset[str]:
        """The labels that nodes have, or that are held back."""
        parts = (f"SELECT label FROM {table}" for table in ("node", "held_back"))
        found = self._file.read(" UNION ".join(parts))
        return frozenset(label for (label,) in found if label is not None)

    def bases(self, node: Id | None = None) -> Iterator[tuple[Id, dict[str, Any]]]:
        """Ids and cells of the nodes that were put as base, as they were then; or of one node."""
        sql = "SELECT id, iif(base = '', cells, base) FROM node WHERE base IS NOT NULL"
        one = () if node is None else (check_id(node),)
        found = self._file.read(f"{sql} {'AND id = ?' if one else ''} ORDER BY id", one)
        return self._decoded(lambda row: (row[0], json.loads(row[1])), found)

    def base_ids(self) -> Iterator[Id]:
        """Ids of the nodes that were put as base."""
        found = self._file.read("SELECT id FROM node WHERE base IS NOT NULL ORDER BY id")
        return (node for (node,) in found)

    def base_labels(self) -> Iterator[tuple[Id, str]]:
        """Ids and labels of base nodes, as they were then; a label that was deleted is gone."""
        sql = "SELECT id, base_label FROM node WHERE base_label IS NOT NULL ORDER BY id"
        return self._file.read(sql)

    def edges(self) -> Iterator[Edge]:
        """All edges in the order of their ids; those that wait are not among them."""
        return self._decoded(edge_of, self._file.read("SELECT * FROM edge ORDER BY source, target"))

    def waiting(self) -> Iterator[Edge]:
        """The edges that wait for a node."""
        return self._decoded(
            edge_of, self._file.read("SELECT * FROM waiting ORDER BY source, target")
        )

    def edge(self, source: Id, target: Id) -> Edge | None:
        """An edge, waiting or not, or None if it is not there."""
        return next(self._edges_where(_OF_EDGE, self._pair(source, target)), None)

    def edges_of(self, node: Id) -> Iterator[Edge]:
        """The edges of a node, those that wait too."""
        return self._edges_where(_OF_NODE, (node,))

    def _edges_where(self, which: str, values: Sequence[Id]) -> Iterator[Edge]:
        parts = (f"SELECT * FROM {table} {which}" for table in ("edge", "waiting"))
        return self._decoded(edge_of, self._file.read(" UNION ALL ".join(parts), values))

    def base_edges(self, base: bool = True) -> Iterator[Edge]:
        """Edges, waiting or not, that are as they were put as base; or those that are not."""
        kept = f"base IS {'NOT ' if base else ''}NULL"
        parts = (f"SELECT * FROM {table} WHERE {kept}" for table in ("edge", "waiting"))
        return self._decoded(
            edge_of, self._file.read(" UNION ALL ".join(parts) + " ORDER BY source, target")
        )

    def check_writable(self) -> None:
        """Raise an error if nothing can be written: open for reading only, or closed."""
        self._file.check_writable()

    def base_counts(self) -> list[int]:
        """How many edges, waiting or not, and labels of the base are left as they were."""
        places = (("edge", "base"), ("waiting", "base"), ("node", "base_label"))
        found = (self._file.read(f"SELECT count({mark}) FROM {table}") for table, mark in places)
        edges, waiting, labels = (next(rows)[0] for rows in found)
        return [edges + waiting, labels]

    def checkpoint(self) -> None:
        """Move the write-ahead log into the file and empty it."""
        self._file.checkpoint()

    def purge(self) -> None:
        """Leave no byte of what was deleted in the file or its log; writes the file anew."""
        self._file.purge()

    def backup(self, path: Path | str) -> None:
        """A consistent copy in another file, while this one is in use."""
        self._file.backup(Path(path))

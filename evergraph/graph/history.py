"""What a store was before each event: row by row, so that it can be taken back to a moment.

Triggers in the file write down every row of the graph as it was before it changed, whoever changes
it. The state at an offset is that of now, with each row as it was before its first change since.
Beside it are the times of transactions, the answers to requests by their keys, and the predictions
that wait for their labels: all that a service has to know again after a restart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from evergraph.graph.database import Database, StoreError
from evergraph.graph.ids import Id

NODE = ("id", "cells", "label", "label_position", "time", "base", "base_label")
EDGE = ("source", "target", "weight", "time", "base")
# The columns of each table; those before the number are its key.
TABLES: Mapping[str, tuple[tuple[str, ...], int]] = {
    "node": (NODE, 1),
    "edge": (EDGE, 2),
    "waiting": (EDGE, 2),
    "held_back": (("id", "split", "label"), 1),
}
KEPT = 100_000  # answers and predictions that are remembered at the most

_OTHERS = (
    "CREATE TABLE change_schema (number INTEGER PRIMARY KEY, position INTEGER, value TEXT)",
    "CREATE TRIGGER schema_replaced BEFORE INSERT ON meta WHEN new.key = 'schema' BEGIN "
    "INSERT INTO change_schema (position, value) SELECT event_position(), "
    "json_remove(value, '$.sums') FROM meta WHERE key = 'schema'; END",
    "CREATE TABLE moment (position INTEGER PRIMARY KEY, at REAL NOT NULL)",
    "CREATE TABLE answer (number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, text, about)",
    "CREATE TABLE predicted (number INTEGER PRIMARY KEY, id NOT NULL UNIQUE, label NOT NULL)",
)


def _statements() -> Iterable[str]:
    """The tables and triggers of a history."""
    for table, (columns, key) in TABLES.items():
        listed, keys = ", ".join(columns), ", ".join(columns[:key])
        old, new = (", ".join(f"{row}.{name}" for name in columns) for row in ("old", "new"))
        change = f"INSERT INTO change_{table} (position, there, "
        yield (
            f"CREATE TABLE change_{table} (number INTEGER PRIMARY KEY, position INTEGER, there, "
            f"{listed})"
        )
        yield (
            f"CREATE TRIGGER {table}_new AFTER INSERT ON {table} BEGIN {change}{keys}) "
            f"VALUES (event_position(), 0, {', '.join(new.split(', ')[:key])}); END"
        )
        for verb in ("UPDATE", "DELETE"):
            yield (
                f"CREATE TRIGGER {table}_{verb.lower()} AFTER {verb} ON {table} BEGIN "
                f"{change}{listed}) VALUES (event_position(), 1, {old}); END"
            )


class History:
    """The history in the file of a store; there once `begin` has been called.

    Args:
        file: the database of the store. All changes need an open transaction.
    """

    def __init__(self, file: Database) -> None:
        self._file = file

    @property
    def first(self) -> int | None:
        """The smallest offset that can be gone back to; None without a history."""
        found = next(self._file.read("SELECT value FROM meta WHERE key = 'history'"), None)
        return None if found is None else int(found[0])

    def begin(self, position: int, at: float) -> None:
        """Write down changes from now on; nothing happens if that is so already."""
        if self.first is not None:
            return
        for statement in (*_statements(), *_OTHERS):
            self._file.write(statement)
        self._file.write("INSERT INTO meta VALUES ('history', ?)", (position,))
        self.mark(position, at)

    def end(self) -> None:
        """Remove the history and all that belongs to it."""
        for table in TABLES:
            for suffix in ("new", "update", "delete"):
                self._file.write(f"DROP TRIGGER {table}_{suffix}")
        self._file.write("DROP TRIGGER schema_replaced")
        changes = [f"change_{table}" for table in TABLES]
        for table in (*changes, "change_schema", "moment", "answer", "predicted"):
            self._file.write(f"DROP TABLE {table}")
        self._file.write("DELETE FROM meta WHERE key = 'history'")

    def mark(self, position: int, at: float) -> None:
        """Note when a transaction ended; a clock that was set back does not go back here."""
        sql = "INSERT OR REPLACE INTO moment SELECT ?1, max(?2, coalesce(max(at), ?2)) FROM moment"
        self._file.write(sql, (position, at))

    def offset_of(self, at: float) -> int:
        """The offset at a time: that of the last transaction that had ended then."""
        sql = "SELECT max(position), (SELECT min(at) FROM moment) FROM moment WHERE at <= ?"
        position, first = next(self._file.read(sql, (at,)))
        if position is None:
            raise StoreError(
                f"the time must not be before the history, which begins at {first:.3f}, got {at}"
            )
        return int(position)

    def check(self, offset: int, position: int) -> None:
        """Refuse an offset that the history does not reach."""
        first = self.first
        if first is None:
            raise StoreError("there is no history: it begins with `evergraph serve`")
        if not first <= offset <= position:
            raise StoreError(f"the offset must be from {first} to {position}, got {offset}")

    def undo(self, offset: int) -> str | None:
        """Take all rows back to an offset; the history ends.

        Returns:
            The kinds of columns as they were, if they have changed since, without statistics.
        """
        sql = "SELECT value FROM change_schema WHERE position >= ? ORDER BY number LIMIT 1"
        kinds: str | None = next(self._file.read(sql, (offset,)), (None,))[0]
        for table in TABLES:
            sql = f"CREATE TEMP TABLE back_{table} AS SELECT * FROM change_{table} WHERE number IN "
            columns, key = TABLES[table]
            keys = ", ".join(columns[:key])
            first = f"SELECT min(number) FROM change_{table} WHERE position >= ? GROUP BY {keys}"
            self._file.write(f"{sql}({first})", (offset,))
        self.end()
        for table, (columns, key) in TABLES.items():
            keys, listed = ", ".join(columns[:key]), ", ".join(columns)
            self._file.write(
                f"DELETE FROM {table} WHERE ({keys}) IN (SELECT {keys} FROM temp.back_{table})"
            )
            self._file.write(
                f"INSERT INTO {table} SELECT {listed} FROM temp.back_{table} WHERE there"
            )
            self._file.write(f"DROP TABLE temp.back_{table}")
        return kinds

    def compact(self, offset: int) -> None:
        """End the history before an offset."""
        for table in (*(f"change_{table}" for table in TABLES), "change_schema"):
            self._file.write(f"DELETE FROM {table} WHERE position < ?", (offset,))
        last = "SELECT max(position) FROM moment WHERE position <= ?1"
        self._file.write(f"DELETE FROM moment WHERE position < ({last})", (offset,))
        self._file.write("UPDATE meta SET value = ? WHERE key = 'history'", (offset,))

    def forget_node(self, node: Id) -> None:
        """Leave nothing of a node and its edges in the history."""
        for table in ("change_node", "change_held_back", "predicted"):
            self._file.write(f"DELETE FROM {table} WHERE id = ?", (node,))
        for table in ("change_edge", "change_waiting"):
            self._file.write(f"DELETE FROM {table} WHERE source = ?1 OR target = ?1", (node,))
        self._forget_answers()

    def forget_edge(self, source: Id, target: Id) -> None:
        """Leave nothing of an edge in the history, whichever end came first."""
        for pair in ((source, target), (target, source)):
            for table in ("change_edge", "change_waiting"):
                self._file.write(f"DELETE FROM {table} WHERE source = ? AND target = ?", pair)
        self._forget_answers()

    def forget_label(self, node: Id) -> None:
        """Leave no label of a node in the history."""
        gone = "label = NULL, label_position = NULL, base_label = NULL"
        self._file.write(f"UPDATE change_node SET {gone} WHERE id = ?", (node,))
        for table in ("change_held_back", "predicted"):
            self._file.write(f"DELETE FROM {table} WHERE id = ?", (node,))
        self._forget_answers()

    def _forget_answers(self) -> None:
        """Drop what answers say about refused events: it may name anything."""
        self._file.write("UPDATE answer SET about = NULL")

    def answer(self, key: str) -> tuple[str, str | None] | None:
        """What was answered to a request: its counts, and what was said about refused events."""
        found = next(self._file.read("SELECT text, about FROM answer WHERE key = ?", (key,)), None)
        return None if found is None else (found[0], found[1])

    def set_answer(self, key: str, text: str, about: str) -> None:
        """Remember what is answered to a request, with what it changes."""
        sql = "INSERT OR REPLACE INTO answer (key, text, about) VALUES (?, ?, ?)"
        self._file.write(sql, (key, text, about))
        self._trim("answer")

    def predicted(self, nodes: Iterable[Id]) -> dict[Id, str]:
        """The classes that were predicted for nodes, if they are remembered."""
        sql = "SELECT id, label FROM predicted WHERE id IN (SELECT value FROM json_each(?))"
        return dict(row for row in self._file.read(sql, (json.dumps(list(nodes)),)))

    def set_predicted(self, found: Mapping[Id, str]) -> None:
        """Remember what was predicted for nodes, the last time."""
        sql = "INSERT OR REPLACE INTO predicted (id, label) VALUES (?, ?)"
        self._file.write_all(sql, found.items())
        self._trim("predicted")

    def drop_predicted(self, nodes: Iterable[Id]) -> None:
        """Forget what was predicted for nodes."""
        self._file.write_all("DELETE FROM predicted WHERE id = ?", ((node,) for node in nodes))

    def _trim(self, table: str) -> None:
        last = f"SELECT max(number) FROM {table}"
        self._file.write(f"DELETE FROM {table} WHERE number <= ({last}) - ?", (KEPT,))

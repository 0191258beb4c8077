"""One SQLite file: safe to write, clear about what is wrong with it."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

APPLICATION = 0x45564752  # "EVGR": tells our files from those of others
CACHE = 1 << 26  # bytes of pages that are kept: random ids touch all of them
CHUNK = 1000  # rows that are read at a time


class StoreError(ValueError):
    """A store that cannot be opened, read or written; nothing of the transaction remains."""


class FileError(StoreError):
    """A file that cannot be opened, read or written: not the fault of what was to be stored."""


class Database:
    """A SQLite file with one writer, any number of readers, and durable transactions.

    Args:
        path: the file; made if it is not there.
        schema: the statements that make its tables.
        version: the version of the tables; files of other versions are refused.
        readonly: whether to open an existing file for reading only.
    """

    def __init__(self, path: Path, schema: str, version: int, readonly: bool) -> None:
        self.path = path
        self.readonly = readonly
        self.active = False
        self._lock: int | None = None
        if readonly and not path.is_file():
            raise StoreError(f"no store at {path}: make one first")
        self._db: sqlite3.Connection | None = None
        try:
            with self.errors("open"):
                self._take_lock()
                self._db = sqlite3.connect(
                    self._uri(), uri=True, isolation_level=None, check_same_thread=False
                )
                self._prepare(self._db, schema, version)
        except BaseException:
            self.close()
            raise

    def _take_lock(self) -> None:
        if self.readonly:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = self.path.with_name(f".{self.path.name}.lock")
        self._lock = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(
                f"{self.path} is being written by another process: wait for it, ask it over "
                "HTTP if it serves, or open the model with readonly=True"
            ) from None

    def _uri(self) -> str:
        mode = "ro" if self.readonly else "rwc"
        log = self.path.with_name(self.path.name + "-wal")
        if self.readonly and not log.exists() and not os.access(self.path.parent, os.W_OK):
            mode += "&immutable=1"  # SQLite cannot make its shared memory there, and needs none
        return f"{self.path.resolve().as_uri()}?mode={mode}"

    def _prepare(self, db: sqlite3.Connection, schema: str, version: int) -> None:
        """Make the tables of a new file, or make sure that an old one is ours and whole."""
        (objects,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (found,) = db.execute("PRAGMA user_version").fetchone()
        if (objects or application) and application != APPLICATION:
            raise StoreError(f"{self.path} is a database of another program: choose another path")
        if application and found < version:
            raise StoreError(
                f"{self.path} has version {found}, and this evergraph knows version {version}: "
                "make it again"
            )
        if found > version:
            raise StoreError(
                f"{self.path} has version {found}, and this evergraph knows versions up to "
                f"{version}: update it"
            )
        db.execute(f"PRAGMA cache_size = -{CACHE >> 10}")
        if not self.readonly:
            for setting in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
                db.execute(f"PRAGMA {setting}")
        if not application:
            if self.readonly:
                raise StoreError(f"{self.path} is empty: no transaction of its maker was finished")
            about = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {version};"
            db.executescript(f"BEGIN IMMEDIATE; {schema} {about} COMMIT;")
        (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise FileError(f"{self.path} is damaged: {verdict}; restore it from a copy")

    @contextmanager
    def errors(self, what: str) -> Iterator[None]:
        """One line for all that may go wrong with a file."""
        try:
            yield
        except OverflowError as error:
            raise StoreError(f"cannot {what} {self.path}: {error}; nothing was changed") from error
        except (sqlite3.Error, OSError) as error:
            raise FileError(f"cannot {what} {self.path}: {error}; {_way_out(error)}") from error

    @property
    def connection(self) -> sqlite3.Connection:
        """The open file; an error after `close`."""
        if self._db is None:
            raise StoreError(f"{self.path} is closed: open it again")
        return self._db

    def cache(self, size: int) -> None:
        """Keep so many bytes of pages in memory, at the most."""
        self.connection.execute(f"PRAGMA cache_size = -{size >> 10}")

    def define(self, name: str, function: Callable[[], int]) -> None:
        """Give statements and triggers a function without arguments."""
        self.connection.create_function(name, 0, function)

    def check_writable(self) -> None:
        """Raise an error if nothing can be written: open for reading only, or closed."""
        if self.readonly:
            raise StoreError(f"{self.path} is open for reading only")
        _ = self.connection

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A block whose changes happen all, durably, when it ends, or not at all if it fails."""
        self.check_writable()
        if self.active:
            raise StoreError("transactions cannot be nested: end the open one first")
        db = self.connection
        with self.errors("write"):
            db.execute("BEGIN IMMEDIATE")
        self.active = True
        try:
            yield
            with self.errors("write"):
                db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # a full disk may have ended the transaction already
                db.execute("ROLLBACK")
            raise
        finally:
            self.active = False

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """A block whose reads all see the file as it is at the first of them."""
        with self.errors("read"):
            self.connection.execute("BEGIN")
        try:
            yield
        finally:
            self.connection.execute("ROLLBACK")

    def write(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Run a statement inside a transaction; returns how many rows it changed."""
        return self.write_all(sql, (values,))

    def write_all(self, sql: str, values: Iterable[Sequence[Any]]) -> int:
        """Run a statement for many values; returns how many rows were changed."""
        if not self.active:
            raise StoreError("changes need a transaction: `with store.transaction():`")
        with self.errors("write"):
            return self.connection.executemany(sql, values).rowcount

    def read(self, sql: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, read in chunks."""
        with self.errors("read"):
            cursor = self.connection.execute(sql, values)
        while True:
            with self.errors("read"):
                rows = cursor.fetchmany(CHUNK)
            if not rows:
                return
            yield from rows

    def checkpoint(self) -> None:
        """Move the write-ahead log into the file and empty it."""
        with self.errors("write"):
            (busy, *_) = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise StoreError(f"{self.path} is being read: its log can be emptied only afterwards")

    def purge(self) -> None:
        """Write the file anew and empty the log, so that no byte of what was deleted is left.

        SQLite overwrites deleted rows at once, but copies of them may stay in unused parts of
        pages that were split in the meantime.
        """
        with self.errors("write"):
            self.connection.execute("VACUUM")
        self.checkpoint()

    def backup(self, path: Path) -> None:
        """A consistent copy, while the file is in use."""
        if path.exists():
            raise StoreError(f"{path} exists: choose another path")
        with self.errors("copy"):
            copy = sqlite3.connect(path)
            try:
                self.connection.backup(copy)
            except BaseException:
                path.unlink(missing_ok=True)
                raise
            finally:
                copy.close()

    def close(self) -> None:
        """Give the file free; all of it is in one file then."""
        if self._db is not None:
            with suppress(sqlite3.Error):  # what was committed is safe in the log
                self._db.close()
            self._db = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _way_out(error: Exception) -> str:
    text = str(error).lower()
    for words, advice in (
        (("full", "no space", "too large"), "free some space and repeat what failed"),
        (("readonly", "read-only", "permission"), "make file and folder writable"),
        (("unable to open",), "make file and folder writable, and free some space"),
        (("malformed", "not a database", "corrupt"), "restore it from a copy"),
        (("locked", "busy"), "wait for the other process"),
    ):
        if any(word in text for word in words):
            return advice
    return "nothing was changed"

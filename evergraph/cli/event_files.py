"""Files of events and standard input: where they are, how far they were learned, how to stop."""

from __future__ import annotations

import hashlib
import json
import os
import select
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evergraph.datasets.events import Position
    from evergraph.graph.store import Store

HEAD = 4096  # bytes at the beginning of a file by which it is known again
PATIENCE = 0.2  # seconds between looks at the stop sign
BLOCK = 1 << 16


class EventFile:
    """A file of events, `-` for standard input, and how far a model has learned it.

    The place is kept in the store of the model, with a hash of the beginning of the file, so that
    another file of the same name is noticed.
    """

    def __init__(self, name: str) -> None:
        self.path = None if name == "-" else Path(name)
        self.name = "standard input" if self.path is None else name
        self.key = f"learned {name if self.path is None else self.path.resolve()}"
        self.size: int | None = None
        if self.path is not None:
            try:
                with self.path.open("rb") as file:
                    self.size = os.fstat(file.fileno()).st_size
            except OSError as error:
                raise ValueError(
                    f"events must be files that can be read, but {name} cannot: {error.strerror}; "
                    "check its name and rights"
                ) from error

    def stream(self, stopped: Callable[[], bool]) -> Any:
        """What `read_events` can read."""
        return Pipe(sys.stdin.fileno(), stopped) if self.path is None else self.path

    def place(self, store: Store) -> Position:
        """Where an earlier `learn` ended."""
        from evergraph.datasets.events import Position

        kept = json.loads(str(store.get(self.key) or '{"line": 0, "offset": 0, "head": ""}'))
        if kept["offset"] and self._head(kept["offset"]) != kept["head"]:
            raise ValueError(
                f"{self.name} must begin with the {kept['offset']:,} bytes that were learned "
                "before, got others: it is another file; learn it without --resume"
            )
        return Position(kept["line"], kept["offset"])

    def note(self, place: Position) -> tuple[str, str]:
        """What the store keeps about a place."""
        kept = {"line": place.line, "offset": place.offset, "head": self._head(place.offset)}
        return self.key, json.dumps(kept)

    def _head(self, offset: int) -> str:
        """A hash of the first bytes; empty for standard input, which is read only once."""
        from evergraph.datasets.tables import open_stream

        if self.path is None:
            return ""
        with open_stream(self.path) as stream:
            return hashlib.sha256(stream.read(min(offset, HEAD))).hexdigest()


class Pipe:
    """A binary stream that ends, after the last whole line, when it is told to stop.

    Args:
        handle: the file descriptor to read.
        stopped: says whether to stop; asked while there is nothing to read.
    """

    name = "standard input"

    def __init__(self, handle: int, stopped: Callable[[], bool]) -> None:
        self._handle = handle
        self._stopped = stopped
        self._rest = b""
        self._ended = False

    def readline(self, size: int, /) -> bytes:
        """The next line, at most `size` bytes of it; none at the end."""
        seen = 0
        while not (end := self._rest.find(b"\n", seen) + 1) and len(self._rest) < size:
            seen = len(self._rest)
            if not self._more():
                return self._take(size if self._ended else 0)
        return self._take(min(end or size, size))

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes; none at the end."""
        if not self._rest:
            self._more()
        return self._take(size)

    def _more(self) -> bool:
        """Wait for bytes; False at the end."""
        while not self._ended and not self._stopped():
            if select.select([self._handle], [], [], PATIENCE)[0]:
                part = os.read(self._handle, BLOCK)
                self._rest += part
                self._ended = not part
                return bool(part)
        return False

    def _take(self, size: int) -> bytes:
        part, self._rest = self._rest[:size], self._rest[size:]
        return part

"""Events from a stream of Redis: each counts once, as its place is stored with what it brought.

An entry has one field, `event`, with the JSON object that a line of an event file would hold. The
consumer group tells operators how far the model is; what is read follows from the place that the
model has stored, whatever the group says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlsplit

from evergraph.checks import shorten
from evergraph.datasets.events import Event, event_of
from evergraph.datasets.jsonl_blocks import parse_object
from evergraph.datasets.report import Report
from evergraph.extras import require

FIELD = b"event"
CONSUMER = "evergraph"
PATIENCE = 200  # milliseconds between looks at the stop sign
SECONDS = 10.0  # that the server may take to answer
PENDING = 10_000  # entries that are acknowledged at a time


Entry = tuple[bytes, dict[bytes, bytes]]
"""The id of an entry, and its fields."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where reading can resume.

    Attributes:
        last: the id of the last entry that was read.
        count: how many were read.
    """

    last: str = "0-0"
    count: int = 0

    def to_json(self) -> str:
        """As text."""
        return json.dumps(asdict(self))


class RedisStream:
    """A stream of events, as `redis://host:port/stream` names it.

    A password stands before the host, as in `redis://:secret@host:6379/stream`; `rediss` uses TLS;
    `?db=1` chooses a database, `?group=name` the consumer group.

    Args:
        url: of the stream.

    Attributes:
        name: of the stream, without a password.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        self._stream = unquote(parts.path.removeprefix("/"))
        database = options.pop("db", "0")
        self._group = options.pop("group", "evergraph")
        if (
            parts.scheme not in ("redis", "rediss")
            or not (parts.hostname and self._stream and self._group and database.isdigit())
            or options
        ):
            shown = url.replace(f":{parts.password}@", ":…@") if parts.password else url
            raise ValueError(
                f"a stream must be like redis://127.0.0.1:6379/stream?group=name, got {shown!r}"
            )
        port = parts.port or 6379
        self.name = f"{parts.scheme}://{parts.hostname}:{port}/{self._stream}"
        self.key = f"learned {self.name}?db={database}"
        redis = require("redis", "redis")
        self._errors = redis.RedisError
        self._redis = redis.Redis(
            host=parts.hostname, port=port, db=int(database), ssl=parts.scheme == "rediss",
            username=parts.username or None, password=parts.password or None,
            socket_timeout=SECONDS, socket_connect_timeout=SECONDS, protocol=2,
        )  # fmt: skip

    def place(self, kept: object) -> Place:
        """The place that a text of `Place.to_json` tells; the beginning if there is none."""
        return Place() if kept is None else Place(**json.loads(str(kept)))

    def read(
        self,
        start: Place,
        report: Report,
        *,
        size: int,
        wait: float | None,
        stopped: Callable[[], bool],
    ) -> Iterator[tuple[list[Event], Place]]:
        """Events, up to `size` at a time, and the place behind them.

        A list is acknowledged when the next one is asked for: store it before.

        Args:
            start: where an earlier reading ended.
            report: gets complaints about entries that are no events.
            size: entries per list.
            wait: seconds without an entry after which reading ends; None waits forever.
            stopped: whether to end.
        """
        try:
            self._open(start, report)
            place, quiet = start, 0.0
            while not stopped() and (wait is None or quiet <= wait):
                entries = self._next(place, size)
                if not entries:
                    self._redis.xread({self._stream: place.last}, count=1, block=PATIENCE)
                    quiet += PATIENCE / 1000
                    continue
                quiet = 0.0
                first = place.count + 1
                events = [self._event(e, at, report) for at, e in enumerate(entries, first)]
                place = Place(entries[-1][0].decode(), place.count + len(entries))
                yield [event for event in events if event is not None], place
                self._redis.xack(self._stream, self._group, *(name for name, _ in entries))
        except self._errors as error:
            raise OSError(
                f"{self.name} cannot be read ({error}); see to it, and repeat the command: it "
                "continues behind what was learned"
            ) from error
        finally:
            self._redis.close()

    def _open(self, start: Place, report: Report) -> None:
        """Make the group, acknowledge what is stored, and look whether anything is gone."""
        groups = self._groups()
        if self._group not in groups:
            self._redis.xgroup_create(self._stream, self._group, start.last, mkstream=True)
        info = cast("dict[str, Any]", self._redis.xinfo_stream(self._stream))
        latest = _text(info["last-generated-id"])
        if _order(latest) < _order(start.last):
            raise ValueError(
                f"{self.name} must hold the entry {start.last} that was learned before or later "
                f"ones, got {latest} as its last: it is another stream; give it another name"
            )
        gone = int(info["entries-added"]) - int(info["length"]) - start.count
        if gone > 0:
            rule = "entries must stay in the stream until they are learned"
            way_out = "trim behind the group's last-delivered-id only, and send them again"
            report.add(self.name, None, None, f"{gone:,} that were removed before", rule, way_out)
        while pending := self._redis.xpending_range(
            self._stream, self._group, "-", start.last, PENDING
        ):
            self._redis.xack(self._stream, self._group, *(one["message_id"] for one in pending))

    def _groups(self) -> set[str]:
        if not self._redis.exists(self._stream):
            return set()
        return {_text(one["name"]) for one in self._redis.xinfo_groups(self._stream)}

    def _next(self, place: Place, size: int) -> list[Entry]:
        """The entries behind a place; the group is set there in the same step."""
        with self._redis.pipeline(transaction=True) as steps:
            steps.xgroup_setid(self._stream, self._group, place.last, entries_read=place.count)
            steps.xreadgroup(self._group, CONSUMER, {self._stream: ">"}, count=size)
            found = steps.execute()[1]
        return [entry for _, part in found for entry in part]

    def _event(self, entry: Entry, at: int, report: Report) -> Event | None:
        name, fields = entry
        if set(fields) != {FIELD}:
            rule = f"an entry must have one field, event ({name.decode()})"
            names = shorten([field.decode(errors="replace") for field in fields])
            report.add(self.name, at, None, names, rule, "write the event as JSON", "entry")
            return None
        row = parse_object(fields[FIELD], report, self.name, at)
        if row is None:
            return None

        def complain(value: object, rule: str, way_out: str, column: str) -> None:
            report.add(self.name, at, column, value, rule, way_out, "entry")

        return event_of(row, at, complain)


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _order(name: str) -> tuple[int, int]:
    """Ids of entries in their order."""
    first, _, second = name.partition("-")
    return int(first), int(second or 0)

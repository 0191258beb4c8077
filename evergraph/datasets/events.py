"""Event files: what happens to a graph, one JSON object or CSV record per event.

Nodes (`node`, `delete_node`), edges (`edge`, `delete_edge`) and labels (`label`, `delete_label`)
come in the order of the file, each with its line and the byte behind it, where reading can resume.
`forget_node`, `forget_edge` and `forget_label` delete without leaving a trace in the files.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from evergraph.checks import check_one_of, check_positive, shorten
from evergraph.datasets.blocks import BOM, LONGEST, NOT_UTF8
from evergraph.datasets.columns import NO_NAME, is_name, is_usable
from evergraph.datasets.fields import FieldError, id_of, label_of, time_of, weight_of
from evergraph.datasets.jsonl_blocks import parse_object
from evergraph.datasets.report import Report
from evergraph.datasets.tables import format_of, name_of, open_stream
from evergraph.graph.ids import Id

_ENDS = ("source", "target")
KEYS: Mapping[str, tuple[str, ...]] = {
    "node": ("id",),
    "edge": _ENDS,
    "label": ("id", "label"),
    "delete_node": ("id",),
    "delete_edge": _ENDS,
    "delete_label": ("id",),
    "forget_node": ("id",),
    "forget_edge": _ENDS,
    "forget_label": ("id",),
}
"""The types of events, and the keys that each needs."""
_OPTIONAL = {"node": ("label", "time"), "edge": ("weight", "time"), "label": ("time",)}
NOTHING: Mapping[str, Any] = MappingProxyType({})  # the features of what has none


class Event(NamedTuple):
    """Something that happens to the graph.

    Attributes:
        type: a key of `KEYS`.
        line: where it stands, counted from 1.
        id: of the node; None for edges.
        source: of the edge; None for nodes.
        target: of the edge; None for nodes.
        cells: the features of a node.
        label: the name of the class.
        weight: of the edge, a number or a list of numbers.
        time: when it happened.
    """

    type: str
    line: int
    id: Id | None = None
    source: Id | None = None
    target: Id | None = None
    cells: Mapping[str, Any] = NOTHING
    label: str | None = None
    weight: float | list[float] | None = None
    time: float | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """Where reading can resume.

    Attributes:
        line: lines that were read.
        offset: bytes that were read, after decompression.
    """

    line: int = 0
    offset: int = 0


def read_events(
    source: Any,
    report: Report | None = None,
    *,
    start: Position | None = None,
    size: int = 1000,
    format: str | None = None,
) -> Iterator[tuple[list[Event], Position]]:
    r"""The events of a file or binary stream, up to `size` at a time.

    Args:
        source: a path (`-` is standard input) or a binary stream.
        report: malformed lines are added to it and reading continues; without it, the first one
            ends the reading with an error, after the events before it were given out.
        start: where an earlier reading of the same file ended.
        size: events per list.
        format: jsonl, csv or tsv; by default what the name ends with, else jsonl.

    Yields:
        Events, and the position behind the last of them; no events, and the position behind the
        last line, if all that is left is malformed.

    Raises:
        TableError: at a malformed line, if there is no report.

    Example:
        >>> import io
        >>> lines = b'{"type": "node", "id": "ann", "age": 31}\n{"type": "label", "id": "ann"}\n'
        >>> for events, position in read_events(io.BytesIO(lines), report := Report()):
        ...     print(events[0].id, events[0].cells, position)
        ann {'age': 31} Position(line=2, offset=72)
        >>> print(report.problems[0])
        stream, line 2, column 'label': an event of type label needs it, got None; add it
    """
    check_positive(size=size)
    found = format or format_of(source) or "jsonl"
    check_one_of("the format of events", found, ("jsonl", "csv", "tsv"))
    own = Report() if report is None else report
    file = name_of(source)
    try:
        with open_stream(source) as stream:
            lines = _Lines(stream, own, file)
            records = _json(lines, start) if found == "jsonl" else _csv(lines, start, found)
            yield from _in_lists(records, lines, report is None, size)
    except OSError as error:
        rule = f"a file that can be read is needed ({str(error)[:100]})"
        own.add(file, None, None, file, rule, "check its name and rights")
    if report is None:
        own.check()


Record = tuple[int, dict[str, Any] | None]
"""The line of a record and its keys and values; None if it was complained about."""


class _Stream(Protocol):
    def readline(self, size: int = -1, /) -> bytes: ...

    def read(self, size: int = -1, /) -> bytes: ...


class _Lines:
    """Lines of a stream, and how far it was read."""

    def __init__(self, stream: Any, report: Report, file: str) -> None:
        self.stream: _Stream = stream
        self.report = report
        self.file = file
        self.line = 0
        self.offset = 0

    def resume(self, start: Position | None) -> None:
        """Go on where an earlier reading ended."""
        if start is None or start.line <= self.line:
            return
        while self.offset < start.offset:
            part = self.stream.read(min(start.offset - self.offset, 1 << 24))
            if not part:
                raise ValueError(
                    f"{self.file} must have at least the {start.offset:,} bytes that were read "
                    f"before, got {self.offset:,}: it is another file, or was cut"
                )
            self.offset += len(part)
        self.line = start.line

    def next(self) -> bytes | None:
        """The next line, None at the end; of one that is too long, the beginning."""
        line = self.stream.readline(LONGEST)
        if not line:
            return None
        self.offset += len(line)
        self.line += 1
        more = line
        while len(more) == LONGEST and not more.endswith(b"\n"):
            more = self.stream.readline(LONGEST)
            self.offset += len(more)
        return line.removeprefix(BOM) if self.line == 1 else line

    def complain(self, value: object, rule: str, way_out: str, column: str | None = None) -> None:
        self.report.add(self.file, self.line, column, value, rule, way_out)


def _json(lines: _Lines, start: Position | None) -> Iterator[Record]:
    lines.resume(start)
    while (text := lines.next()) is not None:
        if text.strip():
            yield lines.line, parse_object(text, lines.report, lines.file, lines.line)


def _csv(lines: _Lines, start: Position | None, format: str) -> Iterator[Record]:
    """Records of a CSV file; an empty cell is a key that is not there."""
    delimiter = "\t" if format == "tsv" else ","
    header = _csv_record(lines, delimiter)
    names = [name.strip() for name in header or []]
    if "type" not in names or len(set(names)) != len(names):
        rule = "a CSV file of events must begin with distinct column names, one of them type"
        lines.complain(shorten(names), rule, "write type,id,source,target,label,... first")
        yield lines.line, None
        return
    lines.resume(start)
    while (cells := _csv_record(lines, delimiter)) is not None:
        if len(cells) == len(names):
            row = {name: cell for name, cell in zip(names, cells, strict=True) if cell.strip()}
            yield lines.line, row
        elif cells:
            rule = f"a line must have {len(names)} cells, as the header has"
            way_out = "add what is missing; a cell with a delimiter in it needs quotes"
            lines.complain(cells, rule, way_out)
            yield lines.line, None


def _csv_record(lines: _Lines, delimiter: str) -> list[str] | None:
    """The cells of the next record, none for a blank or malformed one, None at the end."""
    text = lines.next()
    while text is not None and text.count(b'"') % 2 and len(text) < LONGEST:
        more = lines.next()
        if more is None:
            break
        text += more
    if text is None:
        return None
    try:
        read = csv.reader(io.StringIO(text.decode(), newline=""), delimiter=delimiter, strict=True)
        return next(read, [])
    except UnicodeDecodeError:
        lines.complain(text, *NOT_UTF8)
    except csv.Error as error:
        lines.complain(text, f"a line must be CSV ({error})", 'write a quote as ""')
    return []


def _in_lists(
    records: Iterator[Record], lines: _Lines, stop: bool, size: int
) -> Iterator[tuple[list[Event], Position]]:
    events: list[Event] = []
    told = done = Position(lines.line, lines.offset)
    for line, row in records:
        event = None if row is None else event_of(row, line, lines.complain)
        if stop and lines.report.count:
            break
        done = Position(lines.line, lines.offset)
        if event is not None:
            events.append(event)
        if len(events) >= size:
            yield events, (told := done)
            events = []
    if done != told:
        yield events, done


_CONVERT: Mapping[str, Callable[[object], Any]] = {
    "id": id_of,
    "source": id_of,
    "target": id_of,
    "label": label_of,
    "weight": weight_of,
    "time": time_of,
}
_FIELDS = {
    kind: {name: _CONVERT[name] for name in (*needed, *_OPTIONAL.get(kind, ()))}
    for kind, needed in KEYS.items()
}


def event_of(row: Mapping[str, Any], line: int, complain: Callable[..., None]) -> Event | None:
    """The event of a record, or None and complaints about each of its keys.

    Args:
        row: keys and values, as a line of an event file holds them.
        line: where it stands.
        complain: called with value, rule, way out and key.
    """
    kind = row.get("type")
    if not isinstance(kind, str) or kind not in KEYS:
        complain(kind, f"the type must be one of {', '.join(KEYS)}", "correct it", "type")
        return None
    needed, known = KEYS[kind], _FIELDS[kind]
    fields: dict[str, Any] = {}
    cells: dict[str, Any] = {}
    good = True
    for name in needed:
        if row.get(name) is None:
            complain(None, f"an event of type {kind} needs it", "add it", name)
            good = False
    for name, value in row.items():
        try:
            if name in known:
                fields[name] = None if value is None else known[name](value)
            elif name == "type":
                continue
            elif kind == "node":
                cells[name] = _cell(name, value)
            elif value is not None:
                allowed = ", ".join(("type", *known))
                raise FieldError(f"an event of type {kind} has {allowed} only", "leave the key out")
        except FieldError as error:
            complain(value, error.rule, error.way_out, name)
            good = False
    if good and kind == "label" and fields["label"] is None:
        complain(row["label"], "a label must not be empty", "write delete_label", "label")
        return None
    return Event(kind, line, cells=cells or NOTHING, **fields) if good else None


def _cell(name: str, value: object) -> object:
    if not is_name(name):
        raise FieldError(*NO_NAME)
    if not is_usable(value):
        rule = "a value must be a number, text, boolean or flat list"
        raise FieldError(rule, "flatten it, or leave it out")
    return value

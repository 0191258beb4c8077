"""Rows of sensor tables: one parser for CSV files, Parquet files and live CSV streams."""

from __future__ import annotations

import codecs
import csv
import math
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evergraph.apps.action.recording import Array, are_missing

TIME, LABELS, SUBJECT = "time", ("activity", "label"), "subject"
MISSING = ("", "na", "null", "none")
BLOCK = 256  # rows of CSV that are parsed at a time: few enough to stay in the cache
PARQUET_BLOCK = 8192
READ_SIZE = 65536  # bytes read from a pipe at once, which bounds the rows in one block


class Header(NamedTuple):
    """The meaning of each column of a table."""

    source: str  # name of the table, for error messages
    sensors: tuple[str, ...]  # of columns named `sensor.channel`, in order of appearance
    channels: tuple[str, ...]
    signals: dict[str, int]  # index of every such column by its name, sensor by sensor
    time: int  # index of the column; -1 if absent
    label: int
    subject: int
    ignored: tuple[str, ...]  # columns that are not read


class Block(NamedTuple):
    """n consecutive rows."""

    time: Array  # (n,) seconds, strictly increasing
    values: Array  # (n, S * C); NaN where a value is missing
    labels: list[str]  # empty where missing
    subjects: list[str]


def parse_header(names: Sequence[str], source: str) -> Header:
    """Find time, signals, label and subject among the column names."""
    columns = [name.removeprefix("\ufeff").strip() for name in names]
    if not any(columns):
        raise ValueError(f"{source} must begin with the names of its columns, but is empty")
    place = {name: number for number, name in enumerate(columns)}
    if len(place) != len(columns):
        twice = sorted({name for name in columns if columns.count(name) > 1})
        raise ValueError(f"{source}: a column must occur once, got {', '.join(twice)} twice")
    if TIME not in place:
        raise ValueError(f"{source} must have a column 'time' in seconds, got {', '.join(columns)}")
    parts = [name.partition(".") for name in columns]
    named = [(sensor, channel) for sensor, _, channel in parts if sensor and channel]
    if not named:
        raise ValueError(
            f"{source} must have columns named sensor.channel, such as arm.acc_x, got "
            f"{', '.join(columns)}"
        )
    sensors = tuple(dict.fromkeys(sensor for sensor, _ in named))
    channels = tuple(dict.fromkeys(channel for _, channel in named))
    signals = {
        name: place.get(name, -1) for s in sensors for c in channels for name in [f"{s}.{c}"]
    }
    missing = [name for name, number in signals.items() if number < 0]
    if missing:
        raise ValueError(
            f"{source}: every sensor must have the same channels, but {are_missing(missing)}"
        )
    label = next((name for name in LABELS if name in place), LABELS[0])
    ignored = tuple(n for n in columns if n not in (TIME, label, SUBJECT) and n not in signals)
    subject = place.get(SUBJECT, -1)
    return Header(
        source, sensors, channels, signals, place[TIME], place.get(label, -1), subject, ignored
    )


Part = tuple[Sequence[int], Sequence[Any]]
"""Places of rows in their table, and their columns; of the header the names."""


class PipeReader:
    """Iterator over the lines of an open pipe that waits for no more input than one line needs."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._closed = descriptor, False
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._lines: deque[str] = deque()
        self._rest = ""

    @property
    def pending(self) -> bool:
        """Whether a complete line is buffered, so that `next` returns at once."""
        return bool(self._lines)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while not self._lines:
            if self._closed:
                raise StopIteration
            data = os.read(self._descriptor, READ_SIZE)
            self._closed = not data
            *whole, self._rest = (self._rest + self._decode(data, self._closed)).split("\n")
            self._lines.extend(whole)
            if self._closed and self._rest:
                self._lines.append(self._rest)
        return self._lines.popleft()


def open_table(file: str) -> tuple[Path | Iterable[str], str]:
    """A file for `Rows`, or standard input if it is `-`, and its name for messages."""
    if file == "-":
        try:
            return PipeReader(sys.stdin.fileno()), "standard input"
        except OSError:  # not a pipe or a terminal
            return sys.stdin, "standard input"
    if not Path(file).is_file():
        raise ValueError(f"no recording at {file}; use - to read standard input")
    return Path(file), file


class Rows:
    """Parses a table block by block, column by column; errors name the line.

    Args:
        table: a CSV or Parquet file, or lines of CSV text: an open file, standard input, or a
            `PipeReader`. CSV begins with the header.
        source: name of the table, for error messages; by default the path.
        block: rows per block of CSV. A block is larger if a `PipeReader` has more lines pending.
        first_block: rows of the first block; by default the same.
    """

    def __init__(
        self,
        table: Path | Iterable[str],
        source: str = "",
        block: int = BLOCK,
        first_block: int = 0,
    ) -> None:
        source = source or str(table)
        if isinstance(table, Path) and table.suffix.lower() == ".parquet":
            self._unit, self._parts = "row", _parquet_parts(table)
        else:
            self._unit, self._parts = "line", _csv_parts(table, source, first_block or block, block)
        self.header = parse_header(next(self._parts, ((), ()))[1], source)

    def __iter__(self) -> Iterator[Block]:
        """Raises a ValueError if a row is malformed, or if there are no rows."""
        header, last = self.header, -math.inf
        for places, columns in self._parts:
            time = self._floats(columns[header.time], places, optional=False)
            before = np.append(last, time[:-1])
            wrong = np.flatnonzero(~((before < time) & (time < math.inf)))
            if len(wrong):
                raise ValueError(
                    f"{self._where(places[wrong[0]])}: time must grow from row to row, got "
                    f"{time[wrong[0]]:g} after {before[wrong[0]]:g}"
                )
            last = time[-1]
            signals = header.signals.values()
            values = np.stack([self._floats(columns[i], places) for i in signals], axis=1)
            values[~np.isfinite(values)] = np.nan
            labels, subjects = (
                [str(cell).strip() for cell in _cells(columns[i])] if i >= 0 else [""] * len(time)
                for i in (header.label, header.subject)
            )
            yield Block(time, values, labels, subjects)
        if last == -math.inf:
            raise ValueError(
                f"{header.source} must have at least one row below its header, got none"
            )

    def _where(self, place: int) -> str:
        return f"{self.header.source}, {self._unit} {place}"

    def _floats(self, column: Any, places: Sequence[int], optional: bool = True) -> Array:
        """The numbers of a column; NaN for missing ones, if they are optional."""
        try:
            if isinstance(column, tuple):
                return np.fromiter(map(float, column), np.float64, len(column))
            if optional or not column.null_count:
                return np.asarray(column.cast("float64"))
        except (TypeError, ValueError, NotImplementedError):  # some value is no number: find it
            pass
        found = []
        for place, cell in zip(places, _cells(column), strict=True):
            try:
                found.append(float(cell))
            except (TypeError, ValueError) as error:
                if not optional or str(cell).strip().lower() not in MISSING:
                    rule = "expected a number" if optional else "time must be a number of seconds"
                    raise ValueError(f"{self._where(place)}: {rule}, got {cell!r}") from error
                found.append(math.nan)
        return np.array(found)


def _cells(column: Any) -> Sequence[Any]:
    """The cells of a column of CSV (a tuple) or of Parquet, whose nulls become empty."""
    if isinstance(column, tuple):
        return column
    return ["" if cell is None else cell for cell in column.to_pylist()]


def _csv_rows(table: Path | Iterable[str], source: str) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of every row that is not blank, header first."""
    if isinstance(table, Path):
        with table.open(newline="", encoding="utf-8") as lines:
            yield from _csv_rows(lines, source)
        return
    reader = csv.reader(table)
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{source}, line {reader.line_num}: not CSV: {error}") from error


def _csv_parts(
    table: Path | Iterable[str], source: str, size: int, next_size: int
) -> Iterator[Part]:
    pipe = table if isinstance(table, PipeReader) else None
    lines = _csv_rows(table, source)
    _, names = next(lines, (0, []))
    yield (), names
    places: list[int] = []
    rows: list[list[str]] = []
    for place, row in lines:
        if len(row) != len(names):
            raise ValueError(
                f"{source}, line {place}: expected {len(names)} values as in the header, got "
                f"{len(row)}"
            )
        places.append(place)
        rows.append(row)
        if len(rows) >= size and not (pipe and pipe.pending):
            yield places, list(zip(*rows, strict=True))
            places, rows, size = [], [], next_size
    if rows:
        yield places, list(zip(*rows, strict=True))


def _parquet_parts(path: Path) -> Iterator[Part]:
    import pyarrow.parquet as parquet

    try:
        table = parquet.read_table(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is not a Parquet file: {error}") from error
    yield (), table.column_names
    for first in range(0, table.num_rows, PARQUET_BLOCK):
        part = table.slice(first, PARQUET_BLOCK)
        yield range(first + 1, first + 1 + part.num_rows), part.columns


def read_file(path: Path) -> tuple[Header, Block]:
    """All rows of a CSV or Parquet file."""
    rows = Rows(path)
    time, values, labels, subjects = zip(*rows, strict=True)
    return rows.header, Block(
        np.concatenate(time), np.concatenate(values), list(chain(*labels)), list(chain(*subjects))
    )


def labels_at(path: Path, time: Sequence[float]) -> list[str]:
    """The labels of a file at these times; none if it has no such column."""
    header, block = read_file(path)
    place = np.clip(np.searchsorted(block.time, time), 0, len(block.time) - 1)
    return [block.labels[i] for i in place] if header.label >= 0 else []

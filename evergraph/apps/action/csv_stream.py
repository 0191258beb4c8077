"""Rows of sensor tables: one parser for CSV files, Parquet files and live CSV streams."""

from __future__ import annotations

import codecs
import csv
import importlib
import math
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from evergraph.apps.action.recording import Array, Layout

TIME, LABELS, SUBJECT = "time", ("activity", "label"), "subject"
MISSING = ("", "na", "null", "none")
BLOCK = 4096  # rows of a file that are parsed at a time
READ_SIZE = 65536  # bytes read from a pipe at once, which bounds the rows in one block


@dataclass(frozen=True)
class Header:
    """The meaning of each column of a table.

    Attributes:
        source: name of the table, for error messages.
        sensors, channels: from columns named `sensor.channel`, in order of appearance.
        time, label, subject: column indices; -1 if absent.
        signals: column indices of all signals, sensor by sensor.
        ignored: names of the columns that are not read.
    """

    source: str
    sensors: tuple[str, ...]
    channels: tuple[str, ...]
    time: int
    label: int
    subject: int
    signals: tuple[int, ...]
    ignored: tuple[str, ...]

    def order(self, layout: Layout) -> list[int]:
        """Indices that bring the signals of this table into the order of a layout."""
        found = [f"{s}.{c}" for s in self.sensors for c in self.channels]
        missing = [name for name in layout.columns if name not in found]
        if missing:
            raise ValueError(
                f"{self.source} must have the columns {', '.join(layout.columns)}; "
                f"{_are_missing(missing)}"
            )
        return [found.index(name) for name in layout.columns]


@dataclass(frozen=True, eq=False)
class Block:
    """n consecutive rows.

    Attributes:
        time: `(n,)` seconds, strictly increasing.
        values: `(n, S * C)`; NaN where a value is missing.
        labels, subjects: n strings each; empty where missing.
    """

    time: Array
    values: Array
    labels: list[str]
    subjects: list[str]


def parse_header(names: Sequence[str], source: str) -> Header:
    """Find time, signals, label and subject among the column names."""
    columns = [name.removeprefix("\ufeff").strip() for name in names]
    if not any(columns):
        raise ValueError(f"{source} must begin with the names of its columns, but is empty")
    if len(set(columns)) != len(columns):
        twice = sorted({name for name in columns if columns.count(name) > 1})
        raise ValueError(f"{source}: a column must occur once, got {', '.join(twice)} twice")
    if TIME not in columns:
        raise ValueError(f"{source} must have a column 'time' in seconds, got {', '.join(columns)}")
    signals = {}
    for place, name in enumerate(columns):
        sensor, _, channel = name.partition(".")
        if sensor and channel:
            signals[sensor, channel] = place
    if not signals:
        raise ValueError(
            f"{source} must have columns named sensor.channel, such as arm.acc_x, got "
            f"{', '.join(columns)}"
        )
    sensors = tuple(dict.fromkeys(sensor for sensor, _ in signals))
    channels = tuple(dict.fromkeys(channel for _, channel in signals))
    missing = [f"{s}.{c}" for s in sensors for c in channels if (s, c) not in signals]
    if missing:
        raise ValueError(
            f"{source}: every sensor must have the same channels, but {_are_missing(missing)}"
        )
    label = next((columns.index(name) for name in LABELS if name in columns), -1)
    subject = columns.index(SUBJECT) if SUBJECT in columns else -1
    order = tuple(signals[s, c] for s in sensors for c in channels)
    used = {columns.index(TIME), label, subject, *order}
    ignored = tuple(name for place, name in enumerate(columns) if place not in used)
    return Header(source, sensors, channels, columns.index(TIME), label, subject, order, ignored)


def _are_missing(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} missing"


class PipeReader:
    """Iterator over the lines of a pipe that does not wait for more input than one line needs.

    Args:
        descriptor: file descriptor of the open pipe.
    """

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


class Rows:
    """Parses a table block by block and checks every row; errors name the line.

    Args:
        table: a CSV or Parquet file, or lines of CSV text: an open file, standard input, or a
            `PipeReader`. CSV begins with the header.
        source: name of the table, for error messages; by default the path.
        block: rows per block. A block is larger if a `PipeReader` has more lines pending.
        first_block: rows of the first block; by default the same.

    Raises:
        ValueError: if a row is malformed, or if there are no rows.
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
            self._rows, self._unit = _parquet_rows(table), "row"
        else:
            self._rows, self._unit = _csv_rows(table, source), "line"
        self._block, self._first_block = block, first_block or block
        self._pipe = table if isinstance(table, PipeReader) else None
        _, names = next(self._rows, (0, []))
        self.header = parse_header(names, source)
        self._width, self._place, self._last_time = len(names), 0, -math.inf
        self._pick = itemgetter(self.header.time, *self.header.signals)

    def __iter__(self) -> Iterator[Block]:
        rows: list[list[Any]] = []
        numbers: list[list[float]] = []
        size = self._first_block
        for place, row in self._rows:
            self._place = place
            numbers.append(self._numbers(row))
            rows.append(row)
            if len(rows) >= size and not (self._pipe is not None and self._pipe.pending):
                yield self._as_block(rows, numbers)
                rows, numbers, size = [], [], self._block
        if rows:
            yield self._as_block(rows, numbers)
        if not self._place:
            raise ValueError(
                f"{self.header.source} must have at least one row below its header, got none"
            )

    @property
    def _where(self) -> str:
        return f"{self.header.source}, {self._unit} {self._place}"

    def _numbers(self, row: list[Any]) -> list[float]:
        """Time and signals of a row."""
        if len(row) != self._width:
            raise ValueError(
                f"{self._where}: expected {self._width} values as in the header, got {len(row)}"
            )
        try:
            numbers = list(map(float, self._pick(row)))
        except (TypeError, ValueError):  # a value is missing or is not a number
            time, *signals = self._pick(row)
            numbers = [self._number(time, optional=False)]
            numbers += [self._number(signal, optional=True) for signal in signals]
        if not self._last_time < numbers[0] < math.inf:
            raise ValueError(
                f"{self._where}: time must grow from row to row, got {numbers[0]:g} after "
                f"{self._last_time:g}"
            )
        self._last_time = numbers[0]
        return numbers

    def _number(self, value: Any, optional: bool) -> float:
        try:
            return float(value)
        except (TypeError, ValueError) as error:
            if optional and str(value).strip().lower() in MISSING:
                return math.nan
            rule = "expected a number" if optional else "time must be a number of seconds"
            raise ValueError(f"{self._where}: {rule}, got {value!r}") from error

    def _as_block(self, rows: list[list[Any]], numbers: list[list[float]]) -> Block:
        table = np.array(numbers)
        values = table[:, 1:]
        values[~np.isfinite(values)] = np.nan
        labels, subjects = (
            [str(row[column]).strip() if column >= 0 else "" for row in rows]
            for column in (self.header.label, self.header.subject)
        )
        return Block(table[:, 0], values, labels, subjects)


def _csv_rows(table: Path | Iterable[str], source: str) -> Iterator[tuple[int, list[Any]]]:
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


def _parquet_rows(path: Path) -> Iterator[tuple[int, list[Any]]]:
    """Row number and cells of every row, header first; nulls become empty strings."""
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise ValueError(
            f"{path} needs pyarrow: pip install evergraph[tables], or save it as CSV"
        ) from error
    try:
        table = parquet.read_table(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is not a Parquet file: {error}") from error
    yield 0, table.column_names
    place = 0
    for batch in table.to_batches(max_chunksize=BLOCK):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            place += 1
            yield place, ["" if value is None else value for value in row]


def read_file(path: Path) -> tuple[Header, Block]:
    """All rows of a CSV or Parquet file."""
    rows = Rows(path)
    blocks = list(rows)
    return rows.header, Block(
        np.concatenate([block.time for block in blocks]),
        np.concatenate([block.values for block in blocks]),
        [label for block in blocks for label in block.labels],
        [subject for block in blocks for subject in block.subjects],
    )

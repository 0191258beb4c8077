"""Rows of sensor tables, from files or from a stream, with errors that name the line."""

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

import numpy as np

from evergraph.apps.action.recording import Array

TIME, LABELS, SUBJECT = "time", ("activity", "label"), "subject"
SIZE = 65536  # bytes taken from a pipe at once, and so a bound on the rows that wait


@dataclass(frozen=True)
class Header:
    """What the columns of a table are.

    Attributes:
        source: the file, for messages.
        sensors, channels: from columns named `sensor.channel`, in order of appearance.
        time, label, subject: their places; -1 if there are none.
        signals: places of all signals, sensor by sensor.
        ignored: columns that are none of these.
    """

    source: str
    sensors: tuple[str, ...]
    channels: tuple[str, ...]
    time: int
    label: int
    subject: int
    signals: tuple[int, ...]
    ignored: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Block:
    """Some rows.

    Attributes:
        time: `(n,)` seconds, growing.
        values: `(n, S * C)`; NaN where nothing was measured.
        labels, subjects: texts, `(n,)`; empty where there are none.
    """

    time: Array
    values: Array
    labels: list[str]
    subjects: list[str]


def parse_header(names: Sequence[str], source: str) -> Header:
    """Find time, signals, label and subject among the columns."""
    columns = [name.strip() for name in names]
    if not any(columns):
        raise ValueError(f"{source} must begin with the names of its columns, but is empty")
    if len(set(columns)) != len(columns):
        twice = sorted({name for name in columns if columns.count(name) > 1})
        raise ValueError(f"{source}: a column must occur once, got {', '.join(twice)} twice")
    if TIME not in columns:
        raise ValueError(f"{source} must have a column 'time' in seconds, got {', '.join(columns)}")
    signals = {}
    for place, name in enumerate(columns):
        sensor, dot, channel = name.partition(".")
        if dot and sensor and channel:
            signals[sensor, channel] = place
    sensors = tuple(dict.fromkeys(sensor for sensor, _ in signals))
    channels = tuple(dict.fromkeys(channel for _, channel in signals))
    if not signals:
        raise ValueError(
            f"{source} must have columns named sensor.channel, such as arm.acc_x, got "
            f"{', '.join(columns)}"
        )
    missing = [f"{s}.{c}" for s in sensors for c in channels if (s, c) not in signals]
    if missing:
        raise ValueError(
            f"{source}: every sensor must have the same channels, but {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing"
        )
    label = next((columns.index(name) for name in LABELS if name in columns), -1)
    subject = columns.index(SUBJECT) if SUBJECT in columns else -1
    order = tuple(signals[s, c] for s in sensors for c in channels)
    used = {columns.index(TIME), label, subject, *order}
    ignored = tuple(name for place, name in enumerate(columns) if place not in used)
    return Header(source, sensors, channels, columns.index(TIME), label, subject, order, ignored)


class Arriving:
    """Lines of a pipe as they come, up to `SIZE` bytes at once; knows whether more are here.

    Args:
        descriptor: of the open pipe.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._over = descriptor, False
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._lines: deque[str] = deque()
        self._rest = ""

    @property
    def waiting(self) -> bool:
        """Whether a whole line can be had without waiting for it."""
        return bool(self._lines)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while not self._lines:
            if self._over:
                raise StopIteration
            data = os.read(self._descriptor, SIZE)
            self._over = not data
            *whole, self._rest = (self._rest + self._decode(data, self._over)).split("\n")
            self._lines.extend(whole)
            if self._over and self._rest:
                self._lines.append(self._rest)
        return self._lines.popleft()


class Rows:
    """Rows of CSV text, block by block; also the header.

    Args:
        lines: text, header first: an open file, or standard input.
        source: its name, for messages.
        block: rows that are given out together; more, if `lines` is `Arriving` and has them.
    """

    def __init__(self, lines: Iterable[str], source: str, block: int = 4096) -> None:
        self._reader = csv.reader(lines)
        self._block, self._last = block, -math.inf
        self._arriving = lines if isinstance(lines, Arriving) else None
        first = next(self._reader, [])
        if first:
            first[0] = first[0].removeprefix("\ufeff")
        self.header = parse_header(first, source)
        self._width = len(first)
        self._pick = itemgetter(self.header.time, *self.header.signals)

    def __iter__(self) -> Iterator[Block]:
        rows: list[list[str]] = []
        numbers: list[list[float]] = []
        for row in self._rows():
            numbers.append(self._numbers(row))
            rows.append(row)
            more = self._arriving is not None and self._arriving.waiting
            if len(rows) >= self._block and not more:
                yield self._as_block(rows, numbers)
                rows, numbers = [], []
        if rows:
            yield self._as_block(rows, numbers)

    def _rows(self) -> Iterator[list[str]]:
        try:
            for row in self._reader:
                if row:
                    yield row
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{self._where}: not CSV: {error}") from error

    @property
    def _where(self) -> str:
        return f"{self.header.source}, line {self._reader.line_num}"

    def _numbers(self, row: list[str]) -> list[float]:
        """Time and signals of a row."""
        header = self.header
        if len(row) != self._width:
            raise ValueError(
                f"{self._where}: expected {self._width} values as in the header, got {len(row)}"
            )
        try:
            numbers = list(map(float, self._pick(row)))
        except ValueError:  # something is missing, or is no number
            numbers = [self._time(row), *(self._number(row[place]) for place in header.signals)]
        time = numbers[0]
        if not (math.isfinite(time) and time > self._last):
            raise ValueError(
                f"{self._where}: time must grow from row to row, got {time:g} after {self._last:g}"
            )
        self._last = time
        return numbers

    def _time(self, row: list[str]) -> float:
        text = row[self.header.time]
        try:
            return float(text)
        except ValueError as error:
            raise ValueError(
                f"{self._where}: time must be a number of seconds, got {text!r}"
            ) from error

    def _number(self, text: str) -> float:
        try:
            return float(text)
        except ValueError as error:
            if text.strip().lower() in ("", "na", "null", "none"):
                return math.nan
            raise ValueError(f"{self._where}: expected a number, got {text!r}") from error

    def _as_block(self, rows: list[list[str]], numbers: list[list[float]]) -> Block:
        table = np.array(numbers)
        values = table[:, 1:]
        values[~np.isfinite(values)] = np.nan
        label, subject = self.header.label, self.header.subject
        labels = [row[label].strip() if label >= 0 else "" for row in rows]
        return Block(
            table[:, 0],
            values,
            labels,
            [row[subject].strip() if subject >= 0 else "" for row in rows],
        )


def read_file(path: Path) -> tuple[Header, Block]:
    """All rows of a CSV or Parquet file."""
    if path.suffix.lower() == ".parquet":
        return _read_parquet(path)
    with path.open(newline="", encoding="utf-8") as file:
        rows = Rows(file, str(path))
        blocks = list(rows)
    return rows.header, _join(blocks, str(path))


def _join(blocks: list[Block], source: str) -> Block:
    if not blocks:
        raise ValueError(f"{source} must have at least one row below its header, got none")
    return Block(
        np.concatenate([block.time for block in blocks]),
        np.concatenate([block.values for block in blocks]),
        [label for block in blocks for label in block.labels],
        [subject for block in blocks for subject in block.subjects],
    )


def _read_parquet(path: Path) -> tuple[Header, Block]:
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
    header = parse_header(table.column_names, str(path))
    if not table.num_rows:
        raise ValueError(f"{path} must have at least one row, got none")

    def numbers(place: int) -> Array:
        try:
            return np.asarray(table.column(place).to_numpy(), dtype=np.float64)
        except (TypeError, ValueError) as error:
            name = table.column_names[place]
            raise ValueError(f"{path}: column {name!r} must hold numbers: {error}") from error

    def texts(place: int) -> list[str]:
        if place < 0:
            return [""] * table.num_rows
        return [
            "" if value is None else str(value).strip() for value in table.column(place).to_pylist()
        ]

    time = numbers(header.time)
    wrong = np.flatnonzero(~(np.diff(time, prepend=-np.inf) > 0))
    if len(wrong):
        row = int(wrong[0])
        raise ValueError(
            f"{path}, row {row + 1}: time must grow from row to row, got {time[row]:g} after "
            f"{time[max(row - 1, 0)]:g}"
        )
    values = np.stack([numbers(place) for place in header.signals], axis=1)
    values[~np.isfinite(values)] = np.nan
    return header, Block(time, values, texts(header.label), texts(header.subject))

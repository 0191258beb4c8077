"""Tables of any origin, brought to the types that JSON has.

A column is of booleans, int64, float64 or texts, a list of one of these, or a sparse vector
`{"index": [...], "value": [...]}`. Dates become ISO texts. A value and its canonical text mean the
same to every kind of column, so that the way by which a value came leaves no trace.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from evergraph.datasets.report import Report

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Read = Callable[[Any], tuple[Floats, Ints]]
"""Reads the cells of a column as numbers, NaN where missing or bad; returns the bad rows too."""
SPARSE_VECTOR = frozenset({"index", "value"})
_SPARSE = pa.struct([("index", pa.list_(pa.int64())), ("value", pa.list_(pa.float64()))])
_EXACT = 2**53  # integers up to here are floats without rounding
_NUMBERS = frozenset({int, float, bool})
_INDICES, _VALUES = frozenset({int}), frozenset({int, float})  # of a sparse vector
NO_NAME = ("the name of a column must be valid text", "rename it")
_FEW = "give numbers, texts, booleans, dates, or lists of numbers or texts"


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some rows of a table, and where they came from.

    Attributes:
        table: the rows, with columns of the types that JSON has.
        file: what was read.
        unit: what `lines` counts: lines of a text, or rows of a table without lines.
        find_lines: counts the lines; called only if there is a complaint.
        parsed: what `parse` has read, so that inferring, fitting and encoding share it.
    """

    table: pa.Table
    file: str
    unit: str
    find_lines: Callable[[], Sequence[int] | Ints]
    parsed: dict[tuple[str, Read], tuple[Floats, Ints]] = field(default_factory=dict, repr=False)

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return int(self.table.num_rows)

    @cached_property
    def lines(self) -> Sequence[int] | Ints:
        """Where each row stands, counted from 1."""
        return self.find_lines()

    def column(self, name: str) -> Any:
        """A column of the table; one that it lacks is missing in all rows."""
        place = self.table.schema.get_field_index(name)
        return self.table.column(place) if place >= 0 else pa.nulls(self.num_rows, pa.string())

    def parse(self, name: str, read: Read) -> tuple[Floats, Ints]:
        """The cells of a column as numbers, and the bad rows, read when first asked for."""
        if (name, read) not in self.parsed:
            self.parsed[name, read] = read(self.column(name))
        return self.parsed[name, read]

    def complain(
        self, report: Report, row: int, column: str, value: object, rule: str, way_out: str
    ) -> None:
        """Note a complaint about a cell."""
        line = int(self.lines[row])
        report.add(self.file, line, column, value, rule, way_out, self.unit)

    def slice(self, start: int, length: int) -> Chunk:
        """Some of the rows."""
        if start == 0 and length >= self.num_rows:
            return self
        end = min(start + length, self.num_rows)  # pyarrow does not check it without columns
        table = self.table.slice(start, end - start)
        return Chunk(table, self.file, self.unit, lambda: self.lines[start:end])

    def take(self, rows: Ints) -> Chunk:
        """The rows of these numbers."""
        table = self.table.take(pa.array(rows))
        return Chunk(table, self.file, self.unit, lambda: np.asarray(self.lines)[rows])

    def without(self, columns: Iterable[str]) -> Chunk:
        """The same rows without some of the columns."""
        gone = set(columns)
        kept = [name for name in self.table.column_names if name not in gone]
        return Chunk(self.table.select(kept), self.file, self.unit, lambda: self.lines)


def from_arrow(table: pa.Table, report: Report, *, file: str = "table", start: int = 1) -> Chunk:
    """A table of any types; columns that cannot be used are reported and left out."""
    names = [str(name) for name in table.column_names]
    columns: dict[str, pa.ChunkedArray] = {}
    for name, column in zip(names, table.columns, strict=True):
        if name in columns:
            report.add(file, None, name, name, "a column must occur once", "rename one of them")
            continue
        try:
            columns[name] = _as_json(column)
        except (pa.ArrowException, ValueError, OverflowError) as error:
            rule = f"the type {column.type} cannot be read ({_first_line(error)})"
            report.add(file, None, name, str(column.type), rule, _FEW, "row")
    rows = table.num_rows
    made = pa.table(columns) if columns else table.select([])  # which keeps the count of rows
    return Chunk(made, file, "row", lambda: range(start, start + rows))


def from_columns(columns: Mapping[Any, Any], report: Report, *, file: str = "table") -> Chunk:
    """Columns as sequences of values (lists, arrays, series) of the same length."""
    made: dict[str, pa.Array] = {}
    for key, values in columns.items():
        name = str(key)
        if not is_name(name):
            report.add(file, None, name, name, *NO_NAME)
            continue
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            report.add(file, None, name, values, "a column must be a sequence", "give a list")
            continue
        try:
            array = pa.array(values, from_pandas=True)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            listed = list(values)
            places = range(1, len(listed) + 1)
            array = column_of(listed, _complaints(report, file, name, places, "row"))
        made[name] = array
    lengths = {len(array) for array in made.values()}
    if len(lengths) > 1:
        found = ", ".join(f"{name}: {len(array)}" for name, array in made.items())
        report.add(file, None, None, found, "columns must have the same length", "fill the gaps")
        return from_arrow(pa.table({}), report, file=file)
    return from_arrow(pa.table(made), report, file=file)


def from_rows(
    rows: Sequence[Mapping[str, Any]],
    report: Report,
    *,
    file: str = "rows",
    unit: str = "row",
    lines: Sequence[int] | None = None,
) -> Chunk:
    """Rows as dictionaries; a key that a row lacks is a missing value."""
    places: Sequence[int] = range(1, len(rows) + 1) if lines is None else lines
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    for name in [name for name in names if not is_name(name)]:
        del names[name]
        report.add(file, None, name, name, *NO_NAME, unit)
    columns = {
        name: column_of(
            [row.get(name) for row in rows], _complaints(report, file, name, places, unit)
        )
        for name in names
    }
    counted = pa.table({"rows": pa.nulls(len(rows))}).select([])
    chunk = from_arrow(pa.table(columns) if columns else counted, report, file=file)
    return Chunk(chunk.table, file, unit, lambda: places)


Complain = Callable[[int, object, str], None]


def _complaints(report: Report, file: str, name: str, places: Sequence[int], unit: str) -> Complain:
    def complain(row: int, value: object, rule: str) -> None:
        report.add(file, places[row], name, value, rule, _FEW, unit)

    return complain


def column_of(values: list[Any], complain: Complain) -> pa.Array:
    """A column of Python values; where types are mixed, all become their canonical texts."""
    for row, value in enumerate(values):
        if not is_usable(value):
            complain(row, value, "a value must be a number, text, boolean, date or flat list")
            values[row] = None
    found = {type(value) for value in values if value is not None}
    numbers = found <= {int, float} and (
        len(found) == 1 or all(abs(value) <= _EXACT for value in values if type(value) is int)
    )
    if numbers or len(found) <= 1:
        try:
            return pa.array(values, _SPARSE if found == {dict} else None, from_pandas=True)
        except (pa.ArrowException, ValueError, OverflowError, TypeError):
            pass  # integers beyond 64 bits, or lists of several types
    return pa.array([None if value is None else _text_of(value) for value in values], pa.string())


def is_usable(value: object) -> bool:
    """Whether a cell can hold it: a scalar, a flat list of scalars or a sparse vector."""
    if isinstance(value, str):
        return _is_utf8(value)
    if isinstance(value, dict):
        if value.keys() != SPARSE_VECTOR:
            return False
        index, number = value["index"], value["value"]
        if not (isinstance(index, list) and isinstance(number, list)):
            return False
        return _INDICES.issuperset(map(type, index)) and _VALUES.issuperset(map(type, number))
    if isinstance(value, list | tuple):
        return _NUMBERS.issuperset(map(type, value)) or all(
            isinstance(part, bool | int | float) or (isinstance(part, str) and _is_utf8(part))
            for part in value
        )
    return not isinstance(value, bytes | set | frozenset | complex) and not callable(value)


def is_name(text: str) -> bool:
    """Whether a column can have this name."""
    return text.isascii() or _is_utf8(text)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text_of(value: Any) -> str:
    """The canonical text of a cell, the same that `cells.texts` gives to a typed column."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return text_of_float(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_text_of(part) for part in value) + "]"
    return str(value)


def text_of_float(value: float) -> str:
    """A float as text; one without fraction is written as an integer.

    Example:
        >>> text_of_float(3.0), text_of_float(0.1), text_of_float(1e300)
        ('3', '0.1', '1e+300')
    """
    if math.isfinite(value) and abs(value) <= _EXACT and value == int(value):
        return str(int(value))
    return repr(value)


def _as_json(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in one of the few types, or an error of pyarrow."""
    kind = column.type
    types = pa.types
    if types.is_dictionary(kind):
        return _as_json(pc.cast(column, kind.value_type))
    if types.is_boolean(kind) or kind in (pa.int64(), pa.float64(), pa.string()):
        return column
    if types.is_integer(kind):
        return pc.cast(column, pa.int64())
    if types.is_floating(kind) or types.is_decimal(kind):
        return pc.cast(column, pa.float64())
    if types.is_timestamp(kind):
        to = pa.timestamp("us", "UTC" if kind.tz else None)
        return pc.cast(pc.cast(column, to, safe=False), pa.string())
    if types.is_struct(kind):
        return _sparse_vectors(column)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner = kind.value_type
        to = pa.string()
        if types.is_integer(inner):
            to = pa.int64()
        elif types.is_floating(inner) or types.is_decimal(inner):
            to = pa.float64()
        elif types.is_nested(inner):
            raise ValueError("a list in a list")
        return pc.cast(column, pa.list_(to))
    if types.is_date(kind) or types.is_null(kind) or types.is_time(kind):
        return pc.cast(column, pa.string())
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pc.cast(column, pa.string())
    if types.is_binary(kind) or types.is_large_binary(kind):
        return pc.cast(column, pa.string())  # fails unless it is UTF-8
    raise ValueError("it has no counterpart in JSON")


def _sparse_vectors(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if {field.name for field in column.type} != SPARSE_VECTOR:
        raise ValueError("a nested value must have the two lists index and value")
    parts = [pc.cast(pc.struct_field(column, part.name), part.type) for part in _SPARSE]
    return pc.make_struct(*parts, field_names=["index", "value"])


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:80]

"""The kinds of a table's columns, their exact statistics, and the encoding of rows.

A row becomes a sparse row of fixed-point integers, value / 2**16. What a row becomes depends on its
own cells, the kinds and the statistics only: neither on other rows nor on how a table was cut.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from evergraph.datasets.cells import Codes
from evergraph.datasets.columns import Chunk, from_arrow, from_columns, from_rows
from evergraph.datasets.encoding import BUCKETS, KINDS, MEASURED, Column, Part, assemble
from evergraph.datasets.infer import decide, evidence_of
from evergraph.datasets.report import Report
from evergraph.datasets.sums import STEPS, Sums
from evergraph.datasets.vectors import Dense

__all__ = ["KINDS", "Column", "Encoded", "Rows", "Schema"]

VERSION = 1
_CELLS = 1 << 22  # numbers that are held as a dense matrix at a time

Ints = NDArray[np.int64]
Encoded = tuple[Ints, NDArray[np.int32], NDArray[np.int32]]
"""`indptr (R + 1,)`, `index (nnz,)` ascending within a row, `value (nnz,)` in units of 2**-16."""
Rows: TypeAlias = Chunk | pa.Table | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A chunk, a table, a dictionary of columns, or a list of dictionaries of cells."""


class Schema:
    """Kinds of columns, and the statistics that standardize numbers.

    `fit` adds rows to the statistics and `forget` takes them out. Both are integer sums, so that
    after any history the state is that of fitting the rows that are left, bit for bit.

    Example:
        >>> table = {"age": [20, 30, 40, None], "country": ["de", "fr", "de", ""]}
        >>> schema = Schema.infer(table)
        >>> [(column.name, column.kind, column.width) for column in schema.columns]
        [('age', 'number', 2), ('country', 'category', 64)]
        >>> indptr, index, value = schema.fit(table).encode(table)
        >>> indptr.tolist(), index[:2].tolist(), (value[:2] / 2**16).tolist()
        ([0, 2, 3, 5, 6], [0, 12], [-1.25, 1.0])
    """

    def __init__(self, columns: Iterable[Column]) -> None:
        self.columns = tuple(columns)
        names = [name for column in self.columns for name in column.sources]
        repeated = sorted(name for name, count in Counter(names).items() if count > 1)
        if repeated:
            raise ValueError(f"a column must occur once in a schema, got {repeated} again")
        self._known = frozenset(names)
        self.sums = {
            column.name: Sums(column.entries) for column in self.columns if column.kind in MEASURED
        }
        self._standard: dict[str, tuple[Ints, Ints]] = {}

    @classmethod
    def infer(cls, data: Rows | Iterable[Chunk]) -> Schema:
        """The kinds that the cells of a table, or of all its chunks, allow; nothing is fitted."""
        report = Report()
        if _is_one(data):
            data = [_as_chunk(data, report)]
        columns = decide(evidence_of(cast("Iterable[Chunk]", data)))
        report.check()
        return cls(columns)

    @property
    def width(self) -> int:
        """Places of an encoded row."""
        return sum(column.width for column in self.columns)

    def fit(self, data: Rows, report: Report | None = None) -> Schema:
        """Add rows to the statistics.

        Args:
            data: the rows.
            report: collects complaints; without it, they are raised and nothing is added.
        """
        return self._change(1, data, report)

    def forget(self, data: Rows, report: Report | None = None) -> Schema:
        """Take rows out of the statistics that were added before."""
        return self._change(-1, data, report)

    def _change(self, sign: int, data: Rows, report: Report | None) -> Schema:
        own = Report() if report is None else report
        added = {name: Sums(len(sums.total)) for name, sums in self.sums.items()}
        for chunk in self._slices(_as_chunk(data, own), own):
            for column in self.columns:
                if column.kind in MEASURED:
                    found = column.read(chunk, own)
                    assert not isinstance(found, Codes)
                    rows = int((~found.missing).sum())
                    if isinstance(found, Dense):
                        added[column.name].add_columns(rows, found.values)
                    else:
                        added[column.name].add(rows, found.place, found.value)
        if report is None:
            own.check()
        for name, sums in added.items():
            self.sums[name].merge(sums, sign)
        self._standard.clear()
        return self

    def merge(self, other: Schema, sign: int = 1) -> Schema:
        """Add the statistics of another part of the rows, or take them out (`sign=-1`)."""
        if other.columns != self.columns:
            raise ValueError("only schemas with the same columns can be merged")
        for name, sums in other.sums.items():
            self.sums[name].merge(sums, sign)
        self._standard.clear()
        return self

    def standard(self, name: str) -> tuple[Ints, Ints]:
        """The means of a column, in sixteenths of the scales, and the scales' exponents."""
        if name not in self._standard:
            self._standard[name] = self.sums[name].standard()
        return self._standard[name]

    def encode(self, data: Rows, report: Report | None = None) -> Encoded:
        """The rows as sparse fixed-point integers.

        Args:
            data: the rows; a column that is not there is missing in all of them.
            report: collects complaints, and what is complained about counts as missing; without
                it, complaints are raised.

        Raises:
            TableError: with all complaints about these rows.
        """
        own = Report() if report is None else report
        chunk = _as_chunk(data, own)
        made = [self._encode(part, own) for part in self._slices(chunk, own)]
        if report is None:
            own.check()
        if len(made) == 1:
            return made[0]
        ends = np.cumsum([0, *(len(index) for _, index, _ in made)])
        indptr = [one[0][1:] + end for one, end in zip(made, ends[:-1], strict=True)]
        return (
            np.concatenate([np.zeros(1, dtype=np.int64), *indptr]),
            np.concatenate([np.zeros(0, dtype=np.int32), *(one[1] for one in made)]),
            np.concatenate([np.zeros(0, dtype=np.int32), *(one[2] for one in made)]),
        )

    def _encode(self, chunk: Chunk, report: Report) -> Encoded:
        parts: list[Part] = []
        start = 0
        nothing = np.zeros(0, dtype=np.int64)
        for column in self.columns:
            if column.kind == "drop":
                continue
            parsed = column.read(chunk, report)
            measured = column.kind in MEASURED
            mean, scale = self.standard(column.name) if measured else (nothing, nothing)
            parts += column.encode(parsed, chunk.num_rows, start, mean, scale)
            start += column.width
        return assemble(chunk.num_rows, parts)

    def _slices(self, chunk: Chunk, report: Report) -> Iterator[Chunk]:
        """The rows in parts that need little memory; unknown columns are reported."""
        for name in chunk.table.column_names:
            if name not in self._known:
                rule = "a column must be in the schema"
                known = ", ".join(column.name for column in self.columns[:12])
                way_out = f"leave it out, or train anew on tables that have it; known are {known}"
                report.add(chunk.file, None, name, name, rule, way_out)
        entries = max((column.entries for column in self.columns), default=1)
        step = max(_CELLS // max(entries, 1), 1)
        for start in range(0, chunk.num_rows, step):
            yield chunk.slice(start, step)

    def describe(self) -> list[dict[str, str]]:
        """One row per column for a table to print: name, kind, places, and how it is scaled."""
        lines = []
        for column in self.columns:
            line = {"column": column.name, "kind": column.kind, "places": str(column.width)}
            sums = self.sums.get(column.name)
            line["scaling"] = "" if sums is None else self._scaling(column.name, sums)
            lines.append(line)
        return lines

    def _scaling(self, name: str, sums: Sums) -> str:
        if not sums.count:
            return "not fitted"
        mean, scale = self.standard(name)
        if sums.sparse:
            return f"/ {2.0 ** int(scale[0]):g}, sparse"
        if len(mean) > 1:
            return "each entry by its own mean and scale"
        unit = 2.0 ** int(scale[0])
        return f"(v - {int(mean[0]) / STEPS * unit:g}) / {unit:g}"

    def places(self) -> list[str]:
        """The names of all places of an encoded row, in their order.

        Example:
            >>> Schema.infer({"age": [20, 30], "member": [True, False]}).places()
            ['age', 'age[missing]', 'member[false]', 'member[true]']
        """
        return [name for column in self.columns for name in column.places()]

    def to_json(self) -> str:
        """The schema as a small text, one line per column; kinds and sizes may be edited."""
        columns = [json.dumps(_brief(column), ensure_ascii=False) for column in self.columns]
        kinds = {column.name: column.kind for column in self.columns}
        sums = {
            name: {"kind": kinds[name], **sums.to_dict()}
            for name, sums in self.sums.items()
            if sums.count
        }
        listed = ",\n    ".join(columns)
        return (
            f'{{\n  "version": {VERSION},\n  "columns": [\n    {listed}\n  ],\n'
            f'  "sums": {json.dumps(sums, ensure_ascii=False)}\n}}\n'
        )

    @classmethod
    def from_json(cls, text: str) -> Schema:
        """The inverse of `to_json`.

        Statistics of a column whose kind or size was edited are left out: it must be fitted again.

        Raises:
            ValueError: if the text is no schema.
        """
        try:
            state = json.loads(text)
            version, listed, sums = state["version"], state["columns"], state.get("sums", {})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"a schema must be JSON with version and columns, got {text[:60]!r} ({error})"
            ) from error
        if version != VERSION:
            raise ValueError(f"the version of a schema must be {VERSION}, got {version!r}")
        schema = cls([_column(entry) for entry in listed])
        for column in schema.columns:
            state = sums.get(column.name, {"kind": None})
            if state["kind"] == column.kind and len(state["total"]) == column.entries:
                schema.sums[column.name] = Sums.from_dict(state)
        return schema


def _brief(column: Column) -> dict[str, Any]:
    return {key: value for key, value in asdict(column).items() if value not in (0, False)}


def _column(entry: Any) -> Column:
    allowed = [field.name for field in fields(Column)]
    if not isinstance(entry, dict) or not {"name", "kind"} <= entry.keys() <= set(allowed):
        raise ValueError(f"a column of a schema must have {', '.join(allowed)}, got {entry!r}")
    if not isinstance(entry["name"], str) or type(entry.get("size", 0)) is not int:
        raise ValueError(f"a column has a name and a size that is an integer, got {entry!r}")
    return Column(**{"size": BUCKETS.get(entry["kind"], 0), **entry})


def _is_one(data: object) -> bool:
    """Whether it is one table, and not an iterable of chunks."""
    if isinstance(data, Sequence):
        return not any(isinstance(row, Chunk) for row in data)
    return isinstance(data, Chunk | pa.Table | Mapping)


def _as_chunk(data: Any, report: Report) -> Chunk:
    if isinstance(data, Chunk):
        return data
    if isinstance(data, pa.Table):
        return from_arrow(data, report)
    if isinstance(data, Mapping):
        return from_columns(data, report)
    return from_rows(data, report)

"""JSONL files, one object per line, parsed by pyarrow block by block.

A block that pyarrow refuses is looked at record by record, so that every complaint has its line and
the other records are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pajson

from evergraph.datasets.blocks import BLOCK, BOM, NOT_UTF8, Readable, cut, line_finder
from evergraph.datasets.columns import SPARSE_VECTOR, Chunk, from_arrow, from_rows
from evergraph.datasets.report import Report

_EXACT = 2.0**53
_DEEP = 1000  # brackets in a line: beyond it nesting could exhaust the stack of the parser


def read_jsonl(
    stream: Readable, report: Report, *, file: str, size: int = BLOCK
) -> Iterator[Chunk]:
    """The chunks of a file with one JSON object per line."""
    texts: dict[str, Any] = {}  # columns that pyarrow would take for times
    for block in cut(stream, None, size):
        text = bytes(block.text)
        text = text.removeprefix(BOM) if block.line == 1 else text
        table = _parse_jsonl(text, texts)
        if table is None:
            yield _jsonl_records(text, block.line, report, file)
        elif table.num_rows:
            chunk = from_arrow(table, report, file=file)
            find = line_finder(block._replace(text=text), None, table.num_rows)
            yield Chunk(chunk.table, file, "line", find)


def _parse_jsonl(block: bytes, texts: dict[str, Any]) -> pa.Table | None:
    """What pyarrow reads, or None if that is not all, or not the same as what is written."""
    records = [record for record in block.split(b"\n") if record.strip()]
    deep = any(
        len(record) > _DEEP and record.count(b"[") + record.count(b"{") > _DEEP
        for record in records
    )
    if not records or deep or b"NaN" in block or b"Infinity" in block or not _is_utf8(block):
        return pa.table({}) if not records else None
    for _ in range(2):
        try:
            table = pajson.read_json(
                pa.BufferReader(block),
                read_options=pajson.ReadOptions(block_size=len(block) + 1, use_threads=False),
                parse_options=pajson.ParseOptions(explicit_schema=pa.schema(list(texts.items()))),
            )
        except pa.ArrowInvalid:
            return None
        times = {field.name: _without_times(field.type) for field in table.schema}
        times = {name: kind for name, kind in times.items() if kind is not None}
        if not times:
            break
        texts.update(times)
    table = table.select([name for name in table.column_names if not _is_absent(table, name)])
    return None if table.num_rows != len(records) or _is_lossy(table) else table


def _is_absent(table: pa.Table, name: str) -> bool:
    """Whether the column is there only because an earlier block had it."""
    column = table.column(name)
    return bool(column.null_count == len(column))


def _without_times(kind: pa.DataType) -> pa.DataType | None:
    """The type to ask for in place of one with times, or None."""
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind) and pa.types.is_timestamp(kind.value_type):
        return pa.list_(pa.string())
    return None


def _is_lossy(table: pa.Table) -> bool:
    """Whether integers may have become floats, or values are nested: Python looks closer."""
    for column in table.columns:
        kind = column.type
        if pa.types.is_struct(kind) and not _is_sparse_vector(kind):
            return True
        if pa.types.is_list(kind) and pa.types.is_nested(kind.value_type):
            return True
        if pa.types.is_floating(kind):
            values = np.abs(column.to_numpy())
            if bool((values >= _EXACT).any()):
                return True
    return False


def _is_sparse_vector(kind: pa.StructType) -> bool:
    return {field.name for field in kind} == SPARSE_VECTOR and all(
        pa.types.is_list(field.type)
        and (
            pa.types.is_integer(field.type.value_type)
            or (field.name == "value" and pa.types.is_floating(field.type.value_type))
        )
        for field in kind
    )


def _is_utf8(block: bytes) -> bool:
    try:
        block.decode()
    except UnicodeDecodeError:
        return False
    return True


def _jsonl_records(block: bytes, line: int, report: Report, file: str) -> Chunk:
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    for place, row in parse_lines(block, report, file, line):
        rows.append(row)
        lines.append(place)
    return from_rows(rows, report, file=file, unit="line", lines=lines)


def parse_lines(
    block: bytes, report: Report, file: str, line: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of lines with their numbers, as `parse_object` gives each; blank lines have none.

    Text is decoded at once, and a line that is an object from its first letter to its last is read
    where it is: all others are left to `parse_object`, which says what is wrong.
    """
    try:
        records: Sequence[str | bytes] = block.decode().split("\n")
    except UnicodeDecodeError:
        records = block.split(b"\n")
    for place, record in enumerate(records, line):
        row: Any = None
        if isinstance(record, str):
            with suppress(ValueError, RecursionError):
                row, end = _PARSER.raw_decode(record)
                row = row if end == len(record) else None
            if not isinstance(row, dict):
                record = record.encode()
        if isinstance(record, bytes):
            row = parse_object(record, report, file, place) if record.strip() else None
        if row is not None:
            yield place, row


def parse_object(record: bytes, report: Report, file: str, line: int) -> dict[str, Any] | None:
    """One JSON object with distinct keys and finite numbers; None, and a complaint, otherwise."""
    way_out = 'write one object per line, as in {"id": 7, "age": 31}'
    try:
        row = _PARSER.decode(record.decode(json.detect_encoding(record), "surrogatepass"))
    except UnicodeDecodeError:
        report.add(file, line, None, record, *NOT_UTF8)
        return None
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)[:80]
        report.add(file, line, None, record, f"a line must be JSON ({reason})", way_out)
        return None
    if not isinstance(row, dict):
        report.add(file, line, None, row, "a line must be a JSON object", way_out)
        return None
    return row


def _distinct(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) == len(pairs):
        return row
    row = {}
    for name, value in pairs:
        if name in row:
            raise ValueError(f"the key {name[:40]!r} occurs twice")
        row[name] = value
    return row


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number; write null where a value is missing")


_PARSER = json.JSONDecoder(object_pairs_hook=_distinct, parse_constant=_no_constant)

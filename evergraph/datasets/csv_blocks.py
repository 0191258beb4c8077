"""CSV files, parsed by pyarrow block by block.

A block that pyarrow refuses is looked at record by record, so that every complaint has its line and
the other records are read.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv

from evergraph.datasets.blocks import (
    BLOCK,
    BOM,
    NOT_UTF8,
    Block,
    Readable,
    Text,
    count,
    cut,
    first_record,
    is_ascii,
    is_closed,
    line_finder,
    skip_blank,
    split_records,
)
from evergraph.datasets.columns import Chunk, from_arrow
from evergraph.datasets.report import Report


def read_csv(
    stream: Readable, report: Report, *, file: str, delimiter: str = ",", size: int = BLOCK
) -> Iterator[Chunk]:
    """The chunks of a CSV file; all cells are texts, and the schema says what they mean."""
    mark = delimiter.encode()
    names: list[str] | None = None
    for block in cut(stream, mark, size):
        text, line = block.text, block.line
        if line == 1 and text[: len(BOM)] == BOM:
            text = text[len(BOM) :]
        if names is None:
            start, end = first_record(text, mark)
            if start == end:
                continue
            place = line + count(text[:start], b"\n")
            names = _header(bytes(text[start:end]), delimiter, report, file, place)
            if names is None:
                return
            line += count(text[:end], b"\n")
            text = text[end:]
            yield _texts(names, [], report, file, line)
        if skip_blank(text) < len(text):
            rows = Block(text, line, block.end, block.closed)
            yield _csv_block(rows, names, delimiter, report, file)
    if names is None:
        rule, way_out = "a CSV file must begin with a line of column names", "add it, as in id,age"
        report.add(file, 1, None, "nothing", rule, way_out)


def _header(
    record: bytes, delimiter: str, report: Report, file: str, line: int
) -> list[str] | None:
    try:
        text = record.decode()
        names, *others = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    except UnicodeDecodeError:
        report.add(file, line, None, record, *NOT_UTF8)
        return None
    except (csv.Error, ValueError) as error:
        rule = f"a CSV file must begin with a line of column names ({error})"
        report.add(file, line, None, record, rule, "correct the quotes")
        return None
    if others:
        rule = "lines must end with a line feed, alone or after a carriage return"
        report.add(file, line, None, record, rule, "save the file with Unix or Windows line ends")
        return None
    names = [name.strip() for name in names]
    before = report.count
    for place, name in enumerate(names):
        if not name:
            rule, way_out = "a column must have a name", "name it, or leave the column out"
            report.add(file, line, f"number {place + 1}", name, rule, way_out)
        elif name in names[:place]:
            report.add(file, line, name, name, "a column must occur once", "rename one of them")
    return names if report.count == before else None


def _texts(
    names: Sequence[str], columns: Sequence[Any], report: Report, file: str, line: int
) -> Chunk:
    values = columns or [[] for _ in names]
    arrays = [pa.array(column, pa.string()) for column in values]
    table = pa.table(dict(zip(names, arrays, strict=True)))
    chunk = from_arrow(table, report, file=file)
    return Chunk(chunk.table, file, "line", lambda: range(line, line + table.num_rows))


def _csv_block(block: Block, names: list[str], delimiter: str, report: Report, file: str) -> Chunk:
    try:
        table = _parse_csv(block.text, names, delimiter, None) if block.closed else None
    except pa.ArrowInvalid:
        table = None
    if table is None:
        return _csv_records(bytes(block.text), block.line, names, delimiter, report, file)
    return Chunk(table, file, "line", line_finder(block, delimiter.encode(), table.num_rows))


def _parse_csv(
    block: Text, names: list[str], delimiter: str, handler: Callable[[Any], str] | None
) -> pa.Table:
    return pacsv.read_csv(
        pa.BufferReader(block),
        read_options=pacsv.ReadOptions(
            column_names=names, block_size=len(block) + 1, use_threads=False
        ),
        parse_options=pacsv.ParseOptions(
            delimiter=delimiter, newlines_in_values=True, invalid_row_handler=handler
        ),
        convert_options=pacsv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), check_utf8=not is_ascii(block)
        ),
    )


def _csv_records(
    block: bytes, line: int, names: list[str], delimiter: str, report: Report, file: str
) -> Chunk:
    """The records that are in order; the others are reported."""
    good: list[bytes] = []
    lines: list[int] = []
    for record, place in zip(*split_records(block, delimiter.encode()), strict=True):
        try:
            text = record.decode()
        except UnicodeDecodeError:
            report.add(file, line + place, None, record, *NOT_UTF8)
            continue
        if not is_closed(record, delimiter.encode()):
            rule, way_out = "a quoted cell must end with a quote", 'write a quote as ""'
            report.add(file, line + place, None, text, rule, way_out)
            continue
        good.append(record)
        lines.append(line + place)
    if not good:
        return _texts(names, [], report, file, line)
    ragged: list[int] = []

    def skip(row: Any) -> str:
        ragged.append(row.number - 1)
        rule = f"a line must have {len(names)} cells, as the header has"
        way_out = "add what is missing; a cell with a delimiter in it needs quotes"
        place = lines[min(row.number, len(lines)) - 1]
        report.add(file, place, None, f"{row.actual_columns} cells: {row.text}", rule, way_out)
        return "skip"

    try:
        table = _parse_csv(b"".join(good), names, delimiter, skip)
    except pa.ArrowInvalid as error:
        rule = f"lines must be CSV ({str(error)[:80]})"
        report.add(file, line, None, good[0], rule, "correct the quotes")
        return _texts(names, [], report, file, line)
    gone = set(ragged)
    kept = [place for row, place in enumerate(lines) if row not in gone]
    if len(kept) != table.num_rows:
        kept = list(range(line, line + table.num_rows))
    return Chunk(table, file, "line", lambda: kept)

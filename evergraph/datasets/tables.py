"""Tables in CSV, JSONL or Parquet files, with errors that name the file and the line."""

from __future__ import annotations

import csv
import importlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BLOCK = 8192  # rows that are held as Python objects at a time

Row = tuple[int, Sequence[object]]
"""Line number and values."""

Block = tuple[list[int], Mapping[str, Sequence[object] | NDArray[Any]]]
"""Line numbers and columns of some rows."""


@dataclass(frozen=True, eq=False)
class Table:
    """The columns of a file, all of the same length R.

    Attributes:
        path: the file.
        lines: where each row stands, counted from 1.
        texts: columns as they are.
        numbers: columns of finite numbers.
    """

    path: Path
    lines: list[int]
    texts: Mapping[str, list[object]]
    numbers: Mapping[str, NDArray[np.float64]]

    def __len__(self) -> int:
        return len(self.lines)

    def where(self, row: int) -> str:
        """The file and the line of a row, for messages."""
        return _where(self.path, self.lines[row])


def read_table(
    folder: Path, stem: str, text_columns: Collection[str], may_be_empty: bool = False
) -> Table:
    """Read `<stem>.parquet`, `<stem>.csv` or `<stem>.jsonl`, whichever is there.

    Args:
        folder: where to look.
        stem: the name without its ending.
        text_columns: the columns to leave as they are; all others must be numbers.
        may_be_empty: whether no row at all is a table too, of empty text columns.
    """
    path = _find(folder, stem)
    lines: list[int] = []
    texts: dict[str, list[object]] = {}
    numbers: dict[str, list[NDArray[np.float64]]] = {}
    for block_lines, block in _READERS[path.suffix](path):
        lines += block_lines
        for column, values in block.items():
            if column in text_columns:
                texts.setdefault(column, []).extend(values)
            else:
                array = _as_numbers(path, block_lines, column, values)
                numbers.setdefault(column, []).append(array)
    if not lines and may_be_empty:
        return Table(path, [], {column: [] for column in text_columns}, {})
    if not lines:
        raise ValueError(f"{path} must have at least one row, got none")
    joined = {column: np.concatenate(parts) for column, parts in numbers.items()}
    return Table(path, lines, texts, joined)


def _find(folder: Path, stem: str) -> Path:
    found = [path for suffix in _READERS if (path := folder / f"{stem}{suffix}").is_file()]
    if len(found) == 1:
        return found[0]
    names = ", ".join(f"{stem}{suffix}" for suffix in _READERS)
    if not found:
        raise FileNotFoundError(f"{folder} must hold one of {names}, but has none")
    raise ValueError(
        f"{folder} must hold one of {names}, but has {', '.join(path.name for path in found)}; "
        "remove what is out of date"
    )


def _where(path: Path, line: int) -> str:
    return f"{path}, {'row' if path.suffix == '.parquet' else 'line'} {line}"


def _as_numbers(
    path: Path, lines: Sequence[int], column: str, values: Sequence[object] | NDArray[Any]
) -> NDArray[np.float64]:
    try:
        array = np.asarray(values, dtype=np.float64)
        if array.ndim == 1 and np.isfinite(array).all():
            return array
    except (TypeError, ValueError):
        pass  # some value is no number; the search below says which
    line, value = next(pair for pair in zip(lines, values, strict=True) if not _is_number(pair[1]))
    raise ValueError(
        f"{_where(path, line)}: column {column!r} must be a finite number, got {value!r}"
    )


def _is_number(value: Any) -> bool:
    try:
        return bool(np.isfinite(float(value)))
    except (TypeError, ValueError):
        return False


def _in_blocks(rows: Iterator[Row]) -> Iterator[Block]:
    """Columns of up to `_BLOCK` rows; the first row holds their names."""
    _, names = next(rows, (0, ()))
    while block := list(islice(rows, _BLOCK)):
        columns = zip(*(row for _, row in block), strict=True)
        yield [line for line, _ in block], dict(zip(map(str, names), columns, strict=True))


def _csv_rows(path: Path) -> Iterator[Row]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        try:
            header = [name.strip() for name in next(reader, [])]
            if len(set(header)) != len(header):
                raise ValueError(f"{path}, line 1: a column must occur once, got {header}")
            yield 1, header
            for row in reader:
                if row and len(row) != len(header):
                    raise ValueError(
                        f"{_where(path, reader.line_num)}: expected {len(header)} values as in the "
                        f"header, got {len(row)}"
                    )
                if row:
                    yield reader.line_num, row
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{_where(path, reader.line_num)}: not CSV: {error}") from error


def _jsonl_rows(path: Path) -> Iterator[Row]:
    columns: list[str] = []
    with path.open(encoding="utf-8") as file:
        for line, text in enumerate(file, 1):
            if not text.strip():
                continue
            row = _json_row(path, line, text)
            if not columns:
                columns = list(row)
                yield 0, columns
            if row.keys() != set(columns):
                odd = sorted(row.keys() ^ set(columns))
                raise ValueError(
                    f"{_where(path, line)}: every line must have the keys of the first, but "
                    f"{', '.join(odd)} differ; write null where a value is unknown"
                )
            yield line, [row[column] for column in columns]


def _json_row(path: Path, line: int, text: str) -> dict[str, object]:
    try:
        row = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{_where(path, line)}: not JSON: {error}") from error
    if not isinstance(row, dict):
        raise ValueError(f"{_where(path, line)}: expected an object {{...}}, got {text.strip()}")
    return row


def _parquet_blocks(path: Path) -> Iterator[Block]:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise ImportError(
            f"{path} needs pyarrow: pip install evergraph[tables], or save it as CSV or JSONL"
        ) from error
    try:
        with parquet.ParquetFile(path) as file:
            start = 1
            for batch in file.iter_batches(batch_size=_BLOCK):
                lines = list(range(start, start + batch.num_rows))
                start += batch.num_rows
                columns = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
                yield lines, dict(zip(batch.schema.names, columns, strict=True))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is not a Parquet file: {error}") from error


_READERS: Mapping[str, Callable[[Path], Iterator[Block]]] = {
    ".parquet": _parquet_blocks,
    ".csv": lambda path: _in_blocks(_csv_rows(path)),
    ".jsonl": lambda path: _in_blocks(_jsonl_rows(path)),
}

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

Block = tuple[list[int], Mapping[str, Sequence[object] | NDArray[Any]]]


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


def _csv_blocks(path: Path) -> Iterator[Block]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        try:
            header = [name.strip() for name in next(reader, [])]
            if len(set(header)) != len(header):
                raise ValueError(f"{path}, line 1: a column must occur once, got {header}")
            rows = ((reader.line_num, row) for row in reader if row)
            while block := list(islice(rows, _BLOCK)):
                for line, row in block:
                    if len(row) != len(header):
                        raise ValueError(
                            f"{_where(path, line)}: expected {len(header)} values as in the "
                            f"header, got {len(row)}"
                        )
                columns = zip(*(row for _, row in block), strict=True)
                yield [line for line, _ in block], dict(zip(header, columns, strict=True))
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{_where(path, reader.line_num)}: not CSV: {error}") from error


def _jsonl_blocks(path: Path) -> Iterator[Block]:
    with path.open(encoding="utf-8") as file:
        rows = (
            (line, _json_row(path, line, text)) for line, text in enumerate(file, 1) if text.strip()
        )
        columns: list[str] | None = None
        while block := list(islice(rows, _BLOCK)):
            columns = list(block[0][1]) if columns is None else columns
            for line, row in block:
                if row.keys() != set(columns):
                    odd = sorted(row.keys() ^ set(columns))
                    raise ValueError(
                        f"{_where(path, line)}: every line must have the keys of the first, but "
                        f"{', '.join(odd)} differ; write null where a value is unknown"
                    )
            yield (
                [line for line, _ in block],
                {column: [row[column] for _, row in block] for column in columns},
            )


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
                yield (
                    lines,
                    {
                        name: batch.column(index).to_numpy(zero_copy_only=False)
                        for index, name in enumerate(batch.schema.names)
                    },
                )
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is not a Parquet file: {error}") from error


_READERS: Mapping[str, Callable[[Path], Iterator[Block]]] = {
    ".parquet": _parquet_blocks,
    ".csv": _csv_blocks,
    ".jsonl": _jsonl_blocks,
}

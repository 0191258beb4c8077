"""Reads a user's graph from a folder with a table of nodes and a table of edges.

Each table is a CSV, JSONL or Parquet file; errors name the file and the line.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.extras import require
from evergraph.graph.dataset import (
    Dataset,
    encode_labels,
    sparse_rows,
    split_by_class,
    split_by_name,
)
from evergraph.graph.graph import Graph
from evergraph.graph.rows import SparseRows

_BLOCK = 8192  # rows that are held as Python objects at a time
_FEATURE_LIMIT = 2**24  # a network has weights for each feature number

Row = tuple[int, Sequence[object]]
"""Line number and values."""

Block = tuple[Sequence[int], Mapping[str, Sequence[object] | NDArray[Any]]]
"""Line numbers and columns of some rows."""


def read_folder(folder: Path, *, directed: bool = False, seed: int = 0) -> Dataset:
    """Read `nodes` and `edges`, each a Parquet, CSV or JSONL file.

    Columns of `nodes`: `id`; `label` (optional: integers, or names, numbered in sorted order;
    empty means unknown); `time` (optional: numbers); `split` (optional: train, test, val or empty);
    and the features, either `words` (a list, or text with blanks between; integers are feature
    numbers, other words are numbered in sorted order, repeats are counted) or all other columns,
    which must be numbers (`x0`, `x1`, ... are taken in that order).

    Columns of `edges`: `source` and `target`, both ids; `weight` (optional), or `weight0`,
    `weight1`, ... for vectors.

    Args:
        folder: the folder.
        directed: whether the neighbors of a node are only the targets of its edges.
        seed: of the split by class, 60 % train and 20 % test, if there is no `split`.
    """
    nodes = _read_table(folder, "nodes", ("id", "label", "split", "words"))
    edges = _read_table(folder, "edges", ("source", "target"))
    number = _number_ids(nodes)
    labels: Tensor | None = None
    class_names: tuple[str, ...] = ()
    if "label" in nodes.texts:
        labels, class_names = encode_labels(nodes.texts["label"], nodes.where)
    time = torch.from_numpy(nodes.numbers["time"]) if "time" in nodes.numbers else None
    if time is not None and bool((time == time.round()).all() & (time.abs() < 2**53).all()):
        time = time.long()
    graph = Graph(
        features=_features(nodes),
        edges=_edges(edges, number),
        labels=labels,
        weight=_weight(edges),
        time=time,
        directed=directed,
        class_names=class_names,
        name=folder.name,
    )
    train, test = _split(nodes, labels, seed)
    return Dataset(graph, train, test, folder.name, str(folder))


@dataclass(frozen=True, eq=False)
class _Table:
    """The columns of a file, all of the same length R."""

    path: Path
    lines: Sequence[int]  # where each row stands, counted from 1
    texts: Mapping[str, list[object]]  # columns as they are
    numbers: Mapping[str, NDArray[np.float64]]  # columns of finite numbers

    def where(self, row: int) -> str:
        """The file and the line of a row, for messages."""
        return _where(self.path, self.lines[row])

    @property
    def columns(self) -> str:
        return ", ".join([*self.texts, *self.numbers])

    def ids(self, column: str) -> list[str]:
        """A column that must be there, as texts without blanks around them."""
        if column not in self.texts:
            raise ValueError(f"{self.path} must have a column {column!r}, got {self.columns}")
        return [str(value).strip() for value in self.texts[column]]

    def stack(self, columns: Sequence[str], prefix: str) -> Tensor:
        """Columns of numbers, `(R, len(columns))` float32; x0, x1, ... are put in that order."""
        if _numbered(columns, prefix):
            columns = sorted(columns, key=lambda column: int(column.removeprefix(prefix)))
        matrix = np.empty((len(self.lines), len(columns)), dtype=np.float32)
        for index, column in enumerate(columns):
            matrix[:, index] = self.numbers[column]
        return torch.from_numpy(matrix)


def _numbered(columns: Iterable[str], prefix: str) -> bool:
    return all(re.fullmatch(rf"{prefix}\d+", column) for column in columns)


def _number_ids(nodes: _Table) -> dict[str, int]:
    number: dict[str, int] = {}
    for row, node in enumerate(nodes.ids("id")):
        if number.setdefault(node, row) != row:
            raise ValueError(
                f"{nodes.where(row)}: an id must be unique, but {node!r} was already given to "
                f"{nodes.where(number[node])}"
            )
    return number


def _split(nodes: _Table, labels: Tensor | None, seed: int) -> tuple[Tensor, Tensor]:
    if "split" not in nodes.texts or labels is None:
        return split_by_class(labels, seed=seed)
    train, test = split_by_name(nodes.texts["split"], nodes.where)
    for part, chosen in (("train", train), ("test", test)):
        for row in chosen[labels[chosen] < 0].tolist():
            raise ValueError(f"{nodes.where(row)}: a {part} node must have a label, got none")
    return train, test


def _features(nodes: _Table) -> Tensor | SparseRows:
    columns = [column for column in nodes.numbers if column != "time"]
    if "words" in nodes.texts and columns:
        raise ValueError(
            f"{nodes.path}: features are either the column 'words' or columns of numbers, got "
            f"both 'words' and {', '.join(columns)}"
        )
    if "words" in nodes.texts:
        return _bags(nodes)
    if not columns:
        raise ValueError(
            f"{nodes.path} must have features: a column 'words', or columns of numbers such as "
            f"x0, x1; got {nodes.columns}"
        )
    return nodes.stack(columns, "x")


def _bags(nodes: _Table) -> SparseRows:
    bags: list[list[str]] = []
    for row, value in enumerate(nodes.texts["words"]):
        if not isinstance(value, Iterable | None):
            raise ValueError(f"{nodes.where(row)}: words must be a list or text, got {value!r}")
        words = value.split() if isinstance(value, str) else () if value is None else value
        bags.append([str(word) for word in words])
    row_of = np.repeat(np.arange(len(bags)), [len(bag) for bag in bags])
    every = [word for bag in bags for word in bag]
    known = sorted(set(every))
    number = {word: index for index, word in enumerate(known)}
    if all(word.isdecimal() for word in known):
        number = {word: int(word) for word in known}
        if (most := max(number.values(), default=0)) >= _FEATURE_LIMIT:
            raise ValueError(
                f"{nodes.path}: words that are all integers are feature numbers, and must be below "
                f"{_FEATURE_LIMIT}, got {most}; make them names, such as 'w{most}'"
            )
    column = np.array([number[word] for word in every], dtype=np.int64)
    return sparse_rows(row_of, column, 1.0, (len(bags), max(number.values(), default=0) + 1))


def _edges(edges: _Table, number: Mapping[str, int]) -> Tensor:
    ends = {end: edges.ids(end) for end in ("source", "target")}
    for end, nodes in ends.items():
        for row, node in enumerate(nodes):
            if node not in number:
                raise ValueError(
                    f"{edges.where(row)}: an edge must join two nodes, but {end} {node!r} is no "
                    "id in the table of nodes"
                )
    pairs = [[number[node] for node in nodes] for nodes in ends.values()]
    return torch.tensor(pairs, dtype=torch.int64)


def _weight(edges: _Table) -> Tensor | None:
    columns = list(edges.numbers)
    if columns == ["weight"]:
        return edges.stack(columns, "weight")[:, 0]
    if not _numbered(columns, "weight"):
        raise ValueError(
            f"{edges.path} may have the columns source, target and either weight or weight0, "
            f"weight1, ...; got {edges.columns}"
        )
    return edges.stack(columns, "weight") if columns else None


def _read_table(folder: Path, stem: str, text_columns: Collection[str]) -> _Table:
    """Read `<stem>.parquet`, `<stem>.csv` or `<stem>.jsonl`, whichever is there.

    Columns that are not in `text_columns` must be numbers; only edges may be none at all.
    """
    names = [f"{stem}{suffix}" for suffix in _READERS]
    found = [name for name in names if (folder / name).is_file()]
    rule = f"{folder} must hold one of {', '.join(names)}, but has"
    if not found:
        raise FileNotFoundError(f"{rule} none")
    if len(found) > 1:
        raise ValueError(f"{rule} {', '.join(found)}; remove what is out of date")
    path = folder / found[0]
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
    if not lines and stem == "nodes":
        raise ValueError(f"{path} must have at least one row, got none")
    if not lines:
        texts = {column: [] for column in text_columns}
    joined = {column: np.concatenate(parts) for column, parts in numbers.items()}
    return _Table(path, lines, texts, joined)


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
            for row in filter(None, reader):
                if len(row) != len(header):
                    raise ValueError(
                        f"{_where(path, reader.line_num)}: expected {len(header)} values as in the "
                        f"header, got {len(row)}"
                    )
                yield reader.line_num, row
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{_where(path, reader.line_num)}: not CSV: {error}") from error


def _jsonl_rows(path: Path) -> Iterator[Row]:
    columns: list[str] = []
    with path.open(encoding="utf-8") as file:
        for line, text in enumerate(file, 1):
            if not text.strip():
                continue
            try:
                row = json.loads(text)
            except json.JSONDecodeError as error:
                raise ValueError(f"{_where(path, line)}: not JSON: {error}") from error
            if not isinstance(row, dict):
                raise ValueError(
                    f"{_where(path, line)}: expected an object {{...}}, got {text.strip()}"
                )
            if not columns:
                columns = list(row)
                yield 0, columns
            if odd := sorted(row.keys() ^ set(columns)):
                raise ValueError(
                    f"{_where(path, line)}: every line must have the keys of the first, but "
                    f"{', '.join(odd)} differ; write null where a value is unknown"
                )
            yield line, [row[column] for column in columns]


def _parquet_blocks(path: Path) -> Iterator[Block]:
    parquet = require("pyarrow.parquet", "tables")
    try:
        with parquet.ParquetFile(path) as file:
            start = 1
            for batch in file.iter_batches(batch_size=_BLOCK):
                columns = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
                names = dict(zip(batch.schema.names, columns, strict=True))
                yield range(start, start + batch.num_rows), names
                start += batch.num_rows
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is not a Parquet file: {error}") from error


_READERS: Mapping[str, Callable[[Path], Iterator[Block]]] = {
    ".parquet": _parquet_blocks,
    ".csv": lambda path: _in_blocks(_csv_rows(path)),
    ".jsonl": lambda path: _in_blocks(_jsonl_rows(path)),
}

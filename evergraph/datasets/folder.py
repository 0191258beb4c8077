"""Reads a user's graph from a folder with a table of nodes and a table of edges."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.datasets.tables import Table, read_table
from evergraph.graph.dataset import (
    Dataset,
    encode_labels,
    sparse_rows,
    split_by_class,
    split_by_name,
)
from evergraph.graph.graph import Graph
from evergraph.graph.rows import SparseRows


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
    nodes = read_table(folder, "nodes", ("id", "label", "split", "words"))
    edges = read_table(folder, "edges", ("source", "target"), may_be_empty=True)
    number = _number_ids(nodes)
    labels, class_names = _labels(nodes)
    graph = Graph(
        features=_features(nodes),
        edges=_edges(edges, number),
        labels=labels,
        weight=_weight(edges),
        time=_time(nodes),
        directed=directed,
        class_names=class_names,
        name=folder.name,
    )
    train, test = _split(nodes, labels, seed)
    return Dataset(graph, train, test, folder.name, str(folder))


def _texts(table: Table, column: str) -> list[object]:
    if column not in table.texts:
        raise ValueError(f"{table.path} must have a column {column!r}, got {_columns(table)}")
    return table.texts[column]


def _columns(table: Table) -> str:
    return ", ".join([*table.texts, *table.numbers])


def _number_ids(nodes: Table) -> dict[str, int]:
    ids = [str(value).strip() for value in _texts(nodes, "id")]
    number = {node: row for row, node in enumerate(ids)}
    if len(number) == len(ids):
        return number
    first: dict[str, int] = {}
    for row, node in enumerate(ids):
        if first.setdefault(node, row) != row:
            raise ValueError(
                f"{nodes.where(row)}: an id must be unique, but {node!r} was already given to "
                f"{nodes.where(first[node])}"
            )
    return number


def _labels(nodes: Table) -> tuple[Tensor | None, tuple[str, ...]]:
    if "label" not in nodes.texts:
        return None, ()
    labels, class_names = encode_labels(nodes.texts["label"])
    for row in (labels < -1).nonzero().flatten().tolist():
        raise ValueError(
            f"{nodes.where(row)}: label must be a name, or an integer from 0 (-1 or empty if "
            f"unknown), got {int(labels[row])}"
        )
    return labels, class_names


def _time(nodes: Table) -> Tensor | None:
    if "time" not in nodes.numbers:
        return None
    time = torch.from_numpy(nodes.numbers["time"])
    return time.long() if bool((time == time.round()).all()) else time


def _split(nodes: Table, labels: Tensor | None, seed: int) -> tuple[Tensor, Tensor]:
    if "split" not in nodes.texts or labels is None:
        return split_by_class(labels, seed=seed)
    parts = ["" if value is None else str(value).strip() for value in nodes.texts["split"]]
    for row, part in enumerate(parts):
        if part not in ("train", "test", "valid", "val", ""):
            raise ValueError(
                f"{nodes.where(row)}: split must be train, test, val or empty, got {part!r}"
            )
        if part in ("train", "test") and labels[row] < 0:
            raise ValueError(f"{nodes.where(row)}: a {part} node must have a label, got none")
    return split_by_name(parts)


def _features(nodes: Table) -> Tensor | SparseRows:
    columns = [column for column in nodes.numbers if column != "time"]
    if "words" in nodes.texts:
        if columns:
            raise ValueError(
                f"{nodes.path}: features are either the column 'words' or columns of numbers, got "
                f"both 'words' and {', '.join(columns)}"
            )
        return _bags(nodes)
    if not columns:
        raise ValueError(
            f"{nodes.path} must have features: a column 'words', or columns of numbers such as "
            f"x0, x1; got {_columns(nodes)}"
        )
    ordered = _in_order(columns, "x")
    matrix = np.empty((len(nodes), len(ordered)), dtype=np.float32)
    for index, column in enumerate(ordered):
        matrix[:, index] = nodes.numbers[column]
    return torch.from_numpy(matrix)


def _in_order(columns: Sequence[str], prefix: str) -> list[str]:
    """By number if all are the prefix and a number, else as in the file."""
    if all(re.fullmatch(rf"{prefix}\d+", column) for column in columns):
        return sorted(columns, key=lambda column: int(column.removeprefix(prefix)))
    return list(columns)


def _bags(nodes: Table) -> SparseRows:
    bags = [_words(nodes, row, value) for row, value in enumerate(nodes.texts["words"])]
    row = np.repeat(np.arange(len(bags)), [len(bag) for bag in bags])
    words = [word for bag in bags for word in bag]
    vocabulary = set(words)
    if all(word.isdecimal() for word in vocabulary):
        column = np.array([int(word) for word in words], dtype=np.int64)
        return sparse_rows(row, column, 1.0, (len(bags), int(column.max(initial=0)) + 1))
    number = {word: index for index, word in enumerate(sorted(vocabulary))}
    column = np.array([number[word] for word in words], dtype=np.int64)
    return sparse_rows(row, column, 1.0, (len(bags), len(number)))


def _words(nodes: Table, row: int, value: object) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        return value.split()
    if isinstance(value, Iterable):
        return [str(word) for word in value]
    raise ValueError(f"{nodes.where(row)}: words must be a list or text, got {value!r}")


def _edges(edges: Table, number: Mapping[str, int]) -> Tensor:
    ends = [[str(value).strip() for value in _texts(edges, end)] for end in ("source", "target")]
    try:
        pairs = [[number[node] for node in end] for end in ends]
    except KeyError:
        for row, pair in enumerate(zip(*ends, strict=True)):
            for end, node in zip(("source", "target"), pair, strict=True):
                if node not in number:
                    raise ValueError(
                        f"{edges.where(row)}: an edge must join two nodes, but {end} {node!r} is "
                        "no id in the table of nodes"
                    ) from None
        raise
    return torch.tensor(pairs, dtype=torch.int64)


def _weight(edges: Table) -> Tensor | None:
    columns = _in_order(list(edges.numbers), "weight")
    vector = all(re.fullmatch(r"weight\d+", column) for column in columns)
    if columns != ["weight"] and not vector:
        raise ValueError(
            f"{edges.path} may have the columns source, target and either weight or weight0, "
            f"weight1, ...; got {_columns(edges)}"
        )
    if not columns:
        return None
    weights: list[NDArray[np.float64]] = [edges.numbers[column] for column in columns]
    stacked = torch.from_numpy(np.stack(weights, axis=1).astype(np.float32))
    return stacked if vector else stacked[:, 0]

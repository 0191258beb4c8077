"""Reads a user's graph from a folder with a table of nodes and a table of edges."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.datasets.columns import Chunk
from evergraph.datasets.fields import Limits, column_of_floats
from evergraph.datasets.graph_tables import Edges, Nodes, read_edges, read_nodes
from evergraph.datasets.report import Report
from evergraph.datasets.tables import FORMATS, format_of
from evergraph.graph.dataset import (
    Dataset,
    encode_labels,
    sparse_rows,
    split_by_class,
    split_by_name,
)
from evergraph.graph.graph import Graph
from evergraph.graph.ids import Id
from evergraph.graph.rows import SparseRows

_FEATURE_LIMIT = 2**24  # a network has weights for each feature number
_LARGEST = float(np.finfo(np.float32).max)
_LIMITS = Limits(label=math.inf, time=sys.float_info.max, weight=_LARGEST)

Floats = NDArray[np.float64]


def table_file(folder: Path, stem: str) -> Path:
    """What holds a table in a folder: `<stem>.csv`, or of another format, or a folder of files.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if there are several.
    """
    files = sorted(path for path in folder.glob(f"{stem}.*") if format_of(path))
    files += [folder / stem] if (folder / stem).is_dir() else []
    names = ", ".join([*(stem + ending for ending in FORMATS), f"{stem}/"])
    rule = f"{folder} must have one of {names}, but has"
    if not files:
        raise FileNotFoundError(f"{rule} none")
    if len(files) > 1:
        raise ValueError(f"{rule} {', '.join(f.name for f in files)}; remove what is out of date")
    return files[0]


def read_folder(folder: Path, *, directed: bool = False, seed: int = 0) -> Dataset:
    """Read `nodes` and `edges`, each a CSV, JSONL, Parquet or Arrow file.

    Columns of `nodes`: `id`; `label` (optional: integers, or names, numbered in sorted order;
    empty means unknown); `time` (optional); `split` (optional: train, test, val or empty);
    and the features, either `words` (a list, or text with blanks between; integers are feature
    numbers, other words are numbered in sorted order, repeats are counted) or all other columns,
    which must be numbers (`x0`, `x1`, ... are taken in that order).

    Columns of `edges`: `source` and `target`, both ids; `weight` (optional), or `weight0`,
    `weight1`, ... for vectors; `time` (optional).

    Args:
        folder: the folder.
        directed: whether the neighbors of a node are only the targets of its edges.
        seed: of the split by class, 60 % train and 20 % test, if there is no `split`.

    Raises:
        TableError: with all complaints about the tables.
    """
    nodes, edges = (table_file(folder, stem) for stem in ("nodes", "edges"))
    linked = edges if edges.stat().st_size else None
    found = from_tables(nodes, linked, name=folder.name, directed=directed, seed=seed)
    return replace(found, origin=str(folder))


def from_tables(
    nodes: Any,
    edges: Any = None,
    *,
    name: str = "tables",
    directed: bool = False,
    seed: int = 0,
) -> Dataset:
    """The same from tables of any kind: files, pandas, polars, pyarrow, columns in a dictionary.

    Example:
        >>> nodes = {"id": ["ann", "bob"], "age": [31, 45], "label": ["old", "older"]}
        >>> data = from_tables(nodes, {"source": ["ann"], "target": ["bob"]})
        >>> data.graph.features.tolist(), data.graph.class_names
        ([[31.0], [45.0]], ('old', 'older'))
    """
    report = Report()
    parts = list(read_nodes(nodes, report, limits=_LIMITS))
    linked = () if edges is None else read_edges(edges, report, limits=_LIMITS)
    joined = [part for part in linked if part.sources]
    report.check()
    features = _features(parts, report)
    ends = _ends(joined, {node: row for row, node in enumerate(_joined(parts, "ids"))}, report)
    weight = _weight(joined, report)
    time = _times([(part.times, part.features) for part in parts], report)
    edge_time = _times([(part.times, part.chunk) for part in joined], report)
    labels, class_names = _labels(parts)
    train, test = _split(parts, labels, seed, report)
    report.check()
    graph = Graph(
        features=features,
        edges=ends,
        labels=labels,
        weight=weight,
        time=time,
        edge_time=edge_time,
        directed=directed,
        class_names=class_names,
        name=name,
    )
    return Dataset(graph, train, test, name, "tables")


def _joined(nodes: Sequence[Nodes], name: str) -> list[Any]:
    """A field of all nodes, None for those of chunks without it."""
    return [value for part in nodes for value in (getattr(part, name) or [None] * len(part.ids))]


def _labels(nodes: Sequence[Nodes]) -> tuple[Tensor | None, tuple[str, ...]]:
    if all(part.labels is None for part in nodes):
        return None, ()
    lines = [(part.features, row) for part in nodes for row in range(len(part.ids))]

    def where(row: int) -> str:
        chunk, place = lines[row]
        return f"{chunk.file}, {chunk.unit} {chunk.lines[place]}"

    return encode_labels(_joined(nodes, "labels"), where)


def _split(
    nodes: Sequence[Nodes], labels: Tensor | None, seed: int, report: Report
) -> tuple[Tensor, Tensor]:
    if labels is None or all(part.splits is None for part in nodes):
        return split_by_class(labels, seed=seed)
    first = 0
    for part in nodes:
        for row, name in enumerate(part.splits or ()):
            if name in ("train", "test") and labels[first + row] < 0:
                rule, way_out = f"a {name} node must have a label", "add it, or empty the split"
                part.features.complain(report, row, "label", None, rule, way_out)
        first += len(part.ids)
    report.check()
    return split_by_name(_joined(nodes, "splits"))


def _times(parts: Sequence[tuple[Floats | None, Chunk]], report: Report) -> Tensor | None:
    """Times as integers where all are; each row must have one if any has."""
    if all(times is None for times, _ in parts):
        return None
    found = [np.full(chunk.num_rows, np.nan) if t is None else t for t, chunk in parts]
    for times, (_, chunk) in zip(found, parts, strict=True):
        for row in np.flatnonzero(np.isnan(times)).tolist():
            rule, way_out = (
                "a time must be a finite number",
                "fill the gap, or leave the column out",
            )
            chunk.complain(report, row, "time", None, rule, way_out)
    joined = torch.from_numpy(np.concatenate(found))
    whole = bool((joined == joined.round()).all() & (joined.abs() < 2**53).all())
    return joined.long() if whole else joined


def _features(nodes: Sequence[Nodes], report: Report) -> Tensor | SparseRows:
    tables = [part.features.table for part in nodes]
    names = [*dict.fromkeys(name for table in tables for name in table.column_names)]
    file = nodes[0].features.file
    if names == ["words"]:
        return _bags(nodes, report)
    if "words" in names:
        rule = "features are either the column 'words' or columns of numbers"
        got = ", ".join(name for name in names if name != "words")
        report.add(file, None, "words", f"words and {got}", rule, "leave one of them out")
    if not names:
        rule = "there must be features: a column 'words', or columns of numbers such as x0, x1"
        report.add(file, None, None, "none", rule, "add them")
    report.check()
    if all(re.fullmatch(r"x\d+", name) for name in names):
        names.sort(key=lambda name: int(name[1:]))
    return torch.from_numpy(np.concatenate([_matrix(part, names, report) for part in nodes]))


def _matrix(part: Nodes, names: Sequence[str], report: Report) -> NDArray[np.float32]:
    """Columns of numbers `(R, len(names))`."""
    matrix = np.zeros((len(part.ids), len(names)), dtype=np.float32)
    for index, name in enumerate(names):
        table = part.features.table
        column = table.column(name) if name in table.column_names else None
        values = None if column is None else column_of_floats(column, _LARGEST)
        if values is not None:
            matrix[:, index] = values
            continue
        cells = [None] * len(part.ids) if column is None else column.to_pylist()
        words = [isinstance(cell, str) and cell != "" and _number(cell) is None for cell in cells]
        if len(words) > 1 and all(words):
            rule = "features must be columns of numbers"
            way_out = "leave it out, or use `evergraph train`, which takes columns of any kind"
            report.add(part.features.file, None, name, cells[0], rule, way_out)
            continue
        for row, cell in enumerate(cells):
            number = _number(cell)
            if number is None:
                rule = "a finite number is needed"
                way_out = "correct it, or fill the gap; `evergraph train` takes gaps and texts"
                part.features.complain(report, row, name, cell, rule, way_out)
            else:
                matrix[row, index] = number
    return matrix


def _number(cell: Any) -> float | None:
    try:
        number = float(cell)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) <= _LARGEST else None


def _bags(nodes: Sequence[Nodes], report: Report) -> SparseRows:
    bags: list[list[str]] = []
    for part in nodes:
        there = part.features.table.num_columns
        cells = part.features.table.column(0).to_pylist() if there else [None] * len(part.ids)
        for row, cell in enumerate(cells):
            if not isinstance(cell, str | list | None):
                rule = "words must be a list or text"
                part.features.complain(report, row, "words", cell, rule, "write words with blanks")
            words = cell.split() if isinstance(cell, str) else cell
            bags.append([str(word) for word in words] if isinstance(words, list) else [])
    row_of = np.repeat(np.arange(len(bags)), [len(bag) for bag in bags])
    every = [word for bag in bags for word in bag]
    known = sorted(set(every))
    number = {word: index for index, word in enumerate(known)}
    if all(word.isdecimal() for word in known):
        number = {word: int(word) for word in known}
        if (most := max(number.values(), default=0)) >= _FEATURE_LIMIT:
            raise ValueError(
                f"{nodes[0].features.file}: words that are all integers are feature numbers, and "
                f"must be below {_FEATURE_LIMIT}, got {most}; make them names, such as 'w{most}'"
            )
    column = np.array([number[word] for word in every], dtype=np.int64)
    return sparse_rows(row_of, column, 1.0, (len(bags), max(number.values(), default=0) + 1))


def _ends(edges: Sequence[Edges], number: Mapping[Id, int], report: Report) -> Tensor:
    pairs: list[list[int]] = []
    for end in ("source", "target"):
        found: list[int] = []
        for part in edges:
            for row, node in enumerate(part.sources if end == "source" else part.targets):
                if node not in number:
                    rule = "an edge must join two nodes of the table of nodes"
                    part.chunk.complain(report, row, end, node, rule, "add the node to that table")
                found.append(number.get(node, 0))
        pairs.append(found)
    return torch.tensor(pairs, dtype=torch.int64)


def _weight(edges: Sequence[Edges], report: Report) -> Tensor | None:
    if all(part.weights is None for part in edges):
        return None
    found = [np.ones(len(p.sources)) if p.weights is None else p.weights for p in edges]
    shapes = {weights.shape[1:] for weights in found}
    if len(shapes) > 1:
        rule = "weights must be alike, numbers or lists of one length"
        report.add(edges[0].chunk.file, None, "weight", shapes, rule, "make them alike")
        report.check()
    return torch.from_numpy(np.concatenate(found).astype(np.float32))

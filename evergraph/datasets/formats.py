"""Readers of the published layouts: LINQS, npz of gnn-benchmark, OGB and PI-GNN's time streams."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from evergraph.graph.dataset import Dataset, encode_labels, sparse_rows, split_by_class
from evergraph.graph.graph import Graph

Ints = NDArray[np.int64]
Matrix = tuple[Ints, Ints, NDArray[np.float32], tuple[int, int]]

SKETCH = 64  # features of a node in a time stream

# The paper trains on the nodes 0-139 and 500-1499 and tests on 200-499 (Appendix A: "a little
# different from their original settings", as no validation set is needed).
_TRAIN = (*range(140), *range(500, 1500))
_TEST = range(200, 500)


def read_linqs(folder: Path) -> Dataset:
    """Read Cora as LINQS published it, the form that the paper's numbers were made on.

    `cora.content` holds id, words and class, `cora.cites` cited and citing id. Nodes are numbered
    as in the file and classes by their sorted names. An edge goes from the citing paper to the
    one it cites; the graph is undirected, as in the paper.
    """
    content = folder / "cora.content"
    number: dict[str, int] = {}
    classes: list[str] = []
    words: list[NDArray[np.str_]] = []
    for line, text in enumerate(content.read_text().splitlines(), start=1):
        node, *flags, label = text.split("\t") if "\t" in text else ("", "")
        width = len(words[0]) if words else len(flags)
        if not flags or len(flags) != width:
            raise ValueError(
                f"{content}, line {line}: expected an id, {width or 'some'} words and a class "
                f"between tabs, got {len(flags)} words"
            )
        if node in number:
            raise ValueError(f"{content}, line {line}: an id must be unique, got {node} again")
        if wrong := set(flags) - {"0", "1"}:
            raise ValueError(f"{content}, line {line}: a word must be 0 or 1, got {min(wrong)}")
        number[node] = len(number)
        classes.append(label)
        words.append(np.array(flags))
    if len(number) <= _TRAIN[-1]:
        raise ValueError(
            f"the paper's split needs at least {_TRAIN[-1] + 1} nodes, but {content} has "
            f"{len(number)}"
        )
    labels, class_names = encode_labels(classes)
    row, column = (np.stack(words) == "1").nonzero()
    graph = Graph(
        features=sparse_rows(row, column, 1.0, (len(words), len(words[0]))),
        edges=_read_cites(folder / "cora.cites", number),
        labels=labels,
        class_names=class_names,
        name="cora",
    )
    return Dataset(graph, torch.tensor(_TRAIN), torch.tensor(_TEST), "cora", str(folder))


def _read_cites(path: Path, number: dict[str, int]) -> Tensor:
    edges = []
    for line, text in enumerate(path.read_text().splitlines(), start=1):
        pair = text.split()
        if len(pair) != 2:
            raise ValueError(f"{path}, line {line}: expected two ids, got {text!r}")
        for node in pair:
            if node not in number:
                raise ValueError(f"{path}, line {line}: paper {node} is not in the content file")
        edges.append((number[pair[1]], number[pair[0]]))
    return torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T.contiguous()


def read_npz(path: Path, name: str, seed: int = 0) -> Dataset:
    """Read features, undirected edges and labels, and `domain` if there is one.

    Labels are shifted to begin at 0; -1 means unknown. If the file holds the authors' splits, the
    rows of `train_masks` and `test_masks`, row `seed % rows` is used; otherwise 60 % of each class
    are drawn for training and 20 % for testing. Pickled objects in the file are never read.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            row, column, value, shape = _matrix(arrays, "attr")
            source, target, _, _ = _matrix(arrays, "adj")
            labels = torch.from_numpy(_integers(arrays, "labels"))
            domain = _integers(arrays, "domain") if "domain" in arrays.files else None
            masks = _masks(arrays, seed, shape[0])
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path} must hold attr_*, adj_* (data, indices, indptr, shape) and labels: {error}; "
            "fetch it again"
        ) from error
    known = labels >= 0
    if known.any():
        labels[known] -= labels[known].min()
    graph = Graph(
        features=sparse_rows(row, column, value, shape),
        edges=torch.from_numpy(np.stack([source, target])),
        labels=labels,
        domain=None if domain is None else torch.from_numpy(domain),
        name=name,
    )
    train, test = masks or split_by_class(labels, seed=seed)
    return Dataset(graph, train, test, name, str(path))


def _matrix(arrays: np.lib.npyio.NpzFile, prefix: str) -> Matrix:
    """Coordinates, values and shape of a matrix that is stored as compressed rows."""
    start = arrays[f"{prefix}_indptr"]
    rows, columns = (int(size) for size in arrays[f"{prefix}_shape"])
    if len(start) != rows + 1:
        raise ValueError(f"{prefix}_indptr has {len(start)} entries for {rows} rows")
    row = np.repeat(np.arange(rows), np.diff(start))
    column = _integers(arrays, f"{prefix}_indices")
    return row, column, arrays[f"{prefix}_data"], (rows, columns)


def _integers(arrays: np.lib.npyio.NpzFile, name: str) -> Ints:
    """As int64; numbers that would be truncated are refused."""
    values = arrays[name]
    if not np.issubdtype(values.dtype, np.integer):
        raise ValueError(f"{name} must be integers, got {values.dtype}")
    return values.astype(np.int64)


def _masks(arrays: np.lib.npyio.NpzFile, seed: int, num_nodes: int) -> tuple[Tensor, Tensor] | None:
    """Training and test nodes of one of the authors' splits; None if there are none."""
    if not {"train_masks", "test_masks"} <= set(arrays.files):
        return None
    masks = [arrays["train_masks"], arrays["test_masks"]]
    for mask in masks:
        if mask.dtype != bool or mask.ndim != 2 or mask.shape[1] != num_nodes or not len(mask):
            raise ValueError(
                f"train_masks and test_masks must be bool of shape (splits, {num_nodes}), got "
                f"{mask.dtype} of shape {mask.shape}"
            )
    train, test = (torch.from_numpy(np.flatnonzero(mask[seed % len(mask)])) for mask in masks)
    return train, test


def read_ogb(folder: Path) -> Dataset:
    """Read ogbn-arxiv from `raw/*.csv.gz` and `split/time/{train,test}.csv.gz`.

    Edges stay directed (neighbors of i are the papers that i cites), features stay as they are,
    and a node's time is its year.
    """

    def read(
        file: str, rows: int | None, columns: int | None = 1, dtype: DTypeLike = np.int64
    ) -> Tensor:
        table = _read_numbers(folder / f"{file}.csv.gz", dtype, columns, rows)
        return torch.from_numpy(table[:, 0].copy() if columns == 1 else table)

    num_nodes, num_edges = (int(read(f"raw/num-{what}-list", None)[0]) for what in ("node", "edge"))
    labels = read("raw/node-label", num_nodes, dtype=np.float64).nan_to_num(-1)
    if len(broken := labels[labels != labels.round()]):
        raise ValueError(
            f"{folder / 'raw/node-label.csv.gz'} must hold integers, or nan where a label is "
            f"unknown, got {float(broken[0])}; fetch it again"
        )
    graph = Graph(
        features=read("raw/node-feat", num_nodes, None, np.float32),
        edges=read("raw/edge", num_edges, 2).T.contiguous(),
        labels=labels.long(),
        time=read("raw/node_year", num_nodes),
        directed=True,
        name="ogbn-arxiv",
    )
    train, test = (read(f"split/time/{part}", None) for part in ("train", "test"))
    return Dataset(graph, train, test, "ogbn-arxiv", str(folder))


def read_time_stream(folder: Path, name: str) -> Dataset:
    """Read a citation graph that arrives in time steps and has no attributes.

    `labels` has a node and its class per line, `stream_edges/<t>` a source and a target, and
    `train_nodes` and `test_nodes` one node. The time of an edge is its step t, and the time of a
    node is the step of its first edge. Nodes without any edge never arrive: their time is the
    number of steps, and they are in neither part of the split. The graph is undirected.
    """
    steps = _steps(folder / "stream_edges")
    edges = np.ascontiguousarray(np.concatenate(steps).T)
    edge_time = np.repeat(np.arange(len(steps)), [len(pairs) for pairs in steps])
    known = _counts(folder / "labels", 2)
    mentioned = np.unique(np.concatenate([known[:, 0], edges.ravel()]))
    num_nodes = int(mentioned.max(initial=-1)) + 1
    if num_nodes > 100 * len(mentioned):  # arrays of that length could fill the memory
        raise ValueError(
            f"{folder} must number its nodes without large gaps, got node {num_nodes - 1} among "
            f"{len(mentioned)} nodes; fetch it again"
        )
    labels = np.full(num_nodes, -1)
    labels[known[:, 0]] = known[:, 1]
    time = np.full(num_nodes, len(steps))
    np.minimum.at(time, edges.ravel(), np.tile(edge_time, 2))
    graph = Graph(
        features=torch.from_numpy(sketch(edges, edge_time, time)),
        edges=torch.from_numpy(edges),
        labels=torch.from_numpy(labels),
        time=torch.from_numpy(time),
        edge_time=torch.from_numpy(edge_time),
        name=name,
    )
    parts = []
    for path in (folder / "train_nodes", folder / "test_nodes"):
        nodes = _counts(path, 1)[:, 0]
        if len(outside := nodes[nodes >= num_nodes]):
            raise ValueError(f"{path} must hold nodes with a label or an edge, got {outside[0]}")
        parts.append(torch.from_numpy(nodes[time[nodes] < len(steps)]))
    return Dataset(graph, parts[0], parts[1], name, str(folder))


def _steps(folder: Path) -> list[Ints]:
    """The edges of each step, `(E, 2)`, in order."""
    names = sorted(path.name for path in folder.iterdir())
    expected = [str(step) for step in range(len(names))]
    if not names or names != sorted(expected):
        raise ValueError(
            f"{folder} must hold one file per step, named 0, 1, 2, ..., got "
            f"{', '.join(names) or 'none'}"
        )
    return [_counts(folder / step, 2) for step in expected]


def sketch(edges: Ints, edge_time: Ints, time: Ints) -> NDArray[np.float32]:
    """Features `(N, 64)` from the neighbors that a node has at the end of its first step.

    A signed hash sketch (feature hashing) of the neighbors' numbers: neighbor j adds s(j) = ±1 to
    column h(j) of 63, with h and s from a fixed hash, and the row is divided by the square root of
    the number of neighbors. The last column is log(1 + number of neighbors). Later edges are not
    used, so that the features are causal.
    """
    owner, neighbor = np.concatenate([edges, edges[::-1]], axis=1)
    first = (np.tile(edge_time, 2) == time[owner]) & (owner != neighbor)
    owner, neighbor = np.unique(np.stack([owner[first], neighbor[first]]), axis=1)
    degree = np.bincount(owner, minlength=len(time))
    # 64 well mixed bits per neighbor: the finalizer of splitmix64
    bits = neighbor.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    column = (bits >> np.uint64(1)) % np.uint64(SKETCH - 1)
    sign = np.where(bits & np.uint64(1), 1.0, -1.0)
    features = np.zeros((len(time), SKETCH))
    np.add.at(features, (owner, column.astype(np.int64)), sign)
    features /= np.sqrt(np.maximum(degree, 1))[:, None]
    features[:, -1] = np.log1p(degree)
    return features.astype(np.float32)


def _counts(path: Path, columns: int) -> Ints:
    """The integers of a text file, `(R, columns)`; none is negative."""
    table = _read_numbers(path, np.int64, columns)
    if (table < 0).any():
        raise ValueError(f"{path} must hold integers of at least 0, got the smallest {table.min()}")
    return table


def _read_numbers(
    path: Path, dtype: DTypeLike, columns: int | None, rows: int | None = None
) -> NDArray[Any]:
    """The numbers of a text file without header, `(rows, columns)`: a CSV, or between blanks."""
    comma = "," if ".csv" in path.suffixes else None
    what = "integers" if np.issubdtype(dtype, np.integer) else "numbers"
    try:
        table = np.loadtxt(path, dtype=dtype, delimiter=comma, ndmin=2)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is truncated or damaged: {error}; fetch it again") from error
    except ValueError as error:
        between = "commas" if comma else "blanks"
        raise ValueError(f"{path} must hold {what} between {between}: {error}") from error
    if table.shape[0] != (rows or table.shape[0]) or table.shape[1] != (columns or table.shape[1]):
        raise ValueError(
            f"{path} must have {rows or 'any number of'} rows and {columns or 'any number of'} "
            f"columns, got {table.shape[0]} and {table.shape[1]}; fetch it again"
        )
    return table

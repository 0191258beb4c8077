"""ogbn-arxiv, or any node data set, in the raw layout of the Open Graph Benchmark."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from evergraph.graph.dataset import Dataset
from evergraph.graph.graph import Graph


def read_ogb(folder: Path, name: str = "ogbn-arxiv", split: str = "time") -> Dataset:
    """Read `raw/*.csv.gz` and `split/<split>/{train,test}.csv.gz`.

    Edges stay directed (neighbors of i are the papers that i cites), features stay as they are,
    and a node's time is its year.

    Args:
        folder: holds `raw` and `split`.
        name: what to call it.
        split: the folder under `split`; OGB's own one for arxiv is `time`.
    """
    raw = folder / "raw"
    num_nodes, num_edges = (
        int(_read(raw / f"num-{what}-list.csv.gz", np.int64, None, 1)[0, 0])
        for what in ("node", "edge")
    )
    edges = _read(raw / "edge.csv.gz", np.int64, num_edges, 2)
    labels = _read(raw / "node-label.csv.gz", np.float64, num_nodes, 1)[:, 0]
    years = raw / "node_year.csv.gz"
    graph = Graph(
        features=torch.from_numpy(_read(raw / "node-feat.csv.gz", np.float32, num_nodes, None)),
        edges=torch.from_numpy(np.ascontiguousarray(edges.T)),
        labels=torch.from_numpy(np.nan_to_num(labels, nan=-1).astype(np.int64)),
        time=_column(years, num_nodes) if years.exists() else None,
        directed=True,
        name=name,
    )
    parts = folder / "split" / split
    train, test = (_column(parts / f"{part}.csv.gz", None) for part in ("train", "test"))
    return Dataset(graph, train, test, name, str(folder))


def _column(path: Path, rows: int | None) -> Tensor:
    return torch.from_numpy(_read(path, np.int64, rows, 1)[:, 0].copy())


def _read(path: Path, dtype: DTypeLike, rows: int | None, columns: int | None) -> NDArray[Any]:
    """The numbers of a compressed CSV file without header, `(rows, columns)`."""
    try:
        with gzip.open(path, "rt") as file:
            table = np.loadtxt(file, dtype=dtype, delimiter=",", ndmin=2)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is truncated or damaged: {error}; fetch it again") from error
    except ValueError as error:
        raise ValueError(f"{path} must hold numbers between commas: {error}") from error
    if table.shape[0] != (rows or table.shape[0]) or table.shape[1] != (columns or table.shape[1]):
        raise ValueError(
            f"{path} must have {rows or 'any number of'} rows and {columns or 'any number of'} "
            f"columns, got {table.shape[0]} and {table.shape[1]}; fetch it again"
        )
    return table

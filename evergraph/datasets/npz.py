"""The Amazon and Coauthor graphs of gnn-benchmark: two sparse matrices in one npz file."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from evergraph.graph.dataset import Dataset, sparse_rows, split_by_class
from evergraph.graph.graph import Graph

Matrix = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32], tuple[int, int]]


def read_npz(path: Path, name: str, seed: int = 0) -> Dataset:
    """Read features, undirected edges and labels.

    The source has no split: 60 % of each class are drawn for training and 20 % for testing. Only
    the arrays of numbers are read; the names that some files hold as pickled objects never are.

    Args:
        path: the npz file.
        name: what to call it.
        seed: of the split.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            row, column, value, shape = _matrix(arrays, "attr")
            source, target, _, _ = _matrix(arrays, "adj")
            labels = torch.from_numpy(arrays["labels"].astype(np.int64))
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path} must hold attr_*, adj_* (data, indices, indptr, shape) and labels: {error}; "
            "fetch it again"
        ) from error
    graph = Graph(
        features=sparse_rows(row, column, value, shape),
        edges=torch.from_numpy(np.stack([source, target])),
        labels=labels,
        name=name,
    )
    train, test = split_by_class(labels, seed=seed)
    return Dataset(graph, train, test, name, str(path))


def _matrix(arrays: np.lib.npyio.NpzFile, prefix: str) -> Matrix:
    """Coordinates, values and shape of a matrix that is stored as compressed rows."""
    start = arrays[f"{prefix}_indptr"]
    rows, columns = (int(size) for size in arrays[f"{prefix}_shape"])
    if len(start) != rows + 1:
        raise ValueError(f"{prefix}_indptr has {len(start)} entries for {rows} rows")
    row = np.repeat(np.arange(rows), np.diff(start))
    column = arrays[f"{prefix}_indices"].astype(np.int64)
    return row, column, arrays[f"{prefix}_data"], (rows, columns)

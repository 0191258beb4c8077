"""Graphs as two sparse matrices in one npz file, the layout of gnn-benchmark (Amazon, Coauthor)."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.graph.dataset import Dataset, sparse_rows, split_by_class
from evergraph.graph.graph import Graph

Matrix = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32], tuple[int, int]]


def read_npz(path: Path, name: str, seed: int = 0) -> Dataset:
    """Read features, undirected edges and labels, and `domain` if there is one.

    Labels are shifted to begin at 0; -1 means unknown. If the file holds the authors' splits, the
    rows of `train_masks` and `test_masks`, row `seed % rows` is used; otherwise 60 % of each class
    are drawn for training and 20 % for testing. Only the arrays of numbers are read; the names
    that some files hold as pickled objects never are.

    Args:
        path: the npz file.
        name: what to call it.
        seed: of the random split, or which of the authors' splits.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            row, column, value, shape = _matrix(arrays, "attr")
            source, target, _, _ = _matrix(arrays, "adj")
            labels = torch.from_numpy(arrays["labels"].astype(np.int64))
            domain = arrays["domain"].astype(np.int64) if "domain" in arrays.files else None
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


def _matrix(arrays: np.lib.npyio.NpzFile, prefix: str) -> Matrix:
    """Coordinates, values and shape of a matrix that is stored as compressed rows."""
    start = arrays[f"{prefix}_indptr"]
    rows, columns = (int(size) for size in arrays[f"{prefix}_shape"])
    if len(start) != rows + 1:
        raise ValueError(f"{prefix}_indptr has {len(start)} entries for {rows} rows")
    row = np.repeat(np.arange(rows), np.diff(start))
    column = arrays[f"{prefix}_indices"].astype(np.int64)
    return row, column, arrays[f"{prefix}_data"], (rows, columns)

"""Citation graphs that arrive in time steps, in the layout of PI-GNN; they have no attributes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.graph.dataset import Dataset
from evergraph.graph.graph import Graph

Ints = NDArray[np.int64]

FEATURES = 64


def read_time_stream(folder: Path, name: str) -> Dataset:
    """Read `labels`, `stream_edges/<t>`, `train_nodes` and `test_nodes`.

    The time of an edge is its step t, and the time of a node is the step of its first edge. Nodes
    without any edge never arrive: their time is the number of steps, and they are in neither part
    of the split. The graph is undirected. `val_nodes` are in neither part either.

    Args:
        folder: holds the files: `labels` has a node and its class per line, `stream_edges/<t>` a
            source and a target, the others one node.
        name: what to call it.
    """
    steps = _steps(folder / "stream_edges")
    edges = np.ascontiguousarray(np.concatenate(steps).T)
    edge_time = np.repeat(np.arange(len(steps)), [len(pairs) for pairs in steps])
    known = _read(folder / "labels", 2)
    num_nodes = int(max(known[:, 0].max(initial=-1), edges.max(initial=-1))) + 1
    labels = np.full(num_nodes, -1)
    labels[known[:, 0]] = known[:, 1]
    time = np.full(num_nodes, len(steps))
    np.minimum.at(time, edges.ravel(), np.tile(edge_time, 2))
    graph = Graph(
        features=torch.from_numpy(_sketch(edges, edge_time, time)),
        edges=torch.from_numpy(edges),
        labels=torch.from_numpy(labels),
        time=torch.from_numpy(time),
        edge_time=torch.from_numpy(edge_time),
        name=name,
    )
    train, test = (_split(folder / f"{part}_nodes", time, len(steps)) for part in ("train", "test"))
    return Dataset(graph, train, test, name, str(folder))


def _split(path: Path, time: Ints, num_steps: int) -> Tensor:
    """The nodes of a file that arrive in some step."""
    nodes = _read(path, 1)[:, 0]
    outside = nodes[nodes >= len(time)]
    if len(outside):
        raise ValueError(f"{path} must hold nodes with a label or an edge, got {outside[0]}")
    return torch.from_numpy(nodes[time[nodes] < num_steps])


def _sketch(edges: Ints, edge_time: Ints, time: Ints) -> NDArray[np.float32]:
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
    hashed = _hash(neighbor)
    column = (hashed >> np.uint64(1)) % np.uint64(FEATURES - 1)
    sign = np.where(hashed & np.uint64(1), 1.0, -1.0)
    features = np.zeros((len(time), FEATURES))
    np.add.at(features, (owner, column.astype(np.int64)), sign)
    features /= np.sqrt(np.maximum(degree, 1))[:, None]
    features[:, -1] = np.log1p(degree)
    return features.astype(np.float32)


def _hash(numbers: Ints) -> NDArray[np.uint64]:
    """64 well mixed bits per number: the finalizer of splitmix64."""
    bits = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _steps(folder: Path) -> list[Ints]:
    """The edges of each step, `(E, 2)`, in order."""
    names = sorted(path.name for path in folder.iterdir())
    expected = [str(step) for step in range(len(names))]
    if not names or names != sorted(expected):
        raise ValueError(
            f"{folder} must hold one file per step, named 0, 1, 2, ..., got "
            f"{', '.join(names) or 'none'}"
        )
    return [_read(folder / step, 2) for step in expected]


def _read(path: Path, columns: int) -> Ints:
    """The numbers of a text file, `(R, columns)`; none is negative."""
    try:
        table = np.loadtxt(path, dtype=np.int64, ndmin=2)
    except ValueError as error:
        raise ValueError(f"{path} must hold integers between blanks: {error}") from error
    if table.shape[1] != columns or (table < 0).any():
        raise ValueError(
            f"{path} must hold {columns} integers of at least 0 per line, got {table.shape[1]} "
            f"per line, the smallest {table.min()}"
        )
    return table

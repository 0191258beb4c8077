"""The Planetoid files of Cora, Citeseer and Pubmed, read without trusting their pickles."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from evergraph.graph.dataset import Dataset, sparse_rows
from evergraph.graph.graph import Graph
from evergraph.graph.rows import SparseRows

T = TypeVar("T")

_HELD_OUT = 500  # nodes between the first training nodes and the rest


class _Csr:
    """What a pickled scipy matrix is turned into: a bare holder of its arrays."""

    data: NDArray[np.floating]
    indices: NDArray[np.integer]
    indptr: NDArray[np.integer]
    _shape: tuple[int, int]

    @property
    def rows(self) -> NDArray[np.integer]:
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))


def _dtype(code: str, *_flags: object) -> np.dtype[Any]:
    """A number type; the flags of old pickles say only how numpy is to copy it."""
    kind = np.dtype(code)
    if kind.hasobject:
        raise pickle.UnpicklingError(f"arrays must hold numbers, got type {code}")
    return kind


def _encode(text: str, encoding: str) -> bytes:
    """How a protocol-2 pickle spells bytes."""
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"bytes must be spelled in latin1, got {encoding}")
    return text.encode("latin1")


_reconstruct = np.zeros(0).__reduce__()[0]  # public way to numpy's own array constructor

_ADMITTED: Mapping[tuple[str, str], object] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("scipy.sparse.csr", "csr_matrix"): _Csr,
    ("scipy.sparse._csr", "csr_matrix"): _Csr,
    ("collections", "defaultdict"): defaultdict,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle.Unpickler):
    """Builds arrays, matrices and dictionaries of lists, and refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"only arrays, matrices and dictionaries are admitted, got {module}.{name}"
            ) from None


def _path(folder: Path, name: str, part: str) -> Path:
    return folder / f"ind.{name.removesuffix('-planetoid')}.{part}"


def _read(folder: Path, name: str, part: str, kind: type[T]) -> T:
    path = _path(folder, name, part)
    try:
        with path.open("rb") as file:
            content = _Unpickler(file, encoding="latin1").load()
        if not isinstance(content, kind):
            raise TypeError(f"expected {kind.__name__.strip('_')}, got {type(content).__name__}")
        return content
    except FileNotFoundError:
        raise
    except Exception as error:  # a broken pickle may raise anything
        raise ValueError(
            f"{path} is not a Planetoid file: {error}; fetch it again from a source you trust"
        ) from error


def read_planetoid(
    folder: Path, name: str, split: Literal["paper", "planetoid"] = "paper"
) -> Dataset:
    """Read `ind.<name without "-planetoid">.{x,tx,allx,y,ty,ally,graph,test.index}`.

    The nodes of `allx` come first, those of `tx` stand where `test.index` says. Citeseer's
    test.index has gaps: these isolated nodes get zero features and the label -1. Edges are listed
    in both directions; the graph is undirected.

    Args:
        folder: where the files are.
        name: `cora-planetoid`, `citeseer` or `pubmed`.
        split: `paper` trains on the first len(y) nodes and those of test.index and tests on the
            500 between; `planetoid` is the public one, which trains on the first only and tests
            on test.index.
    """
    if split not in ("paper", "planetoid"):
        raise ValueError(f"split must be 'paper' or 'planetoid', got {split!r}")
    index = _path(folder, name, "test.index")
    try:
        tested = np.array([int(text) for text in index.read_text().split()], dtype=np.int64)
    except ValueError as error:
        raise ValueError(f"{index} must hold one node number per line: {error}") from error
    features, labels = _read_nodes(folder, name, tested)
    neighbors: dict[int, list[int]] = _read(folder, name, "graph", dict)
    edges = [(source, target) for source, targets in neighbors.items() for target in targets]
    graph = Graph(
        features,
        edges=torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T.contiguous(),
        labels=torch.from_numpy(labels),
        name=name,
    )
    num_first = len(_read(folder, name, "y", np.ndarray))
    train, test = torch.arange(num_first), torch.from_numpy(np.sort(tested))
    if split == "paper":
        train, test = torch.cat([train, test]), torch.arange(num_first, num_first + _HELD_OUT)
    return Dataset(graph, train, test, name, str(folder))


def _read_nodes(
    folder: Path, name: str, tested: NDArray[np.int64]
) -> tuple[SparseRows, NDArray[np.int64]]:
    known, held_out = (_read(folder, name, part, _Csr) for part in ("allx", "tx"))
    one_hot = [_read(folder, name, part, np.ndarray) for part in ("ally", "ty")]
    sizes = [matrix._shape[0] for matrix in (known, held_out)]
    if sizes != [len(part) for part in one_hot] or sizes[1] != len(tested):
        raise ValueError(
            f"the files of {name} in {folder} must fit together, but allx, tx have {sizes} rows, "
            f"ally, ty have {[len(part) for part in one_hot]} and test.index {len(tested)}"
        )
    num_nodes = max(sizes[0], int(tested.max(initial=-1)) + 1)
    features = sparse_rows(
        np.concatenate([known.rows, tested[held_out.rows]]),
        np.concatenate([known.indices, held_out.indices]),
        np.concatenate([known.data, held_out.data]),
        (num_nodes, known._shape[1]),
    )
    labels = np.full(num_nodes, -1, dtype=np.int64)
    for where, part in ((np.arange(sizes[0]), one_hot[0]), (tested, one_hot[1])):
        labels[where] = np.where(part.any(1), part.argmax(1), -1)
    return features, labels

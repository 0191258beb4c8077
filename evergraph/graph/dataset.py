"""A graph with its split into training and test nodes, and how to make one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import sparse
from torch import Tensor

from evergraph.checks import LABEL_LIMIT
from evergraph.graph.graph import Graph, check_nodes
from evergraph.graph.rows import SparseRows


@dataclass(frozen=True, eq=False)
class Dataset:
    """A graph and which of its nodes are for training and for testing.

    Attributes:
        graph: the whole graph.
        train: int64 node numbers.
        test: int64 node numbers; none of them is in `train`.
        name: what the data set is called.
        origin: where it came from.
        generated: whether it was made by a generator and not measured in the world.

    Example:
        >>> graph = Graph(torch.eye(4), torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 1, 0, 1]))
        >>> Dataset(graph, torch.tensor([0, 1]), torch.tensor([2]), name="my graph", origin="")
        Dataset('my graph', 4 nodes, 2 to train, 1 to test)
    """

    graph: Graph
    train: Tensor
    test: Tensor
    name: str
    origin: str
    generated: bool = False

    def __repr__(self) -> str:
        return (
            f"Dataset({self.name!r}, {self.graph.num_nodes:,} nodes, {len(self.train):,} to "
            f"train, {len(self.test):,} to test)"
        )

    def __post_init__(self) -> None:
        """Reject splits that leave the graph, repeat a node, overlap or lack labels."""
        for part, nodes in (("train", self.train), ("test", self.test)):
            check_nodes(part, nodes, self.graph.num_nodes)
            repeated = (torch.bincount(nodes) > 1).nonzero()
            if len(repeated):
                raise ValueError(
                    f"{part} must hold a node once, but repeats node {int(repeated[0])}"
                )
            labels = self.graph.labels
            unknown = nodes if labels is None else nodes[labels[nodes] < 0]
            if len(unknown):
                raise ValueError(
                    f"{part} needs nodes with a label, but node {int(unknown[0])} has none"
                )
        both = self.train[torch.isin(self.train, self.test)]
        if len(both):
            raise ValueError(f"train and test must not overlap, but both hold node {int(both[0])}")


def split_by_class(
    labels: Tensor | None, *, train: float = 0.6, test: float = 0.2, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Draw training and test nodes class by class, so that every class is in both.

    Of a class of n nodes, `train * n` and `test * n` (rounded, at least one each where n allows)
    are drawn; the rest is left over for choices. Nodes without a label are in neither part, and
    both parts are empty if there are no labels at all.

    Returns:
        Two sorted int64 tensors of node numbers.

    Example:
        >>> train, test = split_by_class(torch.tensor([0] * 10 + [1] * 5 + [-1]))
        >>> len(train), len(test)
        (9, 3)
    """
    if not 0 < train <= 1 or not 0 <= test <= 1 or train + test > 1:
        raise ValueError(f"train and test are shares that add up to at most 1, got {train}, {test}")
    values = np.empty(0, dtype=np.int64) if labels is None else labels.cpu().numpy()
    order = np.random.default_rng(seed).permutation(len(values))
    order = order[np.argsort(values[order], kind="stable")]
    order = order[values[order] >= 0]
    # Classes by their rank, so that a class number of any size costs nothing.
    _, of_class, counts = np.unique(values[order], return_inverse=True, return_counts=True)
    rank = np.arange(len(order)) - (np.cumsum(counts) - counts)[of_class]
    num_train = np.maximum(np.rint(train * counts).astype(np.int64), 1)[of_class]
    num_test = np.maximum(np.rint(test * counts).astype(np.int64), int(test > 0))[of_class]
    chosen = np.sort(order[rank < num_train])
    held_out = np.sort(order[(rank >= num_train) & (rank < num_train + num_test)])
    return torch.from_numpy(chosen), torch.from_numpy(held_out)


def split_by_name(
    parts: Sequence[object], where: Callable[[int], str] = "row {}".format
) -> tuple[Tensor, Tensor]:
    """The nodes marked "train" and those marked "test", as node numbers.

    Others are marked "val" or "valid", or not at all: None or empty.

    Example:
        >>> split_by_name(["train", "test", None, "train"])
        (tensor([0, 3]), tensor([1]))
    """
    nodes: dict[str, list[int]] = {part: [] for part in ("train", "test", "val", "valid", "")}
    for node, part in enumerate(parts):
        name = "" if part is None else str(part).strip()
        if name not in nodes:
            raise ValueError(
                f"{where(node)}: split must be train, test, val or empty, got {part!r}"
            )
        nodes[name].append(node)
    return torch.tensor(nodes["train"]).long(), torch.tensor(nodes["test"]).long()


def encode_labels(
    values: Sequence[object], where: Callable[[int], str] = "row {}".format
) -> tuple[Tensor, tuple[str, ...]]:
    """Number the classes: integers stay as they are, names are numbered in sorted order.

    None and the empty string mean that the label is unknown; `where` tells in an error which value
    is wrong.

    Returns:
        `(N,)` int64 labels, -1 where unknown, and the class names (none for integers).

    Example:
        >>> encode_labels(["theory", "genetics", "", "theory"])
        (tensor([ 1,  0, -1,  1]), ('genetics', 'theory'))
        >>> encode_labels(["3", "0", None])
        (tensor([ 3,  0, -1]), ())
    """
    texts = ["" if value is None else _text(value) for value in values]
    known = sorted(set(texts) - {""})
    if all(text.removeprefix("-").isdecimal() for text in known):
        numbers = [int(text or -1) for text in texts]
        for row, given in enumerate(numbers):
            if not -1 <= given < LABEL_LIMIT:
                raise ValueError(
                    f"{where(row)}: label must be a name, or an integer from 0 to below 2^31 (-1 "
                    f"or empty if unknown), got {given}; make it a name, such as 'c{given}'"
                )
        return torch.tensor(numbers, dtype=torch.int64), ()
    number = {text: index for index, text in enumerate(known)} | {"": -1}
    return torch.tensor([number[text] for text in texts], dtype=torch.int64), tuple(known)


def sparse_rows(
    row: ArrayLike, column: ArrayLike, value: ArrayLike, shape: tuple[int, int]
) -> SparseRows:
    """Sparse rows from the coordinates of their nonzeros; repeats add up, zeros are dropped.

    Args:
        row: `(nnz,)` integers, in any order.
        column: `(nnz,)` integers.
        value: `(nnz,)`, or one number for all.
        shape: R and F.

    Example:
        >>> sparse_rows([1, 0, 1], [2, 0, 2], 1.0, (2, 3)).to_dense()
        tensor([[1., 0., 0.],
                [0., 0., 2.]])
    """
    rows = np.asarray(row, dtype=np.int64)
    values = np.broadcast_to(np.asarray(value, dtype=np.float32), rows.shape)
    columns = np.asarray(column, dtype=np.int64)
    matrix = sparse.coo_array((values, (rows, columns)), shape=shape).tocsr()
    matrix.eliminate_zeros()
    return SparseRows(
        torch.from_numpy(matrix.indptr.astype(np.int64)),
        torch.from_numpy(matrix.indices.astype(np.int64)),
        torch.from_numpy(matrix.data),
        shape[1],
    )


def _text(value: object) -> str:
    if isinstance(value, float | np.floating):
        if np.isnan(value):
            return ""
        if float(value).is_integer():  # a column of integers with gaps is often stored so
            return str(int(value))
    return str(value).strip()

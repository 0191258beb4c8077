"""Mini-batches of self-contained items (Eq. 1): features, neighbors, target, task descriptor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from evergraph.graph.neighbors import Features, Linked, Neighbors
from evergraph.graph.rows import SparseRows, runs

SPARSE = ("indptr", "indices", "values", "num_features")  # how sparse rows are saved


@dataclass(frozen=True)
class Batch:
    """Items `(x, N(x), t, z)` of Eq. (1), packed; an item is a batch of one.

    An item is a node, or a few nodes that are judged together: the sensors of a body, the two
    ends of an edge.

    Attributes:
        x: `(B, C, F)`, or `(B, S, C, F)` for items of S nodes; or sparse rows, S for each item.
        neighbors: of all items; owners count the nodes of all items in a row. Or links between
            the items of the batch, which are packed when items are selected.
        target: `(B,)` int64 labels, -1 where unknown; or `(B, D)` numbers of a regression, NaN
            where unknown.
        task: `(B,)` int64 task descriptors; -1 where there is none.
        node: `(B,)` int64 identifiers of the items; -1 where there are none.

    Example:
        >>> x = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])  # two items, one channel, two features
        >>> around = Neighbors(torch.tensor([[[1.0, 1.0]]]), owner=torch.tensor([0]))
        >>> none = torch.tensor([-1, -1])
        >>> batch = Batch(x, around, target=torch.tensor([3, 7]), task=none, node=none)
        >>> batch
        Batch(2 items of 1 x 2 features, 1 neighbors)
        >>> [len(item.neighbors) for item in batch]
        [1, 0]
    """

    x: Features
    neighbors: Neighbors | Linked
    target: Tensor
    task: Tensor
    node: Tensor

    def __post_init__(self) -> None:
        """Reject parts of other lengths."""
        size, rows = len(self.target), len(self.x)
        fits = rows == size or (isinstance(self.x, SparseRows) and size and rows % size == 0)
        if not fits:
            raise ValueError(f"target must have one row for each of {rows} items, got {size}")
        for name in ("task", "node"):
            part: Tensor = getattr(self, name)
            if part.shape != (size,) or part.dtype != torch.int64:
                raise ValueError(
                    f"{name} must be int64 of shape ({size},) for {size} items, got {part.dtype} "
                    f"of shape {tuple(part.shape)}"
                )

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.width))
        return f"Batch({len(self)} items of {shape} features, {len(self.neighbors)} neighbors)"

    def __len__(self) -> int:
        return self.target.shape[0]

    def __iter__(self) -> Iterator[Batch]:
        return (self.select(torch.tensor([i])) for i in range(len(self)))

    @property
    def versions(self) -> list[object]:
        """Which tensors the items have, and how often each has been changed, as torch counts it.

        Nobody counts it for tensors of inference mode: they never equal themselves.
        """
        tensors: list[Tensor] = []
        for part in (self.x, *vars(self.neighbors).values()):
            if isinstance(part, SparseRows):
                tensors += part.indptr, part.indices, part.values
            elif part is not None:
                tensors.append(part)
        return [object() if t.is_inference() else (id(t), t._version) for t in tensors]

    @property
    def width(self) -> tuple[int, ...]:
        """The shape of one item's features, `(*, C, F)`."""
        if isinstance(self.x, SparseRows):
            nodes = self.nodes_per_item
            return (*((nodes,) if nodes > 1 else ()), 1, self.x.num_features)
        return tuple(self.x.shape[1:])

    @property
    def nodes_per_item(self) -> int:
        """S, how many nodes an item has."""
        if isinstance(self.x, SparseRows):
            return len(self.x) // len(self) if len(self) else 1
        return self.x.shape[1:-2].numel()

    @property
    def nbytes(self) -> int:
        """How many bytes all arrays take."""
        return sum(tensor.nbytes for tensor in self.tensors().values())

    def select(self, index: Tensor) -> Batch:
        """The items at these positions, in this order."""
        parts = (self.target[index], self.task[index], self.node[index])
        if isinstance(self.neighbors, Linked):
            assert isinstance(self.x, Tensor)
            return Batch(self.x[index], self.neighbors.packed(self.x, index), *parts)
        per, owner = self.nodes_per_item, self.neighbors.owner
        counts = torch.bincount(owner // per, minlength=len(self))
        where = runs((counts.cumsum(0) - counts)[index], counts[index])
        new = torch.repeat_interleave(counts[index])
        n = self.neighbors
        neighbors = Neighbors(
            n.features[where],
            new * per + owner[where] % per,
            None if n.hop is None else n.hop[where],
            None if n.weight is None else n.weight[where],
        )
        rows = index
        if per > 1 and isinstance(self.x, SparseRows):
            rows = (index.unsqueeze(-1) * per + torch.arange(per)).flatten()
        return Batch(self.x[rows], neighbors, *parts)

    def to(self, device: torch.device | str) -> Batch:
        """The same items on another device."""
        held: dict[str, Any] = {
            name: None if value is None else value.to(device)
            for name, value in vars(self.neighbors).items()
        }
        parts = (part.to(device) for part in (self.target, self.task, self.node))
        return Batch(self.x.to(device), replace(self.neighbors, **held), *parts)

    def compact(self) -> Batch:
        """The same items to store: sparse rows with int32 indices, nothing else in memory."""
        if isinstance(self.neighbors, Linked):
            return self.select(torch.arange(len(self)))
        x, y = self.x, self.neighbors.features
        if isinstance(x, SparseRows) and isinstance(y, SparseRows):
            small = self.neighbors.with_features(y.with_index_type(torch.int32))
            return replace(self, x=x.with_index_type(torch.int32), neighbors=small)
        return self

    def tensors(self) -> dict[str, Tensor]:
        """All arrays by name, to save them."""
        if isinstance(self.neighbors, Linked):
            return self.compact().tensors()
        out = {"target": self.target, "task": self.task, "node": self.node}
        for name in ("owner", "hop", "weight"):
            part = getattr(self.neighbors, name)
            if part is not None:
                out[name] = part
        for name, features in (("x", self.x), ("y", self.neighbors.features)):
            if isinstance(features, Tensor):
                out[name] = features
            else:
                out |= {f"{name}.{k}": torch.as_tensor(v) for k, v in vars(features).items()}
        return out

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Batch:
        """The opposite of `tensors`."""

        def features(name: str) -> Features:
            if name in tensors:
                return tensors[name]
            indptr, indices, values, width = (tensors[f"{name}.{k}"] for k in SPARSE)
            return SparseRows(indptr, indices, values, int(width))

        edges = (tensors["owner"], tensors.get("hop"), tensors.get("weight"))
        parts = (tensors["target"], tensors["task"], tensors["node"])
        return cls(features("x"), Neighbors(features("y"), *edges), *parts)


def concatenate(batches: Sequence[Batch]) -> Batch:
    """All items of several batches in one."""
    if not batches:
        raise ValueError("expected at least one batch to concatenate, got none")
    target, task, node = (
        torch.cat([getattr(b, name) for b in batches]) for name in ("target", "task", "node")
    )
    x = _join([b.x for b in batches])
    return Batch(x, _join_neighbors(batches), target, task, node)


def _join_neighbors(batches: Sequence[Batch]) -> Neighbors | Linked:
    size = torch.tensor([len(b) for b in batches])
    linked = [b.neighbors for b in batches if isinstance(b.neighbors, Linked)]
    if len(linked) == len(batches):
        shift = (size.cumsum(0) - size).tolist()
        index = torch.cat([n.index + s for n, s in zip(linked, shift, strict=True)])
        return Linked(index, torch.cat([n.weight for n in linked]))
    if linked:
        return _join_neighbors([b.compact() for b in batches])
    packed = [b.neighbors for b in batches if isinstance(b.neighbors, Neighbors)]
    rows = size * batches[0].nodes_per_item
    around = [len(n) for n in packed]
    moved = torch.repeat_interleave(rows.cumsum(0) - rows, torch.tensor(around))
    owner = torch.cat([n.owner for n in packed])
    return Neighbors(
        _join([n.features for n in packed]),
        owner + moved.to(owner.device),
        _join_optional([n.hop for n in packed], around),
        _join_optional([n.weight for n in packed], around),
    )


def _join(parts: Sequence[Features]) -> Features:
    sparse = [part for part in parts if isinstance(part, SparseRows)]
    if sparse:
        return SparseRows.concatenate(sparse)
    return torch.cat([part for part in parts if isinstance(part, Tensor)])


def _join_optional(parts: Sequence[Tensor | None], lengths: Sequence[int]) -> Tensor | None:
    """All parts in one; those that are not given stand for ones, as `Neighbors` says."""
    given = next((part for part in parts if part is not None), None)
    if given is None:
        return None
    shape = given.shape[1:]
    filled = zip(parts, lengths, strict=True)
    return torch.cat([given.new_ones(n, *shape) if part is None else part for part, n in filled])

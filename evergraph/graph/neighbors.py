"""The neighbors of a mini-batch, packed: one feature tensor and the index of each owner."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from evergraph.checks import find_non_finite
from evergraph.graph.rows import SparseRows

Features = Tensor | SparseRows


def as_dense(features: Features) -> Tensor:
    """`(N, C, F)`: sparse rows with their zeros and one channel, or the features as they are."""
    return features.to_dense().unsqueeze(1) if isinstance(features, SparseRows) else features


@dataclass(frozen=True)
class Neighbors:
    """The neighbors of all items of a batch, one after the other.

    A varying number of neighbors needs no padding and no loop; an item without neighbors simply
    owns none.

    Attributes:
        features: `(N, C, F)`, or N sparse rows (one channel).
        owner: `(N,)` int64, the item that each neighbor belongs to.
        hop: `(N,)` int64 from 1 to K; None means that all are at hop 1.
        weight: edge weights, scalar `(N,)` or vector `(N, W)`; None means 1.

    Example:
        >>> y = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]], [[2.0, 2.0]]])
        >>> len(Neighbors(y, owner=torch.tensor([0, 0, 1])))
        3
    """

    features: Features
    owner: Tensor
    hop: Tensor | None = None
    weight: Tensor | None = None

    def __post_init__(self) -> None:
        """Reject arrays of other lengths and bring the neighbors in the order of their owners."""
        if isinstance(self.features, Tensor) and self.features.dim() != 3:
            raise ValueError(
                "neighbor features must have shape (N, C, F), got "
                f"{tuple(self.features.shape)}; add a channel axis with unsqueeze(1)"
            )
        count = len(self.features)
        for name, axes in (("owner", (1,)), ("hop", (1,)), ("weight", (1, 2))):
            part: Tensor | None = getattr(self, name)
            if part is not None and (part.dim() not in axes or part.shape[0] != count):
                shape = "(N,) or (N, W)" if name == "weight" else "(N,)"
                raise ValueError(
                    f"{name} must have shape {shape} with N = {count} neighbors, "
                    f"got {tuple(part.shape)}"
                )
        if count > 1 and bool((self.owner[1:] < self.owner[:-1]).any()):
            if isinstance(self.features, SparseRows):
                self.features.check()
            order = torch.argsort(self.owner, stable=True)
            for name in ("features", "owner", "hop", "weight"):
                part = getattr(self, name)
                if part is not None:
                    object.__setattr__(self, name, part[order])

    def __len__(self) -> int:
        return self.owner.shape[0]

    @property
    def edge_components(self) -> int:
        """W, the number of components of an edge weight."""
        return 1 if self.weight is None or self.weight.dim() == 1 else self.weight.shape[1]

    def with_features(self, features: Features) -> Neighbors:
        """The same neighbors with other features, such as those of the next layer."""
        return self if features is self.features else replace(self, features=features)

    def with_weight(self, weight: Tensor) -> Neighbors:
        """The same neighbors with other edge weights, such as those of an attention."""
        return replace(self, weight=weight)

    def slots(self, hops: int) -> Tensor:
        """The pair (item, hop) of each neighbor as one number, `owner * K + hop - 1`."""
        first = self.owner if hops == 1 else self.owner * hops
        return first if self.hop is None else first + self.hop - 1


@dataclass(frozen=True)
class Linked:
    """Neighbors that are other items of the same batch, K each: a whole graph in one batch.

    Attributes:
        index: `(B, K)` int64 rows of the batch.
        weight: `(B, K)`; 0 where an item has fewer neighbors.
    """

    index: Tensor
    weight: Tensor

    def __len__(self) -> int:
        return self.index.numel()

    edge_components = 1

    def packed(self, x: Tensor, rows: Tensor) -> Neighbors:
        """The neighbors of some items with their features: self-contained."""
        owner = torch.arange(len(rows)).repeat_interleave(self.index.shape[1])
        features = x[self.index[rows].flatten()]
        return Neighbors(features, owner, weight=self.weight[rows].flatten())


def versions(x: Features, neighbors: Neighbors | Linked) -> list[object]:
    """Which tensors items have, and how often each has been changed, as torch counts it.

    Nobody counts it for tensors of inference mode: they never equal themselves.
    """
    tensors: list[Tensor] = []
    for part in (x, *vars(neighbors).values()):
        if isinstance(part, SparseRows):
            tensors += part.indptr, part.indices, part.values
        elif isinstance(part, Tensor):
            tensors.append(part)
    return [object() if t.is_inference() else (id(t), t._version) for t in tensors]


def check_items(x: Features, neighbors: Neighbors | Linked, hops: int) -> None:
    """Raise a ValueError that names the rule and the item if a batch cannot be used."""
    if isinstance(x, Tensor) and x.dim() < 2:
        raise ValueError(f"x must have shape (*, C, F), got {tuple(x.shape)}")
    _check_features(x)
    if isinstance(neighbors, Linked):
        _check_links(x, neighbors)
        _check_finite(x, "item {row}")
        return
    _check_features(neighbors.features)
    for name in ("owner", "hop"):
        part: Tensor | None = getattr(neighbors, name)
        if part is not None and part.dtype != torch.int64:
            raise ValueError(f"{name} must be int64, got {part.dtype}; convert it with .long()")
    if neighbors.weight is not None and neighbors.weight.is_complex():
        raise ValueError(f"edge weights must be real, got {neighbors.weight.dtype}")
    _check_widths(x, neighbors.features)
    items = len(x) if isinstance(x, SparseRows) else math.prod(x.shape[:-2])
    if len(neighbors):
        low, high = int(neighbors.owner[0]), int(neighbors.owner[-1])  # sorted
        if low < 0 or high >= items:
            raise ValueError(
                f"owner must lie in 0..{items - 1} for {items} items, got {low}..{high}"
            )
    if neighbors.hop is not None and len(neighbors):
        low, high = (int(t) for t in neighbors.hop.aminmax())
        if low < 1 or high > hops:
            raise ValueError(f"hop must lie in 1..{hops}, got {low}..{high}; set hops={high}")
    _check_finite(x, "item {row}")
    _check_finite(neighbors.features, "neighbor {row} of item {owner}", neighbors.owner)
    place = None if neighbors.weight is None else find_non_finite(neighbors.weight)
    if neighbors.weight is not None and place is not None:
        row = place[0]
        raise ValueError(
            f"edge weights must be finite, got {neighbors.weight[row].tolist()} for "
            f"neighbor {row} of item {int(neighbors.owner[row])}"
        )


def _check_features(features: Features) -> None:
    values = features.values if isinstance(features, SparseRows) else features
    if not values.is_floating_point():
        raise ValueError(
            f"features must be floating point, got {values.dtype}; convert them with .float()"
        )
    if isinstance(features, SparseRows):
        features.check()


def _check_links(x: Features, links: Linked) -> None:
    if isinstance(x, SparseRows):
        raise ValueError("items that are linked must have dense features, got sparse rows")
    index = links.index
    if index.dtype != torch.int64 or index.dim() != 2 or links.weight.shape != index.shape:
        raise ValueError(
            "links must be an int64 index (B, K) with weights of the same shape, got "
            f"{index.dtype} {tuple(index.shape)} and {tuple(links.weight.shape)}"
        )
    low, high = (int(end) for end in index.aminmax()) if index.numel() else (0, -1)
    if len(index) != len(x) or low < 0 or high >= len(x):
        raise ValueError(
            f"links of {len(x)} items must have as many rows and lie in 0..{len(x) - 1}, got "
            f"{len(index)} rows with {low}..{high}"
        )


def _check_widths(x: Features, y: Features) -> None:
    if isinstance(x, SparseRows) != isinstance(y, SparseRows):
        raise ValueError("x and the neighbors must both be dense or both be sparse rows")
    if isinstance(x, SparseRows) and isinstance(y, SparseRows):
        if x.num_features != y.num_features:
            raise ValueError(
                f"neighbors must have the {x.num_features} features of x, got {y.num_features}"
            )
    elif isinstance(x, Tensor) and isinstance(y, Tensor) and x.shape[-2:] != y.shape[1:]:
        raise ValueError(
            f"neighbors must have shape (N, {x.shape[-2]}, {x.shape[-1]}) to go with x of shape "
            f"{tuple(x.shape)}, got {tuple(y.shape)}"
        )


def _check_finite(features: Features, who: str, owner: Tensor | None = None) -> None:
    values = features.values if isinstance(features, SparseRows) else features
    place = find_non_finite(values)
    if place is None:
        return
    if isinstance(features, SparseRows):
        row, feature = int(features.rows[place]), int(features.indices[place])
    else:
        rows = torch.arange(values.shape[:-2].numel()).view(values.shape[:-2])
        row, feature = int(rows[place[:-2]]), place[-1]
    name = who.format(row=row, owner=None if owner is None else int(owner[row]))
    value = float(values[place])
    raise ValueError(f"features must be finite, got {value} at feature {feature} of {name}")

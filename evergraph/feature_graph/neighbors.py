"""Neighbors of a whole batch, packed: one tensor and an index of their owners."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from evergraph.graph.rows import SparseRows

Features = Tensor | SparseRows


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
        >>> neighbors = Neighbors(y, owner=torch.tensor([0, 0, 1]))
        >>> neighborhood_mean(neighbors, num_items=2)[:, 0, 0]
        tensor([[0.5000, 0.5000],
                [2.0000, 2.0000]])
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
            self._sort()

    def _sort(self) -> None:
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

    def coefficients(self, num_items: int, hops: int, dtype: torch.dtype) -> Tensor:
        """`w / |N_k|` of Eq. (5) for every neighbor and edge component, `(N, W)`."""
        slots = self.slots(hops)
        share = torch.bincount(slots, minlength=num_items * hops).to(dtype).reciprocal()[slots]
        if self.weight is None:
            return share.unsqueeze(-1)
        weight = self.weight.to(dtype)
        return share.unsqueeze(-1) * (weight.unsqueeze(-1) if weight.dim() == 1 else weight)


def neighborhood_mean(neighbors: Neighbors, num_items: int, hops: int = 1) -> Tensor:
    """The weighted mean of an item's neighbors, per hop and edge component, Eq. (5).

    `m[k, w] = Σ_{y in N_k} w_{xy} y / |N_k|`. Since `Σ_y w x yᵀ = x mᵀ`, the mean says all that
    the adjacency needs to know: O(nF) in place of O(nF²). An empty neighborhood has mean 0.

    Returns:
        `(num_items, K * W, C, F)`, hop by hop.
    """
    features = neighbors.features
    if isinstance(features, SparseRows):
        features = features.to_dense().unsqueeze(1)
    scale = neighbors.coefficients(num_items, hops, features.dtype)
    terms = torch.einsum("nw,ncf->nwcf", scale, features)
    out = terms.new_zeros(num_items * hops, *terms.shape[1:])
    out = out.index_add(0, neighbors.slots(hops), terms)
    return out.view(num_items, hops * neighbors.edge_components, *features.shape[1:])


def condense(neighbors: Neighbors, num_items: int, hops: int = 1) -> Neighbors:
    """Replace all neighbors of an item by one per plane that stands for them without loss.

    For fixed weights the pair (x, m) gives the same feature graph as x and its whole
    neighborhood, however large that is. Vector weights become one neighbor per component.

    Example:
        >>> y = torch.rand(500, 1, 8)
        >>> all_of_them = Neighbors(y, owner=torch.zeros(500, dtype=torch.long))
        >>> len(condense(all_of_them, num_items=1))
        1
    """
    slots = neighbors.slots(hops)
    if neighbors.weight is None and torch.equal(slots, torch.arange(num_items * hops).to(slots)):
        return neighbors  # one per plane already
    components = neighbors.edge_components
    planes = hops * components
    features = neighbors.features
    if isinstance(features, SparseRows):
        scale = neighbors.coefficients(num_items, hops, features.values.dtype)
        component = torch.arange(components, device=scale.device)
        group = slots.unsqueeze(-1) * components + component
        repeated = features[torch.arange(len(features)).repeat_interleave(components)]
        mean: Features = repeated.pool(group.flatten(), num_items * planes, scale.flatten())
        dtype = features.values.dtype
    else:
        mean = neighborhood_mean(neighbors, num_items, hops).flatten(0, 1)
        dtype = mean.dtype
    device = neighbors.owner.device
    plane = torch.arange(planes, device=device).repeat(num_items)
    weight = None
    if components > 1:  # W one-hot neighbors share a hop, whose mean divides by W
        weight = components * torch.eye(components, dtype=dtype, device=device)
        weight = weight[plane % components]
    owner = torch.arange(num_items, device=device).repeat_interleave(planes)
    return Neighbors(mean, owner, hop=plane // components + 1, weight=weight)

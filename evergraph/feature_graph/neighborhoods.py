"""Neighborhood aggregation: the mean of Eq. (5) in three layouts.

`Packed` holds self-contained items with their neighbors' features. In `Places` and `Table` the
neighbors are nodes of the batch itself: fixed places of a sub-graph (sensors on a body, points of
an image), or rows of one large graph (candidate matches). All three score pairs, normalize
scores within a neighborhood and take means, so that layers need not know which one they get.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from evergraph.feature_graph.compiled import embedding as loops
from evergraph.feature_graph.compiled.fixed_point import scatter
from evergraph.feature_graph.equations import mean_coefficient
from evergraph.feature_graph.ops import numpy, supports
from evergraph.graph.graph import Graph, check_nodes
from evergraph.graph.hops import Neighborhood
from evergraph.graph.neighbors import Features, Linked, Neighbors, as_dense
from evergraph.graph.rows import SparseRows
from evergraph.stream.source import NeighborConfig, gathered

HARDLY_SPARSE = 4  # rows with one nonzero in so many numbers are added up with their zeros
LARGEST_COPY = 2**24  # numbers of a copy with zeros
Arrays = list[np.ndarray[Any, Any]]
TINY = 1e-3  # keeps the logarithm of a given weight finite


class Neighborhoods(Protocol):
    """What a layer asks of a layout. An *edge* is a pair of an item and one of its neighbors."""

    @property
    def weight(self) -> Tensor | None:
        """The given edge weights, or None if all are 1."""
        ...

    def pair(self, own: Tensor, around: Tensor) -> Tensor:
        """`own + around` for every edge, from one number per item and one per neighbor."""
        ...

    def softmax(self, score: Tensor) -> Tensor:
        """Softmax of scores over each hop of each neighborhood; given weights act as a prior."""
        ...

    def mean(self, features: Tensor, weight: Tensor | None, total: bool = False) -> Tensor:
        """Eq. (5), `(*, P, C, F)`: the weighted mean of the neighbors, or their weighted sum."""
        ...


@dataclass(frozen=True)
class Packed:
    """Neighbors of self-contained items, one after the other.

    Attributes:
        neighbors: of all items.
        num_items: B, or the nodes of all items.
        hops: K.
    """

    neighbors: Neighbors
    num_items: int
    hops: int

    @property
    def weight(self) -> Tensor | None:
        """The given edge weights, `(N,)` or `(N, W)`."""
        return self.neighbors.weight

    def pair(self, own: Tensor, around: Tensor) -> Tensor:
        """Map `(B,)` and `(N,)` to `(N,)`."""
        return own[self.neighbors.owner] + around

    def softmax(self, score: Tensor) -> Tensor:
        """Softmax of `(N,)` within the neighbors of the same item and hop; `(N, W)` of vectors."""
        if self.weight is not None:
            score = _along(score, self.weight) + prior(self.weight)
        group, groups = self.neighbors.slots(self.hops), self.num_items * self.hops
        top = score.new_full((groups, *score.shape[1:]), -math.inf)
        index = _along(group, score).expand_as(score)
        top = top.scatter_reduce(0, index, score.detach(), "amax")
        weight = (score - top[group]).exp()
        return weight / torch.zeros_like(top).index_add(0, group, weight)[group]

    def mean(self, features: Tensor, weight: Tensor | None, total: bool = False) -> Tensor:
        """`(B, K * W, C, F)` from the neighbors' features `(N, C, F)`."""
        neighbors = Neighbors(features, self.neighbors.owner, self.neighbors.hop, weight)
        mean = neighborhood_mean(neighbors, self.num_items, self.hops)
        if not total:
            return mean
        slots = neighbors.slots(self.hops)
        count = torch.bincount(slots, minlength=self.num_items * self.hops).to(mean.dtype)
        count = count.repeat_interleave(neighbors.edge_components)
        return mean * count.view(*mean.shape[:2], 1, 1)


@dataclass(frozen=True)
class Places:
    """Nodes of a sub-graph that neighbor each other in the same way in every item.

    Attributes:
        planes: `(P, S, S)` booleans, one plane per hop; row i holds the neighbors of node i.
    """

    planes: Tensor
    weight: Tensor | None = None

    @classmethod
    def complete(cls, nodes: int) -> Places:
        """All nodes neighbor each other and themselves."""
        return cls(torch.ones(1, nodes, nodes, dtype=torch.bool))

    def pair(self, own: Tensor, around: Tensor) -> Tensor:
        """Map `(B, S)` twice to `(B, 1, S, S)`."""
        return (own.unsqueeze(-1) + around.unsqueeze(-2)).unsqueeze(-3)

    def softmax(self, score: Tensor) -> Tensor:
        """Softmax of `(B, 1, S, S)` along each row of each plane, `(B, P, S, S)`."""
        weight = score.masked_fill(~self.planes, -math.inf).softmax(-1)
        return weight.masked_fill(~self.planes, 0)  # a node without neighbors has a row of NaN

    def mean(self, features: Tensor, weight: Tensor | None, total: bool = False) -> Tensor:
        """`(B, S, P, C, F)` from the nodes `(B, S, C, F)`."""
        weight = self.planes.to(features.dtype) if weight is None else weight
        if not total:
            count = self.planes.sum(-1, keepdim=True).clamp(min=1)
            weight = mean_coefficient(weight, count)
        if weight.dim() == 3:
            weight = weight.unsqueeze(0)
        out = weight.transpose(0, 1) @ features.flatten(2)  # plane by plane: one product each
        return out.view(len(self.planes), *features.shape).movedim(0, 2)


@dataclass(frozen=True)
class Table:
    """Nodes of one graph whose neighbors are other rows of the same features, K each.

    Attributes:
        links: index and weight, `(E, K)`.
    """

    links: Linked

    @property
    def weight(self) -> Tensor:
        """The given edge weights, `(E, K)`."""
        return self.links.weight

    def pair(self, own: Tensor, around: Tensor) -> Tensor:
        """Map `(E,)` twice to `(E, K)`."""
        index = self.links.index
        return around.index_select(0, index.flatten()).view_as(index).add_(own.unsqueeze(-1))

    def softmax(self, score: Tensor) -> Tensor:
        """Softmax of `(E, K)` along each row."""
        return (score + prior(self.weight)).softmax(-1)

    def mean(self, features: Tensor, weight: Tensor | None, total: bool = False) -> Tensor:
        """`(E, 1, C, F)` from the nodes `(E, C, F)`."""
        weight = self.weight if weight is None else weight
        if not total:
            weight = mean_coefficient(weight, self.links.index.shape[1])
        rows, width = self.links.index.shape
        first = torch.arange(0, rows * width, width, device=weight.device)
        flat, index = features.flatten(1), self.links.index.flatten()
        out = torch.embedding_bag(flat, index, first, per_sample_weights=weight.flatten())[0]
        return out.view(-1, 1, *features.shape[1:])


def prior(weight: Tensor) -> Tensor:
    """What given edge weights add to the scores of a softmax: their logarithm."""
    if bool((weight < 0).any()):
        raise ValueError(
            "edge weights must not be negative to be a prior of softmax attention, got "
            f"{float(weight.min()):g}; use attention='gate'"
        )
    return (weight + TINY).log()


def _along(values: Tensor, like: Tensor) -> Tensor:
    """`(N,)` with as many axes as another tensor of N rows."""
    return values.view(-1, *(1,) * (like.dim() - 1))


def coefficients(
    neighbors: Neighbors | Neighborhood, num_items: int, hops: int, dtype: torch.dtype
) -> Tensor:
    """`w / |N_k|` for every packed neighbor and edge component, `(N, W)`."""
    slots = neighbors.slots(hops)
    count = torch.bincount(slots, minlength=num_items * hops).to(dtype)[slots]
    weight = count.new_ones(1) if neighbors.weight is None else neighbors.weight.to(dtype)
    if weight.dim() == 1:
        weight = weight.unsqueeze(-1)
    return mean_coefficient(weight, count.unsqueeze(-1))


def neighborhood_mean(neighbors: Neighbors, num_items: int, hops: int = 1) -> Tensor:
    """The weighted mean of an item's packed neighbors, per hop and edge component, Eq. (5).

    `m[k, w] = Σ_{y in N_k} w_{xy} y / |N_k|`. Since `Σ_y w x yᵀ = x mᵀ`, the mean says all that
    the adjacency needs to know: O(nF) in place of O(nF²). An empty neighborhood has mean 0.

    Returns:
        `(num_items, K * W, C, F)`, hop by hop.

    Example:
        >>> y = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]], [[2.0, 2.0]]])
        >>> neighbors = Neighbors(y, owner=torch.tensor([0, 0, 1]))
        >>> neighborhood_mean(neighbors, num_items=2)[:, 0, 0]
        tensor([[0.5000, 0.5000],
                [2.0000, 2.0000]])
    """
    features = as_dense(neighbors.features)
    scale = coefficients(neighbors, num_items, hops, features.dtype)
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
    if isinstance(neighbors.features, SparseRows):
        every = torch.arange(len(neighbors), device=slots.device)
        mean: Features = _pooled(neighbors.features, every, neighbors, num_items, hops)
    else:
        mean = neighborhood_mean(neighbors, num_items, hops).flatten(0, 1)
    return _one_per_plane(mean, num_items, hops, neighbors.edge_components)


class Condenser:
    """The same for neighbors that are nodes of a graph; sparse rows of it are not copied.

    Rows that are hardly sparse are added up from a dense copy, which is kept: sums of whole rows
    take a fourth of the time. On it, a feature is there if its mean is not 0, so that rows must
    not hold negative numbers.

    Args:
        hops: K.
    """

    def __init__(self, hops: int = 1) -> None:
        self.hops = hops
        self._known: tuple[SparseRows, Tensor | None, Arrays] | None = None

    def __call__(self, features: Features, found: Neighborhood, num_items: int) -> Neighbors:
        """The neighbors of so many items: one per plane."""
        hops = self.hops
        if not isinstance(features, SparseRows):
            return condense(gathered(features, found, num_items), num_items, hops)
        dense, weight = self._dense(features), found.weight
        if dense is not None and (weight is None or bool((weight > 0).all())):
            given = numpy(dense, found.nodes, found.slots(hops), _weights(found, dense.dtype))
            mean = _rows(loops.pool_dense(*given, num_items * hops), features.num_features)
        else:
            mean = _pooled(features, found.nodes, found, num_items, hops)
        return _one_per_plane(mean, num_items, hops, found.edge_components)

    def items(
        self, graph: Graph, nodes: Tensor, config: NeighborConfig
    ) -> tuple[SparseRows, Neighbors] | None:
        """The rows of nodes and of the mean of their neighbors in one go, if all of these count.

        That is for sparse rows, the first hop and edges without weights.
        """
        features, plain = graph.features, graph.weight is None and not config.diffusion
        direct = isinstance(features, SparseRows) and plain and config.cap is None
        if not (direct and self.hops == config.hops == 1 and nodes.is_cpu):
            return None
        assert isinstance(features, SparseRows)
        usual = supports(features.values) and features.indices.dtype == torch.int64
        if not usual or features.values.requires_grad or self._dense(features) is not None:
            return None
        check_nodes("nodes", nodes, graph.num_nodes)
        assert self._known is not None
        edges, own = graph.adjacency, self._known[2]
        given = edges.start, edges.target, *numpy(nodes), int(config.self_loops), *own
        found = loops.items(*given, features.num_features)
        x, mean = (_rows(part, features.num_features) for part in (found[:3], found[3:]))
        return x, _one_per_plane(mean, len(nodes), 1, 1)

    def _dense(self, features: SparseRows) -> Tensor | None:
        """The dense copy of rows, if they have one."""
        if self._known is None or self._known[0] is not features:
            own = features.indptr, features.indices, features.values
            arrays = numpy(*own) if supports(*own[2:]) else []
            self._known = features, _dense_copy(features), arrays
        return self._known[1]


def _dense_copy(rows: SparseRows) -> Tensor | None:
    """Rows with their zeros if they are hardly sparse; None if another way is better."""
    size = len(rows) * rows.num_features
    hardly = size <= HARDLY_SPARSE * len(rows.indices) and size <= LARGEST_COPY
    if not (hardly and supports(rows.values)) or bool((rows.values <= 0).any()):
        return None
    out = torch.zeros(len(rows), rows.num_features, dtype=rows.values.dtype)
    scatter(*numpy(rows.indptr, rows.indices, rows.values, out))
    return out


def _weights(around: Neighbors | Neighborhood, dtype: torch.dtype) -> Tensor:
    """Edge weights `(N, W)` as the compiled loops take them: none if all are 1."""
    if around.weight is None:
        return torch.empty(0, 1, dtype=dtype)
    return around.weight.to(dtype).reshape(-1, around.edge_components)


def _rows(parts: tuple[Any, ...], num_features: int) -> SparseRows:
    indptr, indices, values = map(torch.from_numpy, parts)
    return SparseRows(indptr, indices, values, num_features)


def _one_per_plane(mean: Features, num_items: int, hops: int, components: int) -> Neighbors:
    """Means of the planes of all items, item by item, as neighbors."""
    planes = hops * components
    device = (mean.values if isinstance(mean, SparseRows) else mean).device
    if planes == 1:
        whose = torch.arange(num_items, device=device)
        return Neighbors(mean, whose, torch.ones_like(whose))
    owner, plane = np.divmod(np.arange(num_items * planes), planes)
    weight = None
    if components > 1:  # W one-hot neighbors share a hop, whose mean divides by W
        values = mean.values if isinstance(mean, SparseRows) else mean
        weight = components * torch.eye(components, dtype=values.dtype, device=device)
        weight = weight[torch.from_numpy(plane % components).to(device)]
    whose, hop = (torch.from_numpy(part).to(device) for part in (owner, plane // components + 1))
    return Neighbors(mean, whose, hop, weight)


def _pooled(
    rows: SparseRows, which: Tensor, around: Neighbors | Neighborhood, num_items: int, hops: int
) -> SparseRows:
    """The mean of every plane, where neighbor n has the features of row `which[n]`."""
    group, num_groups, components = around.slots(hops), num_items * hops, around.edge_components
    if supports(rows.values):
        weight = _weights(around, rows.values.dtype)
        parts = numpy(rows.indptr, rows.indices, rows.values, which, group, weight)
        return _rows(loops.pool(*parts, num_groups, rows.num_features), rows.num_features)
    scale = coefficients(around, num_items, hops, rows.values.dtype).expand(len(which), -1)
    component = torch.arange(components, device=scale.device)
    groups = (group.unsqueeze(-1) * components + component).flatten()
    repeated = rows[which.repeat_interleave(components)]
    return repeated.pool(groups, num_groups * components, scale.flatten())

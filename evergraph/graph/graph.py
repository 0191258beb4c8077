"""Graphs whose nodes carry features, labels and arrival times (Section 3 of the paper)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from evergraph.checks import check_positive, find_non_finite
from evergraph.graph.hops import Adjacency, Bools, Ints, Neighborhood, diffuse, smoothing, walk
from evergraph.graph.rows import SparseRows


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes, edges and what is known about them; checked once, never changed.

    The neighbors of node i are the targets of the edges whose source is i, such as the papers
    that i cites. In an undirected graph both directions count, and the list may hold an edge once
    or twice. Repeated edges count once (the first one's weight holds) and stored self loops are
    ignored: `neighborhood` adds one per node when asked.

    Attributes:
        features: `(N, F)` or `(N, C, F)` floating point, or N sparse rows.
        edges: `(2, E)` int64, sources above targets.
        labels: `(N,)` int64, -1 where unknown; None if the graph has none.
        weight: `(E,)` or `(E, W)` float32 or float64; None means 1.
        time: `(N,)`, when each node arrived; None if unknown.
        edge_time: `(E,)`, when each edge arrived; None if unknown.
        domain: `(N,)` int64, the part of the data each node comes from; None if there is one.
        directed: whether an edge counts from source to target only.
        class_names: the name of each label, or empty.
        name: what to call the graph in reports.

    Example:
        >>> graph = Graph(torch.eye(3), torch.tensor([[0, 1], [1, 2]]))
        >>> near = graph.neighborhood(torch.tensor([0]), hops=2)
        >>> near.nodes.tolist(), near.hop.tolist()
        ([0, 1, 2], [1, 1, 2])
    """

    features: Tensor | SparseRows
    edges: Tensor
    labels: Tensor | None = None
    weight: Tensor | None = None
    time: Tensor | None = None
    edge_time: Tensor | None = None
    domain: Tensor | None = None
    directed: bool = False
    class_names: tuple[str, ...] = ()
    name: str = "graph"

    def __post_init__(self) -> None:
        """Reject what is not a graph, naming the node or the edge at fault."""
        _check_features(self.features)
        _check_edges(self.edges, self.weight, self.num_nodes)
        _check_labels(self.labels, self.class_names, self.num_nodes)
        if self.time is not None:
            _check_shape("time", self.time, (self.num_nodes,))
            _check_finite("the time of node", self.time)
        if self.edge_time is not None:
            _check_shape("edge_time", self.edge_time, (self.edges.shape[1],))
            _check_finite("the time of edge", self.edge_time)
        if self.domain is not None:
            _check_shape("domain", self.domain, (self.num_nodes,))
            _check_int64("domain", self.domain)

    @property
    def num_nodes(self) -> int:
        """N, the number of nodes."""
        return len(self.features)

    @property
    def num_features(self) -> int:
        """F, the width of a node's features."""
        features = self.features
        return features.num_features if isinstance(features, SparseRows) else features.shape[-1]

    @property
    def num_classes(self) -> int:
        """One more than the largest label, or the number of class names."""
        largest = -1 if self.labels is None or not len(self.labels) else int(self.labels.max())
        return max(len(self.class_names), largest + 1)

    @property
    def num_edges(self) -> int:
        """How many distinct edges there are, self loops not counted."""
        entries = len(self.adjacency.target)
        return entries if self.directed else entries // 2

    @cached_property
    def adjacency(self) -> Adjacency:
        """Its distinct edges in compressed rows."""
        edges = self.edges.cpu().numpy().astype(np.int64, copy=False)
        return Adjacency.from_edges(edges, self.num_nodes, self.directed)

    def with_edges(self, keep: Tensor) -> Graph:
        """The same nodes with the edges of a bool mask `(E,)` only."""
        weight = None if self.weight is None else self.weight[keep]
        time = None if self.edge_time is None else self.edge_time[keep]
        return replace(self, edges=self.edges[:, keep], weight=weight, edge_time=time)

    def degrees(self) -> Tensor:
        """The number of distinct neighbors of each node, `(N,)`, itself not counted."""
        return torch.from_numpy(np.diff(self.adjacency.start)).to(self.edges.device)

    def neighborhood(
        self,
        nodes: Tensor,
        hops: int = 1,
        *,
        cap: int | None = None,
        self_loops: bool = True,
        arrival: Tensor | None = None,
        now: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Neighborhood:
        """All neighbors of a batch of nodes up to K hops, packed.

        A node counts once, at its shortest distance. Beyond the first hop a neighbor's weight is
        the product of the weights along the path (of several shortest paths the one through the
        lowest node numbers); it is None if the graph has no weights.

        Args:
            nodes: `(B,)` int64 node numbers, repeats allowed.
            hops: K, at least 1.
            cap: at most so many neighbors per node and hop, drawn with equal chances; the self
                loop is always kept and is one of them.
            self_loops: whether a node is its own neighbor at hop 1, with weight 1.
            arrival: `(N,)`, ranks or times; a node sees (and walks through) only those that came
                no later than itself, or than its `now`; infinity hides a node.
            now: `(B,)`, up to which arrival each node sees; its own arrival by default.
            generator: the randomness of `cap`.

        Example:
            >>> star = Graph(torch.eye(4), torch.tensor([[0, 0, 0], [1, 2, 3]]))
            >>> order = torch.tensor([2, 0, 1, 3])
            >>> star.neighborhood(torch.tensor([0]), arrival=order).nodes.tolist()
            [0, 1, 2]
        """
        check_positive(hops=hops)
        check_nodes("nodes", nodes, self.num_nodes)
        if cap is not None and cap < 1:
            raise ValueError(f"cap must be at least 1 (or None for no cap), got {cap}")
        if cap is not None and generator is None:
            raise ValueError(f"cap={cap} draws neighbors at random: pass a torch.Generator")
        ids = nodes.cpu().numpy()
        visible = self._visibility(ids, arrival, now)
        weight = None if self.weight is None else self.weight.detach().cpu().numpy().__getitem__
        found = walk(self.adjacency, weight, ids, hops, cap, self_loops, visible, generator)
        return found.to(self.edges.device)

    def diffusion(self, nodes: Tensor, hops: int = 1) -> Neighborhood:
        """Where walks of 1..K steps may end, weighed by `(D^-1/2 (A + I) D^-1/2)^k`.

        Unlike `neighborhood`, near nodes count at every hop, and busy ones count less.

        Example:
            >>> pair = Graph(torch.eye(2), torch.tensor([[0], [1]]))
            >>> near = pair.diffusion(torch.tensor([0]), hops=2)
            >>> near.nodes.tolist(), near.hop.tolist(), near.weight.round(decimals=4).tolist()
            ([0, 1, 0, 1], [1, 1, 2, 2], [1.0, 1.0, 1.0, 1.0])
        """
        check_positive(hops=hops)
        check_nodes("nodes", nodes, self.num_nodes)
        return diffuse(self._smoothing, nodes.cpu().numpy(), hops).to(self.edges.device)

    @cached_property
    def _smoothing(self) -> sparse.csr_array:
        return smoothing(self.adjacency)

    def _visibility(
        self, nodes: Ints, arrival: Tensor | None, now: Tensor | None
    ) -> Callable[[Ints, Ints, Ints], Bools] | None:
        if arrival is None:
            if now is not None:
                raise ValueError("now says up to which arrival a node sees: pass arrival as well")
            return None
        _check_shape("arrival", arrival, (self.num_nodes,))
        if now is not None:
            _check_shape("now", now, nodes.shape)
        when = arrival.cpu().numpy()
        limit = when[nodes] if now is None else now.cpu().numpy()
        return lambda owner, node, edge: when[node] <= limit[owner]


def check_nodes(what: str, nodes: Tensor, num_nodes: int) -> None:
    """Reject anything but a list of int64 node numbers of the graph."""
    if nodes.dim() != 1 or nodes.dtype != torch.int64:
        raise ValueError(
            f"{what} must be int64 node numbers of shape (B,), got {nodes.dtype} of shape "
            f"{tuple(nodes.shape)}"
        )
    if not len(nodes):
        return
    low, high = nodes.aminmax()
    if int(low) < 0 or int(high) >= num_nodes:
        at = int(((nodes < 0) | (nodes >= num_nodes)).nonzero()[0])
        raise ValueError(
            f"{what}[{at}] is node {int(nodes[at])}, but the graph's nodes are numbered "
            f"0 to {num_nodes - 1}"
        )


def _check_shape(what: str, values: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(values.shape) != shape:
        raise ValueError(f"{what} must have shape {shape}, got {tuple(values.shape)}")


def _check_int64(what: str, values: Tensor) -> None:
    if values.dtype != torch.int64:
        raise ValueError(f"{what} must be int64, got {values.dtype}; call .long()")


def _check_finite(owner: str, values: Tensor) -> None:
    """Reject NaN and infinity; `values` has one row per owner, such as "the time of node"."""
    place = find_non_finite(values)
    if place is not None:
        raise ValueError(f"{owner} {place[0]} must be finite, got {float(values[place])}")


def _check_features(features: Tensor | SparseRows) -> None:
    values = features.values if isinstance(features, SparseRows) else features
    if not values.is_floating_point():
        raise ValueError(f"features must be floating point, got {values.dtype}; call .float()")
    if isinstance(features, Tensor):
        if features.dim() not in (2, 3):
            raise ValueError(
                f"features must have shape (N, F) or (N, C, F), got {tuple(features.shape)}"
            )
        _check_finite("the features of node", features)
        return
    bounds, size = features.indptr, len(features.indices)
    ends = [*bounds[:1].tolist(), *bounds[-1:].tolist()]
    if ends != [0, size] or bool((bounds.diff() < 0).any()):
        raise ValueError(f"indptr must rise from 0 to the number of entries, {size}, got {bounds}")
    outside = (features.indices < 0) | (features.indices >= features.num_features)
    for wrong, rule in (
        (~values.isfinite(), "has a value that is not finite"),
        (outside, f"has a feature outside 0 to {features.num_features - 1}"),
    ):
        if wrong.any():
            at = int(wrong.nonzero()[0])
            raise ValueError(
                f"the features of node {int(features.rows[at])} must be finite and inside the "
                f"width, but it {rule}: feature {int(features.indices[at])}, value "
                f"{float(values[at])}"
            )


def _check_edges(edges: Tensor, weight: Tensor | None, num_nodes: int) -> None:
    if edges.dim() != 2 or edges.shape[0] != 2 or edges.dtype != torch.int64:
        raise ValueError(
            f"edges must be int64 of shape (2, E), got {edges.dtype} of shape {tuple(edges.shape)}"
        )
    outside = ((edges < 0) | (edges >= num_nodes)).any(0)
    if outside.any():
        at = int(outside.nonzero()[0])
        source, target = edges[:, at].tolist()
        raise ValueError(
            f"edge {at} goes from node {source} to node {target}, but the graph's nodes are "
            f"numbered 0 to {num_nodes - 1}"
        )
    if weight is None:
        return
    count = edges.shape[1]
    if weight.dim() not in (1, 2) or weight.shape[0] != count:
        raise ValueError(
            f"weight must have shape (E,) or (E, W) with E = {count} edges, got "
            f"{tuple(weight.shape)}"
        )
    if weight.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"weight must be float32 or float64, got {weight.dtype}; call .float()")
    _check_finite("the weight of edge", weight)


def _check_labels(labels: Tensor | None, class_names: tuple[str, ...], num_nodes: int) -> None:
    if labels is None:
        return
    _check_shape("labels", labels, (num_nodes,))
    _check_int64("labels", labels)
    outside = labels < -1
    rule = "labels must be -1 (unknown) or above"
    if class_names:
        outside |= labels >= len(class_names)
        rule = f"labels must be from -1 (unknown) to {len(class_names) - 1}, the last class name"
    if outside.any():
        node = int(outside.nonzero()[0])
        raise ValueError(f"{rule}, but node {node} has label {int(labels[node])}")

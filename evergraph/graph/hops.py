"""K-hop neighborhoods: the neighbor sets `N_{k=1:K}` of Eq. (1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Neighborhood:
    """The neighbors of a batch of nodes, packed one after the other.

    Sorted by owner, then by hop, then by node number, a node's own self loop first.

    Attributes:
        nodes: `(N,)` int64, the neighbors as node numbers of the graph.
        owner: `(N,)` int64, whose neighbor it is, as a position in the batch; never decreases.
        hop: `(N,)` int64 from 1 to K.
        weight: edge weights, `(N,)` or `(N, W)`; None where the graph has none.
    """

    nodes: Tensor
    owner: Tensor
    hop: Tensor
    weight: Tensor | None

    def __len__(self) -> int:
        return self.owner.shape[0]

    @property
    def edge_components(self) -> int:
        """W, the number of components of an edge weight."""
        return 1 if self.weight is None or self.weight.dim() == 1 else self.weight.shape[1]

    def slots(self, hops: int) -> Tensor:
        """The pair (item, hop) of each neighbor as one number, `owner * K + hop - 1`."""
        return self.owner * hops + self.hop - 1

    def to(self, device: torch.device) -> Neighborhood:
        """The same on another device."""
        weight = None if self.weight is None else self.weight.to(device)
        nodes, owner, hop = (t.to(device) for t in (self.nodes, self.owner, self.hop))
        return Neighborhood(nodes, owner, hop, weight)


class Steps(Protocol):
    """What `walk` needs of a graph: how many node numbers there are, and where edges lead."""

    @property
    def num_nodes(self) -> int:
        """One more than the largest node number."""

    def step(self, nodes: Ints) -> tuple[Ints, Ints, Ints]:
        """All edges that leave `nodes`: the position in `nodes`, the target and the edge's number.

        Row by row; within a row the targets ascend, in whatever order the graph gives its nodes.
        """


def spans(start: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """All entries of rows that begin at `start`: the number of the row and the entry, row by row.

    Example:
        >>> spans(np.array([7, 0]), np.array([2, 1]))
        (array([0, 0, 1]), array([7, 8, 0]))
    """
    parent = np.repeat(np.arange(len(counts)), counts)
    shift = start - (np.cumsum(counts) - counts)
    return parent, np.arange(len(parent)) + shift[parent]


@dataclass(frozen=True, eq=False)
class Adjacency:
    """Distinct edges in compressed rows: node i owns the entries `start[i]:start[i + 1]`.

    Attributes:
        start: `(N + 1,)`.
        target: `(nnz,)`, ascending within a row, never the row's own node.
        edge: `(nnz,)`, the column of the edge list that the entry came from.
    """

    start: Ints
    target: Ints
    edge: Ints

    @classmethod
    def from_edges(cls, edges: Ints, num_nodes: int, directed: bool) -> Adjacency:
        """Sort the `(2, E)` edge list, drop self loops, and of equal edges keep the first.

        Undirected edges are mirrored; a stored direction comes before a mirrored one.
        """
        source, target = edges
        edge = np.arange(edges.shape[1], dtype=np.int64)
        if not directed:
            source, target = np.concatenate([source, target]), np.concatenate([target, source])
            edge = np.concatenate([edge, edge])
        proper = source != target
        key, first = _distinct(source[proper] * num_nodes + target[proper], num_nodes**2)
        source, target = np.divmod(key, max(num_nodes, 1))
        start = np.zeros(num_nodes + 1, dtype=np.int64)
        np.cumsum(np.bincount(source, minlength=num_nodes), out=start[1:])
        return cls(start, target, edge[proper][first])

    @property
    def num_nodes(self) -> int:
        """N."""
        return len(self.start) - 1

    def step(self, nodes: Ints) -> tuple[Ints, Ints, Ints]:
        """All edges that leave `nodes`, see `Steps`."""
        start = self.start[nodes]
        parent, entry = spans(start, self.start[nodes + 1] - start)
        return parent, self.target[entry], self.edge[entry]


def _distinct(key: Ints, bound: int) -> tuple[Ints, Ints]:
    """Distinct numbers below a bound, ascending, and where each comes first."""
    size = max(len(key), 1)
    if bound * size >= 2**63:
        found, first = np.unique(key, return_index=True)
        return found, first
    both = np.sort(key * size + np.arange(len(key)))  # numbers and places in one: a faster sort
    ordered, place = np.divmod(both, size)
    new = np.ones(len(key), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return ordered[new], place[new]


@dataclass(frozen=True, eq=False)
class _Reached:
    """Pairs of an owner and a node that it reaches, with the weight of the path."""

    owner: Ints
    node: Ints
    path: Floats | None

    def __getitem__(self, index: Ints | Bools) -> _Reached:
        path = None if self.path is None else self.path[index]
        return _Reached(self.owner[index], self.node[index], path)


def walk(
    graph: Steps,
    weight: Callable[[Ints], Floats] | None,
    nodes: Ints,
    hops: int,
    cap: int | None,
    self_loops: bool,
    visible: Callable[[Ints, Ints, Ints], Bools] | None,
    generator: torch.Generator | None = None,
    keys: NDArray[np.uint64] | None = None,
) -> Neighborhood:
    """Breadth-first search from all nodes of a batch at once.

    Hop k holds the nodes at distance exactly k. The search itself is never thinned: `cap` chooses
    among all nodes of a hop, so that a chosen node is where the graph says. `Graph.neighborhood`
    describes the arguments; `weight` gives the weights of edges by their numbers; `visible` tells
    for owners, nodes and edges to them whether the owner may see the node through the edge, and
    what it may not see is not walked through either. Nodes are in the order of their `keys`, or of
    their numbers without. `cap` draws with the generator, or keeps the first without.
    """
    like = None if weight is None else weight(nodes[:0])
    ones = None if like is None else np.ones((len(nodes), *like.shape[1:]), like.dtype)
    reached = _Reached(np.arange(len(nodes)), nodes, ones)
    if hops == 1 and cap is None and isinstance(graph, Adjacency):  # its rows are what is asked for
        near = _step(graph, weight, reached, visible)
        return _pack([*([(1, reached)] if self_loops else ()), (1, near)])
    seen = reached.owner * graph.num_nodes + nodes
    found = [(1, reached)] if self_loops else []
    for hop in range(1, hops + 1):
        reached = _step(graph, weight, reached, visible)
        key, first = np.unique(reached.owner * graph.num_nodes + reached.node, return_index=True)
        new = ~np.isin(key, seen, assume_unique=True)
        reached = reached[first[new]]
        if keys is not None:
            reached = reached[np.lexsort((keys[reached.node], reached.owner))]
        seen = np.concatenate([seen, key[new]])
        kept = reached
        if cap is not None:
            kept = reached[_choose(reached.owner, cap - int(self_loops and hop == 1), generator)]
        found.append((hop, kept))
    return _pack(found)


def _step(
    graph: Steps,
    weight: Callable[[Ints], Floats] | None,
    reached: _Reached,
    visible: Callable[[Ints, Ints, Ints], Bools] | None,
) -> _Reached:
    """One hop further along every edge, repeats included."""
    parent, node, edge = graph.step(reached.node)
    owner = reached.owner[parent]
    if visible is not None:
        keep = visible(owner, node, edge)
        owner, node, parent, edge = owner[keep], node[keep], parent[keep], edge[keep]
    path = None
    if weight is not None and reached.path is not None:
        path = reached.path[parent] * weight(edge)
    return _Reached(owner, node, path)


def _choose(owner: Ints, limit: int, generator: torch.Generator | None) -> Bools:
    """At most `limit` entries of each owner (sorted): drawn with equal chances, or the first."""
    counts = np.bincount(owner)
    rank = np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner]
    if generator is None:
        return rank < limit
    crowded = (counts > limit)[owner]
    draws = torch.rand(
        int(crowded.sum()), generator=generator, dtype=torch.float64, device=generator.device
    )
    chance = np.zeros(len(owner))
    chance[crowded] = draws.cpu().numpy()
    keep = np.zeros(len(owner), dtype=np.bool_)
    keep[np.lexsort((chance, owner))] = rank < limit
    return keep


def _pack(found: list[tuple[int, _Reached]]) -> Neighborhood:
    """All that was reached, with its hop, sorted by owner."""
    owner = np.concatenate([part.owner for _, part in found])
    node = np.concatenate([part.node for _, part in found])
    hop = np.concatenate([np.full(len(part.owner), k, dtype=np.int64) for k, part in found])
    paths = [part.path for _, part in found if part.path is not None]
    order = np.argsort(owner, kind="stable")
    nodes, owners, hops = (torch.from_numpy(part[order]) for part in (node, owner, hop))
    weight = torch.from_numpy(np.concatenate(paths)[order]) if paths else None
    return Neighborhood(nodes, owners, hops, weight)


def smoothing(adjacency: Adjacency) -> sparse.csr_array:
    """`D^-1/2 (A + I) D^-1/2`: one step of diffusion over the graph, self loops included."""
    size = len(adjacency.start) - 1
    ones = np.ones(len(adjacency.target), dtype=np.float32)
    steps = sparse.csr_array((ones, adjacency.target, adjacency.start), shape=(size, size))
    steps = steps + sparse.eye_array(size, dtype=np.float32, format="csr")
    scale = 1 / np.sqrt(steps.sum(axis=1))
    return sparse.csr_array(steps * scale[:, None] * scale[None, :])


def diffuse(step: sparse.csr_array, nodes: Ints, hops: int) -> Neighborhood:
    """Where a walk of exactly k steps may end, weighed so that the mean of hop k is `S^k x`.

    Nodes that are near turn up at every hop; weights hold the number of neighbors of the hop,
    by which Eq. (5) divides.
    """
    found: list[tuple[int, _Reached]] = []
    reached = step[nodes]
    for hop in range(1, hops + 1):
        reached.sort_indices()
        counts = np.diff(reached.indptr)
        owner = np.repeat(np.arange(len(nodes)), counts)
        weight = (reached.data * counts[owner]).astype(np.float32)
        found.append((hop, _Reached(owner, reached.indices.astype(np.int64), weight)))
        reached = reached @ step
    return _pack(found)

"""K-hop neighborhoods: the neighbor sets `N_{k=1:K}` of Eq. (1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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

    def to(self, device: torch.device) -> Neighborhood:
        """The same on another device."""
        weight = None if self.weight is None else self.weight.to(device)
        nodes, owner, hop = (t.to(device) for t in (self.nodes, self.owner, self.hop))
        return Neighborhood(nodes, owner, hop, weight)


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
        key, first = np.unique(source[proper] * num_nodes + target[proper], return_index=True)
        source, target = np.divmod(key, max(num_nodes, 1))
        start = np.zeros(num_nodes + 1, dtype=np.int64)
        np.cumsum(np.bincount(source, minlength=num_nodes), out=start[1:])
        return cls(start, target, edge[proper][first])

    def expand(self, nodes: Ints) -> tuple[Ints, Ints]:
        """All entries of the rows `nodes`: the position in `nodes` and the entry, row by row."""
        counts = self.start[nodes + 1] - self.start[nodes]
        parent = np.repeat(np.arange(len(nodes)), counts)
        shift = self.start[nodes] - (np.cumsum(counts) - counts)
        return parent, np.arange(len(parent)) + shift[parent]


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
    adjacency: Adjacency,
    weight: Floats | None,
    nodes: Ints,
    hops: int,
    cap: int | None,
    self_loops: bool,
    visible: Callable[[Ints, Ints], Bools] | None,
    generator: torch.Generator | None,
) -> Neighborhood:
    """Breadth-first search from all nodes of a batch at once.

    Hop k holds the nodes at distance exactly k. The search itself is never thinned: `cap` draws
    among all nodes of a hop with equal chances, so that a drawn node is where the graph says.
    `Graph.neighborhood` describes the arguments; `visible` tells for pairs of owner and node
    whether the owner may see the node, and what it may not see is not walked through either.
    """
    num_nodes = len(adjacency.start) - 1
    ones = None if weight is None else np.ones((len(nodes), *weight.shape[1:]), weight.dtype)
    reached = _Reached(np.arange(len(nodes)), nodes, ones)
    seen = reached.owner * num_nodes + nodes
    found = [(1, reached)] if self_loops else []
    for hop in range(1, hops + 1):
        reached = _step(adjacency, weight, reached, visible)
        key, first = np.unique(reached.owner * num_nodes + reached.node, return_index=True)
        new = ~np.isin(key, seen, assume_unique=True)
        reached = reached[first[new]]
        seen = np.concatenate([seen, key[new]])
        kept = reached
        if cap is not None and generator is not None:
            kept = reached[_draw(reached.owner, cap - int(self_loops and hop == 1), generator)]
        found.append((hop, kept))
    return _pack(found)


def _step(
    adjacency: Adjacency,
    weight: Floats | None,
    reached: _Reached,
    visible: Callable[[Ints, Ints], Bools] | None,
) -> _Reached:
    """One hop further along every edge, repeats included."""
    parent, entry = adjacency.expand(reached.node)
    owner, node = reached.owner[parent], adjacency.target[entry]
    if visible is not None:
        keep = visible(owner, node)
        owner, node, parent, entry = owner[keep], node[keep], parent[keep], entry[keep]
    path = None
    if weight is not None and reached.path is not None:
        path = reached.path[parent] * weight[adjacency.edge[entry]]
    return _Reached(owner, node, path)


def _draw(owner: Ints, limit: int, generator: torch.Generator) -> Bools:
    """Choose at most `limit` entries of each owner (sorted), each with the same chance."""
    counts = np.bincount(owner)
    crowded = (counts > limit)[owner]
    draws = torch.rand(
        int(crowded.sum()), generator=generator, dtype=torch.float64, device=generator.device
    )
    chance = np.zeros(len(owner))
    chance[crowded] = draws.cpu().numpy()
    order = np.lexsort((chance, owner))
    rank = np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner]
    keep = np.zeros(len(owner), dtype=np.bool_)
    keep[order] = rank < limit
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

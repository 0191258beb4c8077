"""Where items come from: the nodes and the edges of a graph, made self-contained (Eq. 1)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import numpy as np
import torch
from torch import Tensor

from evergraph.checks import check_one_of, check_positive
from evergraph.graph.graph import Graph
from evergraph.graph.hops import Neighborhood
from evergraph.graph.neighbors import Features, Neighbors
from evergraph.graph.rows import SparseRows
from evergraph.stream.batch import Batch

Visibility = Literal["all", "arrived"]
VISIBILITIES: tuple[str, ...] = get_args(Visibility)
Pack = Callable[[Features, Neighborhood, int], Neighbors]
"""Makes the neighbors of so many items from the features of all nodes and who is a neighbor.

One that has a faster way for some graphs has a method `items` that maps a graph, nodes and the
configuration of neighbors to x and the neighbors, or to None if it has none for them.
"""


class Source(Protocol):
    """Items by number: the nodes of a graph, windows of a recording, candidate matches."""

    def __len__(self) -> int:
        """How many items there are."""
        ...

    def batch(self, index: Tensor, task: int = -1, position: int | None = None) -> Batch:
        """The items at these numbers.

        Args:
            index: `(B,)` int64.
            task: the task descriptor of all of them.
            position: for test items, how many batches of the stream have come.
        """
        ...


@dataclass(frozen=True)
class NeighborConfig:
    """How the neighbors of a node are found.

    Attributes:
        hops: K, the hops of neighbors that an item carries.
        diffusion: take walks of k steps for the neighbors at hop k, weighed by degree, in place
            of the nodes at distance k; see `Graph.diffusion`.
        cap: at most so many neighbors per hop, drawn once per item.
        self_loops: whether a node is among its own neighbors.
        visibility: `all` knows the features of neighbors that have not been streamed (never
            their labels), as the paper does; `arrived` only of those that came before.
        seed: of the draws.
    """

    hops: int = 1
    diffusion: bool = False
    cap: int | None = None
    self_loops: bool = True
    visibility: Visibility = "all"
    seed: int = 0

    def __post_init__(self) -> None:
        """Reject settings that do not go together."""
        check_one_of("visibility", self.visibility, VISIBILITIES)
        if self.diffusion and (self.visibility != "all" or self.cap is not None):
            raise ValueError(
                "diffusion walks over the whole graph: it goes with visibility 'all' and no cap, "
                f"got {self.visibility!r} and {self.cap}"
            )
        check_positive(hops=self.hops)

    def find(
        self,
        graph: Graph,
        nodes: Tensor,
        draw: int,
        arrival: Tensor | None = None,
        now: Tensor | None = None,
    ) -> Neighborhood:
        """The neighbors of nodes; the same `draw` gives the same random choice."""
        if self.diffusion:
            return graph.diffusion(nodes, self.hops)
        generator = None
        if self.cap is not None:
            state = np.random.SeedSequence([self.seed, draw % 2**32]).generate_state(1)[0]
            generator = torch.Generator().manual_seed(int(state))
        return graph.neighborhood(
            nodes,
            self.hops,
            cap=self.cap,
            self_loops=self.self_loops,
            arrival=arrival,
            now=now,
            generator=generator,
        )


def rows(features: Features, nodes: Tensor) -> Features:
    """The features of nodes with a channel axis, `(N, C, F)`, or as sparse rows."""
    found = features[nodes]
    return found if isinstance(found, SparseRows) or found.dim() == 3 else found.unsqueeze(1)


def gathered(features: Features, found: Neighborhood, num_items: int) -> Neighbors:
    """Neighbors with all of their features."""
    return Neighbors(rows(features, found.nodes), found.owner, found.hop, found.weight)


@dataclass(frozen=True)
class NodeSource:
    """The nodes of a graph with their neighbors and targets.

    Attributes:
        graph: whose nodes the items are.
        targets: `(N,)` labels, or `(N, D)` numbers.
        neighbor_config: how neighbors are found.
        arrival: when each node arrives, in batches of the stream; for visibility `arrived`.
        length: batches of the stream.
        pack: how neighbors are stored, see `Intake.packing`; with all of their features by default.
    """

    graph: Graph
    targets: Tensor
    neighbor_config: NeighborConfig = NeighborConfig()
    arrival: Tensor | None = None
    length: int = 0
    pack: Pack = gathered

    def __len__(self) -> int:
        return self.graph.num_nodes

    def batch(self, index: Tensor, task: int = -1, position: int | None = None) -> Batch:
        """Nodes as self-contained items."""
        at_once = getattr(self.pack, "items", None) if self.arrival is None else None
        found = None if at_once is None else at_once(self.graph, index, self.neighbor_config)
        x, neighbors = self._items(index, task, position) if found is None else found
        return Batch(x, neighbors, self.targets[index], torch.full((len(index),), task), index)

    def _items(self, index: Tensor, task: int, position: int | None) -> tuple[Features, Neighbors]:
        now = None
        if self.arrival is not None and task < 0:
            reached = self.length if position is None else position
            before = math.nextafter(float(reached), -1.0)  # batch `position` is yet to come
            now = torch.full((len(index),), before, dtype=torch.float64)
        around = self.neighbor_config.find(self.graph, index, _draw(index), self.arrival, now)
        features = self.graph.features
        return rows(features, index), self.pack(features, around, len(index))


@dataclass(frozen=True)
class PairSource:
    """Pairs of nodes, each with its own neighborhood: the items of edge problems.

    The edge of a pair, if there is one, is removed from the neighborhoods of its ends, since it is
    the target. With `times`, both ends see only edges that came before the pair.

    Attributes:
        graph: whose nodes are paired; `edge_time` is needed if there are times.
        pairs: `(2, N)` int64.
        targets: `(N,)` labels of the pairs; 1 and 0 for edges that are there and are not.
        neighbor_config: how neighbors are found.
        times: `(N,)`, when each pair came; None if edges are not ordered.
    """

    graph: Graph
    pairs: Tensor
    targets: Tensor
    neighbor_config: NeighborConfig = NeighborConfig()
    times: Tensor | None = None

    def __len__(self) -> int:
        return self.pairs.shape[1]

    def batch(self, index: Tensor, task: int = -1, position: int | None = None) -> Batch:
        """Pairs as self-contained items of two nodes, `(B, 2, C, F)` or two sparse rows each."""
        ends = self.pairs[:, index].T.flatten()
        graph = self._visible(index)
        found = self.neighbor_config.find(graph, ends, _draw(index))
        x, neighbors = rows(graph.features, ends), gathered(graph.features, found, len(ends))
        x = x.unflatten(0, (-1, 2)) if isinstance(x, Tensor) else x
        return Batch(x, neighbors, self.targets[index], torch.full((len(index),), task), index)

    def _visible(self, index: Tensor) -> Graph:
        """The graph without the edges asked for, and without those that come later."""
        graph = self.graph
        size = graph.num_nodes
        low, high = graph.edges.min(0).values, graph.edges.max(0).values
        mine = self.pairs[:, index]
        asked = mine.min(0).values * size + mine.max(0).values
        keep = ~torch.isin(low * size + high, asked)
        if self.times is not None:
            if graph.edge_time is None:
                raise ValueError("pairs with times need a graph with edge_time, got none")
            keep &= graph.edge_time < self.times[index].min()
        return graph.with_edges(keep)


def _draw(index: Tensor) -> int:
    """A number from which the same items draw the same neighbors."""
    return int(index[0]) if len(index) else 0

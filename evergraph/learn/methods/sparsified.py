"""Replay of items with a few of their neighbors: sparsified subgraph memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from evergraph.graph.neighbors import Neighbors
from evergraph.learn.learner import Learner
from evergraph.learn.methods.replay import Replay
from evergraph.stream.batch import Batch


@dataclass
class SSM(Replay):
    """Sparsified subgraph memory: store items with a few neighbors, drawn at random (ICDM 2022).

    New items are learned with all of their neighbors. Neighbors are stored apart, also where the
    network reads no more than their mean, which would take less.

    Attributes:
        fanout: neighbors of a stored node at each hop, at the most.

    Example:
        >>> from evergraph import FGN, SSM, Learner, Reservoir, node_continuum
        >>> from evergraph.datasets import Growth, generate
        >>> data = generate(Growth(nodes=60, classes=3, features=20))
        >>> learner = Learner(FGN(20), SSM(fanout=2), Reservoir(20))
        >>> for batch in node_continuum(data):
        ...     learner.observe(batch)
        >>> max(len(item.neighbors) for item in learner.memory.items)
        2
    """

    spreads: ClassVar[bool] = False
    separates: ClassVar[bool] = True
    fanout: int = 5

    def keep(self, learner: Learner, batch: Batch) -> None:
        """Offer new items to the memory, with few of their neighbors."""
        super().keep(learner, sparsified(batch, self.fanout, learner.rng))


def sparsified(batch: Batch, fanout: int, rng: np.random.Generator) -> Batch:
    """The same items with at most `fanout` neighbors of each node at each hop."""
    small = batch.compact()
    near = small.neighbors
    assert isinstance(near, Neighbors)
    hops = 1 if near.hop is None or not len(near) else int(near.hop.max())
    place = near.slots(hops).numpy()
    order = np.lexsort((rng.random(len(place)), place))  # random within each node and hop
    first = np.searchsorted(place[order], place[order])
    kept = torch.from_numpy(np.sort(order[np.arange(len(order)) - first < fanout]))
    few = Neighbors(
        near.features[kept],
        near.owner[kept],
        None if near.hop is None else near.hop[kept],
        None if near.weight is None else near.weight[kept],
    )
    return replace(small, neighbors=few)

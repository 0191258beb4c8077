"""Regularization of what the loss and the topology depend on: TWP."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from evergraph.feature_graph.neighborhoods import condense
from evergraph.graph.neighbors import Neighbors
from evergraph.learn.learner import Learner
from evergraph.learn.methods.consolidation import Consolidation
from evergraph.learn.training import gradients
from evergraph.stream.batch import Batch


@dataclass
class TWP(Consolidation):
    """Topology-aware weight preserving: importance for the loss and for the neighbors (AAAI 2021).

    The importance of a parameter is the size of its gradient in the loss and in the length of the
    attention `h · tanh(h')` between a node and its neighborhood, where h and h' are the outputs of
    the network for the node alone and for the mean of its nearest neighbors alone. Its authors
    take one layer's outputs and each neighbor, and add a term that keeps importance small, which
    is left out.

    Attributes:
        loss_share: weight of the loss.
        topology_share: weight of the attention.

    Example:
        >>> from evergraph import FGN, TWP, Learner, node_continuum
        >>> from evergraph.datasets import Growth, generate
        >>> data = generate(Growth(nodes=60, classes=3, features=20))
        >>> learner = Learner(FGN(20), TWP(every=2))
        >>> for batch in node_continuum(data):
        ...     learner.observe(batch)
        >>> all(bool((w >= 0).all()) for w in learner.method.weight.values())
        True
    """

    strength: float = 10.0
    loss_share: float = 1.0
    topology_share: float = 1.0

    def importance(self, learner: Learner, batch: Batch) -> dict[str, Tensor]:
        """The size of both gradients."""
        own, around = apart(batch, learner.model.requires.hops)
        attention = (learner.model(own) * learner.model(around).tanh()).sum(-1)
        of_topology = gradients(learner.model, attention.square().mean())
        return {
            name: self.loss_share * slope.abs() + self.topology_share * of_topology[name].abs()
            for name, slope in gradients(learner.model, learner.loss(batch)).items()
        }


def apart(batch: Batch, hops: int) -> tuple[Batch, Batch]:
    """The nodes of items without neighbors, and the means of their neighbors in their place."""
    small = batch.compact()
    near = small.neighbors
    assert isinstance(near, Neighbors)
    nobody = torch.zeros(0, dtype=torch.int64)
    weight = None if near.weight is None else near.weight[nobody]
    alone = replace(small, neighbors=Neighbors(near.features[nobody], nobody, weight=weight))
    rows = len(small) * small.nodes_per_item
    means = condense(near, rows, hops).features
    first = means[torch.arange(0, len(means), len(means) // rows)]
    if isinstance(first, Tensor) and isinstance(small.x, Tensor):
        first = first.view_as(small.x)
    return alone, replace(alone, x=first)

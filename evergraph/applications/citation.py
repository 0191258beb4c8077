"""Node classification on citation graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from evergraph.dataset import Dataset
from evergraph.feature_graph import Neighbors
from evergraph.models import FGN


@dataclass(frozen=True)
class Trained:
    """A trained network and how well it does on nodes it never saw."""

    model: FGN
    accuracy: float
    items: int


def train(
    dataset: Dataset,
    epochs: int = 3,
    batch_size: int = 10,
    lr: float = 0.05,
    seed: int = 0,
    report: Callable[[int, float], None] = lambda seen, loss: None,
) -> Trained:
    """Train a two-layer broadcast FGN on shuffled nodes and test it on the test nodes."""
    graph = dataset.graph
    assert graph.labels is not None
    torch.manual_seed(seed)
    model = FGN.preset("citation", graph.num_features, graph.num_classes)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    generator = torch.Generator().manual_seed(seed)
    seen = 0
    for _ in range(epochs):
        order = dataset.train[torch.randperm(len(dataset.train), generator=generator)]
        for nodes in order.split(batch_size):
            optimizer.zero_grad()
            loss = cross_entropy(_logits(model, dataset, nodes), graph.labels[nodes])
            loss.backward()
            optimizer.step()
            seen += len(nodes)
            report(seen, loss.item())
    model.eval()
    with torch.no_grad():
        correct = sum(
            int((_logits(model, dataset, nodes).argmax(-1) == graph.labels[nodes]).sum())
            for nodes in dataset.test.split(100)
        )
    return Trained(model, correct / len(dataset.test), seen)


def _logits(model: FGN, dataset: Dataset, nodes: Tensor) -> Tensor:
    found = dataset.graph.neighborhood(nodes)
    x, y = dataset.graph.features[nodes], dataset.graph.features[found.nodes]
    if isinstance(x, Tensor) and isinstance(y, Tensor):
        x, y = x.unsqueeze(1), y.unsqueeze(1)
    logits: Tensor = model(x, Neighbors(y, found.owner))
    return logits

"""Train a network on labeled candidate graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from evergraph.apps.matching.arrangements import graph_tensors
from evergraph.apps.matching.candidates import CandidateGraph, Proposal, propose
from evergraph.apps.matching.network import CandidateNetwork
from evergraph.apps.matching.truth import Pair
from evergraph.learn.learner import Learner
from evergraph.learn.methods import Finetune
from evergraph.learn.training import Training

Report = Callable[[int, float], None]


@dataclass(frozen=True)
class Example:
    """A candidate graph with labels: 1 true, 0 false, -1 unknown."""

    graph: CandidateGraph
    labels: Tensor


@dataclass(frozen=True)
class Fit:
    """How to train: Adam, one cycle of the learning rate, minibatches of whole pairs."""

    steps: int = 300
    pairs_per_step: int = 8
    lr: float = 3e-3

    def __post_init__(self) -> None:
        """Reject what trains nothing."""
        for name in ("steps", "pairs_per_step"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


def examples(pairs: Sequence[Pair], proposal: Proposal = Proposal()) -> list[Example]:  # noqa: B008
    """The labeled candidate graphs of pairs; those without any candidate are left out."""
    out = []
    for pair in pairs:
        graph = propose(pair.first, pair.second, proposal)
        if len(graph):
            labels = pair.labels(graph.first, graph.second)
            out.append(Example(graph, torch.from_numpy(labels)))
    return out


def collate(parts: Sequence[Example]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Several graphs side by side in one: features, index, weight and labels."""
    shift, pieces = 0, []
    for part in parts:
        features, index, weight = graph_tensors(part.graph)
        pieces.append((features, index + shift, weight, part.labels))
        shift += len(part.graph)
    features, index, weight, labels = (torch.cat(column) for column in zip(*pieces, strict=True))
    return features, index, weight, labels


def fit(
    network: CandidateNetwork,
    data: Sequence[Example],
    how: Fit = Fit(),  # noqa: B008
    seed: int = 0,
    report: Report = lambda step, loss: None,
) -> None:
    """Train a network in place with the package's own learner."""
    if not data:
        raise ValueError("expected at least one pair with candidates to train on, got none")
    learner = Learner(network, Finetune(), training=Training(optimizer="adam", lr=how.lr))
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        learner.optimizer, how.lr, total_steps=how.steps + 1
    )
    rng = np.random.default_rng(seed)
    order: list[int] = []
    network.train()
    for step in range(how.steps):
        while len(order) < how.pairs_per_step:
            order += rng.permutation(len(data)).tolist()
        chosen = [data[i] for i in order[: how.pairs_per_step]]
        order = order[how.pairs_per_step :]
        features, index, weight, labels = collate(chosen)
        loss = cross_entropy(network.on_graph(features, index, weight), labels, ignore_index=-1)
        learner.descend(loss)
        cycle.step()
        report(step + 1, float(loss.detach()))
    network.eval()

"""The candidate graph as a matcher of features: propose, score, decide."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from evergraph.apps.matching.assignment import Matches, best_cut, one_to_one, sorted_matches
from evergraph.apps.matching.candidates import CandidateGraph, Proposal, propose
from evergraph.apps.matching.features import ImageFeatures, canonical_order
from evergraph.apps.matching.network import CandidateNetwork, probability

LEAST = 0.05  # probability below which nothing is considered


class Arrangement(Protocol):
    """A way from the features of two images to matches."""

    def match(self, first: ImageFeatures, second: ImageFeatures) -> Matches:
        """The matches, the most confident first."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """What was learned."""
        ...

    def values(self) -> dict[str, Any]:
        """All that is needed to build it again, as JSON can hold it."""
        ...


@dataclass
class CandidateArrangement:
    """Candidate matches are the items, a network tells the true ones; the default.

    Attributes:
        network: scores candidates.
        threshold: least probability of a match; None cuts every pair where F1 is expected to be
            largest, see `assignment.best_cut`.
        beyond: true matches for each that is among the candidates, for that cut; 1 leaves out of
            the account those that no candidate proposes.
        proposal: how candidates are proposed.
    """

    network: CandidateNetwork
    threshold: float | None = None
    beyond: float = 1.0
    proposal: Proposal = field(default_factory=Proposal)

    def __post_init__(self) -> None:
        """Reject what is no probability."""
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise ValueError(f"threshold must lie in 0..1, got {self.threshold}")

    def match(self, first: ImageFeatures, second: ImageFeatures) -> Matches:
        """Propose, score and decide."""
        graph = propose(first, second, self.proposal)
        return self.decide(graph, self.score(graph))

    def decide(self, graph: CandidateGraph, score: Any) -> Matches:
        """One-to-one matches of scored candidates."""
        least = LEAST if self.threshold is None else self.threshold
        found = one_to_one(graph.first, graph.second, score, least)
        return best_cut(found, self.beyond) if self.threshold is None else found

    @torch.no_grad()
    def score(self, graph: CandidateGraph) -> Any:
        """The probability of every candidate, `(E,)`."""
        if not len(graph):
            return np.zeros(0, np.float32)
        self.network.eval()
        return probability(self.network.on_graph(*graph_tensors(graph))).numpy()

    def tensors(self) -> dict[str, Tensor]:
        """The network's parameters."""
        return dict(self.network.state_dict())

    def values(self) -> dict[str, Any]:
        """Sizes of the network, how to cut, and the proposal."""
        return {
            "arrangement": "candidates",
            "network": self.network.settings,
            "threshold": self.threshold,
            "beyond": self.beyond,
            "proposal": asdict(self.proposal),
        }


def graph_tensors(graph: CandidateGraph) -> tuple[Tensor, Tensor, Tensor]:
    """Features, index and weight as torch has them."""
    parts = (graph.features, graph.index, graph.weight)
    features, index, weight = (torch.from_numpy(part) for part in parts)
    return features, index, weight


def match_in_any_order(
    arrangement: Arrangement, first: ImageFeatures, second: ImageFeatures
) -> Matches:
    """Match so that the order in which points come changes nothing, not even a rounding."""
    order0, order1 = canonical_order(first), canonical_order(second)
    found = arrangement.match(first.take(order0), second.take(order1))
    return sorted_matches(order0[found.first], order1[found.second], found.confidence)

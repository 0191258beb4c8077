"""Candidate matches told apart by a network: propose, score, decide.

An item is one candidate match. The networks are configurations of `FGN` that share everything but
the message m: `h_0 = e(x)`, `h_l = h_{l-1} + update([h_{l-1}, m_l])`, two logits from the last h.
Here w is the geometric weight of an edge, of K to each candidate.

| network | m_l |
|---|---|
| `mlp` | none, and no feature that neighbors had a part in |
| `gcn` | V_l applied to Σ w e(y) / 4 |
| `gat` | V_l applied to Σ softmax(a_l·e(x) + b_l·e(y) + log w) e(y), LeakyReLU as in Eq. (9) |
| `fgn` | Â V_l h_{l-1} with one A = sgnroot(x mᵀ + m xᵀ), m = Σ g w y / K: Eqs. (4)-(7) |

FGN's x and y are projections of e, and its gate g is a sigmoid in place of Eq. (9)'s softmax: what
counts is how many neighbors agree, and a softmax, like any normalization of rows, erases that.
"""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from evergraph.apps.matching.candidates import NAMES, NUM_FEATURES, CandidateGraph, Proposal
from evergraph.apps.matching.truth import Matches, sorted_matches
from evergraph.checks import check_one_of
from evergraph.feature_graph.neighborhoods import Table
from evergraph.graph.neighbors import Features, Linked
from evergraph.learn.tasks import Classification
from evergraph.nn.fgn import FGN
from evergraph.stream.batch import Batch

Array = NDArray[Any]
Kind = Literal["fgn", "gcn", "gat", "mlp"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SHAPE = (4, 8)  # C and F of an embedded candidate
OWN = NAMES.index("support")  # features before this one are a candidate's own
TYPICAL = 4.0  # a sum of weights that is neither large nor small
LEAST = 0.05  # probability below which nothing is considered


class CandidateEncoder(nn.Module):
    """An MLP from a candidate's first features to 32 numbers, as 4 channels of 8 features."""

    in_shape = (1, NUM_FEATURES)

    def __init__(self, inputs: int) -> None:
        super().__init__()
        width = math.prod(SHAPE)
        self.inputs = inputs
        self.layers = nn.Sequential(
            nn.Linear(inputs, width), nn.ReLU(True), nn.Linear(width, width)
        )

    def forward(self, features: Features) -> Tensor:
        """Map `(*, 1, 21)` to `(*, 4, 8)`."""
        assert isinstance(features, Tensor)
        out: Tensor = self.layers(features.squeeze(-2)[..., : self.inputs])
        return out.view(*out.shape[:-1], *SHAPE)


def candidate_network(
    kind: Kind = "fgn", neighbors: int = Proposal.neighbors, **changes: Any
) -> FGN:
    """A network that tells true candidates, of so many neighbors each, from false ones.

    Changes are those of `FGN`'s arguments.
    """
    check_one_of("kind", kind, KINDS)
    options: dict[Kind, dict[str, Any]] = {
        "fgn": {"attention": "gate", "message_scale": (1.0, 1 / math.sqrt(SHAPE[1]))},
        "gcn": {"message": "mean", "message_scale": (neighbors / TYPICAL, 1.0)},
        "gat": {"message": "mean", "attention": "softmax"},
        "mlp": {"message": "none"},
    }
    return FGN(
        SHAPE[1],
        2,
        in_channels=SHAPE[0],
        layer="residual",
        channels=(SHAPE[0], SHAPE[0]),
        normalization="none",
        encoder=CandidateEncoder(OWN if kind == "mlp" else NUM_FEATURES),
        centered=False,
        **{**options[kind], **changes},
    )


def candidate_task() -> Classification:
    """Candidates are false (0) or true (1), whichever comes first; some have no label (-1)."""
    task = Classification(ignore_unknown=True)
    task.classes = [0, 1]
    return task


def graph_batch(graph: CandidateGraph, labels: Array | None = None) -> Batch:
    """A whole candidate graph as one batch, with labels `(E,)` of 1, 0 or -1 (unknown)."""
    unknown = torch.full((len(graph),), -1)
    target = unknown if labels is None else torch.from_numpy(labels)
    return Batch(*_linked(graph), target, unknown, unknown)


def _linked(graph: CandidateGraph) -> tuple[Tensor, Linked]:
    links = Linked(torch.from_numpy(graph.index), torch.from_numpy(graph.weight))
    return torch.from_numpy(graph.features).unsqueeze(1), links


def probability(logits: Tensor) -> Tensor:
    """The probability that a candidate is true."""
    return torch.sigmoid(logits[:, 1] - logits[:, 0])


@torch.inference_mode()
def score(network: FGN, graph: CandidateGraph) -> Array:
    """The probability of every candidate, `(E,)`."""
    if not len(graph):
        return np.zeros(0, np.float32)
    if network.training:
        network.eval()
    return probability(graph_logits(network, graph)).numpy()


def graph_logits(network: FGN, graph: CandidateGraph) -> Tensor:
    """The logits of every candidate, `(E, 2)`; a graph as `propose` makes it is not checked."""
    x, links = _linked(graph)
    return network.run(x, Table(links))


def decide(graph: CandidateGraph, score: Array, threshold: float | None = None) -> Matches:
    """One-to-one matches of scored candidates; without a threshold cut where F1 should be best."""
    least = LEAST if threshold is None else threshold
    found = one_to_one(graph.first, graph.second, score, least)
    return best_cut(found) if threshold is None else found


def one_to_one(first: Array, second: Array, score: Array, threshold: float) -> Matches:
    """Greedy assignment: take the best candidate, drop all that share a keypoint with it, repeat.

    Each round takes all candidates that are the best of both of their keypoints at once, which
    gives the same matches as one at a time.

    All are `(E,)`: the keypoints of the candidates in both images, and their scores, of which
    those below the threshold are left out.

    Example:
        >>> one_to_one(np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([0.9, 0.8, 0.7]), 0.5)
        Matches(first=array([0]), second=array([0]), confidence=array([0.9], dtype=float32))
    """
    left = np.flatnonzero(score >= threshold)
    left = left[np.lexsort((second[left], first[left], -score[left]))]
    taken = [left[:0]]
    while len(left):
        best0, best1 = (np.unique(side[left], return_index=True)[1] for side in (first, second))
        chosen = left[np.intersect1d(best0, best1)]
        taken.append(chosen)
        free = ~np.isin(first[left], first[chosen]) & ~np.isin(second[left], second[chosen])
        left = left[free]
    rows = np.concatenate(taken)
    return sorted_matches(first[rows], second[rows], score[rows])


def best_cut(matches: Matches) -> Matches:
    """Keep the most confident matches, as many as maximize the expected F1.

    If confidences are probabilities, the first k matches contain `Σ_{i≤k} p_i` of the `Σ p` true
    ones, so that F1 is `2 Σ_{i≤k} p_i / (k + Σ p)`. Unlike a fixed threshold, this cuts an easy
    pair at a higher confidence than a hard one.

    Example:
        >>> sure = Matches(np.arange(3), np.arange(3), np.array([1.0, 0.9, 0.1]))
        >>> len(best_cut(sure))
        2
    """
    if not len(matches):
        return matches
    found = np.cumsum(matches.confidence, dtype=np.float64)
    expected = found / (np.arange(1, len(matches) + 1) + found[-1])
    return matches.strongest(int(np.argmax(expected)) + 1)

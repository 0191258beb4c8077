"""The paper's own arrangement: two layers with attention on all points of one image.

Descriptors are refined within their image (no cross-attention, no positions), and each point goes
with the most similar one of the other image. F is the width of a descriptor, C = K = 1. As in the
released code, both kinds have the same parameters, a layer adds a tenth of its message to nine
tenths of its input, and hardest negatives train it; unlike there, descriptors are given (the
released network learns them from pixels), nothing depends on the number or the order of the
points, and weights begin as the identity, so that training starts from the given descriptors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu
from torch.nn.functional import normalize as unit_length

from evergraph.apps.matching.assignment import Matches, sorted_matches
from evergraph.apps.matching.features import ImageFeatures
from evergraph.apps.matching.truth import Pair
from evergraph.feature_graph import Neighbors, feature_graph, normalize, propagate, sgnroot
from evergraph.learn.learner import Learner
from evergraph.learn.methods import Finetune
from evergraph.learn.training import Training
from evergraph.nn.layers import FeatureAttention

PaperKind = Literal["fgn", "fgn-shared", "gat"]
PAPER_KINDS: tuple[str, ...] = get_args(PaperKind)
KEPT = 0.9  # of a layer's input
CLOSE = 1.0  # pixels within which two points are the same


class PaperLayer(nn.Module):
    """A layer on all points of an image, with the attention weights of Eq. (9).

    `gat` takes Σ w W y. `fgn` takes W Â x with the feature graph of Eqs. (4)-(6) for every point.
    `fgn-shared` has one adjacency for all points of an image, Σ_x x mᵀ, as the released code.
    """

    def __init__(self, kind: PaperKind, features: int) -> None:
        super().__init__()
        self.kind = kind
        self.attention = FeatureAttention(1, features)
        self.weight = nn.Parameter(torch.eye(features))
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x: Tensor) -> Tensor:
        """Map the descriptors of an image `(N, F)` to new ones."""
        if self.kind == "gat":
            h = x @ self.weight.T + self.bias
            return KEPT * h + (1 - KEPT) * self._mean(x, h)
        mean = self._mean(x, x)
        if self.kind == "fgn":
            one = Neighbors(mean.unsqueeze(1), torch.arange(len(x)))
            around = feature_graph(x.unsqueeze(1), one, form="dense").propagate(x.unsqueeze(1))
        else:
            shared = normalize(sgnroot(x.T @ mean), "row")
            around = propagate(shared[None, None], x.unsqueeze(1))
        message = around.flatten(1) @ self.weight.T + self.bias
        return KEPT * x + (1 - KEPT) * message

    def _mean(self, x: Tensor, values: Tensor) -> Tensor:
        """The attention of all points to all points at once: `FeatureAttention`'s numbers."""
        attention = self.attention
        score = x @ attention.center + (x @ attention.neighbor).T + attention.bias
        return leaky_relu(score, attention.slope).softmax(1) @ values


class PaperNetwork(nn.Module):
    """Two layers with a LeakyReLU between, Section 7.

    Example:
        >>> PaperNetwork("fgn", features=8)(torch.rand(5, 8)).shape
        torch.Size([5, 8])
    """

    def __init__(self, kind: PaperKind = "fgn", features: int = 128) -> None:
        super().__init__()
        if kind not in PAPER_KINDS:
            raise ValueError(f"kind must be one of {', '.join(PAPER_KINDS)}, got {kind!r}")
        self.settings = {"kind": kind, "features": features}
        self.layers = nn.ModuleList(PaperLayer(kind, features) for _ in range(2))

    def forward(self, descriptors: Tensor) -> Tensor:
        """Refine descriptors `(N, F)`; the new ones have unit length."""
        width = self.settings["features"]
        if descriptors.shape[1] != width:
            raise ValueError(
                f"descriptors must have the width {width} of this network, got "
                f"{descriptors.shape[1]}"
            )
        out = self.layers[1](leaky_relu(self.layers[0](descriptors), 0.2))
        return unit_length(out, dim=-1)


@dataclass
class PaperArrangement:
    """Refine the descriptors of each image, then take the most similar: no check, no threshold."""

    network: PaperNetwork

    @torch.no_grad()
    def match(self, first: ImageFeatures, second: ImageFeatures) -> Matches:
        """Every point of the first image with its nearest neighbor."""
        self.network.eval()
        if not len(first) or not len(second):
            none = np.zeros(0, np.int64)
            return sorted_matches(none, none, np.zeros(0))
        sides = [self.network(torch.from_numpy(side.descriptors)) for side in (first, second)]
        best, partner = (sides[0] @ sides[1].T).max(1)
        confidence = best.clamp(0, 1).numpy()
        return sorted_matches(np.arange(len(first)), partner.numpy(), confidence)

    def tensors(self) -> dict[str, Tensor]:
        """The network's parameters."""
        return dict(self.network.state_dict())

    def values(self) -> dict[str, Any]:
        """Kind and width."""
        return {"arrangement": "paper", "network": self.network.settings}


def pair_loss(network: PaperNetwork, pair: Pair) -> Tensor | None:
    """Pull true matches together and push the hardest false ones apart; None without any true.

    With c the cosine, `mean(1 - c)` over pairs of points within one pixel, plus the mean of the
    largest c over the others, twice as many: the released loss at constant reliability.
    """
    if not len(pair.first) or not len(pair.second):
        return None
    off = pair.truth.forward[:, None] - pair.second.keypoints[None]
    close = torch.from_numpy(np.linalg.norm(off, axis=-1) <= CLOSE)
    judged = torch.from_numpy(pair.truth.judged)
    close = close & judged[:, None]
    if not bool(close.any()):
        return None
    sides = [torch.from_numpy(side.descriptors) for side in (pair.first, pair.second)]
    cosine = network(sides[0]) @ network(sides[1]).T
    false = cosine[judged].masked_fill(close[judged], -1).flatten()
    hardest = false.topk(min(2 * int(close.sum()), len(false))).values
    out: Tensor = (1 - cosine[close]).mean() + hardest.mean()
    return out


def fit_paper(
    network: PaperNetwork,
    pairs: Sequence[Pair],
    steps: int,
    lr: float,
    seed: int = 0,
    report: Callable[[int], None] = lambda step: None,
) -> None:
    """Train a network in place, one pair a step, each equally often."""
    if not pairs:
        raise ValueError("expected at least one pair to train on, got none")
    learner = Learner(network, Finetune(), training=Training(optimizer="adam", lr=lr))  # type: ignore[arg-type]
    rng = np.random.default_rng(seed)
    network.train()
    order: list[int] = []
    for step in range(steps):
        order = order or rng.permutation(len(pairs)).tolist()
        loss = pair_loss(network, pairs[order.pop()])
        if loss is not None:
            learner.descend(loss)
        report(step + 1)
    network.eval()

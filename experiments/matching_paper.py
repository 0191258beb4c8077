"""The paper's own arrangement: two layers with attention on all points of one image (Section 7).

Descriptors are refined within their image (no cross-attention, no positions), and each point goes
with the most similar one of the other image. As in the released code, all kinds have the same
parameters, a layer adds a tenth of its message to nine tenths of its input, and hardest negatives
train it; unlike there, descriptors are given, nothing depends on the number or the order of the
points, and weights begin as the identity, so that training starts from the given descriptors.
All kinds are trained alike, until the error on validation pairs falls no more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from evergraph.apps.matching.evaluate import evaluate
from evergraph.apps.matching.features import ImageFeatures, canonical_order
from evergraph.apps.matching.train import Fit, fit
from evergraph.apps.matching.truth import Matches, Pair, sorted_matches
from evergraph.feature_graph import Places
from evergraph.graph.neighbors import Neighbors
from evergraph.nn.fgn import FGN
from evergraph.nn.heads import Head
from evergraph.nn.messages import Message
from evergraph.nn.model import Requires
from evergraph.stream.batch import Batch

PaperKind = Literal["fgn", "fgn-shared", "gat"]
PAPER_KINDS: tuple[PaperKind, ...] = get_args(PaperKind)
CLOSE = 1.0  # pixels within which two points are the same


class PaperNetwork(nn.Module):
    """Two layers with a LeakyReLU between, on each of the two images of an item.

    `gat` collects Σ w y with the attention weights of Eq. (9), `fgn` Â x with the feature graph of
    Eqs. (4)-(6) for every point; `fgn-shared` has one adjacency for all points of an image.
    """

    def __init__(self, kind: PaperKind = "fgn", features: int = 128) -> None:
        super().__init__()
        if kind not in PAPER_KINDS:
            raise ValueError(f"kind must be one of {', '.join(PAPER_KINDS)}, got {kind!r}")
        messages: tuple[Message, ...] = ("feature-graph", "shared", "mean")
        self.fgn = FGN(
            features,
            layer="transform",
            features=(features, features),
            channels=(1, 1),
            message=messages[PAPER_KINDS.index(kind)],
            attention="softmax",
            residual=0.9,
            norm="none",
            activation="leaky_relu",
            head="embedding",
            nodes=None,
        )

        self.head: Head = self.fgn.head

    @property
    def requires(self) -> Requires:
        """Points of any number."""
        return self.fgn.requires

    def forward(self, batch: Batch) -> Tensor:
        """New descriptors of unit length `(1, S + T, F)`, from an item with target `(1, S, T)`."""
        self.requires.check(batch)
        assert isinstance(batch.x, Tensor)
        sides = batch.x.split(list(batch.target.shape[1:]), 1)
        return torch.cat([self.fgn.run(x, Places.complete(x.shape[1])) for x in sides], 1)

    @torch.no_grad()
    def match(self, pair: Pair) -> Matches:
        """Every point of the first image with the most similar one: no check, no threshold."""
        if not len(pair.first) or not len(pair.second):
            none = np.zeros(0, np.int64)
            return sorted_matches(none, none, np.zeros(0))
        orders = canonical_order(pair.first), canonical_order(pair.second)
        batch = point_batch(pair.first.take(orders[0]), pair.second.take(orders[1]))
        best, partner = cosines(self.eval()(batch), batch.target).max(1)
        return sorted_matches(orders[0], orders[1][partner.numpy()], best.clamp(0, 1).numpy())


class PointMatching:
    """Which points of two images are the same: target `(1, S, T)`, 1 true, 0 false, NaN unjudged.

    With c the cosine, the loss is `mean(1 - c)` over true pairs of points, plus the mean of the
    largest c over the false ones, twice as many: the released loss at constant reliability.
    """

    def __repr__(self) -> str:
        return "PointMatching()"

    def check(self, batch: Batch) -> None:
        """An item is one pair of images, of which some points are the same."""
        shape, true = tuple(batch.target.shape), int((batch.target == 1).sum())
        if len(batch) != 1 or len(shape) != 3 or not true:
            raise ValueError(
                "expected one pair of images with true matches, target (1, S, T), got a target of "
                f"shape {shape} with {true} of them"
            )

    def meet(self, head: Head, batch: Batch) -> None:
        """Descriptors have no outputs that could grow."""

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Pull true matches together and push the hardest false ones apart."""
        cosine, target = cosines(output, batch.target), batch.target[0]
        true = target == 1
        false = cosine.masked_fill(true, -1)[~target.isnan()]
        hardest = false.topk(min(2 * int(true.sum()), len(false))).values
        return (1 - cosine[true]).mean() + hardest.mean()

    def decode(self, output: Tensor) -> Tensor:
        """The descriptors themselves."""
        return output

    def measure(self, output: Tensor, target: Tensor) -> float:
        """The share of points with a true match whose most similar point is one."""
        found = target[0].gather(1, cosines(output, target).argmax(1, keepdim=True))[:, 0] == 1
        return float(found[(target[0] == 1).any(1)].double().mean())

    def groups(self, target: Tensor) -> list[int]:
        """All pairs are of one kind."""
        return [0] * len(target)

    def state(self) -> dict[str, Any]:
        """Nothing is learned here."""
        return {}

    def load_state(self, values: Mapping[str, Any]) -> None:
        """Nothing to restore."""


def cosines(output: Tensor, target: Tensor) -> Tensor:
    """The cosine of every descriptor of one image with every one of the other, `(S, T)`."""
    first, second = output[0].split(list(target.shape[1:]))
    cosine: Tensor = first @ second.T
    return cosine


def point_batch(first: ImageFeatures, second: ImageFeatures, target: Tensor | None = None) -> Batch:
    """Two images as one item, whose nodes are the points of both."""
    table = torch.from_numpy(np.concatenate([first.descriptors, second.descriptors]))
    if target is None:
        target = torch.full((1, len(first), len(second)), math.nan)
    nobody = Neighbors(table[:0].unsqueeze(1), torch.zeros(0, dtype=torch.int64))
    none = torch.tensor([-1])
    return Batch(table[None, :, None], nobody, target, none, none)


def labeled_points(pair: Pair) -> Batch:
    """The same with its truth: points within one pixel are the same."""
    off = pair.truth.forward[:, None] - pair.second.keypoints[None]
    same = np.linalg.norm(off, axis=-1) <= CLOSE
    target = np.where(pair.truth.judged[:, None], same, np.nan).astype(np.float32)
    return point_batch(pair.first, pair.second, torch.from_numpy(target)[None])


@dataclass(frozen=True)
class Plateau:
    """Training in rounds, at a lower rate where the validation error stops falling."""

    steps: int = 50  # of a round, one pair each
    rates: tuple[float, ...] = (1e-3, 1e-4)  # of Adam, one after the other
    patience: int = 2  # rounds without a lower error, after which a rate ends
    most: int = 40  # rounds in all


def converge(
    kind: PaperKind, pairs: Sequence[Pair], watch: Sequence[Pair], how: Plateau, seed: int
) -> tuple[PaperNetwork, list[tuple[float, float]]]:
    """The network of the least mean error on validation pairs, and rate and error of each round.

    Each rate begins with the best weights so far. The error is that of points with a partner.
    """
    data = [batch for pair in pairs if (batch := labeled_points(pair)).target.eq(1).any()]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = PaperNetwork(kind, pairs[0].first.descriptors.shape[1])
    curve = [(0.0, evaluate(watch, network.match)["possible_error"])]
    best, state = curve[0][1], deepcopy(network.state_dict())
    for rate in how.rates:
        stale = 0
        while stale < how.patience and len(curve) <= how.most:
            shuffle = 1000 * seed + len(curve)
            fit(network, data, Fit(how.steps, 1, rate, False), shuffle, PointMatching())
            error = evaluate(watch, network.match)["possible_error"]
            curve.append((rate, error))
            stale += 1
            if error < best:
                best, state, stale = error, deepcopy(network.state_dict()), 0
        network.load_state_dict(state)
    return network, curve

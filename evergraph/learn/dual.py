"""Kernel ridge regression on stored items, with mixture and λ chosen by leave-one-out.

Leaving out one item needs no solving anew: with `α = (K + λI)⁻¹ Y`, the error at item i without
item i is `α_i / (K + λI)⁻¹_ii`. So the items that are learned choose, and none is held out. What
is compared is the cross-entropy of the softmax of these scores, sharpened as fits best: squared
errors choose kernels that fit the size of the scores, which no decision asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, eigh

from evergraph.feature_graph.fixed_point import exponential
from evergraph.feature_graph.kernel import Hops, Similarity

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
STRENGTHS = (0.03, 0.1, 0.3, 1.0, 3.0)  # λ that are tried
CHOOSING = 512  # items that choose, at the most
SHARPNESS = np.geomspace(0.5, 64, 43)  # of the softmax that turns scores into probabilities


@dataclass(frozen=True)
class Mixture:
    """A kernel between items: a weighted mean of inner products, as it is or raised.

    Attributes:
        x, mean, root, product, together: weights; see `Similarity`.
        hops: which hops all but x read.
        sharpness: s of `exp(s (k - 1))`; 0 leaves k as it is.
    """

    x: float = 0.0
    mean: float = 0.0
    root: float = 0.0
    product: float = 0.0
    together: float = 0.0
    hops: Hops = "all"
    sharpness: float = 0.0

    def __call__(self, found: Similarity) -> Floats:
        """The kernel, `(n, k)`."""
        read = {
            found.mean: self.mean,
            found.root: self.root,
            found.product: self.product,
            found.together: self.together,
        }
        total = self.x + sum(read.values())
        parts = [self.x / total * found.x] if self.x else []
        parts += [weight / total * product(self.hops) for product, weight in read.items() if weight]
        kernel: Floats = np.sum(parts, axis=0)
        return exponential(self.sharpness * (kernel - 1)) if self.sharpness else kernel


WEIGHTS = (  # of x, means, roots, products and all together that are tried
    (2, 1, 0, 0, 0), (1, 2, 0, 0, 0), (1, 4, 0, 0, 0), (0, 1, 0, 0, 0), (1, 0, 2, 0, 0),
    (1, 0, 4, 0, 0), (0, 0, 1, 0, 0), (1, 1, 1, 0, 0), (0, 1, 1, 0, 0), (1, 0, 2, 2, 0),
    (0, 0, 0, 0, 1), (0, 0, 1, 0, 1),
)  # fmt: skip
HOPS: tuple[Hops, ...] = ("all", "last", "first")


def mixtures(
    products: bool = True,
    roots: bool = True,
    raised: bool = True,
    together: bool = True,
    reads: Sequence[Hops] = HOPS,
) -> list[Mixture]:
    """The mixtures that are tried: all of them, or those without some parts and hops."""
    every = [
        Mixture(*weights, hops, sharpness)
        for hops in reads
        for weights in WEIGHTS
        for sharpness in ((0.0, 2.0) if raised else (0.0,))
    ]
    return [
        m
        for m in every
        if (products or not m.product)
        and (together or not m.together)
        and (roots or not (m.root or m.product or m.together))
    ]


@dataclass(frozen=True)
class Choice:
    """A mixture and a λ, and the mean cross-entropy of leave-one-out with them."""

    loss: float
    mixture: Mixture
    strength: float


@dataclass(frozen=True)
class Dual:
    """A classifier: `k(item, stored) @ weight`.

    Attributes:
        choice: the kernel and λ.
        weight: `(n, K)`.
    """

    choice: Choice
    weight: Floats

    def __call__(self, found: Similarity) -> Floats:
        """Scores `(n, K)` of items by their similarity to the stored ones."""
        return self.choice.mixture(found) @ self.weight


@dataclass(frozen=True)
class Stored:
    """Items to learn from.

    Attributes:
        found: their similarity to each other.
        target: `(n,)`, their classes as numbers below `classes`.
        classes: K, how many there are.
        times: `(n,)`, how often each came; an item that came twice counts twice.
    """

    found: Similarity
    target: Ints
    classes: int
    times: Ints

    def problem(self, mixture: Mixture) -> tuple[Floats, Floats, Floats]:
        """The kernel and the classes `(n, K)` with rows times √times, and √times `(n, 1)`."""
        root = np.sqrt(self.times.astype(np.float64))[:, None]
        return root * mixture(self.found) * root.T, root * np.eye(self.classes)[self.target], root

    def first(self, size: int) -> Stored:
        """So many of them at the most."""
        parts = self.target[:size], self.classes, self.times[:size]
        return Stored(self.found.first(size), *parts)


def tried(
    stored: Stored, mixtures: Sequence[Mixture], strengths: Sequence[float] = STRENGTHS
) -> list[Choice]:
    """How well each mixture does with each λ, by the first of the stored items."""
    few, found = stored.first(CHOOSING), []
    for mixture in mixtures:
        kernel, truth, root = few.problem(mixture)
        for strength, scores in zip(strengths, left_out(kernel, truth, strengths), strict=True):
            found.append(Choice(sharpen(scores / root, few.target)[1], mixture, strength))
    return found


def solve(stored: Stored, choice: Choice) -> Dual:
    """Kernel ridge regression on stored items."""
    left, truth, root = stored.problem(choice.mixture)
    left[np.diag_indices_from(left)] += choice.strength
    factor = cho_factor(left, lower=True, overwrite_a=True, check_finite=False)
    return Dual(choice, root * cho_solve(factor, truth, check_finite=False))


def left_out(kernel: Floats, truth: Floats, strengths: Sequence[float]) -> Iterator[Floats]:
    """What each item would get without it, `(n, K)`, for each λ: one decomposition serves all."""
    values, vectors = eigh(kernel, check_finite=False)
    turned, squares = vectors.T @ truth, vectors**2
    for strength in strengths:
        shrunk = 1 / (np.maximum(values, 0) + strength)
        errors = (vectors @ (shrunk[:, None] * turned)) / (squares @ shrunk)[:, None]
        yield truth - errors


def softmax(scores: Floats) -> Floats:
    """Probabilities of the classes, `(n, K)`."""
    if not scores.shape[1]:
        return scores
    raised = np.exp(scores - scores.max(1, keepdims=True))
    return np.asarray(raised / raised.sum(1, keepdims=True))


def sharpen(scores: Floats, target: Ints) -> tuple[float, float]:
    """The s for which softmax(s · scores) fits the classes best, and its mean cross-entropy.

    Cross-entropy is convex in s, so that halving finds it.
    """
    own = np.arange(len(target))

    @cache
    def loss(place: int) -> float:
        fit = softmax(scores * SHARPNESS[place])[own, target]
        return float(-np.log(fit + 1e-12).mean())

    low, high = 0, len(SHARPNESS) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if loss(middle) <= loss(middle + 1) else (middle + 1, high)
    return float(SHARPNESS[low]), loss(low)

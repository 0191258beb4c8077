"""The classifier that exact sums give: block weights, λ, probabilities, label sets and novelty.

All of it is worked out when it is asked for, from the sums and a holdout of items that are not in
them: a quarter of the holdout chooses, the rest calibrates.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from evergraph.checks import shorten
from evergraph.feature_graph.fixed_point import ONE, Embedding
from evergraph.learn.dual import sharpen, softmax
from evergraph.learn.sums import Sums

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
STRENGTHS = (0.03, 0.1, 0.3, 1.0, 3.0)  # λ that are tried
PRIORS = (0.0, 1.0)  # weights of the remembered feature graph that are tried
FEWEST = 20  # held-out items that can choose between settings


@dataclass(frozen=True)
class Choice:
    """What is decided at solve time.

    Attributes:
        linear, kernel: weights of the blocks.
        strength: λ of the ridge.
        prior: weight of the remembered feature graph, `C = Σ x mᵀ + m xᵀ`: as if every linear
            block e were `e (I + prior · C)`.
    """

    linear: float = 1.0
    kernel: float = 1.0
    strength: float = 0.3
    prior: float = 0.0


@dataclass(frozen=True)
class Holdout:
    """Items that are in no sum: rows `(n, D)`, their class names, and which of them choose."""

    rows: Floats
    labels: list[str]
    chooses: Bools


class Solution:
    """A classifier.

    Args:
        sums: of the items that were learned.
        embedding: that made their rows.
        holdout: items that were not.
        choice: settings; None takes the best of `candidates` on the holdout.

    Attributes:
        classes: names, sorted.
        choice: what was chosen.
        held_out: how many of how many items of the holdout that did not choose are predicted right.
    """

    def __init__(
        self, sums: Sums, embedding: Embedding, holdout: Holdout, choice: Choice | None = None
    ) -> None:
        self.classes = sorted(sums.counts)
        self._embedding = embedding
        self._gram = sums.gram / ONE**2
        self._totals = np.array([sums.totals[name] for name in self.classes]).T / ONE
        self._whiten = embedding.whiten
        self._bases: dict[float, tuple[Floats, Floats, Floats]] = {}
        known = {name: k for k, name in enumerate(self.classes)}
        target = np.array([known.get(name, -1) for name in holdout.labels], dtype=np.int64)
        rows = holdout.rows / ONE
        chooses = holdout.chooses & (target >= 0)
        self.choice = self._choose(rows[chooses], target[chooses]) if choice is None else choice
        self._weight = self._solve(self.choice)
        self._bases.clear()
        rest = ~holdout.chooses & (target >= 0)
        self.sharpness = self._sharpen(rows[chooses], target[chooses])
        likely = self.probabilities(holdout.rows[rest])
        right = likely.argmax(1) == target[rest] if len(likely) else rest[:0]
        self.held_out = int(right.sum()), len(right)
        self._unfit = np.sort(1 - likely[np.arange(len(likely)), target[rest]])
        self._usual = np.sort(self._strangeness(rows[rest]))

    def weights(self, label: str) -> Floats:
        """What multiplies a row to give the score of a class, `(D,)`."""
        if label not in self.classes:
            known = ", ".join(map(shorten, self.classes[:10]))
            raise ValueError(f"the class must be one that was learned ({known}), got {label!r}")
        return np.asarray(self._weight[:, self.classes.index(label)])

    def scores(self, rows: Floats) -> Floats:
        """What ridge regression gives each class, `(n, K)`."""
        return np.asarray((rows / ONE) @ self._weight)

    def probabilities(self, rows: Floats) -> Floats:
        """Calibrated probabilities of the classes, `(n, K)`."""
        return softmax(self.scores(rows) * self.sharpness)

    def label_sets(self, probabilities: Floats, coverage: float = 0.9) -> Bools:
        """Which classes are in the conformal set of each item, `(n, K)`.

        It holds the right class with this probability; all classes while the holdout is too small
        to say more.
        """
        size = len(self._unfit)
        rank = int(np.ceil((size + 1) * coverage))
        limit = self._unfit[rank - 1] if rank <= size else np.inf
        return np.asarray(1 - probabilities <= limit)

    def novelty(self, rows: Floats) -> Floats:
        """The share of held-out items that are less strange, `(n,)`."""
        place = np.searchsorted(self._usual, self._strangeness(rows / ONE))
        return np.asarray(place / max(len(self._usual), 1))

    def candidates(self) -> list[Choice]:
        """Settings that are tried."""
        parts = self._embedding.parts
        both = parts["linear"].stop > 0 and parts["kernel"].stop > parts["linear"].stop
        weights = ((1.0, 1.0), (1.0, 0.0), (0.0, 1.0)) if both else ((1.0, 1.0),)
        priors = PRIORS if self._has_pairs else (0.0,)
        return [
            Choice(linear, kernel, strength, prior)
            for (linear, kernel), strength, prior in product(weights, STRENGTHS, priors)
            if not (prior and not linear)
        ]

    def _choose(self, rows: Floats, target: NDArray[np.int64]) -> Choice:
        if len(target) < FEWEST:
            return Choice()
        truth = np.eye(len(self.classes))[target]

        def loss(choice: Choice) -> float:
            return float(np.mean((rows @ self._solve(choice) - truth) ** 2))

        return min(self.candidates(), key=loss)

    def _solve(self, choice: Choice) -> Floats:
        """`P (PᵀGP + λI)⁻¹ PᵀS`, where P weighs the blocks."""
        base, gram, totals = self._base(choice.prior)
        weight = np.full(base.shape[1], choice.kernel)
        weight[: self._embedding.parts["linear"].stop] = choice.linear
        weight[-1] = 1.0
        left = gram * weight * weight[:, None]
        left[np.diag_indices_from(left)] += choice.strength
        factor = cho_factor(left, lower=True, overwrite_a=True, check_finite=False)
        return np.asarray((base * weight) @ cho_solve(factor, totals * weight[:, None]))

    def _base(self, prior: float) -> tuple[Floats, Floats, Floats]:
        """All blocks of weight one with a prior: the map P, `PᵀGP` and `PᵀS`."""
        if prior not in self._bases:
            parts, width = self._embedding.parts, self._embedding.block_width
            end = parts["linear"].stop
            base = np.zeros((self._embedding.size, end + self._whiten.shape[1] + 1))
            block = np.eye(width) + prior * self._pairs() if prior else np.eye(width)
            for start in range(0, end, width):
                base[start : start + width, start : start + width] = block
            base[parts["kernel"], end:-1] = self._whiten
            base[-1, -1] = 1.0
            self._bases[prior] = base, base.T @ self._gram @ base, base.T @ self._totals
        return self._bases[prior]

    @property
    def _has_pairs(self) -> bool:
        names = self._embedding.names
        return any(n.endswith("x") for n in names) and any(n.endswith("mean") for n in names)

    def _pairs(self) -> Floats:
        """The remembered feature graph: which features of nodes go with which of neighbors.

        It is the block of G between x and the mean of the first hop; largest row sum one.
        """
        names, width = self._embedding.names, self._embedding.block_width
        x, mean = (
            next(i for i, name in enumerate(names) if name.endswith(kind)) * width
            for kind in ("x", "mean")
        )
        found = self._gram[x : x + width, mean : mean + width]
        found = found + found.T
        return np.asarray(found / max(float(np.abs(found).sum(1).max()), 1e-12))

    def _sharpen(self, rows: Floats, target: NDArray[np.int64]) -> float:
        if not len(target):
            return 8.0
        return sharpen(rows @ self._weight, target)[0]

    def _strangeness(self, rows: Floats) -> Floats:
        """Minus the squared length of the scores times the part of an item that landmarks span.

        An item of no class has small scores for all, and one unlike all that was seen is hardly
        spanned. `experiments.coverage` compares it with others.
        """
        strength = ((rows @ self._weight) ** 2).sum(1)
        if not self._whiten.size:
            return np.asarray(-strength)
        spanned = ((rows[:, self._embedding.parts["kernel"]] @ self._whiten) ** 2).sum(1)
        return np.asarray(-strength * spanned)

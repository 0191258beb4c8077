"""From scores of candidates to one-to-one matches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Matches:
    """Matches of two images.

    Attributes:
        first, second: `(M,)` indices of points, the most confident first.
        confidence: `(M,)` float32 in 0..1.
    """

    first: Array
    second: Array
    confidence: Array

    def __len__(self) -> int:
        return len(self.first)

    def strongest(self, count: int) -> Matches:
        """The most confident of them."""
        return Matches(self.first[:count], self.second[:count], self.confidence[:count])


def sorted_matches(first: Array, second: Array, confidence: Array) -> Matches:
    """The most confident first; equals in the order of their points."""
    order = np.lexsort((second, first, -confidence))
    return Matches(first[order], second[order], confidence[order].astype(np.float32))


def one_to_one(first: Array, second: Array, score: Array, threshold: float) -> Matches:
    """Take the best candidate, drop all that share a point with it, and so on.

    In every round all candidates that are the best of both of their points are taken at once,
    which gives the same matches as one at a time.

    Example:
        >>> one_to_one(np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([0.9, 0.8, 0.7]), 0.5)
        Matches(first=array([0]), second=array([0]), confidence=array([0.9], dtype=float32))
    """
    left = np.flatnonzero(score >= threshold)
    left = left[np.lexsort((second[left], first[left], -score[left]))]
    taken = []
    while len(left):
        best0 = np.unique(first[left], return_index=True)[1]
        best1 = np.unique(second[left], return_index=True)[1]
        chosen = left[np.intersect1d(best0, best1)]
        taken.append(chosen)
        free = ~np.isin(first[left], first[chosen]) & ~np.isin(second[left], second[chosen])
        left = left[free]
    rows = np.concatenate(taken) if taken else np.zeros(0, np.int64)
    return sorted_matches(first[rows], second[rows], score[rows])


def best_cut(matches: Matches, beyond: float) -> Matches:
    """Keep as many of the most confident matches as make the expected F1 largest.

    If confidences are probabilities, the first k matches hold `Σ_{i≤k} p_i` true ones, of
    `beyond · Σ p` that there are, so that F1 is `2 Σ_{i≤k} p_i / (k + beyond · Σ p)`. An easy pair
    is cut at higher confidence than a hard one, which no fixed threshold does.

    Args:
        matches: the most confident first.
        beyond: true matches for each that is among these; 1 if none is missing.

    Example:
        >>> sure = Matches(np.arange(3), np.arange(3), np.array([1.0, 0.9, 0.1]))
        >>> len(best_cut(sure, 1.0))
        2
    """
    if not len(matches):
        return matches
    found = np.cumsum(matches.confidence, dtype=np.float64)
    expected = found / (np.arange(1, len(matches) + 1) + beyond * found[-1])
    return matches.strongest(int(np.argmax(expected)) + 1)

"""Assignment: from scored candidates to one-to-one matches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Matches:
    """Matches of two images, in descending order of confidence.

    Attributes:
        first, second: `(M,)` indices of keypoints.
        confidence: `(M,)` float32 in 0..1.
    """

    first: Array
    second: Array
    confidence: Array

    def __len__(self) -> int:
        return len(self.first)

    def strongest(self, count: int) -> Matches:
        """The `count` most confident matches."""
        return Matches(self.first[:count], self.second[:count], self.confidence[:count])


def sorted_matches(first: Array, second: Array, confidence: Array) -> Matches:
    """Sort matches by descending confidence; ties by index."""
    order = np.lexsort((second, first, -confidence))
    return Matches(first[order], second[order], confidence[order].astype(np.float32))


def one_to_one(first: Array, second: Array, score: Array, threshold: float) -> Matches:
    """Greedy assignment: take the best candidate, drop all that share a keypoint with it, repeat.

    Each round takes all candidates that are the best of both of their keypoints at once, which
    gives the same matches as one at a time.

    Args:
        first: `(E,)` keypoints of the candidates in the first image.
        second: `(E,)` keypoints of the candidates in the second image.
        score: `(E,)` scores of the candidates.
        threshold: minimum score of a match.

    Example:
        >>> one_to_one(np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([0.9, 0.8, 0.7]), 0.5)
        Matches(first=array([0]), second=array([0]), confidence=array([0.9], dtype=float32))
    """
    left = np.flatnonzero(score >= threshold)
    left = left[np.lexsort((second[left], first[left], -score[left]))]
    taken = [left[:0]]
    while len(left):
        best0 = np.unique(first[left], return_index=True)[1]
        best1 = np.unique(second[left], return_index=True)[1]
        chosen = left[np.intersect1d(best0, best1)]
        taken.append(chosen)
        free = ~np.isin(first[left], first[chosen]) & ~np.isin(second[left], second[chosen])
        left = left[free]
    rows = np.concatenate(taken)
    return sorted_matches(first[rows], second[rows], score[rows])


def best_cut(matches: Matches, beyond: float) -> Matches:
    """Keep the most confident matches, as many as maximize the expected F1.

    If confidences are probabilities, the first k matches contain `Σ_{i≤k} p_i` of the
    `beyond · Σ p` true matches, so that F1 is `2 Σ_{i≤k} p_i / (k + beyond · Σ p)`. Unlike a fixed
    threshold, this cuts an easy pair at a higher confidence than a hard one.

    Args:
        matches: in descending order of confidence.
        beyond: number of true matches divided by those among `matches`; 1 if none is missing.

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

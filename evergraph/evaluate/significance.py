"""Whether one model is better than another: paired differences, ranks, Friedman and Nemenyi.

Scores are accuracies, `(blocks, models)`: a block is a graph, on which all models were measured
alike. Demšar (JMLR 2006) describes the tests over several data sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences with its confidence interval.

    Attributes:
        mean: of first minus second.
        low, high: ends of the interval; infinite if there is one pair only.
        pairs: how many there are.
    """

    mean: float
    low: float
    high: float
    pairs: int

    @property
    def outcome(self) -> int:
        """1 if the first is better, -1 if the second is, 0 if the interval holds zero."""
        return int(self.low > 0) - int(self.high < 0)


def paired_difference(first: ArrayLike, second: ArrayLike, level: float = 0.95) -> Difference:
    """How much better the first is on the same splits: mean and interval by Student's t.

    Example:
        >>> found = paired_difference([0.9, 0.8, 0.7], [0.8, 0.8, 0.6])
        >>> round(found.mean, 4), round(found.low, 4), round(found.high, 4), found.outcome
        (0.0667, -0.0768, 0.2101, 0)
    """
    above = np.subtract(first, second, dtype=float)
    if above.ndim != 1 or not len(above):
        raise ValueError(f"scores must be two rows of equal length, got shape {above.shape}")
    mean, pairs = float(above.mean()), len(above)
    if pairs == 1:
        return Difference(mean, -np.inf, np.inf, 1)
    reach = stats.t.ppf((1 + level) / 2, pairs - 1) * above.std(ddof=1) / np.sqrt(pairs)
    return Difference(mean, mean - float(reach), mean + float(reach), pairs)


def mean_ranks(scores: ArrayLike) -> Scores:
    """The mean rank of each model over the blocks: 1 is best, equal scores share their ranks.

    Example:
        >>> mean_ranks([[0.9, 0.8, 0.7], [0.6, 0.6, 0.5]])
        array([1.25, 1.75, 3.  ])
    """
    found = np.asarray(_table(scores))
    return np.asarray(stats.rankdata(-found, axis=1).mean(0))


def friedman(scores: ArrayLike) -> tuple[float, float]:
    """Friedman's test that all models are alike: the statistic and its p value.

    The statistic is corrected for ties. With two models there is no such test: use the pairs.
    """
    found = _table(scores)
    if found.shape[1] < 3:
        raise ValueError(f"Friedman's test compares at least 3 models, got {found.shape[1]}")
    if (found == found[:, :1]).all():
        return 0.0, 1.0
    statistic, p = stats.friedmanchisquare(*found.T)
    return float(statistic), float(p)


def critical_difference(models: int, blocks: int, alpha: float = 0.05) -> float:
    """Nemenyi: mean ranks that lie further apart than this differ at level alpha.

    `q √(k (k + 1) / 6 N)`, where q is the studentized range of k means over √2.

    Example:
        >>> round(critical_difference(models=5, blocks=30), 3)
        1.114
    """
    if models < 2 or blocks < 1:
        raise ValueError(f"at least 2 models and 1 block are compared, got {models} and {blocks}")
    q = stats.studentized_range.ppf(1 - alpha, models, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(models * (models + 1) / (6 * blocks)))


def alike(ranks: Sequence[float], difference: float) -> list[tuple[int, int]]:
    """The longest runs of models, by rank, that a critical difference does not tell apart.

    Returns:
        First and last place in the order of ranks, both inclusive, of each run of two or more.

    Example:
        >>> alike([1.0, 1.5, 2.4, 4.0], difference=1.0)
        [(0, 1), (1, 2)]
    """
    ordered = sorted(ranks)
    runs: list[tuple[int, int]] = []
    for start, lowest in enumerate(ordered):
        end = max(i for i, rank in enumerate(ordered) if rank - lowest <= difference)
        if end > start and (not runs or end > runs[-1][1]):
            runs.append((start, end))
    return runs


def outcomes(first: Sequence[ArrayLike], second: Sequence[ArrayLike]) -> tuple[int, int, int]:
    """On how many blocks the first wins, ties and loses, by the interval over its splits.

    Example:
        >>> outcomes([[0.9, 0.8, 0.9], [0.5, 0.5, 0.6]], [[0.7, 0.6, 0.71], [0.5, 0.6, 0.5]])
        (1, 1, 0)
    """
    found = [paired_difference(a, b).outcome for a, b in zip(first, second, strict=True)]
    return found.count(1), found.count(0), found.count(-1)


def compare(names: Sequence[str], scores: ArrayLike, alpha: float = 0.05) -> dict[str, Any]:
    """Mean scores and ranks of all models, the test that they are alike, and what tells them apart.

    Example:
        >>> found = compare(["a", "b", "c"], [[0.9, 0.8, 0.7], [0.8, 0.7, 0.6]])
        >>> [row["model"] for row in found["models"]], found["blocks"]
        (['a', 'b', 'c'], 2)
    """
    table = _table(scores)
    if len(names) != table.shape[1]:
        raise ValueError(f"each of {table.shape[1]} models needs a name, got {len(names)}")
    ranks, means = mean_ranks(table), table.mean(0)
    statistic, p = friedman(table)
    order = np.argsort(ranks, kind="stable")
    return {
        "blocks": len(table),
        "friedman": {"statistic": statistic, "p": p},
        "alpha": alpha,
        "critical_difference": critical_difference(len(names), len(table), alpha),
        "models": [
            {"model": names[i], "rank": float(ranks[i]), "mean": float(means[i])} for i in order
        ],
    }


def _table(scores: ArrayLike) -> Scores:
    found = np.asarray(scores, dtype=float)
    if found.ndim != 2 or not found.size:
        raise ValueError(f"scores must have shape (blocks, models), got {found.shape}")
    if np.isnan(found).any():
        raise ValueError("every model must be measured on every block, got NaN")
    return found

"""How much was learned and how much was forgotten, from the accuracy matrix.

`matrix[t, j]` is the accuracy on test group j after task t; NaN where it was not measured. T
tasks make T rows; group j holds the test items of task j's classes.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def average_accuracy(matrix: Matrix) -> float:
    """The mean over the groups after the last task (AA, or AP in CGLB).

    Example:
        >>> average_accuracy(np.array([[1.0, 0.0], [0.5, 0.9]]))
        0.7
    """
    return float(np.nanmean(matrix[-1]))


def average_forgetting(matrix: Matrix) -> float:
    """The mean of last minus first learned accuracy over all but the last task (AF in CGLB).

    Negative numbers mean forgetting. This is also GEM's backward transfer.

    Example:
        >>> average_forgetting(np.array([[1.0, 0.0], [0.5, 0.9]]))
        -0.5
    """
    learned = np.diagonal(matrix)[:-1]
    return _mean(matrix[-1, : len(learned)] - learned)


backward_transfer = average_forgetting


def maximum_forgetting(matrix: Matrix) -> float:
    """The mean of best minus last accuracy over all but the last task (Chaudhry et al.).

    Positive numbers mean forgetting; what came after the peak counts, whenever that was.

    Example:
        >>> maximum_forgetting(np.array([[0.6, 0.0, 0.0], [0.8, 0.7, 0.0], [0.5, 0.6, 0.9]]))
        0.2
    """
    earlier = matrix[:-1]
    groups = min(matrix.shape[1], len(matrix) - 1) or matrix.shape[1]
    if not len(earlier):
        return 0.0
    drop = np.fmax.reduce(earlier[:, :groups], axis=0) - matrix[-1, :groups]
    return round(_mean(drop), 12)


def _mean(values: Matrix) -> float:
    """Over all that was measured; 0 if nothing was."""
    measured = values[~np.isnan(values)]
    return float(measured.mean()) if len(measured) else 0.0


def forward_transfer(matrix: Matrix, chance: Iterable[float]) -> float:
    """The mean accuracy on a task just before it is learned, above chance (GEM).

    Example:
        >>> forward_transfer(np.array([[1.0, 0.3], [0.5, 0.9]]), chance=[0.1, 0.1])
        0.2
    """
    before = np.diagonal(matrix, offset=1)
    gain = before - np.asarray(list(chance))[1 : 1 + len(before)]
    return round(float(np.mean(gain)), 12) if len(before) else 0.0


def forgetting_rate(regular: Iterable[float], lifelong: Iterable[float]) -> float:
    """The paper's rate: the mean drop per class against regular learning, as a share.

    Example:
        >>> forgetting_rate(regular=[0.9, 0.8], lifelong=[0.8, 0.8])
        0.05
    """
    drop = np.asarray(list(regular)) - np.asarray(list(lifelong))
    return round(float(np.mean(drop)), 12)


def maximum_backward_forgetting(snapshots: Matrix) -> NDArray[np.float64]:
    """For each class the best of all snapshots minus the last, `(classes,)`.

    Example:
        >>> maximum_backward_forgetting(np.array([[0.5, 1.0], [0.75, 0.5]]))
        array([0. , 0.5])
    """
    return np.asarray(np.nanmax(snapshots, axis=0) - snapshots[-1])


class Prequential:
    """Accuracy of predictions made before learning from the same items.

    Example:
        >>> score = Prequential()
        >>> score.update([1, 2], [1, 3])
        >>> score.accuracy
        0.5
    """

    def __init__(self) -> None:
        self.correct = self.count = 0

    def update(self, predicted: Iterable[int], target: Iterable[int]) -> None:
        """Count a batch; items without a label (-1) do not count."""
        for one, other in zip(predicted, target, strict=True):
            if other < 0:
                continue
            self.correct += int(one == other)
            self.count += 1

    @property
    def accuracy(self) -> float:
        """The share of correct predictions so far; NaN before the first."""
        return self.correct / self.count if self.count else float("nan")

"""Accuracy and forgetting, from the accuracy matrix.

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

    Negative numbers mean forgetting. GEM calls it backward transfer.

    Example:
        >>> average_forgetting(np.array([[1.0, 0.0], [0.5, 0.9]]))
        -0.5
    """
    learned = np.diagonal(matrix)[:-1]
    return _mean(matrix[-1, : len(learned)] - learned)


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


def final_minus_peak(matrix: Matrix) -> float:
    """The mean over all groups of final minus best accuracy (FM of DRIFT); negative is forgetting.

    Unlike `maximum_forgetting` it counts every group, the last one too.

    Example:
        >>> final_minus_peak(np.array([[0.6, 0.0], [0.8, 0.7], [0.5, 0.9]]))
        -0.15
    """
    return round(_mean(matrix[-1] - np.fmax.reduce(matrix, axis=0)), 12)


def _mean(values: Matrix) -> float:
    """Over all that was measured; 0 if nothing was."""
    measured = values[~np.isnan(values)]
    return float(measured.mean()) if len(measured) else 0.0


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

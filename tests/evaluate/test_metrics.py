"""Metrics on matrices worked out by hand."""

import numpy as np
import pytest

from evergraph.evaluate import metrics

MATRIX = np.array([[0.9, 0.1, 0.0], [0.6, 0.8, 0.2], [0.7, 0.5, 1.0]])


def test_all_numbers_of_a_matrix():
    assert metrics.average_accuracy(MATRIX) == pytest.approx((0.7 + 0.5 + 1.0) / 3)
    assert metrics.average_forgetting(MATRIX) == pytest.approx((0.7 - 0.9 + 0.5 - 0.8) / 2)
    assert metrics.maximum_forgetting(MATRIX) == pytest.approx((0.9 - 0.7 + 0.8 - 0.5) / 2)


def test_the_two_definitions_differ_when_the_peak_comes_late():
    matrix = np.array([[0.5, 0.0, 0.0], [0.9, 0.7, 0.0], [0.6, 0.7, 0.9]])
    assert metrics.average_forgetting(matrix) == pytest.approx(0.05)  # better than when learned
    assert metrics.maximum_forgetting(matrix) == pytest.approx(0.15)  # worse than at its best


def test_a_single_task_forgets_nothing():
    one = np.array([[0.8]])
    assert metrics.average_forgetting(one) == 0
    assert metrics.maximum_forgetting(one) == 0


def test_against_regular_learning_and_over_snapshots():
    assert metrics.forgetting_rate([0.9, 0.7, 0.5], [0.8, 0.7, 0.6]) == pytest.approx(0.0)
    snapshots = np.array([[0.2, 0.9], [0.8, 0.6], [0.7, 0.7]])
    assert metrics.maximum_backward_forgetting(snapshots) == pytest.approx([0.1, 0.2])

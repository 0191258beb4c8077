"""Significance tests against cases worked out by hand and published tables."""

import numpy as np
import pytest

from evergraph.evaluate.figures import rank_diagram
from evergraph.evaluate.significance import (
    alike,
    compare,
    critical_difference,
    friedman,
    mean_ranks,
    outcomes,
    paired_difference,
)


def test_the_interval_is_that_of_the_t_table():
    # differences 1, 2, 3: mean 2, sd 1, so 2 ± 4.303 / √3 with two degrees of freedom
    found = paired_difference([3.0, 5.0, 7.0], [2.0, 3.0, 4.0])
    assert found.mean == pytest.approx(2)
    assert (found.low, found.high) == pytest.approx((2 - 2.4841, 2 + 2.4841), abs=1e-3)
    assert found.outcome == 0
    # at 80 % t is 1.886, which leaves zero out
    assert paired_difference([3.0, 5.0, 7.0], [2.0, 3.0, 4.0], level=0.8).outcome == 1
    assert paired_difference([2.0, 3.0, 4.0], [3.0, 5.0, 7.0], level=0.8).outcome == -1


def test_one_pair_decides_nothing():
    found = paired_difference([1.0], [0.0])
    assert (found.mean, found.pairs, found.outcome) == (1.0, 1, 0)
    assert not np.isfinite(found.high)


def test_equal_scores_tie():
    assert paired_difference([0.5, 0.6], [0.5, 0.6]).outcome == 0
    assert outcomes([[0.5, 0.6]], [[0.5, 0.6]]) == (0, 1, 0)


def test_ranks_share_ties():
    # first block: 1, 2.5, 2.5, 4; second: 4, 3, 2, 1
    ranks = mean_ranks([[0.9, 0.8, 0.8, 0.1], [0.1, 0.2, 0.3, 0.4]])
    assert ranks.tolist() == [2.5, 2.75, 2.25, 2.5]


def test_friedman_by_hand():
    # ranks 1 2 3 in all of four blocks: 12 * 4 / (3 * 4) * (1 + 4 + 9 - 3 * 16 / 4) = 8
    scores = np.tile([3.0, 2.0, 1.0], (4, 1))
    statistic, p = friedman(scores)
    assert statistic == pytest.approx(8)
    assert p == pytest.approx(np.exp(-4))  # chi-squared with two degrees of freedom
    assert friedman(np.ones((4, 3))) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("models", "q"), [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (10, 3.164)]
)
def test_critical_values_are_those_of_the_published_table(models, q):
    blocks = 14  # Demšar 2006, Table 5a
    expected = q * np.sqrt(models * (models + 1) / (6 * blocks))
    assert critical_difference(models, blocks) == pytest.approx(expected, abs=2e-3)


def test_runs_of_models_that_are_alike():
    assert alike([1.0, 4.0, 2.0, 3.0], 0.5) == []
    assert alike([1.0, 4.0, 2.0, 3.0], 1.0) == [(0, 1), (1, 2), (2, 3)]
    assert alike([1.0, 4.0, 2.0, 3.0], 3.0) == [(0, 3)]
    assert alike([1.0, 2.0, 2.1, 5.0], 1.1) == [(0, 2)]  # no run inside another


def test_a_comparison_names_the_best_first(tmp_path):
    scores = np.array([[0.5, 0.7, 0.6], [0.4, 0.9, 0.6], [0.1, 0.2, 0.3]])
    found = compare(["a", "b", "c"], scores)
    assert [row["model"] for row in found["models"]] == ["b", "c", "a"]
    assert [row["rank"] for row in found["models"]] == pytest.approx([4 / 3, 5 / 3, 3])
    assert found["models"][0]["mean"] == pytest.approx(0.6)
    assert found["blocks"] == 3
    ranks = {row["model"]: row["rank"] for row in found["models"]}
    runs = alike(list(ranks.values()), found["critical_difference"])
    rank_diagram(ranks, found["critical_difference"], runs, tmp_path / "ranks.png")
    assert (tmp_path / "ranks.png").stat().st_size > 5000


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: paired_difference([], []), "equal length"),
        (lambda: mean_ranks([1.0, 2.0]), "shape"),
        (lambda: mean_ranks([[1.0, np.nan]]), "every block"),
        (lambda: friedman([[1.0, 2.0]]), "at least 3 models"),
        (lambda: critical_difference(1, 5), "at least 2 models"),
        (lambda: compare(["a"], [[1.0, 2.0, 3.0]]), "needs a name"),
    ],
)
def test_what_cannot_be_compared_is_refused(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call()

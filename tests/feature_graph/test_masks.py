"""Dropout that is drawn in the compiled loop: the right share, and no two nodes alike."""

import itertools

import numpy as np
import pytest

from evergraph.feature_graph.compiled.network import masks


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
def test_the_share_is_the_rate(rate):
    found = masks(7, rate, 50, 2_000)
    assert found.shape == (50, 2_000)
    assert set(np.unique(found).tolist()) == {0.0, float(np.float32(1 / (1 - rate)))}
    dropped = found == 0
    error = 4.5 * np.sqrt(rate * (1 - rate))
    assert abs(dropped.mean() - rate) < error / np.sqrt(found.size)
    assert abs(dropped.mean(1) - rate).max() < error / np.sqrt(2_000)


def test_seeds_channels_and_neighbors_are_independent():
    seeds = (1, 2, 3, 1 + (1 << 32), 1 + (1 << 40), (1 << 62) - 1)
    drawn = np.array([masks(seed, 0.3, 1, 40_000)[0] == 0 for seed in seeds], dtype=float)
    for one, other in itertools.combinations(drawn, 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.025  # five standard errors
    for shift in (1, 2, 4, 8, 64):
        assert abs(np.corrcoef(drawn[0][shift:], drawn[0][:-shift])[0, 1]) < 0.025


def test_the_same_seed_draws_the_same():
    assert np.array_equal(masks(5, 0.3, 3, 100), masks(5, 0.3, 3, 100))
    assert not np.array_equal(masks(5, 0.3, 3, 100), masks(6, 0.3, 3, 100))

"""Dropout that is drawn in the compiled loop: the right share, and no two nodes alike."""

import itertools

import numpy as np
import pytest

from evergraph.feature_graph.compiled.norm import masks


def dropped(seed, rate, layers, nodes, channels=16):
    """What the bits of a mask drop, `(layers, nodes, channels)`."""
    bits = masks(seed, rate, layers, nodes, channels)
    assert bits.shape == (layers, nodes, channels // 16)
    return (bits[..., None] >> np.arange(16) & 1).reshape(layers, nodes, channels) == 0


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
def test_the_share_is_the_rate(rate):
    found = dropped(7, rate, 2, 2_000, 32)
    error = 4.5 * np.sqrt(rate * (1 - rate))
    assert abs(found.mean() - rate) < error / np.sqrt(found.size)
    assert abs(found.mean(1) - rate).max() < error / np.sqrt(2_000)
    assert abs(found.mean((0, 1)) - rate).max() < error / np.sqrt(4_000)


def test_seeds_channels_and_neighbors_are_independent():
    seeds = (1, 2, 3, 1 + (1 << 32), 1 + (1 << 40), (1 << 62) - 1)
    drawn = np.array([dropped(seed, 0.3, 1, 2_500).ravel() for seed in seeds], dtype=float)
    for one, other in itertools.combinations(drawn, 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.025  # five standard errors
    for shift in (1, 2, 4, 8, 16, 32, 64):
        assert abs(np.corrcoef(drawn[0][shift:], drawn[0][:-shift])[0, 1]) < 0.025
    channels = dropped(4, 0.3, 1, 40_000)[0].T.astype(float)
    for one, other in itertools.combinations(channels, 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.025


def test_rates_near_one_drop_nearly_all():
    assert dropped(7, 1 - 1e-9, 1, 1_000).mean() > 0.999


def test_the_same_seed_draws_the_same():
    assert np.array_equal(masks(5, 0.3, 3, 100, 16), masks(5, 0.3, 3, 100, 16))
    assert not np.array_equal(masks(5, 0.3, 3, 100, 16), masks(6, 0.3, 3, 100, 16))

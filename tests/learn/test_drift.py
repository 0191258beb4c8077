"""The drift detector: silent while nothing changes, quick when something does, bounded."""

import random

import pytest

from evergraph.learn.drift import Drift


def feed(drift, rng, chance, count):
    return sum(drift.add(float(rng.random() < chance)) for _ in range(count))


def test_a_steady_stream_raises_no_alarm():
    for seed in range(20):
        drift, rng = Drift(), random.Random(seed)
        assert feed(drift, rng, 0.3, 3000) == 0
        assert len(drift) == 3000
        assert abs(drift.mean - 0.3) < 0.05


@pytest.mark.parametrize(("before", "after"), [(0.1, 0.5), (0.6, 0.2), (0.9, 0.4)])
def test_a_change_is_found_and_the_past_is_dropped(before, after):
    for seed in range(10):
        drift, rng = Drift(), random.Random(seed)
        assert feed(drift, rng, before, 1000) == 0
        assert feed(drift, rng, after, 500) > 0
        assert drift.alarms > 0
        assert (drift.change[1] > drift.change[0]) == (after > before)
        assert len(drift) < 1200
        feed(drift, rng, after, 1000)
        assert abs(drift.mean - after) < 0.1


def test_the_window_is_the_numbers_themselves():
    drift, rng = Drift(), random.Random(0)
    values = [rng.random() for _ in range(500)]
    for value in values:
        drift.add(value)
    assert len(drift) == 500
    assert drift.mean == pytest.approx(sum(values) / 500)


def test_memory_grows_with_the_logarithm():
    drift = Drift()
    for _ in range(20_000):
        drift.add(0.5)
    assert sum(map(len, drift._rows)) < 100


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="delta must be between 0 and 1, got 2"):
        Drift(2)
    with pytest.raises(ValueError, match=r"between 0 and 1, got 1\.5"):
        Drift().add(1.5)

"""Rows that are kept for a while."""

import numpy as np
import pytest

from evergraph.learn.kept_rows import KeptRows


@pytest.mark.parametrize("most", [1, 3, 8, 100])
def test_whatever_is_kept_rows_are_those_of_now(most):
    rng = np.random.default_rng(most)
    kept, current, made = KeptRows(4, most), rng.integers(-(2**20), 2**20, (20, 4)), []

    def make(slots):
        made.extend(slots.tolist())
        return current[slots].astype(np.float64)

    for turn in range(300):
        slots = rng.permutation(20)[: rng.integers(0, 12)]
        if turn % 3 == 0:
            current[slots] = rng.integers(-(2**20), 2**20, (len(slots), 4))
            kept.drop(slots.tolist())
            continue
        found = kept.rows(slots, make, keep=turn % 3 == 1)
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, current[slots])
    assert len(kept._place) <= most
    assert len(made) < 200 * 6  # some were kept
    made.clear()
    last = np.arange(most % 20)
    for _ in range(2):
        kept.rows(last, make)
    assert len(made) <= len(last)

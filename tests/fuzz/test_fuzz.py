"""A short run of every fuzzer, always the same; `make fuzz` runs them at length."""

import numpy as np
import pytest

from tests.fuzz.invariants import refusal
from tests.fuzz.run import KINDS, chunk

CASES = {
    "batches": 150, "tables": 150, "checkpoints": 80, "model folders": 10, "images": 80,
    "recordings": 60, "events": 150,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_breaks(kind):
    outcomes = chunk(kind, 0, CASES[kind])
    assert len(outcomes) > 1  # some are taken and some are refused


def test_raw_errors_are_noticed():
    for raw in (lambda: {}["key"], lambda: int("x"), lambda: np.zeros(2) @ np.zeros(3)):
        with pytest.raises(AssertionError, match=r"raw error|own words"):
            refusal(raw)

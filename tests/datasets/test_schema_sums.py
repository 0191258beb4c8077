"""Exact sums: the same integers for every order, cut and history."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.datasets.sums import FRACTION, LIMIT, Sums

VALUES = st.lists(st.floats(-LIMIT, LIMIT), max_size=40)


def sums_of(values, width=1, place=None):
    values = np.array(values, dtype=np.float64)
    place = np.zeros(len(values), dtype=np.int64) if place is None else np.asarray(place)
    sums = Sums(width)
    sums.add(len(values), place, values)
    return sums


@given(VALUES, st.randoms(use_true_random=False))
def test_sums_equal_those_of_fractions_in_any_order(values, random):
    units = [round(Fraction(value) * 2**FRACTION) for value in values]
    shuffled = values[:]
    random.shuffle(shuffled)
    for some in (values, shuffled):
        sums = sums_of(some)
        assert sums.total.tolist() == [sum(units)]
        assert sums.squares.tolist() == [sum(unit * unit for unit in units)]
        assert sums.nonzeros.tolist() == [sum(unit != 0 for unit in units)]


@given(VALUES, VALUES)
def test_merging_and_taking_out_leaves_no_trace(kept, gone):
    sums = sums_of(kept)
    sums.merge(sums_of(gone))
    assert sums.to_dict() == sums_of(kept + gone).to_dict()
    sums.merge(sums_of(gone), -1)
    assert sums.to_dict() == sums_of(kept).to_dict()
    assert Sums.from_dict(sums.to_dict()).to_dict() == sums.to_dict()


def test_places_are_summed_on_their_own():
    sums = sums_of([1.0, 2.0, 3.5, -1.0], width=3, place=[0, 2, 2, 0])
    assert [int(total) / 2**64 for total in sums.total] == [0.0, 0.0, 5.5]
    assert [int(square) / 2**128 for square in sums.squares] == [2.0, 0.0, 16.25]


@settings(max_examples=50)
@given(st.integers(0, 2**32), st.integers(-40, 40), st.floats(-1e6, 1e6))
def test_scale_is_near_the_deviation_and_mean_near_the_mean(seed, exponent, center):
    values = (np.random.default_rng(seed).standard_normal(200) + center) * 2.0**exponent
    mean, scale = sums_of(values).standard()
    unit = 2.0 ** int(scale[0])
    assert 2**-0.51 < unit / values.std() < 2**0.51
    assert abs(int(mean[0]) / 16 * unit - values.mean()) <= unit / 32 + 1e-9 * abs(values.mean())


def test_sparse_rows_have_no_mean_and_one_scale():
    mean, scale = sums_of([4.0] * 10 + [0.0] * 90).standard()
    assert (mean.tolist(), scale.tolist()) == ([0], [2])
    mean, _ = sums_of([4.0] * 11 + [0.0] * 89).standard()
    assert mean.any()


def test_constant_and_empty_columns_have_scale_one():
    assert [part.tolist() for part in sums_of([5.0, 5.0]).standard()] == [[80], [0]]
    assert [part.tolist() for part in sums_of([]).standard()] == [[0], [0]]


def test_more_cannot_be_taken_out_than_is_there():
    with pytest.raises(ValueError, match="only rows that were added"):
        sums_of([1.0]).merge(sums_of([1.0, 2.0]), -1)

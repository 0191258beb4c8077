"""Streams whose groups overlap: every item comes once, and overlaps are where they should be."""

import numpy as np
import pytest
import torch

from evergraph.stream.schedule import Schedule, blurred, blurred_at_boundaries, gaussian

SIZES = (60, 40, 100)


def groups():
    parts = torch.arange(200).split(SIZES)
    return dict(zip("abc", parts, strict=True))


def of_group(index):
    """The group of each item."""
    return torch.bucketize(index, torch.tensor([60, 100]), right=True)


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_a_share_of_each_group_is_dealt_to_all(share):
    found = blurred(groups(), share, np.random.default_rng(0))
    assert sorted(torch.cat([*found.values()]).tolist()) == list(range(200))
    dealt = sum(int(size * share + 1e-9) for size in SIZES)
    for number, (index, size) in enumerate(zip(found.values(), SIZES, strict=True)):
        own = int((of_group(index) == number).sum())
        assert size - int(size * share + 1e-9) <= own <= size
        assert abs(len(index) - own) <= dealt / 3 + 1
    assert Schedule.from_groups(found, 10).names == ("a", "b", "c")


def test_boundaries_mix_neighbors_only():
    order = blurred_at_boundaries(groups(), 10, np.random.default_rng(0))
    assert sorted(order.tolist()) == list(range(200))
    group = of_group(order)
    assert (group[:50] == 0).all()
    assert (group[70:90] == 1).all()
    assert (group[110:] == 2).all()
    mixed = group[50:70]
    assert sorted(mixed.tolist()) == [0] * 10 + [1] * 10
    assert mixed.tolist() != [0] * 10 + [1] * 10


def test_small_groups_keep_a_pure_middle():
    parts = {"a": torch.arange(3), "b": torch.arange(3, 6), "c": torch.arange(6, 9)}
    order = blurred_at_boundaries(parts, 100, np.random.default_rng(0))
    assert [int(order[i]) for i in (0, 1, 4, 7, 8)] == [0, 1, 4, 7, 8]


def test_a_gaussian_stream_moves_from_group_to_group():
    order = gaussian(groups(), 10, 2.0, np.random.default_rng(0))
    assert sorted(order.tolist()) == list(range(200))
    place = torch.empty(200).scatter(0, order, torch.arange(200.0))
    means = [float(part.mean()) for part in place.split(SIZES)]
    assert means == sorted(means)
    sharp = gaussian(groups(), 10, 0.05, np.random.default_rng(0))
    wide = gaussian(groups(), 10, 1e6, np.random.default_rng(0))
    changes = [int((of_group(one).diff() != 0).sum()) for one in (sharp, order, wide)]
    assert changes[0] < changes[1] < changes[2]
    assert changes[0] < 20


def test_a_stream_without_width_is_refused():
    with pytest.raises(ValueError, match="sigma must be positive"):
        gaussian(groups(), 10, 0.0, np.random.default_rng(0))

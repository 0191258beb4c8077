"""Sums that do not depend on order, batches, merges or what came and went."""

import numpy as np
import pytest
import torch

from evergraph.feature_graph.fixed_point import ONE
from evergraph.graph.rows import SparseRows
from evergraph.learn.sums import MOST, Sums


def _items(size: int, width: int, seed: int = 0) -> tuple[np.ndarray, list[str]]:
    rng = np.random.default_rng(seed)
    rows = np.rint(rng.uniform(-1, 1, (size, width)) * ONE)
    return rows, [f"c{k}" for k in rng.integers(0, 4, size)]


def _thin(rows: np.ndarray) -> SparseRows:
    return SparseRows.from_dense(torch.from_numpy(rows))


def test_sums_are_those_of_the_loop():
    rows, labels = _items(30, 5)
    sums = Sums(5)
    sums.add(rows, labels)
    gram = sum(np.outer(r, r).astype(object) for r in rows.astype(np.int64).astype(object))
    assert (sums.gram == gram).all()
    for name in set(labels):
        mine = [r for r, n in zip(rows, labels, strict=True) if n == name]
        assert (sums.totals[name] == np.sum(mine, axis=0)).all()
        assert sums.counts[name] == len(mine)


@pytest.mark.parametrize("share", [0.01, 0.3])  # in which sparse products are taken, and dense
def test_sparse_rows_give_the_sums_of_dense_ones(share):
    rng = np.random.default_rng(0)
    rows = np.rint(rng.uniform(-1, 1, (40, 1100)) * ONE) * (rng.random((40, 1100)) < share)
    labels = [f"c{k}" for k in rng.integers(0, 3, 40)]
    dense, thin, mixed = Sums(1100), Sums(1100), Sums(1100)
    dense.add(rows, labels)
    thin.add(_thin(rows), labels)
    for start in range(0, 40, 8):
        part = rows[start : start + 8]
        mixed.add(part if start % 16 else _thin(part), labels[start : start + 8])
    exact = rows.astype(np.int64)
    assert (dense.gram == exact.T @ exact).all()
    assert dense.digest() == thin.digest() == mixed.digest()
    thin.add(_thin(rows[:9]), labels[:9], -1)
    dense.add(rows[:9], labels[:9], -1)
    assert (thin.gram == dense.gram).all()


def test_order_and_batches_do_not_matter():
    rows, labels = _items(20_000, 6)  # more than one block of the product
    whole = Sums(6)
    whole.add(rows, labels)
    rng, parts = np.random.default_rng(1), Sums(6)
    for part in np.array_split(rng.permutation(20_000), 37):
        parts.add(rows[part], [labels[i] for i in part])
    assert parts.digest() == whole.digest()


def test_what_came_and_went_leaves_nothing():
    rows, labels = _items(50, 4)
    kept, passing = Sums(4), Sums(4)
    kept.add(rows[:30], labels[:30])
    passing.add(rows, labels)
    passing.add(np.ones((1, 4)), ["another"])
    passing.add(rows[30:], labels[30:], -1)
    passing.add(np.ones((1, 4)), ["another"], -1)
    assert passing.digest() == kept.digest()


def test_merge_and_its_inverse():
    rows, labels = _items(50, 4)
    left, right, whole = Sums(4), Sums(4), Sums(4)
    left.add(rows[:20], labels[:20])
    right.add(rows[20:], labels[20:])
    whole.add(rows, labels)
    before = left.digest()
    left.merge(right)
    assert left.digest() == whole.digest()
    left.merge(right, -1)
    assert left.digest() == before


def test_what_was_not_learned_cannot_be_forgotten():
    sums = Sums(2)
    before = sums.digest()
    with pytest.raises(ValueError, match="only what was learned can be forgotten: 0 of 'a', got 1"):
        sums.add(np.ones((1, 2)), ["a"], -1)
    assert sums.digest() == before


def test_sums_of_other_rows_are_not_merged():
    with pytest.raises(ValueError, match="rows of 2 numbers, got 3"):
        Sums(2).merge(Sums(3))


def test_arrays_go_round():
    rows, labels = _items(50, 4)
    sums = Sums(4)
    sums.add(rows, labels)
    assert Sums.from_arrays(*sums.arrays()).digest() == sums.digest()
    assert Sums.from_arrays(*Sums(4).arrays()).digest() == Sums(4).digest()


def test_sums_that_are_full_refuse_more():
    full = Sums(2)
    full.add(np.full((1, 2), ONE), ["a"])
    full.counts["a"] = MOST
    with pytest.raises(ValueError, match=f"at the most, got 1 beside {MOST}"):
        full.add(np.full((1, 2), ONE), ["b"])
    assert full.counts == {"a": MOST}


@pytest.mark.parametrize("count", [MOST + 1, 10**30])
def test_sums_of_more_than_they_can_hold_are_refused(count):
    one = Sums(2)
    one.add(np.full((1, 2), ONE), ["a"])
    arrays, values = one.arrays()
    with pytest.raises(ValueError, match=f"at the most, got {count}"):
        Sums.from_arrays(arrays, {**values, "counts": [count]})

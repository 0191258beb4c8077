"""Sparse rows against dense matrices."""

import pytest
import torch

from evergraph.graph import rows as module
from evergraph.graph.rows import SparseRows


def matrix():
    dense = torch.randn(5, 7) * (torch.rand(5, 7) < 0.4)
    dense[2] = 0
    return dense


def test_round_trip_selection_and_products():
    dense = matrix()
    rows = SparseRows.from_dense(dense)
    index = torch.tensor([4, 2, 0, 4])
    assert torch.equal(rows.to_dense(), dense)
    assert torch.equal(rows[index].to_dense(), dense[index])
    assert torch.allclose(rows.matmul(torch.eye(7)), dense)
    assert len(rows) == 5
    assert rows.to(torch.float64).values.dtype == torch.float64
    assert rows.nbytes == 8 * 6 + 12 * len(rows.values)


def test_pool_adds_scaled_rows():
    dense = matrix()
    group, scale = torch.tensor([1, 0, 1, 3, 1]), torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    expected = torch.zeros(4, 7).index_add(0, group, dense * scale.unsqueeze(1))
    pooled = SparseRows.from_dense(dense).pool(group, 4, scale)
    assert torch.allclose(pooled.to_dense(), expected)


def test_a_nan_is_not_lost():
    assert torch.isnan(SparseRows.from_dense(torch.tensor([[0.0, torch.nan]])).values).all()


def test_arrays_must_belong_together():
    with pytest.raises(ValueError, match="matrix of shape"):
        SparseRows.from_dense(torch.zeros(3))
    with pytest.raises(ValueError, match=r"indices \(nnz,\) and values \(nnz,\)"):
        SparseRows(torch.tensor([0, 2]), torch.tensor([0, 1]), torch.tensor([1.0]), 3)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("index", [[3, 0, 3], list(range(300)), []], ids=len)
def test_many_entries_are_selected_as_few_are(index, dtype, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    dense = torch.rand(300, 200, generator=generator)
    dense = dense * (torch.rand(300, 200, generator=generator) < 0.5)
    rows = SparseRows.from_dense(dense).with_index_type(dtype)
    where = torch.tensor(index, dtype=None if index else torch.int64)
    found = []
    for few, many in ((0, 0), (0, 10**9), (10**9, 0)):  # scipy, torch, slices
        monkeypatch.setattr(module, "FEW", few)
        monkeypatch.setattr(module, "MANY", many)
        found.append(rows[where])
    assert torch.equal(found[0].to_dense(), dense[where])
    for name in ("indptr", "indices", "values"):
        one, *others = (getattr(way, name) for way in found)
        assert all(one.dtype == other.dtype and torch.equal(one, other) for other in others)


@pytest.mark.parametrize("few", [0, 10])
def test_torn_rows_are_never_copied(few, monkeypatch):
    """Row pointers that fall would make a copy read beyond the arrays."""
    monkeypatch.setattr(module, "FEW", few)
    monkeypatch.setattr(module, "MANY", 0)
    torn = SparseRows(torch.tensor([0, 3, 1, 4]), torch.arange(4), torch.ones(4), 4)
    with pytest.raises((ValueError, RuntimeError)):
        torn[torch.tensor([1])]

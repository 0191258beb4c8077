"""Sparse feature matrices in CSR layout, such as bags of words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

FEW = 256  # rows up to which each is a slice
MANY = 4096  # entries from which on rows are selected one by one, and not entry by entry


@dataclass(frozen=True)
class SparseRows:
    """A matrix of which only the nonzeros are stored, row after row (the CSR layout).

    Attributes:
        indptr: `(R + 1,)` int64; row r owns the entries `indptr[r]:indptr[r + 1]`.
        indices: `(nnz,)` int64, the feature of each entry, distinct within a row.
        values: `(nnz,)` floating point.
        num_features: the width F of the matrix.

    Example:
        >>> rows = SparseRows.from_dense(torch.tensor([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]]))
        >>> rows.indices.tolist(), rows.values.tolist()
        ([1, 0, 2], [2.0, 1.0, 3.0])
        >>> rows[torch.tensor([1])].to_dense()
        tensor([[1., 0., 3.]])
    """

    indptr: Tensor
    indices: Tensor
    values: Tensor
    num_features: int

    @classmethod
    def from_dense(cls, matrix: Tensor) -> SparseRows:
        """Keep the nonzeros (NaN included) of an `(R, F)` matrix."""
        if matrix.dim() != 2:
            raise ValueError(f"expected a matrix of shape (R, F), got {tuple(matrix.shape)}")
        row, indices = torch.nonzero(matrix, as_tuple=True)
        counts = torch.bincount(row, minlength=matrix.shape[0])
        return cls(_starts(counts), indices, matrix[row, indices], matrix.shape[1])

    @classmethod
    def concatenate(cls, parts: Sequence[SparseRows]) -> SparseRows:
        """The rows of several matrices below each other, with int64 indices."""
        widths = {part.num_features for part in parts}
        if len(widths) != 1:
            raise ValueError(f"rows must have the same number of features, got {sorted(widths)}")
        counts = torch.cat([part.indptr for part in parts]).diff()
        joints = torch.tensor([len(part) + 1 for part in parts]).cumsum(0)[:-1] - 1
        inside = torch.ones(len(counts), dtype=torch.bool).index_fill(0, joints, False)
        counts = counts[inside.to(counts.device)]
        indices = torch.cat([part.indices for part in parts]).long()
        values = torch.cat([part.values for part in parts])
        return cls(_starts(counts).long(), indices, values, widths.pop())

    def __post_init__(self) -> None:
        """Reject arrays that cannot belong together."""
        vectors = self.indptr.dim() == self.indices.dim() == 1 and self.indptr.shape[0] > 0
        if self.indices.shape != self.values.shape or not vectors:
            raise ValueError(
                "expected indptr (R + 1,), indices (nnz,) and values (nnz,), got "
                f"{tuple(self.indptr.shape)}, {tuple(self.indices.shape)} and "
                f"{tuple(self.values.shape)}"
            )

    def __len__(self) -> int:
        return self.indptr.shape[0] - 1

    def check(self) -> None:
        """Raise a ValueError if an entry belongs to no row or to no feature."""
        for name in ("indptr", "indices"):
            dtype = getattr(self, name).dtype
            if dtype not in (torch.int64, torch.int32):
                raise ValueError(f"{name} of sparse rows must be int64 or int32, got {dtype}")
        entries = len(self.indices)
        ends = int(self.indptr[0]), int(self.indptr[-1])
        if ends != (0, entries) or bool((self.counts < 0).any()):
            raise ValueError(
                f"indptr of sparse rows must rise from 0 to the number of entries, {entries}, got "
                f"{self.indptr.tolist()[:8]}"
            )
        low, high = (int(end) for end in self.indices.aminmax()) if entries else (0, -1)
        if low < 0 or high >= self.num_features:
            raise ValueError(
                f"indices of sparse rows must lie in 0..{self.num_features - 1}, got {low}..{high}"
            )

    def __getitem__(self, index: Tensor) -> SparseRows:
        """Select rows by an int64 index, in its order, repeats allowed."""
        if len(index) <= FEW and self._slices:
            return self._sliced(index)
        if len(index) * len(self.indices) > MANY * len(self) and self._plain:
            return self._copied(index)
        start = self.indptr[index]
        counts = self.indptr[index + 1] - start
        entry = runs(start, counts)
        indices, values = self.indices[entry], self.values[entry]
        return SparseRows(_starts(counts), indices, values, self.num_features)

    @property
    def _slices(self) -> bool:
        """Whether numpy can copy rows; it knows no bfloat16."""
        known = self.values.dtype != torch.bfloat16
        return known and self.values.is_cpu and not self.values.requires_grad

    def _sliced(self, index: Tensor) -> SparseRows:
        """A few rows, each copied as a slice."""
        indptr, indices, values = (t.numpy() for t in (self.indptr, self.indices, self.values))
        start, end = indptr[index.numpy()], indptr[index.numpy() + 1]
        places = [slice(*place) for place in zip(start.tolist(), end.tolist(), strict=True)]
        bounds = np.zeros(len(places) + 1, np.int64)
        np.cumsum(end - start, out=bounds[1:])
        parts = [np.concatenate([a[:0], *(a[p] for p in places)]) for a in (indices, values)]
        if len(parts[0]) != bounds[-1]:
            self.check()  # says what is wrong with these rows
        ends, own, numbers = map(torch.from_numpy, (bounds, *parts))
        return SparseRows(ends, own, numbers, self.num_features)

    @property
    def _plain(self) -> bool:
        """Whether scipy can copy rows as they are."""
        own = (self.indptr, self.indices, self.values)
        usual = not self.values.requires_grad and all(t.is_cpu and t.is_contiguous() for t in own)
        usual = usual and self.values.dtype in (torch.float32, torch.float64)
        if not usual or self.indptr.dtype != self.indices.dtype:
            return False
        ends = int(self.indptr[0]), int(self.indptr[-1])
        return ends == (0, len(self.indices)) and not bool((self.counts < 0).any())

    def _copied(self, index: Tensor) -> SparseRows:
        """Rows copied one by one, in place of entry by entry."""
        arrays = tuple(t.numpy() for t in (self.values, self.indices, self.indptr))
        rows = sparse.csr_array(arrays, shape=(len(self), self.num_features))
        found = rows[index.numpy()]
        parts = (torch.from_numpy(part) for part in (found.indptr, found.indices, found.data))
        indptr, indices, values = parts
        return SparseRows(indptr.long(), indices, values, self.num_features)

    @property
    def counts(self) -> Tensor:
        """The number of entries of each row, `(R,)`."""
        return self.indptr.diff()

    @property
    def rows(self) -> Tensor:
        """The row of each entry, `(nnz,)`."""
        return torch.repeat_interleave(self.counts)

    @property
    def nbytes(self) -> int:
        """How many bytes the three arrays take."""
        return self.indptr.nbytes + self.indices.nbytes + self.values.nbytes

    def to(self, target: torch.device | torch.dtype | str) -> SparseRows:
        """Move to a device, or change the type of the values."""
        if isinstance(target, torch.dtype):
            same = target == self.values.dtype  # the usual case, on the path of every step
            return self if same else replace(self, values=self.values.to(target))
        indptr, indices, values = (t.to(target) for t in (self.indptr, self.indices, self.values))
        return replace(self, indptr=indptr, indices=indices, values=values)

    def with_index_type(self, dtype: torch.dtype) -> SparseRows:
        """The same rows with other integers: int32 to store them in less, int64 to compute."""
        return replace(self, indptr=self.indptr.to(dtype), indices=self.indices.to(dtype))

    def to_dense(self) -> Tensor:
        """The `(R, F)` matrix, zeros included."""
        dense = self.values.new_zeros(len(self), self.num_features)
        return dense.index_put((self.rows, self.indices), self.values, accumulate=True)

    def matmul(self, matrix: Tensor) -> Tensor:
        """The product with a dense `(F, D)` matrix, `(R, D)`, in time that depends on nnz only."""
        terms = self.values.unsqueeze(-1) * matrix[self.indices]
        out = terms.new_zeros(len(self), matrix.shape[1])
        return out.index_add(0, self.rows, terms)

    def pool(self, group: Tensor, num_groups: int, scale: Tensor) -> SparseRows:
        """Add rows up: row g of the result is the sum of `scale[r] * row r` where `group[r] == g`.

        Example:
            >>> rows = SparseRows.from_dense(torch.tensor([[0.0, 2.0], [1.0, 2.0]]))
            >>> rows.pool(torch.tensor([0, 0]), 1, torch.tensor([0.5, 0.5])).to_dense()
            tensor([[0.5000, 2.0000]])
        """
        entry_row = self.rows
        key = group[entry_row] * self.num_features + self.indices
        key, slot = torch.unique(key, return_inverse=True)
        values = self.values * scale[entry_row]
        values = values.new_zeros(key.shape[0]).index_add(0, slot, values)
        counts = torch.bincount(key // self.num_features, minlength=num_groups)
        return SparseRows(_starts(counts), key % self.num_features, values, self.num_features)


def runs(start: Tensor, counts: Tensor) -> Tensor:
    """The numbers `start, start + 1, ...`, as many as are counted, one run after the other.

    Example:
        >>> runs(torch.tensor([7, 0]), torch.tensor([2, 3]))
        tensor([7, 8, 0, 1, 2])
    """
    shift = torch.repeat_interleave(start - (counts.cumsum(0) - counts), counts)
    return shift + torch.arange(len(shift), device=shift.device)


def _starts(counts: Tensor) -> Tensor:
    """Where each row begins and the last one ends, `(R + 1,)`."""
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])

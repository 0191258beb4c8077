"""Small batches for the tests, sparse and dense, with every nuisance in them."""

import torch

from evergraph.graph import Neighbors, SparseRows
from evergraph.stream import Batch


def ragged_batch(features=7, channels=1, hops=1, components=None, density=1.0, dtype=torch.float64):
    """Four items with 3, 0, 1 and 5 neighbors; signed features, zeros if density is below 1."""
    counts = torch.tensor([3, 0, 1, 5])
    owner = torch.repeat_interleave(counts)
    x, y = (torch.randn(n, channels, features, dtype=dtype) for n in (4, len(owner)))
    if density < 1:
        x, y = (t * (torch.rand_like(t) < density) for t in (x, y))
        x[2] = 0  # an item without any feature
    hop = torch.arange(len(owner)) % hops + 1
    weight = None if components is None else torch.randn(len(owner), components, dtype=dtype)
    if components == 1:
        weight = weight.squeeze(1)
    return x, Neighbors(y, owner, hop, weight)


def as_batch(x, neighbors, target=None, nodes=1):
    """A batch of x and its neighbors; `nodes` sparse rows make one item."""
    size = len(x) // nodes if isinstance(x, SparseRows) else len(x)
    target = torch.zeros(size, dtype=torch.long) if target is None else target
    return Batch(x, neighbors, target, torch.full((size,), -1), torch.arange(size))


def as_sparse(x, neighbors):
    """The same one-channel items as sparse rows."""
    rows = SparseRows.from_dense(neighbors.features.squeeze(1))
    return SparseRows.from_dense(x.squeeze(1)), neighbors.with_features(rows)


def same(one, other):
    """Whether two batches hold the same numbers."""
    a, b = one.tensors(), other.tensors()
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)

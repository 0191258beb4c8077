"""Small batches for the tests, sparse and dense, with every nuisance in them."""

import pytest
import torch

from evergraph.feature_graph import Neighbors


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


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

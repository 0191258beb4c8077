"""Sums of sparse rows, and the embedding in compiled loops, against plain torch."""

import pytest
import torch

from evergraph.feature_graph import condense
from evergraph.feature_graph import embedding as embeddings
from evergraph.feature_graph.equations import NORMALIZATIONS
from evergraph.graph import Neighbors, SparseRows


def sparse_batch(components=None, hops=2, features=40, seed=0):
    """Five items of few words, one without a word, one without neighbors; signed values."""
    generator = torch.Generator().manual_seed(seed)

    def rows(count):
        values = torch.randn(count, features, generator=generator, dtype=torch.float64)
        present = torch.rand(count, features, generator=generator) < 0.15
        return values * present

    x, y = rows(5), rows(14)
    x[3] = 0
    owner = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3])
    hop = torch.randint(1, hops + 1, (14,), generator=generator)
    shape = (14,) if components is None else (14, components)
    weight = torch.rand(shape, generator=generator, dtype=torch.float64)
    return SparseRows.from_dense(x), Neighbors(SparseRows.from_dense(y), owner, hop, weight)


def in_plain_torch(monkeypatch, module):
    monkeypatch.setattr(module, "supports", lambda *tensors: False, raising=True)


@pytest.mark.parametrize("components", [None, 1, 3])
@pytest.mark.parametrize("features", [40, 4000])  # in which rows are scanned, and sorted
def test_condensing_is_the_same_in_plain_torch(components, features, monkeypatch):
    from evergraph.feature_graph import neighborhoods

    _, neighbors = sparse_batch(components, features=features)
    ours = condense(neighbors, 5, 2)
    in_plain_torch(monkeypatch, neighborhoods)
    plain = condense(neighbors, 5, 2)
    assert torch.equal(ours.features.indptr, plain.features.indptr)
    assert torch.equal(ours.features.indices, plain.features.indices)
    torch.testing.assert_close(ours.features.values, plain.features.values)
    assert torch.equal(ours.owner, plain.owner)


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize(
    "blocks", [("x",), ("mean",), ("propagated",), ("x", "mean", "propagated")]
)
def test_the_embedding_is_the_same_in_plain_torch(blocks, normalization, monkeypatch):
    given = *sparse_batch(), 2, blocks, normalization
    ours = embeddings.fixed_embedding(*given).to_dense()
    in_plain_torch(monkeypatch, embeddings)
    plain = embeddings.fixed_embedding(*given).to_dense()
    torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-12)
    assert ours.abs().max() > 0.1


def test_an_item_has_the_same_bits_alone_and_in_a_batch():
    x, neighbors = sparse_batch()
    together = embeddings.fixed_embedding(x, neighbors, 2)
    for item in range(5):
        mine = neighbors.owner == item
        where = mine.nonzero().squeeze(1)
        alone = Neighbors(
            neighbors.features[where], torch.zeros(len(where), dtype=torch.long),
            neighbors.hop[where], neighbors.weight[where],
        )  # fmt: skip
        one = embeddings.fixed_embedding(x[torch.tensor([item])], alone, 2)
        assert torch.equal(one.to_dense()[0], together.to_dense()[item])


def test_indices_out_of_range_are_refused():
    x, neighbors = sparse_batch()
    wrong = SparseRows(x.indptr, x.indices + 100, x.values, x.num_features)
    with pytest.raises(ValueError, match="indices of sparse rows must lie in"):
        embeddings.fixed_embedding(wrong, neighbors, 2)

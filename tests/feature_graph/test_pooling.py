"""Sums of sparse rows, and the embedding in compiled loops, against plain torch."""

import pytest
import torch

from evergraph.feature_graph import condense
from evergraph.feature_graph import embedding as embeddings
from evergraph.feature_graph.compiled.embedding import integers
from evergraph.feature_graph.embedding import largest_feature
from evergraph.feature_graph.equations import NORMALIZATIONS
from evergraph.feature_graph.neighborhoods import Condenser
from evergraph.graph import Graph, Neighbors, SparseRows
from evergraph.stream.source import NeighborConfig, NodeSource, gathered


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


def signed_graph(features, dtype=torch.float32, nodes=30, seed=0):
    """Signed rows, one of them empty, and a node without edges."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(nodes, features, generator=generator, dtype=dtype)
    rows *= torch.rand(nodes, features, generator=generator) < 4 / features + 0.05
    rows[3] = 0
    edges = torch.randint(0, nodes - 1, (2, 70), generator=generator)
    return Graph(SparseRows.from_dense(rows), edges, torch.zeros(nodes, dtype=torch.long))


@pytest.mark.parametrize("self_loops", [True, False])
@pytest.mark.parametrize("features", [40, 2000])  # in which rows are scanned, and sorted
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_items_in_one_go_are_those_of_all_steps(self_loops, features, dtype):
    graph, nodes = signed_graph(features, dtype), torch.tensor([29, 3, 0, 7, 7])
    config, pack = NeighborConfig(self_loops=self_loops), Condenser()
    found = pack.items(graph, nodes, config)
    assert found is not None
    near = graph.neighborhood(nodes, self_loops=self_loops)
    x, mean = graph.features[nodes], pack(graph.features, near, len(nodes))
    for ours, theirs in ((found[0], x), (found[1].features, mean.features)):
        assert torch.equal(ours.indptr, theirs.indptr)
        assert torch.equal(ours.indices, theirs.indices)
        assert torch.equal(ours.values, theirs.values)
    assert torch.equal(found[1].owner, mean.owner)
    assert torch.equal(found[1].hop, mean.hop)
    plain = NodeSource(graph, graph.labels, config, pack=gathered).batch(nodes)
    dense = condense(plain.neighbors, len(nodes)).features.to_dense()
    torch.testing.assert_close(found[1].features.to_dense(), dense)


def test_items_in_one_go_are_of_nodes_that_are_there():
    graph = signed_graph(40)
    with pytest.raises(ValueError, match=r"nodes\[1\] is node 30"):
        Condenser().items(graph, torch.tensor([0, 30]), NeighborConfig())


@pytest.mark.parametrize("config", [{"cap": 2}, {"diffusion": True}, {"hops": 2}])
def test_what_takes_more_steps_is_not_made_in_one_go(config):
    found = Condenser().items(signed_graph(40), torch.tensor([0]), NeighborConfig(**config))
    assert found is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_largest_feature_is_found_while_items_are_checked(dtype):
    x, neighbors = sparse_batch()
    x, y = x.to(dtype), neighbors.features.to(dtype)
    around = Neighbors(y, neighbors.owner, neighbors.hop)
    size = max(float(x.values.abs().max()), float(y.values.abs().max()))
    assert largest_feature(x, around, 2) == size
    assert largest_feature(x, Neighbors(y, neighbors.owner), 1) == size


def _with(rows, name, place, value):
    parts = {k: getattr(rows, k).clone() for k in ("indptr", "indices", "values")}
    parts[name][place] = value
    return SparseRows(**parts, num_features=rows.num_features)


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("values", 2, torch.nan), ("values", 2, -torch.inf), ("indices", 1, 40), ("indices", 1, -1),
        ("indptr", 0, 1), ("indptr", 1, 100), ("indptr", -1, 2),
    ],
)  # fmt: skip
def test_what_is_wrong_with_items_is_left_to_the_check(name, place, value):
    x, neighbors = sparse_batch()
    around = Neighbors(neighbors.features, neighbors.owner, neighbors.hop)
    assert largest_feature(x, around, 2) is not None
    assert largest_feature(_with(x, name, place, value), around, 2) is None
    wrong = around.with_features(_with(around.features, name, place, value))
    assert largest_feature(x, wrong, 2) is None
    assert largest_feature(x, around, 1) is None  # hops of 2
    assert largest_feature(x[torch.arange(3)], around, 2) is None  # an owner that is not there
    assert largest_feature(x, neighbors, 2) is None  # with edge weights


def test_integers_are_rounded_to_the_nearest():
    values = torch.tensor([0.1, -0.1, 0.5, 1.5, -2.5, 0.0], dtype=torch.float32)
    expected = (values.double() * 3).round().float()
    assert torch.equal(torch.from_numpy(integers(values.numpy(), 3.0)), expected)

"""Graphs: what they refuse, and their neighborhoods against a plain breadth-first search."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import FrozenInstanceError

import pytest
import torch
from torch import Tensor

from evergraph.graph.dataset import Dataset, encode_labels, split_by_class
from evergraph.graph.graph import Graph
from evergraph.graph.hops import Neighborhood
from evergraph.graph.rows import SparseRows

Walk = dict[int, tuple[int, Tensor]]  # node -> hop, weight of the path


def random_graph(
    seed: int, *, nodes: int = 30, edges: int = 60, directed: bool, width: int | None = None
) -> Graph:
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.randint(nodes, (2, edges), generator=generator)  # self loops, repeats and all
    weight = None
    if width is not None:
        weight = torch.rand((edges, width) if width else (edges,), generator=generator)
    return Graph(torch.eye(nodes), pairs, weight=weight, directed=directed)


def edge_weights(graph: Graph) -> dict[tuple[int, int], Tensor]:
    """The first weight of each directed pair; stored directions before mirrored ones."""
    pairs = graph.edges.T.tolist()
    weight = torch.ones(len(pairs)) if graph.weight is None else graph.weight
    result: dict[tuple[int, int], Tensor] = {}
    for (source, target), value in zip(pairs, weight, strict=True):
        result.setdefault((source, target), value)
    if not graph.directed:
        for (source, target), value in zip(pairs, weight, strict=True):
            result.setdefault((target, source), value)
    return result


def dumbest_walk(
    graph: Graph, start: int, hops: int, sees: Callable[[int], bool] = lambda node: True
) -> Walk:
    weights = edge_weights(graph)
    one = torch.ones(()) if graph.weight is None else torch.ones(graph.weight.shape[1:])
    distance: Walk = {start: (0, one)}
    for hop in range(1, hops + 1):
        frontier = sorted(node for node, (far, _) in distance.items() if far == hop - 1)
        for parent in frontier:
            for (source, target), weight in sorted(weights.items(), key=lambda item: item[0]):
                if source == parent and target not in distance and sees(target):
                    distance[target] = (hop, distance[parent][1] * weight)
    del distance[start]
    return distance


def as_walk(near: Neighborhood, owner: int) -> Walk:
    mine = near.owner == owner
    weight = torch.ones(len(near)) if near.weight is None else near.weight
    return {
        node: (hop, value)
        for node, hop, value in zip(
            near.nodes[mine].tolist(), near.hop[mine].tolist(), weight[mine], strict=True
        )
    }


def assert_same(found: Walk, expected: Walk) -> None:
    assert {node: hop for node, (hop, _) in found.items()} == {
        node: hop for node, (hop, _) in expected.items()
    }
    for node, (_, weight) in expected.items():
        torch.testing.assert_close(found[node][1], weight)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("hops", [1, 2, 4])
@pytest.mark.parametrize("width", [None, 0, 3])
def test_neighborhood_is_breadth_first_search(directed: bool, hops: int, width: int | None) -> None:
    for seed in range(3):
        graph = random_graph(seed, directed=directed, width=width)
        nodes = torch.tensor([4, 0, 29, 4])
        near = graph.neighborhood(nodes, hops, self_loops=False)
        assert (near.weight is None) == (width is None)
        assert bool((near.owner.diff() >= 0).all())
        for owner, node in enumerate(nodes.tolist()):
            mine = near.owner == owner
            assert len(set(near.nodes[mine].tolist())) == int(mine.sum())
            assert bool((near.hop[mine].diff() >= 0).all())
            assert_same(as_walk(near, owner), dumbest_walk(graph, node, hops))


def test_self_loop_comes_first_at_hop_one_with_weight_one() -> None:
    graph = random_graph(0, directed=False, width=0)
    nodes = torch.arange(30)
    plain, looped = (graph.neighborhood(nodes, 2, self_loops=on) for on in (False, True))
    first = torch.searchsorted(looped.owner, nodes)
    assert looped.nodes[first].tolist() == nodes.tolist()
    assert looped.hop[first].tolist() == [1] * 30
    assert looped.weight is not None
    assert looped.weight[first].tolist() == [1.0] * 30
    rest = torch.ones(len(looped), dtype=torch.bool)
    rest[first] = False
    assert looped.nodes[rest].tolist() == plain.nodes.tolist()
    assert looped.hop[rest].tolist() == plain.hop.tolist()


def test_a_batch_of_one_is_a_row_of_the_batch() -> None:
    graph = random_graph(1, directed=False, width=2)
    nodes = torch.arange(30)
    batch = graph.neighborhood(nodes, 3)
    assert batch.weight is not None
    for node in nodes.tolist():
        one = graph.neighborhood(torch.tensor([node]), 3)
        mine = batch.owner == node
        assert one.nodes.tolist() == batch.nodes[mine].tolist()
        assert one.hop.tolist() == batch.hop[mine].tolist()
        assert one.weight is not None
        assert torch.equal(one.weight, batch.weight[mine])


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("cap", [1, 2, 5])
def test_cap_draws_from_the_true_hops(cap: int, self_loops: bool) -> None:
    graph = random_graph(2, directed=False, edges=90)
    nodes = torch.arange(30)
    generator = torch.Generator().manual_seed(0)
    capped = graph.neighborhood(nodes, 3, cap=cap, self_loops=self_loops, generator=generator)
    full = graph.neighborhood(nodes, 3, self_loops=self_loops)
    for owner, hop in itertools.product(range(30), (1, 2, 3)):
        drawn = capped.nodes[(capped.owner == owner) & (capped.hop == hop)].tolist()
        there = full.nodes[(full.owner == owner) & (full.hop == hop)].tolist()
        assert len(drawn) == len(set(drawn)) == min(cap, len(there))
        assert set(drawn) <= set(there)
        assert not self_loops or hop > 1 or drawn[0] == owner


def test_cap_depends_on_the_generator_alone_and_is_fair() -> None:
    star = Graph(
        torch.eye(11), torch.stack([torch.zeros(10, dtype=torch.long), torch.arange(1, 11)])
    )
    nodes = torch.zeros(4000, dtype=torch.long)
    first, second = (
        star.neighborhood(
            nodes, cap=3, self_loops=False, generator=torch.Generator().manual_seed(7)
        )
        for _ in range(2)
    )
    assert torch.equal(first.nodes, second.nodes)
    share = torch.bincount(first.nodes, minlength=11)[1:] / 4000
    # Each of ten neighbors is drawn with chance 0.3; 0.04 is more than five deviations.
    assert float((share - 0.3).abs().max()) < 0.04


def test_a_cap_that_does_not_bind_uses_no_randomness() -> None:
    graph = random_graph(3, directed=True)
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    graph.neighborhood(torch.arange(30), cap=100, generator=generator)
    assert torch.equal(before, generator.get_state())


@pytest.mark.parametrize("directed", [False, True])
def test_visibility(directed: bool) -> None:
    graph = random_graph(4, directed=directed, edges=90, width=0)
    generator = torch.Generator().manual_seed(0)
    allowed = torch.rand(30, generator=generator) < 0.7
    hidden = torch.zeros(30).masked_fill(~allowed, INF)
    arrival = torch.randperm(30, generator=generator)
    now = torch.randint(30, (30,), generator=generator)
    nodes = torch.arange(30)
    cases: list[tuple[Neighborhood, Callable[[int, int], bool]]] = [
        (
            graph.neighborhood(nodes, 3, self_loops=False, arrival=hidden, now=torch.zeros(30)),
            lambda _, other: bool(allowed[other]),
        ),
        (
            graph.neighborhood(nodes, 3, self_loops=False, arrival=arrival),
            lambda node, other: bool(arrival[other] <= arrival[node]),
        ),
        (
            graph.neighborhood(nodes, 3, self_loops=False, arrival=arrival + hidden, now=now),
            lambda node, other: bool((arrival[other] <= now[node]) & allowed[other]),
        ),
    ]
    for near, sees in cases:
        for node in range(30):
            expected = dumbest_walk(graph, node, 3, lambda other, n=node, s=sees: s(n, other))
            assert_same(as_walk(near, node), expected)


def test_a_node_always_sees_itself() -> None:
    graph = random_graph(5, directed=False)
    never = torch.full((30,), INF)
    near = graph.neighborhood(torch.tensor([3, 8]), 2, arrival=never, now=torch.zeros(2))
    assert near.nodes.tolist() == [3, 8]


def test_edges_once_or_twice_are_the_same_undirected_graph() -> None:
    once = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 2]])
    twice = torch.cat([once, once.flip(0), once], 1)
    graphs = [Graph(torch.eye(4), edges) for edges in (once, twice)]
    assert [graph.num_edges for graph in graphs] == [3, 3]
    assert [graph.degrees().tolist() for graph in graphs] == [[2, 2, 2, 0]] * 2
    assert Graph(torch.eye(4), twice, directed=True).num_edges == 6


def test_of_repeated_edges_the_first_weight_counts() -> None:
    edges = torch.tensor([[0, 0, 1, 2], [1, 1, 0, 0]])
    graph = Graph(torch.eye(3), edges, weight=torch.tensor([2.0, 3.0, 5.0, 7.0]))
    near = graph.neighborhood(torch.tensor([0, 1, 2]), self_loops=False)
    assert near.nodes.tolist() == [1, 2, 0, 0]
    assert near.weight is not None
    assert near.weight.tolist() == [2.0, 7.0, 5.0, 7.0]


def test_empty_batches_and_graphs_without_edges() -> None:
    graph = Graph(torch.eye(3), torch.empty(2, 0, dtype=torch.long))
    assert len(graph.neighborhood(torch.empty(0, dtype=torch.long), 2)) == 0
    assert graph.neighborhood(torch.tensor([2, 1])).nodes.tolist() == [2, 1]
    assert len(graph.neighborhood(torch.tensor([2, 1]), self_loops=False)) == 0
    generator = torch.Generator().manual_seed(0)
    assert graph.neighborhood(torch.tensor([2]), cap=1, generator=generator).nodes.tolist() == [2]


def test_counts_and_immutability() -> None:
    edges = torch.tensor([[0], [1]])
    graph = Graph(torch.zeros(3, 2, 5), edges, labels=torch.tensor([0, 4, -1]))
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (3, 5, 5)
    named = Graph(SparseRows.from_dense(torch.eye(3)), edges, class_names=("a", "b"))
    assert (named.num_nodes, named.num_features, named.num_classes) == (3, 3, 2)
    with pytest.raises(FrozenInstanceError):
        graph.name = "other"  # type: ignore[misc]


def test_large_finite_features_are_accepted() -> None:
    largest = torch.full((2, 4), torch.finfo(torch.float32).max)  # a sum of these is infinite
    assert Graph(largest, torch.empty(2, 0, dtype=torch.long)).num_nodes == 2


EDGES = torch.tensor([[0, 1], [1, 2]])
NAN, INF = float("nan"), float("inf")


def sparse(indptr: list[int], indices: list[int], values: list[float]) -> SparseRows:
    return SparseRows(torch.tensor(indptr), torch.tensor(indices), torch.tensor(values), 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": torch.zeros(3)}, r"\(N, F\) or \(N, C, F\), got \(3,\)"),
        ({"features": torch.zeros(3, 2, dtype=torch.long)}, "floating point, got torch.int64"),
        ({"features": torch.tensor([[0.0], [1.0], [NAN]])}, "features of node 2 .* got nan"),
        ({"features": torch.tensor([[0.0], [-INF], [NAN]])}, "features of node 1 .* got -inf"),
        ({"features": torch.full((3, 2, 2), INF)}, "features of node 0 .* got inf"),
        ({"features": sparse([0, 1, 1, 2], [0, 1], [1.0, NAN])}, "node 2 .* value nan"),
        ({"features": sparse([0, 1, 2, 2], [0, 3], [1.0, 1.0])}, "node 1 .* feature 3"),
        ({"features": sparse([0, 2, 1, 2], [0, 1], [1.0, 1.0])}, "indptr must rise"),
        ({"features": sparse([0, 1, 1, 1], [0, 1], [1.0, 1.0])}, "indptr must rise"),
        ({"edges": torch.zeros(3, 2, dtype=torch.long)}, r"shape \(2, E\), got .* \(3, 2\)"),
        ({"edges": torch.zeros(2, 2)}, "int64 of shape .* got torch.float32"),
        ({"edges": torch.tensor([[0, 1], [1, 3]])}, "edge 1 goes from node 1 to node 3.* 0 to 2"),
        ({"edges": torch.tensor([[-1, 1], [1, 0]])}, "edge 0 goes from node -1 to node 1"),
        ({"weight": torch.ones(3)}, r"E = 2 edges, got \(3,\)"),
        ({"weight": torch.ones(2, 1, 1)}, r"\(E,\) or \(E, W\)"),
        ({"weight": torch.ones(2, dtype=torch.long)}, "float32 or float64, got torch.int64"),
        ({"weight": torch.tensor([1.0, NAN])}, "weight of edge 1 must be finite, got nan"),
        (
            {"labels": torch.zeros(2, dtype=torch.long)},
            r"labels must have shape \(3,\), got \(2,\)",
        ),
        ({"labels": torch.zeros(3)}, "labels must be int64, got torch.float32"),
        ({"labels": torch.tensor([0, 1, -2])}, "node 2 has label -2"),
        (
            {"labels": torch.tensor([0, 2, 1]), "class_names": ("a", "b")},
            "from -1 .* to 1, .* node 1 has label 2",
        ),
        ({"time": torch.zeros(4)}, r"time must have shape \(3,\), got \(4,\)"),
        ({"time": torch.tensor([0.0, INF, 1.0])}, "time of node 1 must be finite, got inf"),
        ({"edge_time": torch.zeros(4)}, r"edge_time must have shape \(2,\), got \(4,\)"),
        ({"edge_time": torch.tensor([INF, 1.0])}, "time of edge 0 must be finite, got inf"),
        ({"domain": torch.zeros(4).long()}, r"domain must have shape \(3,\), got \(4,\)"),
        ({"domain": torch.zeros(3)}, r"domain must be int64, got torch.float32; call \.long\(\)"),
    ],
)
def test_bad_graphs_are_refused(change: dict[str, object], message: str) -> None:
    good: dict[str, object] = {"features": torch.eye(3), "edges": EDGES}
    with pytest.raises(ValueError, match=message):
        Graph(**(good | change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"nodes": torch.tensor([0, 3])}, r"nodes\[1\] is node 3, .* 0 to 2"),
        ({"nodes": torch.tensor([-1])}, r"nodes\[0\] is node -1"),
        ({"nodes": torch.tensor([0.0])}, "int64 node numbers"),
        ({"nodes": torch.tensor([[0]])}, "int64 node numbers"),
        ({"hops": 0}, "hops must be at least 1, got 0"),
        ({"cap": 0, "generator": torch.Generator()}, "cap must be at least 1"),
        ({"cap": 2}, "pass a torch.Generator"),
        ({"arrival": torch.ones(2)}, r"arrival must have shape \(3,\)"),
        ({"now": torch.ones(1)}, "pass arrival as well"),
        ({"now": torch.ones(2), "arrival": torch.ones(3)}, r"now must have shape \(1,\)"),
    ],
)
def test_bad_questions_are_refused(arguments: dict[str, object], message: str) -> None:
    graph = Graph(torch.eye(3), EDGES)
    with pytest.raises(ValueError, match=message):
        graph.neighborhood(**({"nodes": torch.tensor([0])} | arguments))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        ([0, 4], [1], r"train\[1\] is node 4"),
        ([0], [-1], r"test\[0\] is node -1"),
        ([0, 1, 0], [2], "train must hold a node once, but repeats node 0"),
        ([0, 1], [2, 1], "both hold node 1"),
        ([0, 3], [1], "train needs nodes with a label, but node 3 has none"),
    ],
)
def test_bad_splits_are_refused(train: list[int], test: list[int], message: str) -> None:
    graph = Graph(torch.eye(4), EDGES, labels=torch.tensor([0, 1, 1, -1]))
    with pytest.raises(ValueError, match=message):
        Dataset(graph, torch.tensor(train), torch.tensor(test), "bad", "test")


def test_split_by_class_is_stratified_seeded_and_disjoint() -> None:
    labels = torch.tensor([0] * 50 + [1] * 30 + [-1] * 7 + [3] * 2)[
        torch.randperm(89, generator=torch.Generator().manual_seed(0))
    ]
    train, test = split_by_class(labels, seed=1)
    assert torch.bincount(labels[train]).tolist() == [30, 18, 0, 1]
    assert torch.bincount(labels[test]).tolist() == [10, 6, 0, 1]
    assert not set(train.tolist()) & set(test.tolist())
    again = split_by_class(labels, seed=1)
    other = split_by_class(labels, seed=2)
    assert torch.equal(train, again[0])
    assert torch.equal(test, again[1])
    assert not torch.equal(train, other[0])


def test_split_by_class_refuses_shares_above_one() -> None:
    with pytest.raises(ValueError, match=r"add up to at most 1, got 0\.9, 0\.2"):
        split_by_class(torch.tensor([0, 1]), train=0.9)


def test_a_split_without_labels_is_empty() -> None:
    train, test = split_by_class(torch.full((4,), -1))
    assert (len(train), len(test)) == (0, 0)


def test_encode_labels_keeps_integers_and_sorts_names() -> None:
    assert encode_labels([2, 0, None, -1])[0].tolist() == [2, 0, -1, -1]
    assert encode_labels([1.0, NAN])[0].tolist() == [1, -1]
    labels, names = encode_labels(["b", "2", " a ", ""])
    assert (labels.tolist(), names) == ([2, 0, 1, -1], ("2", "a", "b"))


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_diffusion_is_the_power_of_the_smoothing_matrix(hops: int) -> None:
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(0, 9, (2, 14), generator=generator)
    graph = Graph(torch.rand(9, 4, generator=generator), edges)
    dense = torch.zeros(9, 9)
    for source, target in edges.T.tolist():
        dense[source, target] = dense[target, source] = 1
    dense.fill_diagonal_(1)
    scale = dense.sum(1).rsqrt()
    step = scale[:, None] * dense * scale
    found = graph.diffusion(torch.arange(9), hops)
    assert isinstance(graph.features, torch.Tensor)
    for node in range(9):
        for hop in range(1, hops + 1):
            mine = (found.owner == node) & (found.hop == hop)
            assert found.weight is not None
            total = (found.weight[mine, None] * graph.features[found.nodes[mine]]).mean(0)
            expected = torch.linalg.matrix_power(step, hop)[node] @ graph.features
            assert torch.allclose(total, expected, atol=1e-5)

"""Explanations: their parts sum to the score, and each says what its owner brought."""

import numpy as np
import pytest

from evergraph.feature_graph.fixed_point import LINEAR, Blocks
from evergraph.graph import GrowingGraph
from evergraph.learn.exact import ExactLearner, feature_rows
from evergraph.learn.explain import explain


def random_graph(seed, hops, features=6, size=40, directed=False):
    rng = np.random.default_rng(seed)
    graph = GrowingGraph(features, hops=hops, directed=directed)
    for node in range(size):
        index = np.flatnonzero(rng.random(features) < 0.6)
        value = rng.integers(-(2**16), 2**17, len(index))
        graph.put_node(node, index, value, label=["a", "b", None][node % 3])
    for _ in range(80):
        graph.put_edge(*map(int, rng.choice(size, 2, replace=False)), weight=float(rng.random()))
    return graph


def learner_of(graph, blocks):
    landmarks = feature_rows(graph, graph.slots()[: blocks.landmarks])
    return ExactLearner(graph, blocks, landmarks, held_out=0)


@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize(
    "blocks",
    [Blocks(landmarks=8), Blocks(linear=LINEAR, landmarks=5), Blocks(max_width=0, landmarks=8),
     Blocks(landmarks=0)],
    ids=["default", "all", "kernel", "linear"],
)  # fmt: skip
def test_parts_sum_to_the_score(hops, blocks):
    for directed in (False, True):
        graph = random_graph(hops, hops, directed=directed)
        learner = learner_of(graph, blocks)
        solution = learner.solution()
        scores = solution.scores(learner.rows(graph.slots()))
        for row, slot in enumerate(graph.slots().tolist()):
            for k, label in enumerate(solution.classes):
                parts = explain(solution, learner.embedding, graph, slot, label)
                assert parts.score == pytest.approx(scores[row, k], abs=1e-12)
                assert parts.bias + parts.nodes.sum() == pytest.approx(parts.score, abs=1e-9)
                assert parts.bias + parts.features.sum() == pytest.approx(parts.score, abs=1e-9)


def test_only_nodes_within_reach_and_features_that_are_there_speak():
    graph = GrowingGraph(4, hops=2)
    for node, (place, label) in enumerate([(0, "a"), (1, "b"), (2, None), (3, None), (1, "a")]):
        graph.put_node(node, [place], [2**16], label=label)
    for a, b in ((0, 1), (1, 2), (2, 3)):
        graph.put_edge(a, b)
    learner = learner_of(graph, Blocks(landmarks=5))
    (slot,) = graph.slots([0]).tolist()
    parts = explain(learner.solution(), learner.embedding, graph, slot, "a")
    assert sorted(graph.ids(parts.slots)) == [0, 1, 2]
    assert parts.features[3] == 0
    assert np.count_nonzero(parts.features[:3]) == 3
    assert parts.nodes[graph.ids(parts.slots).index(0)] > 0  # its own word speaks for its class


def test_an_unknown_class_is_refused():
    graph = random_graph(0, 1)
    learner = learner_of(graph, Blocks(landmarks=4))
    with pytest.raises(ValueError, match=r"one that was learned \('a', 'b'\), got 'c'"):
        explain(learner.solution(), learner.embedding, graph, 0, "c")

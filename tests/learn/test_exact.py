"""The state of the exact learner is that of learning from scratch, after any history."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from evergraph.feature_graph.fixed_point import Blocks
from evergraph.graph.growing import GrowingGraph
from evergraph.learn.exact import ExactLearner, hop_means
from evergraph.testing.faults import inject

FEATURES = 6
BLOCKS = Blocks(landmarks=4)
LANDMARKS = sparse.csr_array(np.arange(4 * FEATURES).reshape(4, FEATURES) % 5 * 2**16)


def _learner(graph: GrowingGraph, held_out: int = 400) -> ExactLearner:
    return ExactLearner(graph, BLOCKS, LANDMARKS, held_out=held_out)


def _graph(cap: int | None = None) -> GrowingGraph:
    return GrowingGraph(FEATURES, cap=cap)


class Content:
    """What the graph holds, as plain dictionaries."""

    def __init__(self):
        self.nodes, self.labels, self.edges = {}, {}, {}

    def build(self, rng: np.random.Generator, cap: int | None) -> GrowingGraph:
        graph = _graph(cap)
        names = list(self.nodes)
        for name in rng.permutation(names).tolist() if names else []:
            graph.put_node(name, *self.nodes[name], label=self.labels.get(name))
        pairs = list(self.edges)
        for at in rng.permutation(len(pairs)):
            graph.put_edge(*sorted(pairs[at]), weight=self.edges[pairs[at]])
        return graph


NODES = st.sampled_from([f"n{k}" for k in range(9)])
VALUES = st.lists(st.integers(-3, 3), min_size=FEATURES, max_size=FEATURES)
EVENTS = st.one_of(
    st.tuples(st.just("node"), NODES, VALUES),
    st.tuples(st.just("label"), NODES, st.sampled_from(["a", "b", "c", None])),
    st.tuples(st.just("edge"), NODES, NODES, st.sampled_from([1.0, 0.5, 2.0])),
    st.tuples(st.just("cut"), NODES, NODES),
    st.tuples(st.just("delete"), NODES),
    st.tuples(st.just("refresh")),
)


def _apply(event, graph: GrowingGraph, learner: ExactLearner, content: Content) -> None:
    kind, *rest = event
    if kind == "refresh":
        learner.refresh()
    elif kind == "node":
        name, values = rest
        index = np.flatnonzero(values)
        row = index.tolist(), (np.array(values)[index] * 2**15).tolist()
        graph.put_node(name, *row)
        content.nodes[name] = row
    elif not all(name in graph for name in rest[: 1 if kind in ("label", "delete") else 2]):
        return
    elif kind == "label":
        graph.put_label(*rest)
        content.labels[rest[0]] = rest[1]
    elif kind == "edge" and rest[0] != rest[1]:
        graph.put_edge(*rest[:2], weight=rest[2])
        content.edges[frozenset(rest[:2])] = rest[2]
    elif kind == "cut" and frozenset(rest) in content.edges:
        graph.delete_edge(*rest)
        del content.edges[frozenset(rest)]
    elif kind == "delete":
        graph.delete_node(rest[0])
        content.nodes.pop(rest[0])
        content.labels.pop(rest[0], None)
        content.edges = {pair: w for pair, w in content.edges.items() if rest[0] not in pair}


@settings(max_examples=500, deadline=None)
@given(st.lists(EVENTS, max_size=40), st.sampled_from([None, 2]), st.integers(0, 2**16))
def test_any_history_gives_the_state_of_one_pass(events, cap, seed):
    graph, content = _graph(cap), Content()
    learner = _learner(graph, held_out=1)  # so that it changes often
    for event in events:
        _apply(event, graph, learner, content)
    fresh = _learner(content.build(np.random.default_rng(seed), cap), held_out=1)
    assert learner.digest() == fresh.digest()


def test_means_are_those_of_the_loop():
    rng = np.random.default_rng(0)
    graph, size = _graph(), 30
    for node in range(size):
        graph.put_node(node, np.arange(FEATURES), rng.integers(-(2**18), 2**18, FEATURES))
    pairs = {tuple(sorted(p)) for p in rng.integers(0, size, (60, 2)).tolist() if p[0] != p[1]}
    for one, other in pairs:
        graph.put_edge(one, other, weight=0.5)
    slots = graph.slots(list(range(size)))
    x = graph.rows(slots)[2].reshape(size, FEATURES).astype(object)
    weight = np.eye(size, dtype=int) * 1024
    for one, other in pairs:
        weight[one, other] = weight[other, one] = 512
    degree = weight.sum(1)[:, None]
    wanted = x
    for found in hop_means(graph, slots, 3):
        wanted = (2 * (weight.astype(object) @ wanted) + degree) // (2 * degree)
        assert (found.toarray() == wanted).all()


def test_the_holdout_is_in_no_sum_and_follows_the_keys():
    rng, graph = np.random.default_rng(0), _graph()
    learner = _learner(graph, held_out=5)
    for node in range(200):
        graph.put_node(node, [0, 1], rng.integers(1, 2**16, 2), label="ab"[node % 2])
    held = learner.holdout()
    assert len(held.labels) == 5
    assert len(learner.sums) == 195
    slots = graph.slots()
    smallest = graph.ids(slots)[0]  # in the order of keys
    graph.delete_node(smallest)
    assert len(learner.holdout().labels) == 5
    assert len(learner.sums) == 194


def test_a_new_class_does_not_disturb_the_others():
    rng, graph = np.random.default_rng(0), _graph()
    learner = _learner(graph)

    def add(start: int, kind: int) -> None:
        for node in range(start, start + 100):
            values = rng.integers(0, 2**12, FEATURES)
            values[kind] += 2**16
            graph.put_node(node, np.arange(FEATURES), values, label=f"class {kind}")

    for kind in range(3):
        add(100 * kind, kind)
    slots = graph.slots(list(range(300)))
    before = learner.solution()
    right = before.probabilities(learner.rows(slots)).argmax(1)
    add(1000, 5)
    after = learner.solution()
    assert after.classes == [*before.classes, "class 5"]
    assert (after.probabilities(learner.rows(slots)).argmax(1) == right).mean() > 0.99


def test_probabilities_sets_and_novelty_are_those_of_their_names():
    rng, graph = np.random.default_rng(0), _graph()
    for node in range(3000):
        kind = int(rng.integers(3))
        values = np.abs(rng.normal(0, 0.5, FEATURES))
        values[kind] += 1
        graph.put_node(
            node, np.arange(FEATURES), np.rint(values * 2**16).astype(int), label=str(kind)
        )
    learner = _learner(graph)
    solution = learner.solution()
    fresh = GrowingGraph(FEATURES)
    truth = rng.integers(0, 3, 1000)
    for node, kind in enumerate(truth.tolist()):
        values = np.abs(rng.normal(0, 0.5, FEATURES))
        values[kind] += 1
        fresh.put_node(node, np.arange(FEATURES), np.rint(values * 2**16).astype(int))
    fresh.put_node("odd", [5], [2**20])
    rows = ExactLearner(fresh, BLOCKS, LANDMARKS).rows(fresh.slots([*range(1000), "odd"]))
    likely = solution.probabilities(rows)
    assert np.allclose(likely.sum(1), 1)
    confident = likely[:1000].max(1)
    right = likely[:1000].argmax(1) == truth
    assert abs(confident.mean() - right.mean()) < 0.05
    covered = solution.label_sets(likely, 0.9)[np.arange(1000), truth]
    assert 0.82 < covered.mean() < 0.98  # 200 items calibrate
    assert solution.novelty(rows)[-1] == 1.0
    assert abs(solution.novelty(rows)[:1000].mean() - 0.5) < 0.1


def test_expected_events_find_nothing_left_to_take_out():
    rng, graph = np.random.default_rng(0), _graph()
    for node in range(60):
        graph.put_node(node, [0, 1], rng.integers(1, 2**16, 2), label="ab"[node % 2])
    learner = _learner(graph, held_out=5)
    learner.refresh()
    pairs = [p for p in rng.integers(0, 60, (20, 2)).tolist() if p[0] != p[1]]
    graph.expect({node for pair in pairs for node in pair} | {"nobody"}, graph.hops - 1)
    inside = learner._inside.array.copy()
    assert inside.any()
    for pair in pairs:
        graph.put_edge(*pair)
    assert (learner._inside.array == inside).all()
    fresh = _learner(graph, held_out=5)
    assert learner.digest() == fresh.digest()


def test_a_refresh_that_is_interrupted_anywhere_leaves_nothing_half_done():
    def fresh():
        graph = _graph()
        for k in range(40):
            graph.put_node(f"n{k}", [k % FEATURES], [2**15 * (k % 3 - 1)], label="ab"[k % 2])
            graph.put_edge(f"n{k}", f"n{k // 2}")
        return graph, _learner(graph, held_out=3)

    def work():
        learner.refresh()
        graph.put_edge("n1", "n9")
        learner.refresh()

    graph, learner = fresh()
    total = inject(work).calls
    for number in range(1, total + 1, 3):
        graph, learner = fresh()
        inject(work, number=number)
        graph.put_edge("n1", "n9")
        assert learner.digest() == _learner(graph, held_out=3).digest(), number

"""Growing graphs: whatever the history, they are what the dumbest loops say of their content."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import groupby

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.graph import Graph, GrowingGraph
from evergraph.graph.arena import Arena, Column
from evergraph.graph.hops import walk
from evergraph.graph.ids import Coded, key, order_of

F = 5
IDS = ["a", "b", "7", 7, -1, "ß", 10**12, "c d"]
Event = tuple[object, ...]


@dataclass
class Content:
    """What a graph holds, in plain dictionaries."""

    directed: bool = False
    components: int | None = None
    nodes: dict = field(default_factory=dict)  # id -> [row, label, time]
    edges: dict = field(default_factory=dict)  # (source, target) -> [weight, time]

    def pair(self, source, target):
        if not self.directed and (target, source) in self.edges:
            return target, source
        return source, target

    def apply(self, event: Event) -> bool:
        """Whether the event is possible; if so, it happened."""
        kind, *rest = event
        if kind == "node":
            node, row, label, time = rest
            old = self.nodes.get(node, [None, None, None])
            self.nodes[node] = [row, label or old[1], old[2] if time is None else time]
        elif kind == "delete_node":
            if rest[0] not in self.nodes:
                return False
            del self.nodes[rest[0]]
            self.edges = {pair: e for pair, e in self.edges.items() if rest[0] not in pair}
        elif kind == "label":
            if rest[0] not in self.nodes:
                return False
            self.nodes[rest[0]][1] = rest[1]
        else:
            source, target, *values = rest
            if source not in self.nodes or target not in self.nodes:
                return False
            pair = self.pair(source, target)
            if kind == "delete_edge":
                return self.edges.pop(pair, None) is not None
            if source != target:
                old = self.edges.get(pair, [1.0 if not self.components else (1.0, 1.0), None])
                self.edges[pair] = [o if v is None else v for v, o in zip(values, old, strict=True)]
        return True

    def events(self) -> Iterator[Event]:
        """The shortest history that leads here."""
        for node, (row, label, time) in self.nodes.items():
            yield "node", node, row, label, time
        for (source, target), (weight, time) in self.edges.items():
            yield "edge", source, target, weight, time

    def neighbors(self, node, cap=None) -> dict:
        """id -> weight in units of 2**-10, in the order of the keys; itself not among them."""
        found = {}
        for (source, target), (weight, _) in self.edges.items():
            total = (
                round(weight * 1024)
                if not self.components
                else sum(round(part * 1024) for part in weight)
            )
            if source == node:
                found[target] = total
            if target == node and not self.directed:
                found[source] = total
        limit = len(found) if cap is None else cap - 1
        return {other: found[other] for other in sorted(found, key=key)[:limit]}

    def sums(self, node, cap=None) -> tuple[list[int], int]:
        """`Σ w x` and `Σ w` by the dumbest loop."""
        weights = {node: 1024 * (self.components or 1)} | self.neighbors(node, cap)
        total = [0] * F
        for other, weight in weights.items():
            for index, value in self.nodes[other][0].items():
                total[index] += weight * value
        return total, sum(weights.values())


def apply(graph: GrowingGraph, event: Event) -> None:
    kind, *rest = event
    if kind == "node":
        node, row, label, time = rest
        graph.put_node(node, list(row), list(row.values()), label=label, time=time)
    elif kind == "label":
        graph.put_label(*rest)
    elif kind == "delete_node":
        graph.delete_node(*rest)
    elif kind == "delete_edge":
        graph.delete_edge(*rest)
    else:
        graph.put_edge(*rest)


def make(content: Content, cap=None, hub=2, hops=2) -> GrowingGraph:
    graph = GrowingGraph(
        F, directed=content.directed, components=content.components, cap=cap, hops=hops
    )
    graph._sums.threshold = hub  # so that a few edges make a hub
    return graph


rows = st.dictionaries(st.integers(0, F - 1), st.integers(-(2**24), 2**24), max_size=3).map(
    lambda row: {index: row[index] for index in sorted(row)}
)
times = st.none() | st.integers(0, 4).map(float)
ids = st.sampled_from(IDS)


def histories(components: int | None):
    number = st.integers(-2048, 4096).map(lambda n: n / 1024)
    weights = st.none() | (st.tuples(number, number) if components else number)
    labels = st.none() | st.sampled_from(["x", "y"])
    one = st.one_of(
        st.tuples(st.just("node"), ids, rows, labels, times),
        st.tuples(st.just("edge"), ids, ids, weights, times),
        st.tuples(st.just("edge"), ids, ids, weights, times),
        st.tuples(st.just("label"), ids, labels),
        st.tuples(st.just("delete_node"), ids),
        st.tuples(st.just("delete_edge"), ids, ids),
    )
    begin = st.lists(rows.filter(bool), min_size=len(IDS), max_size=len(IDS)).map(
        lambda found: [("node", i, row, None, None) for i, row in zip(IDS, found, strict=True)]
    )
    edge = st.tuples(st.just("edge"), ids, ids, weights, times)
    edges = st.lists(edge, min_size=8, max_size=14)  # so that there is something to reach
    rest = st.lists(one, max_size=40)
    return st.builds(lambda a, b, c: [*a, *b, *c], begin, edges, rest)


cases = st.sampled_from(
    [(directed, parts) for directed in (False, True) for parts in (None, 2)]
).flatmap(lambda case: st.tuples(st.just(Content(*case)), histories(case[1])))


def state(graph: GrowingGraph) -> dict:
    """All that can be read, by id."""
    slots = graph.slots()
    names = graph.ids(slots)
    indptr, index, value = graph.rows(slots)
    found = {
        "ids": names,
        "rows": (indptr.tolist(), index.tolist(), value.tolist()),
        "sums": graph.sums(slots).toarray().tolist(),
        "degree": graph.degree(slots).tolist(),
        "labels": graph.labels(slots),
        "times": np.nan_to_num(graph.times(slots), nan=-1).tolist(),
        "classes": graph.classes,
        "edges": graph.num_edges,
    }
    for hops, cap, causal in ((1, None, False), (3, None, True), (2, 2, False), (2, 3, True)):
        near = graph.neighborhood(slots, hops, cap=cap, causal=causal)
        weight = None if near.weight is None else near.weight.tolist()
        seen = (graph.ids(near.nodes.numpy()), near.owner.tolist(), near.hop.tolist(), weight)
        found[f"near {hops} {cap} {causal}"] = seen
    return found


def run(content: Content, events: list[Event], graph: GrowingGraph) -> None:
    for event in events:
        if content.apply(event):
            apply(graph, event)
        else:
            with pytest.raises(ValueError, match="the graph has no"):
                apply(graph, event)


@settings(max_examples=150, deadline=None)
@given(cases, st.sampled_from([None, 1, 3]), st.booleans(), st.randoms(use_true_random=False))
def test_any_history_leads_to_what_its_content_says(case, cap, few, rng: random.Random) -> None:
    content, events = case
    graph = make(content, cap)
    graph._sums.dense = 1000 if few else 0  # either way of adding up
    for half in (events[: len(events) // 2], events[len(events) // 2 :]):
        run(content, half, graph)
        graph.sums(graph.slots())  # hubs are kept from here on
    slots = graph.slots()
    assert sorted(graph.ids(slots), key=key) == graph.ids(slots)
    assert set(graph.ids(slots)) == set(content.nodes)
    for node, slot in zip(graph.ids(slots), slots, strict=True):
        total, weight = content.sums(node, cap)
        assert graph.sums(np.array([slot])).toarray().tolist() == [total]
        assert graph.degree(np.array([slot])).tolist() == [weight]
        _, neighbor, weights = graph.counted(np.array([slot]))
        expected = content.neighbors(node, cap)
        assert list(zip(graph.ids(neighbor), weights.tolist(), strict=True)) == list(
            expected.items()
        )
    fresh = make(content, cap, hub=1000)
    shortest = list(content.events())
    nodes = [event for event in shortest if event[0] == "node"]
    edges = [event for event in shortest if event[0] == "edge"]
    rng.shuffle(nodes)
    rng.shuffle(edges)
    run(Content(content.directed, content.components), nodes + edges, fresh)
    assert state(fresh) == state(graph)


@settings(max_examples=60, deadline=None)
@given(cases, st.sampled_from([None, 3]))
def test_batches_are_the_same_as_single_events(case, cap) -> None:
    content, events = case
    one, many = make(content, cap), make(content, cap)
    run(content, events, one)
    while events:
        kind = events[0][0]
        size = next((i for i, event in enumerate(events) if event[0] != kind), len(events))
        batch, events = events[:size], events[size:]
        if kind == "node":
            _, names, found, labels, when = zip(*batch, strict=True)
            indptr = np.cumsum([0, *map(len, found)])
            index = [index for row in found for index in row]
            value = [value for row in found for value in row.values()]
            when = [np.nan if time is None else time for time in when]
            many.put_nodes(names, indptr, index, value, labels=labels, times=when)
        elif kind == "edge":
            batch = [event for event in batch if event[1] in many and event[2] in many]
            for none, part in groupby(batch, key=lambda event: event[3] is None):
                _, sources, targets, weights, when = zip(*part, strict=True)
                when = [np.nan if time is None else time for time in when]
                many.put_edges(sources, targets, None if none else weights, when)
        else:
            for event in batch:
                with suppress(ValueError):
                    apply(many, event)
    assert state(many) == state(one)


def means(graph: GrowingGraph) -> dict[int, list]:
    """For each slot its id, features, mean, mean of means, and label, in exact fractions."""
    slots = graph.slots()
    degree = graph.degree(slots).tolist()
    sums = graph.sums(slots).toarray().tolist()
    indptr, index, value = graph.rows(slots)
    first = {
        slot: [Fraction(part, weight) if weight else part for part in total]
        for slot, total, weight in zip(slots.tolist(), sums, degree, strict=True)
    }
    parent, neighbor, weights = graph.counted(slots)
    found = {}
    for at, slot in enumerate(slots.tolist()):
        second = list(first[slot])
        for other, weight in zip(
            neighbor[parent == at].tolist(), weights[parent == at].tolist(), strict=True
        ):
            second = [a + weight * b for a, b in zip(second, first[other], strict=True)]
        own = (
            index[indptr[at] : indptr[at + 1]].tolist(),
            value[indptr[at] : indptr[at + 1]].tolist(),
        )
        here = np.array([slot])
        found[slot] = [*graph.ids(here), own, first[slot], second, degree[at], *graph.labels(here)]
    return found


@settings(max_examples=60, deadline=None)
@given(cases, st.sampled_from([None, 1, 2, 3]))
def test_the_hook_names_every_slot_whose_row_changes(case, cap) -> None:
    content, events = case
    graph = make(content, cap)
    named: list[int] = []
    untouched = {}

    def before(slots: np.ndarray) -> None:
        assert slots.dtype == np.int64
        assert slots.tolist() == sorted(set(slots.tolist()))
        named.extend(slots.tolist())
        assert means(graph) == untouched  # nothing has happened yet

    graph.before = before
    for event in events:
        named.clear()
        untouched = means(graph)
        if not content.apply(event):
            with pytest.raises(ValueError, match="the graph has no"):
                apply(graph, event)
            assert not named
            continue
        apply(graph, event)
        after = means(graph)
        changed = {s for s in after.keys() | untouched.keys() if after.get(s) != untouched.get(s)}
        assert changed <= set(named)


@settings(max_examples=60, deadline=None)
@given(cases)
def test_the_frozen_view_sees_the_same(case) -> None:
    content, events = case
    graph = make(content)
    run(content, events, graph)
    frozen, names = graph.freeze()
    slots = graph.slots()
    assert names == graph.ids(slots)
    assert frozen.num_edges == graph.num_edges
    assert frozen.directed == graph.directed
    rank = {slot: at for at, slot in enumerate(slots.tolist())}
    expected = np.zeros((len(names), F))
    for at, name in enumerate(names):
        for index, value in content.nodes[name][0].items():
            expected[at, index] = value / 2**16
    assert frozen.features.to_dense().numpy().tolist() == expected.tolist()
    labels = [content.nodes[name][1] for name in names]
    if frozen.labels is None:
        assert set(labels) <= {None}
    else:
        told = [None if n < 0 else frozen.class_names[n] for n in frozen.labels.tolist()]
        assert told == labels
    known = [content.nodes[name][2] for name in names]
    assert (frozen.time is None) == (None in known or not known)
    nodes = torch.arange(len(names))
    arrival = torch.tensor([-1.0 if time is None else time for time in known])
    now = torch.tensor([9.0 if time is None else time for time in known])
    timeless = all(time is None for _, time in content.edges.values())
    for hops, when in ((1, None), (2, None), (3, None), (3, arrival if timeless else None)):
        causal = when is not None
        near = graph.neighborhood(slots, hops, causal=causal)
        same = frozen.neighborhood(nodes, hops, arrival=when, now=now if causal else None)
        assert [rank[slot] for slot in near.nodes.tolist()] == same.nodes.tolist()
        assert near.owner.tolist() == same.owner.tolist()
        assert near.hop.tolist() == same.hop.tolist()
        assert (near.weight is None) == (same.weight is None)
        assert near.weight is None or torch.equal(near.weight, same.weight)
        few = graph.neighborhood(slots, hops, cap=2)
        first = walk(frozen.adjacency, None, nodes.numpy(), hops, 2, True, None)
        assert [rank[slot] for slot in few.nodes.tolist()] == first.nodes.tolist()
    back = GrowingGraph.from_graph(frozen, names)
    assert state(back) == state(graph) or None in known or not timeless


def random_graph(seed: int, nodes: int, edges: int, **options) -> GrowingGraph:
    rng = np.random.default_rng(seed)
    graph = GrowingGraph(F, **options)
    index = np.tile(np.arange(F), nodes)
    value = rng.integers(-(2**24), 2**24, nodes * F)
    graph.put_nodes(range(nodes), np.arange(nodes + 1) * F, index, value)
    for source, target in rng.integers(0, nodes, (edges, 2)).tolist():
        graph.put_edge(source, target, float(rng.integers(1, 4096)) / 1024)
    return graph


def test_sums_of_hubs_are_kept_through_thousands_of_events() -> None:
    """Hubs of the real size, far beyond the room of one row; the arena is compacted on the way."""
    rng = np.random.default_rng(0)
    graph = random_graph(0, 400, 3000)
    hub = graph.slots([0, 1])
    for step in range(4000):
        source, target = rng.integers(0, 2), rng.integers(2, 400)
        other = 2 + (target + 7) % 398
        graph.put_edge(int(source), int(target), float(rng.integers(1, 4096)) / 1024)
        if step % 3 == 0:
            graph.put_node(int(target), [step % F], [step + 1])
        if step % 5 == 0:
            graph.put_edge(int(other), int(target))
            graph.delete_edge(int(target), int(other))
        if step % 50 == 0:
            graph.delete_node(int(other))
            graph.put_node(int(other), [1], [7])
        if step == 1000:
            graph.sums(hub)
    assert set(graph._sums.hubs) == set(hub.tolist())
    assert (graph.degree(hub) > 100 * 1024).all()
    kept = state(graph)
    graph._sums.hubs.clear()
    graph._sums.threshold = 10**6
    assert state(graph) == kept


def test_an_arena_is_a_list_of_lists() -> None:
    rng = random.Random(0)
    arena, plain = Arena([Column(np.int32), Column(np.float64, width=2)]), [[] for _ in range(30)]
    arena.reserve(30)
    largest = 0
    for step in range(20000):
        slot = rng.randrange(30) if step % 3 else rng.randrange(3)
        at = rng.randint(0, len(plain[slot]))
        if rng.random() < 0.6:
            plain[slot].insert(at, step)
            arena.insert(slot, at, (step, (step, -step)))
        elif at < len(plain[slot]):
            del plain[slot][at]
            arena.remove(slot, at)
        elif rng.random() < 0.3:
            plain[slot].clear()
            arena.clear(slot)
        largest = max(largest, sum(map(len, plain)))
        assert arena.row(slot, 0).tolist() == plain[slot]
    for slot, row in enumerate(plain):
        assert arena.row(slot, 0).tolist() == row
        assert arena.row(slot, 1).tolist() == [[n, -n] for n in row]
    assert len(arena.columns[0].array) < 8 * largest + 1024


@pytest.mark.parametrize(
    ("event", "rule"),
    [
        (lambda g: g.put_node(1.0, [], []), "an id must be a string or an integer, got 1.0"),
        (lambda g: g.put_node(None, [], []), "an id must be a string or an integer, got None"),
        (lambda g: g.put_node("x" * 2000, [], []), "1 to 1024 bytes in UTF-8, got 2000"),
        (lambda g: g.put_node("x", [0], []), "a value for each index, got 1 and 0"),
        (lambda g: g.put_node("x", [1, 1], [5, 5]), r"ascend, be distinct .* got \[1, 1\]"),
        (lambda g: g.put_node("x", [2, 1], [5, 5]), r"ascend, be distinct .* got \[2, 1\]"),
        (lambda g: g.put_node("x", [5], [5]), "inside 0 to 4"),
        (lambda g: g.put_node("x", [-1], [5]), "inside 0 to 4"),
        (lambda g: g.put_node("x", [0], [2**24 + 1]), r"from -2\*\*24 to 2\*\*24 .* got 16777217"),
        (lambda g: g.put_node("x", [0], [2**70]), "value must be a list of 64-bit integers"),
        (lambda g: g.put_node("x", [0], [0.5]), r"value must be .* got \[0.5\] \(float64\)"),
        (lambda g: g.put_node("x", [0], ["1"]), "value must be a list of 64-bit integers"),
        (lambda g: g.put_node("x", [[0]], [[1]]), "index must be a list of 64-bit integers"),
        (lambda g: g.put_node("x", [0], [1], label=10**9), "a label must be a string, got 10000"),
        (lambda g: g.put_node("x", [0], [1], label="\udc80"), "a label must be valid Unicode"),
        (lambda g: g.put_node("x", [0], [1], time=float("nan")), "a time must be .* got nan"),
        (
            lambda g: g.put_nodes(["x"], [0, 1], [0], [1], labels=["a", "b"]),
            "labels must have 1 el",
        ),
        (lambda g: g.put_nodes(["x", "y"], [0, 1], [0], [1]), "indptr must rise from 0 in 2 steps"),
        (lambda g: g.put_nodes(["x", "y"], [0, 1, 2], [0, 9], [1, 1]), "row 1: the indices"),
        (lambda g: g.put_nodes(["x"], [0, 2], [0], [1]), r"must have indptr\[-1\] = 2 entries"),
        (lambda g: g.put_nodes(["x"], [0, 0], [], [], times=[np.inf]), "times must be 1 finite"),
        (lambda g: g.put_edge("a", "x"), "the graph has no node 'x': put it first"),
        (lambda g: g.put_edge("a", True), "an id must be a string or an integer, got True"),
        (lambda g: g.put_edge("a", "b", "heavy"), "a weight must be a number .* got 'heavy'"),
        (lambda g: g.put_edge("a", "b", [1.0, 2.0]), "a weight must be a number"),
        (lambda g: g.put_edge("a", "b", float("nan")), "from -16384 to 16384, got nan"),
        (lambda g: g.put_edge("a", "b", 20000.0), "got 20000.0: scale the weights"),
        (lambda g: g.put_edge("a", "b", True), "a weight must be a number"),
        (lambda g: g.put_edges(["a"], ["b", "a"]), "targets must have 1 elements, got 2"),
        (lambda g: g.put_edges(["a"], ["x"]), "the graph has no node 'x'"),
        (lambda g: g.put_edges(["a"], ["b"], [np.inf]), "from -16384 to 16384, got inf"),
        (lambda g: g.put_label("a", 3), "a label must be a string, got 3"),
        (lambda g: g.put_label("x", "y"), "the graph has no node 'x'"),
        (lambda g: g.delete_edge("a", "c"), "the graph has no edge from 'a' to 'c'"),
        (lambda g: g.delete_node("x"), "the graph has no node 'x'"),
        (lambda g: g.sums(np.array([0, 99])), "slot 99 has no node"),
        (lambda g: g.neighborhood(np.array([0]), cap=0), "cap must be at least 1, got 0"),
    ],
)
def test_what_is_refused_changes_nothing_and_is_not_announced(event, rule) -> None:
    graph = GrowingGraph(F)
    for name in "abc":
        graph.put_node(name, [0], [1], label="x")
    graph.put_edge("a", "b", 0.5)
    before = state(graph)
    graph.before = lambda slots: pytest.fail(f"announced {slots}")
    with pytest.raises(ValueError, match=rule) as error:
        event(graph)
    assert len(str(error.value)) < 300
    assert state(graph) == before


def test_events_without_effect_are_not_announced() -> None:
    graph = random_graph(0, 5, 0)
    graph.put_node("a", [0], [3], label="x")
    graph.put_edge("a", 1, 0.5)
    graph.before = lambda slots: pytest.fail(f"announced {slots}")
    graph.put_node("a", [0, 2], [3, 0], label="x")
    graph.put_edge(1, "a", 0.5)
    graph.put_edge("a", "a")
    graph.put_label("a", "x")
    graph.put_edges(["a"], ["a"])


@pytest.mark.parametrize("edges", [5, 12])  # sorted in, or inserted one by one
def test_a_batch_names_all_slots_whose_rows_it_changes(edges) -> None:
    graph = random_graph(3, 30, edges)
    before = means(graph)
    named: list[int] = []
    graph.before = lambda slots: named.extend(slots.tolist())
    graph.put_edges([0, 1, 2], [1, 2, 3], [0.5, 2.0, 1.0])
    after = means(graph)
    assert {slot for slot in after if after[slot] != before[slot]} <= set(named)
    assert 0 < len(set(named)) < 30


def test_a_graph_comes_back_from_its_frozen_view() -> None:
    features = torch.tensor([[0.5, 0, 1.0], [0, 0, -2.0], [3.0, 0, 0]])
    edges = torch.tensor([[0, 1, 0], [1, 0, 2]])
    frozen = Graph(
        features,
        edges,
        torch.tensor([1, -1, 0]),
        torch.tensor([0.5, 9.0, 2.0]),
        time=torch.arange(3.0),
        edge_time=torch.tensor([4.0, 9.0, 5.0]),
        class_names=("x", "y"),
    )
    graph = GrowingGraph.from_graph(frozen, ["a", "b", "c"])
    assert graph.labels(graph.slots(["a", "b", "c"])) == ["y", None, "x"]
    again, names = graph.freeze()
    order = [names.index(name) for name in "abc"]
    assert torch.equal(again.features.to_dense()[order], features)
    assert again.time[order].tolist() == [0, 1, 2]
    found = {
        frozenset(names[end] for end in pair): (weight, when)
        for *pair, weight, when in zip(
            *again.edges.tolist(), again.weight.tolist(), again.edge_time.tolist(), strict=True
        )
    }
    assert found == {frozenset("ab"): (0.5, 4.0), frozenset("ac"): (2.0, 5.0)}
    with pytest.raises(ValueError, match="from -256 to 256 in fixed point, got 300: standardize"):
        GrowingGraph.from_graph(Graph(torch.full((1, 2), 300.0), edges[:, :0]))


def test_memory_stays_within_twice_that_of_a_frozen_graph() -> None:
    """Ids included, which the frozen graph does not have."""
    graph = random_graph(0, 2000, 10000)
    frozen, _ = graph.freeze()
    frozen.degrees()
    rows, near = frozen.features, frozen.adjacency
    tensors = (rows.indptr, rows.indices, rows.values, frozen.edges, frozen.weight)
    size = sum(part.numel() * part.element_size() for part in tensors)
    size += near.start.nbytes + near.target.nbytes + near.edge.nbytes
    assert graph.nbytes < 2 * size


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 3).map(lambda k: k << 40), max_size=40))
def test_keys_are_sorted_and_equal_ones_stay_in_their_order(keys):
    expected = sorted(range(len(keys)), key=keys.__getitem__)
    assert order_of(np.array(keys, dtype=np.uint64)).tolist() == expected


@pytest.mark.parametrize("ids", [["c", "a", "b"], ["a", "b", "c"], ["b", "c"]])
@pytest.mark.parametrize("deleted", ["a", None])
def test_edges_lead_where_their_ids_say_in_any_order_of_the_ids(ids, deleted):
    graph = GrowingGraph(num_features=1)
    graph.put_nodes(["c", "a", "b"], [0] * 4, [], [])
    if deleted:
        graph.delete_node(deleted)
    ends = Coded(ids, np.array([0])), Coded(ids, np.array([len(ids) - 1]))
    if deleted in (ids[0], ids[-1]):
        with pytest.raises(ValueError, match=r"no node 'a'"):
            graph.put_edges(*ends)
        return
    graph.put_edges(*ends)
    _, target, _ = graph.counted(graph.slots([ids[0]]))
    assert graph.ids(target) == [ids[-1]]

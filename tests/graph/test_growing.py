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

from evergraph.graph import GrowingGraph
from evergraph.graph.hops import walk
from evergraph.graph.ids import key

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
    begin = st.lists(rows, min_size=len(IDS), max_size=len(IDS)).map(
        lambda found: [("node", i, row, None, None) for i, row in zip(IDS, found, strict=True)]
    )
    return st.tuples(begin, st.lists(one, max_size=40)).map(lambda two: two[0] + two[1])


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
@given(cases, st.sampled_from([None, 1, 3]), st.randoms(use_true_random=False))
def test_any_history_leads_to_what_its_content_says(case, cap, rng: random.Random) -> None:
    content, events = case
    graph = make(content, cap)
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
        first = walk(frozen._adjacency, None, nodes.numpy(), hops, 2, True, None)
        assert [rank[slot] for slot in few.nodes.tolist()] == first.nodes.tolist()
    back = GrowingGraph.from_graph(frozen, names)
    assert state(back) == state(graph) or None in known or not timeless

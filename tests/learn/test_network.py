"""The network beside a growing graph: once, bounded, resumable to the bit, forgetful if asked."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from evergraph.graph.growing import GrowingGraph
from evergraph.learn.network import BATCH, LAYERS, TRAINING, NetworkLearner, Todo, average
from evergraph.learn.training import Training

FEATURES = 6


def make_graph(size=60, order=None, seed=0):
    """Two kinds of nodes with features of their own, linked to their own kind."""
    rng = np.random.default_rng(seed)
    values = rng.integers(1, 2**16, (size, 2))
    ends = rng.integers(0, size // 2, (2 * size, 2)) * 2 + rng.integers(0, 2, (2 * size, 1))
    graph = GrowingGraph(FEATURES)
    for node in range(size) if order is None else order:
        label = ["even", "odd"][node % 2] if node < size - 20 else None
        graph.put_node(node, [node % 2, 2 + node % 4], values[node], label=label)
    for one, other in ends.tolist():
        graph.put_edge(one, other)
    return graph


def make_network(graph, capacity=20, **changes):
    network = NetworkLearner(FEATURES, graph.hops, capacity, **changes)
    network.begin(graph)
    network.follow(graph)
    return network


def label(network, graph, names, removed=False):
    """Label nodes as one transaction does: what is to do first, then the graph."""
    todo = network.todo.after(graph, names, removed)
    for node, name in names.items():
        graph.put_label(node, name)
    return todo


def test_it_learns_what_it_is_told():
    graph = make_graph()
    network = make_network(graph, capacity=100)
    likely, known = network.probabilities(graph, graph.slots(), ["even", "odd", "third"])
    assert known.tolist() == [True, True, False]
    assert np.allclose(likely.sum(1), 1)
    kind = [node % 2 for node in graph.ids(graph.slots())]
    assert (likely.argmax(1) == kind).mean() > 0.9


def test_every_label_is_learned_once_and_memory_is_bounded():
    graph = make_graph()
    network = make_network(graph, capacity=12)
    assert (network.seen, network.todo.waiting, len(network.memory)) == (40, (), 12)
    assert not network.follow(graph)
    for node in range(40, 60):
        network.todo = label(network, graph, {node: "odd"})
        network.follow(graph)
        assert network.seen == node // BATCH * BATCH + (node % BATCH == BATCH - 1) * BATCH
        assert len(network.todo.waiting) == (node + 1) % BATCH
        assert len(network.memory) == 12
    again = label(network, graph, {45: "odd", 46: "odd"})
    assert again.waiting == ()


def test_what_waits_can_change_or_go():
    graph = make_graph()
    network = make_network(graph)
    todo = label(network, graph, {50: "odd", 51: "even", 52: "odd"})
    assert todo.waiting == (50, 51, 52)
    network.todo = todo
    todo = label(network, graph, {51: "odd", 50: None})
    assert (todo.waiting, todo.renew) == ((51, 52), True)
    assert Todo.from_json(todo.to_json()) == todo


def test_it_does_not_depend_on_slots():
    one, other = (make_network(make_graph(order=order)) for order in (None, range(59, -1, -1)))
    assert one.digest() == other.digest()


@pytest.mark.parametrize("saved", ["before", "after"])
def test_it_resumes_to_the_bit_wherever_it_was_killed(tmp_path, saved):
    """The file is of before or after the work that was committed with the labels."""
    path = tmp_path / "network.safetensors"
    graph = make_graph()
    network, other = make_network(graph), make_network(graph)
    for start in range(40, 60, 4):
        names = {node: ["even", "odd"][node % 2] for node in range(start, start + 4)}
        network.save(path)
        network.todo = todo = label(network, graph, names, removed=start == 48)
        other.todo = todo
        other.follow(graph)
        if saved == "after":
            network.follow(graph)
            network.save(path)
        network = NetworkLearner(FEATURES, graph.hops, 20)
        assert network.load(path, todo)
        network.follow(graph)
        assert network.digest() == other.digest()
        assert network.todo == other.todo
    weights, expected = (one.learner.model.state_dict() for one in (network, other))
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_an_interrupted_follow_continues(monkeypatch):
    graph = make_graph()
    network, whole = NetworkLearner(FEATURES, graph.hops, 20), make_network(graph)
    network.begin(graph)
    learn, calls = network._learn, []

    def interrupted(*given):
        if len(calls) == 2:
            calls.append(0)
            raise KeyboardInterrupt
        calls.append(0)
        learn(*given)

    monkeypatch.setattr(network, "_learn", interrupted)
    with pytest.raises(KeyboardInterrupt):
        network.follow(graph)
    assert network.follow(graph)
    assert (network.digest(), network.todo) == (whole.digest(), whole.todo)


def test_files_of_other_networks_are_refused(tmp_path):
    path = tmp_path / "network.safetensors"
    graph = make_graph()
    saved = make_network(graph)
    saved.save(path)
    assert not NetworkLearner(FEATURES, graph.hops, 20).load(path, Todo("another"))
    assert not NetworkLearner(FEATURES, graph.hops, 20).load(tmp_path / "none", Todo("another"))
    network = make_network(graph, capacity=7)
    assert not NetworkLearner(FEATURES, graph.hops, 7).load(path, network.todo)
    others = {"training": replace(TRAINING, lr=0.5)}, {"layers": {**LAYERS, "dropout": 0.1}}
    for other in others:
        assert not NetworkLearner(FEATURES, graph.hops, 20, **other).load(path, saved.todo)
    assert NetworkLearner(FEATURES, graph.hops, 20).load(path, saved.todo)


def test_nothing_of_what_was_taken_out_is_remembered():
    graph = make_graph()
    graph.put_node("guest", [5], [2**16], label="alone")
    graph.put_edge("guest", 0)
    graph.put_edge("guest", 3)
    network = make_network(graph, capacity=100)
    network.todo = label(network, graph, dict.fromkeys(range(41, 58, 2), "odd"))
    network.follow(graph)
    assert "alone" in network.names
    key = graph.keys(graph.slots(["guest"])).view(np.int64)[0]
    assert key in network.memory.node.tolist()
    network.todo = network.todo.after(graph, {"guest": None, 2: "odd", 4: None}, True)
    graph.delete_node("guest")
    graph.put_label(2, "odd")
    graph.put_label(4, None)
    assert network.follow(graph)
    kept = network.memory.node.numpy().view(np.uint64)
    slots = graph.slots()
    assert len(kept) == 47  # without the guest, and 2 and 4, whose labels have changed
    assert set(kept.tolist()) < set(graph.keys(slots).tolist())
    place = np.searchsorted(graph.keys(slots), kept)
    now = network._items(graph, slots[place])
    held = network.memory.batch(range(len(kept)))
    assert torch.equal(held.target, now.target)
    assert torch.equal(held.x.to_dense(), now.x.to_dense())
    assert torch.equal(held.neighbors.features.to_dense(), now.neighbors.features.to_dense())
    assert "alone" not in network.names
    likely, known = network.probabilities(graph, slots[:3], ["alone", "even", "odd"])
    assert known.tolist() == [False, True, True]
    assert np.allclose(likely.sum(1), 1)
    for node in graph.ids(slots):
        graph.delete_node(node)
    network.todo = network.todo.after(graph, {}, True)
    network.follow(graph)
    assert len(network.memory) == 0


def test_a_batch_that_diverges_changes_nothing_but_a_count():
    graph = make_graph()
    network = make_network(graph, training=Training(lr=1e38, replay_batches=4))
    assert network.skipped > 0
    assert network.seen == 40
    assert all(p.isfinite().all() for p in network.learner.model.parameters())


def test_averaging_is_over_the_classes_that_both_know():
    exact = np.array([[0.5, 0.3, 0.2], [0.0, 0.0, 1.0]])
    network = np.array([[0.1, 0.9, 0.0], [1.0, 0.0, 0.0]])
    known = np.array([True, True, False])
    found = average(exact, network, known)
    assert np.allclose(found, [[0.29, 0.51, 0.2], [0.0, 0.0, 1.0]])
    assert np.array_equal(average(exact, network, np.zeros(3, dtype=bool)), exact)

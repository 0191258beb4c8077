"""Pairs of nodes: they see what came before them and never the edge they ask for."""

import os
from dataclasses import replace

import pytest
import torch

from evergraph.datasets import generate, load
from evergraph.datasets.generate import Growth
from evergraph.graph import Graph
from evergraph.learn import Learner, LinkPrediction, Regression, Reservoir, Training
from evergraph.learn.methods import Replay
from evergraph.nn import FGN, baseline
from evergraph.stream import Continuum, PairSource, Schedule, link_continuum, node_continuum

GROWTH = Growth(nodes=400, classes=4, features=40, words=0, signal=0.9, homophily=0.9)


@pytest.fixture(scope="module")
def graph():
    """A generated citation graph whose edges come with the citing node."""
    found = generate(GROWTH).graph
    return replace(found, edge_time=found.time[found.edges].max(0).values)


def told(graph):
    """The same graph whose features are its node numbers, so that neighbors can be read off."""
    return replace(graph, features=torch.arange(float(graph.num_nodes)).unsqueeze(1))


def test_pairs_see_only_earlier_edges(graph):
    """Against a loop over all edges; equal times do not count."""
    stream = link_continuum(told(graph), batch_size=20)
    edges = list(zip(*graph.edges.tolist(), graph.edge_time.tolist(), strict=True))
    source, checked = stream.source, 0
    for batch in [*list(stream)[::20], *stream.test()]:
        for owner, y in zip(
            batch.neighbors.owner.tolist(), batch.neighbors.features.flatten().tolist(), strict=True
        ):
            me, time = int(batch.x[owner // 2, owner % 2]), source.times[batch.node[owner // 2]]
            known = [b for a, b, t in edges if a == me and t < time]
            known += [a for a, b, t in edges if b == me and t < time]
            assert y == me or y in known
            checked += y != me
    assert checked > 100


def test_later_edges_leave_no_trace(graph):
    stream = link_continuum(graph, batch_size=20)
    cut = int(stream.source.times[stream.schedule.batches[20][0]])
    later = graph.edge_time >= cut
    moved = graph.edges.clone()
    moved[1, later] = (moved[1, later] + 7) % graph.num_nodes
    other = replace(stream.source, graph=replace(graph, edges=moved))
    for index in stream.schedule.batches[:20]:
        one, two = (source.batch(index).tensors() for source in (stream.source, other))
        assert all(torch.equal(one[key], two[key]) for key in one)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("twice", [True, False])
def test_every_edge_comes_once_beside_a_pair_that_is_none(graph, ordered, twice):
    stored = graph if ordered else replace(graph, edge_time=None)
    if twice:  # both directions and a loop, as an undirected graph may be stored
        loop = torch.zeros(2, 1, dtype=torch.long)
        time = None if not ordered else torch.cat([graph.edge_time.repeat(2), loop[0]])
        edges = torch.cat([graph.edges, graph.edges.flip(0), loop], dim=1)
        stored = replace(graph, edges=edges, edge_time=time)
    stream = link_continuum(stored, tasks=3)
    source = stream.source
    seen = torch.cat([*stream.schedule.batches, stream.test_index])
    assert torch.equal(seen.sort().values, torch.arange(len(source)))
    assert len(stream.schedule.names) == 3
    known = {frozenset(pair) for pair in graph.edges.T.tolist()}
    kind = [frozenset(pair) in known for pair in source.pairs.T.tolist()]
    assert source.targets.tolist() == [int(there) for there in kind]
    links = source.pairs[:, source.targets == 1].T.tolist()
    assert sorted(map(sorted, links)) == sorted(map(sorted, graph.edges.T.tolist()))
    assert 0.4 < source.targets.double().mean() < 0.6
    if ordered:
        assert (source.times.diff() >= 0).all()
        assert (
            source.times[stream.test_index].min()
            >= source.times[seen[: -len(stream.test_index)]].max()
        )


def test_random_pairs_are_of_nodes_that_have_come(graph):
    """Else it would be enough to know who is new."""
    source = link_continuum(graph).source
    first = torch.full((graph.num_nodes,), torch.inf)
    for a, b, time in zip(*graph.edges.tolist(), graph.edge_time.tolist(), strict=True):
        first[a], first[b] = min(first[a], time), min(first[b], time)
    assert (first[source.pairs].max(0).values <= source.times).all()


def test_the_edge_asked_for_is_no_neighbor(graph):
    stream = link_continuum(told(replace(graph, edge_time=None)))
    for batch in list(stream)[:5]:
        ends = batch.x.flatten()
        other = ends.view(-1, 2).flip(1).flatten()
        around = batch.neighbors
        assert (around.features.flatten() != other[around.owner]).all()


def test_pairs_with_times_need_edges_with_times():
    graph = Graph(torch.eye(3), torch.tensor([[0, 1], [1, 2]]))
    source = PairSource(graph, graph.edges, torch.ones(2).long(), times=torch.arange(2))
    with pytest.raises(ValueError, match="pairs with times need a graph with edge_time, got none"):
        source.batch(torch.tensor([0]))
    with pytest.raises(ValueError, match="test_share must lie between 0 and 1, got 1"):
        link_continuum(graph, test_share=1)


def test_links_are_learned_in_the_order_of_time(graph):
    torch.manual_seed(0)
    stream = link_continuum(graph, batch_size=50)
    model = FGN(40, head="pairs", channels=(4,))
    training = Training(optimizer="adam", lr=0.01, steps=2, replay_batches=2, replay_batch_size=50)
    learner = Learner(model, Replay(), Reservoir(500), training, task=LinkPrediction())
    for batch in stream:
        learner.observe(batch)
    assert learner.evaluate(stream.test()) > 0.6
    assert ((learner.predict(batch) >= 0) & (learner.predict(batch) <= 1)).all()


@pytest.mark.parametrize("model", ["fgn", "sage"])
def test_numbers_are_learned_from_a_stream(model):
    """A number that a node and its neighbors say together, with noise."""
    data = generate(GROWTH)
    graph = data.graph
    torch.manual_seed(0)
    weight = torch.randn(40, 1) / 40**0.5
    near = graph.neighborhood(torch.arange(graph.num_nodes))
    count = torch.bincount(near.owner).unsqueeze(1)
    mean = torch.zeros(graph.num_nodes, 40).index_add(0, near.owner, graph.features[near.nodes])
    targets = (graph.features + mean / count) @ weight
    targets = targets / targets.std() + 0.1 * torch.randn_like(targets)
    stream = node_continuum(data, scenario="data", targets=targets)
    network = FGN(40, channels=(8,), concatenate=True) if model == "fgn" else baseline(model, 40)
    training = Training(optimizer="adam", lr=0.01, steps=2)
    learner = Learner(network, Replay(), Reservoir(100), training, task=Regression())
    for batch in stream:
        learner.observe(batch)
    assert learner.predict(batch).shape == (len(batch), 1)
    assert learner.evaluate(stream.test()) > 0.5


@pytest.mark.slow
def test_links_of_a_real_graph_are_learned_in_the_order_of_time(record_property, capsys):
    """Pairs of nodes that are known before: the features of a new node tell its first edges.

    In arxiv-stream every edge comes with a new node, so that nothing of it is left to predict.
    """
    if not os.environ.get("EVERGRAPH_DATA"):
        pytest.skip("EVERGRAPH_DATA names no folder of real data")
    graph = load("dblp-stream", fetch=False).graph
    stream = link_continuum(graph, batch_size=500)
    source = stream.source
    known = graph.time[source.pairs].max(0).values < source.times
    index = torch.cat(stream.schedule.batches)
    schedule = Schedule.from_groups({"links": index[known[index]]}, 500)
    stream = Continuum(source, schedule, stream.test_index[known[stream.test_index]])
    torch.manual_seed(0)
    model = FGN(graph.num_features, head="pairs", channels=(4,), concatenate=True)
    training = Training(optimizer="adam", lr=0.01, steps=2, replay_batches=2, replay_batch_size=250)
    learner = Learner(model, Replay(), Reservoir(2000), training, task=LinkPrediction())
    for batch in stream:
        learner.observe(batch)
    area = learner.evaluate(stream.test())
    record_property("auc", area)
    with capsys.disabled():
        print(f"dblp-stream: AUC {area:.3f} on {len(stream.test_index)} pairs")
    assert area > 0.6

"""Streams: every node once, in the right order, and nothing that was not known."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from helpers import same

from evergraph.datasets import generate
from evergraph.feature_graph import condense, feature_graph
from evergraph.feature_graph.neighborhoods import Condenser
from evergraph.graph import Neighbors, SparseRows
from evergraph.stream import (
    Batch,
    NeighborConfig,
    OrderConfig,
    concatenate,
    continuum,
    node_continuum,
    validation_split,
)


@pytest.fixture(scope="module")
def data():
    return generate()


def nodes(stream):
    return torch.cat([batch.node for batch in stream])


@pytest.mark.parametrize("scenario", ["regular", "data", "class", "time"])
def test_every_training_node_passes_once(data, scenario):
    stream = node_continuum(data, scenario=scenario)
    seen = nodes(stream)
    assert torch.equal(seen.sort().values, data.train.sort().values)
    assert sum(map(len, stream.schedule.batches)) == len(seen)
    assert not torch.isin(seen, data.test).any()


def test_regular_streams_repeat_and_shuffle_anew(data):
    seen = nodes(node_continuum(data, scenario="regular", epochs=2))
    first, second = seen.split(len(data.train))
    assert torch.equal(first.sort().values, second.sort().values)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("per_task", [1, 2, 3])
def test_classes_come_one_task_after_the_other(data, per_task):
    order = (3, 1, 0, 6, 5, 4, 2)
    stream = node_continuum(data, class_order=order, classes_per_task=per_task)
    tasks = [stream.schedule.members(task) for task in range(len(stream.schedule.names))]
    for task, members in enumerate(tasks):
        expected = sorted(order[task * per_task : (task + 1) * per_task])
        assert data.graph.labels[members].unique().tolist() == expected
    told = torch.cat([batch.task for batch in stream])
    assert torch.equal(told, told.sort().values)
    ends = [stream.schedule.ends_task(position) for position in range(len(stream))]
    assert sum(ends) == len(tasks)
    assert ends[-1]


def test_a_wrong_class_order_is_refused(data):
    with pytest.raises(ValueError, match=r"name each class .* once, \[0, 1, 2, 3, 4, 5, 6\]"):
        node_continuum(data, class_order=(0, 1, 2))


def test_time_streams_follow_arrival_times(data):
    time = data.graph.time[nodes(node_continuum(data, scenario="time", tasks=4))]
    assert torch.equal(time, time.sort().values)
    without = replace(data, graph=replace(data.graph, time=None))
    with pytest.raises(ValueError, match="has no arrival times; use scenario 'data'"):
        node_continuum(without, scenario="time")


def test_seeds_decide_the_order(data):
    first, again, other = (
        nodes(node_continuum(data, scenario="data", seed=seed)) for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_stream_can_be_entered_anywhere(data):
    settings = {"scenario": "data", "cap": 2, "hops": 2, "visibility": "arrived"}
    whole = list(node_continuum(data, **settings))
    rest = list(node_continuum(data, **settings).batches(50))
    assert len(rest) == len(whole) - 50
    assert all(same(one, other) for one, other in zip(whole[50:], rest, strict=True))


def test_items_are_what_the_graph_says(data):
    batch = next(iter(node_continuum(data, scenario="data", hops=2)))
    found = data.graph.neighborhood(batch.node, 2)
    assert torch.equal(batch.neighbors.owner, found.owner)
    assert torch.equal(batch.neighbors.hop, found.hop)
    expected = data.graph.features[found.nodes].to_dense()
    assert torch.equal(batch.neighbors.features.to_dense(), expected)
    assert torch.equal(batch.target, data.graph.labels[batch.node])


def test_causal_items_see_only_what_has_arrived(data):
    """The features of a later node can change without any trace in what came before."""
    settings = {"scenario": "data", "visibility": "arrived"}
    stream = node_continuum(data, **settings)
    last = stream.schedule.batches[-1]
    changed = data.graph.features.to_dense()
    changed[last] = 7.0
    graph = replace(data.graph, features=SparseRows.from_dense(changed))
    other = node_continuum(replace(data, graph=graph), **settings)
    pairs = list(zip(stream, other, strict=True))
    assert all(same(one, two) for one, two in pairs[:-1])
    assert not same(*pairs[-1])
    everything = node_continuum(data, scenario="data")
    altered = node_continuum(replace(data, graph=graph), scenario="data")
    trace = [same(one, two) for one, two in zip(everything, altered, strict=True)]
    assert not all(trace[:-1])  # with visibility "all" they do see it


def test_causal_test_items_see_more_as_the_stream_goes_on(data):
    stream = node_continuum(data, scenario="data", visibility="arrived")
    counts = [
        sum(len(batch.neighbors) for batch in stream.test(position=position))
        for position in (0, len(stream) // 2, len(stream))
    ]
    assert counts[0] < counts[1] < counts[2]


@pytest.mark.parametrize("position", [0, 1, 5])
def test_causal_test_items_do_not_see_the_batch_to_come(data, position):
    settings = {"scenario": "data", "visibility": "arrived"}
    stream = node_continuum(data, **settings)
    later = torch.cat(stream.schedule.batches[position:])
    changed = data.graph.features.to_dense()
    changed[later] = 7.0
    graph = replace(data.graph, features=SparseRows.from_dense(changed))
    other = node_continuum(replace(data, graph=graph), **settings)
    pairs = zip(stream.test(position=position), other.test(position=position), strict=True)
    assert all(same(one, two) for one, two in pairs)
    past = zip(stream.test(position=len(stream)), other.test(position=len(stream)), strict=True)
    assert not all(same(one, two) for one, two in past)


def test_test_sets_are_global_and_have_no_task(data):
    stream = node_continuum(data, scenario="class")
    groups = stream.test_groups
    tasks = [stream.schedule.members(task) for task in range(len(stream.schedule.names))]
    assert torch.equal(torch.cat(groups).sort().values, data.test.sort().values)
    for members, group in zip(tasks, groups, strict=True):
        assert torch.isin(data.graph.labels[group], data.graph.labels[members]).all()
    assert all((batch.task == -1).all() for batch in stream.test())
    assert len(node_continuum(data, scenario="data").test_groups) == 1


def test_no_test_items_make_no_batch(data):
    stream = node_continuum(data, scenario="data")
    assert list(stream.test(data.test[:0])) == []
    assert sum(len(batch) for batch in stream.test()) == len(data.test)


def test_the_cap_is_drawn_once_per_item(data):
    stream = node_continuum(data, scenario="data", cap=2)
    first, again = (list(stream) for _ in range(2))
    assert all(same(one, other) for one, other in zip(first, again, strict=True))
    assert max(int(torch.bincount(batch.neighbors.owner).max()) for batch in first) == 2


def test_validation_nodes_come_from_the_training_part(data):
    split = validation_split(data, 0.25)
    both = torch.cat([split.train, split.test]).sort().values
    assert torch.equal(both, data.train.sort().values)
    labels = data.graph.labels
    assert torch.equal(labels[split.test].unique(), labels[data.train].unique())
    assert not torch.isin(split.test, data.test).any()


@pytest.mark.parametrize(
    ("field", "value"),
    [("scenario", "klass"), ("visibility", "some"), ("batch_size", 0), ("hops", 0), ("tasks", 0)],
)
def test_settings_that_make_no_stream_are_refused(field, value, data):
    config = OrderConfig if field in vars(OrderConfig()) else NeighborConfig
    for make in (config, partial(node_continuum, data)):
        with pytest.raises(ValueError, match=f"{field} must be .* got {value!r}"):
            make(**{field: value})


def test_an_unknown_setting_is_named(data):
    with pytest.raises(TypeError, match=r"unknown setting 'hop'; known are .*hops"):
        node_continuum(data, hop=2)


def test_numbers_to_predict_have_no_classes_to_order(data):
    with pytest.raises(ValueError, match=r"scenario 'class' needs labels.* use 'data'"):
        node_continuum(data, targets=torch.rand(data.graph.num_nodes, 1))


def test_batches_select_and_concatenate(data):
    first, second = list(node_continuum(data, scenario="data", hops=2))[:2]
    both = concatenate([first, second])
    assert same(both.select(torch.arange(10)), first)
    assert same(both.select(torch.arange(10, 20)), second)
    items = list(both)
    assert len(items) == 20
    assert same(concatenate(items), both)
    assert same(Batch.from_tensors(both.tensors()), both)
    with pytest.raises(ValueError, match="at least one batch"):
        concatenate([])
    with pytest.raises(ValueError, match=r"target must have one row for each of 10 items, got 3"):
        replace(first, target=torch.zeros(3, dtype=torch.long))


def test_what_some_batches_do_not_say_is_one_in_all_of_them():
    def one(hop, weight):
        x = torch.rand(1, 1, 4)
        around = Neighbors(torch.rand(2, 1, 4), torch.zeros(2, dtype=torch.long), hop, weight)
        return Batch(x, around, *(torch.zeros(1, dtype=torch.long) for _ in range(3)))

    plain = one(None, None)
    told = one(torch.tensor([1, 2]), torch.tensor([[5.0, 6.0], [7.0, 8.0]]))
    both = concatenate([plain, told]).neighbors
    assert both.hop.tolist() == [1, 1, 1, 2]
    assert both.weight.tolist() == [[1, 1], [1, 1], [5, 6], [7, 8]]
    assert concatenate([plain, plain]).neighbors.weight is None


def test_subgraph_batches_select_and_concatenate():
    x = torch.randn(3, 2, 1, 4)  # three items of two nodes
    owner = torch.tensor([0, 1, 1, 2, 4, 5, 5])
    label = torch.arange(3)
    batch = Batch(x, Neighbors(torch.randn(7, 1, 4), owner), label, label, label)
    again = concatenate(list(batch))
    assert torch.equal(again.neighbors.owner, owner)
    assert torch.equal(again.neighbors.features, batch.neighbors.features)
    assert torch.equal(again.x, x)


def test_condensed_and_compact_items_mean_the_same(data):
    batch = next(iter(node_continuum(data, scenario="data", hops=2)))
    small = replace(batch, neighbors=condense(batch.neighbors, len(batch), 2))
    assert len(small.neighbors) == 20
    stored = small.compact()
    assert stored.nbytes < small.nbytes < batch.nbytes
    restored = concatenate(list(stored))
    for other in (small, restored):
        one, two = (feature_graph(b.x, b.neighbors, hops=2).adjacency for b in (batch, other))
        assert torch.allclose(one, two, atol=1e-6)


class Counted:
    """A source that counts how often items are made."""

    def __init__(self, source):
        self.source, self.made = source, 0

    def __len__(self):
        return len(self.source)

    def batch(self, index, task=-1, position=None):
        self.made += len(index)
        return self.source.batch(index, task, position)


@pytest.mark.parametrize("visibility", ["all", "arrived"])
def test_test_items_are_made_once_if_they_stay_the_same(visibility):
    stream = node_continuum(generate(), visibility=visibility)
    source = Counted(stream.source)
    stream = replace(stream, source=source)
    first, second = (list(stream.test(position=position)) for position in (10, 50))
    count = len(stream.test_index)
    assert sum(map(len, first)) == sum(map(len, second)) == count
    again = any(one is not other for one, other in zip(first, second, strict=True))
    assert again == (visibility == "arrived")
    assert source.made == (2 * count if again else count)


def test_too_many_test_items_and_those_of_others_are_not_kept(monkeypatch):
    stream = node_continuum(generate())
    source = Counted(stream.source)
    stream = replace(stream, source=source)
    foreign = stream.test_index[:30].clone()
    for _ in range(2):
        list(stream.test(foreign))
    assert source.made == 60
    monkeypatch.setattr(continuum, "KEPT_BYTES", 1_000)
    for _ in range(2):
        list(stream.test())
    assert source.made == 60 + 2 * len(stream.test_index)


def test_items_are_tested_together_as_memory_allows(monkeypatch):
    stream = node_continuum(generate())
    sizes = []
    for limit in (2**40, 1):
        monkeypatch.setattr(continuum, "TEST_BYTES", limit)
        sizes.append([len(batch) for batch in replace(stream).test()])
    large, small = sizes
    assert max(small) == continuum.TEST_BATCH == large[0] < large[1]
    assert sum(large) == sum(small) == len(stream.test_index)
    monkeypatch.setattr(continuum, "MOST_TESTED", 130)
    monkeypatch.setattr(continuum, "TEST_BYTES", 2**40)
    assert max(len(batch) for batch in replace(stream).test()) == 130


@pytest.mark.parametrize(
    "settings", [{}, {"hops": 2}, {"hops": 2, "cap": 3}, {"hops": 2, "diffusion": True}]
)
@pytest.mark.parametrize("dense", [False, True])
def test_neighbors_are_condensed_without_copies_of_their_rows(data, settings, dense):
    if dense:
        graph = replace(data.graph, features=data.graph.features.to_dense())
        data = replace(data, graph=graph)
    hops = settings.get("hops", 1)
    whole = node_continuum(data, **settings)
    packed = node_continuum(data, **settings, pack=Condenser(hops))
    for one, other in zip(whole, packed, strict=True):
        condensed = condense(one.neighbors, len(one), hops)
        assert same(replace(one, neighbors=condensed), other)

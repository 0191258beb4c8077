"""Memories: bounded, fair where they promise it, and the same after a pause."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from evergraph.datasets import generate
from evergraph.graph import Neighbors
from evergraph.learn.memory import AgeQuota, ClassBalanced, Reservoir, UniformEviction
from evergraph.learn.packed import pack
from evergraph.learn.selection import MEMORIES
from evergraph.learn.slots import costs
from evergraph.stream import node_continuum
from evergraph.stream.batch import Batch


def stream(count, size=10, classes=1, width=2):
    """Batches of tiny items that carry their number."""
    for start in range(0, count, size):
        node = torch.arange(start, min(start + size, count))
        features = torch.ones(len(node), 1, width)
        neighbors = Neighbors(features, torch.arange(len(node)))
        yield Batch(features, neighbors, node * classes // count, node * 0, node)


def kept(memory):
    return [int(item.node[0]) for item in memory.items]


def tenths(make, runs=40, count=1000, capacity=100, size=10):
    """How many kept items come from each tenth of the stream, over many seeds."""
    total = np.zeros(10)
    for seed in range(runs):
        memory = make(capacity, seed=seed)
        for batch in stream(count, size):
            memory.add(batch)
        total += np.bincount(np.array(kept(memory)) * 10 // count, minlength=10)
    return total


def test_reservoir_keeps_every_tenth_of_the_stream_alike():
    """Eq. (10): the counts are as even as a fair draw makes them."""
    counts = tenths(Reservoir)
    assert counts.sum() == 4000
    assert chisquare(counts).pvalue > 0.01
    assert chisquare(tenths(Reservoir, size=1, runs=15)).pvalue > 0.01


def test_uniform_eviction_forgets_the_beginning():
    """The bias that the paper corrects."""
    counts = tenths(UniformEviction, runs=5)
    assert counts[0] < 0.01 * counts.sum()
    assert counts[-1] > 0.5 * counts.sum()


def test_age_quota_is_nearly_even_and_degenerates_with_single_items():
    counts = tenths(AgeQuota, runs=10)
    share = counts[-2:].sum() / counts.sum()
    assert 0.18 < share < 0.35
    single = tenths(AgeQuota, runs=3, size=1)
    assert single[-2:].sum() / single.sum() > 0.6


def test_class_balance_gives_equal_shares():
    memory = ClassBalanced(60)
    for batch in stream(1000, classes=4):
        memory.add(batch)
    labels = [int(item.target[0]) for item in memory.items]
    assert np.bincount(labels).tolist() == [15, 15, 15, 15]


def test_class_balance_is_fair_within_a_class():
    counts = np.zeros(5)
    for seed in range(40):
        memory = ClassBalanced(100, seed=seed)
        for batch in stream(1000, classes=2):
            memory.add(batch)
        counts += np.bincount(np.array([n for n in kept(memory) if n < 500]) // 100, minlength=5)
    assert chisquare(counts).pvalue > 0.01


def test_a_small_class_leaves_its_share_to_the_others():
    memory = ClassBalanced(50)
    small, *rest = list(stream(300, size=3, classes=1))
    for batch in rest:
        memory.add(batch)
    rare = Batch(small.x, small.neighbors, small.target + 9, small.task, small.node)
    memory.add(rare)
    labels = [int(item.target[0]) for item in memory.items]
    assert labels.count(9) == 3
    assert len(labels) == 50


@pytest.mark.parametrize("make", MEMORIES.values())
def test_limits_hold_exactly_at_all_times(make):
    item = int(costs(pack(next(iter(stream(1, 1))))[1])[0])
    for capacity, limit in ((37, None), (None, 37 * item + 3), (50, 37 * item)):
        memory = make(capacity, limit)
        for batch in stream(300, 7):
            memory.add(batch)
            assert len(memory) <= 37 or limit is None
            assert memory.nbytes == len(memory) * item
            assert memory._slots.allocated <= memory.nbytes
            assert limit is None or memory.nbytes <= limit
        assert len(memory) == 37


def test_a_reservoir_in_bytes_does_not_depend_on_the_order():
    """Items of very different sizes: what is kept is decided by the keys alone."""
    memory, sizes = Reservoir(capacity_bytes=9000, seed=3), {}
    for batch in stream(200, 1):
        around = 1 + int(batch.node[0]) % 9
        neighbors = Neighbors(torch.ones(around, 1, 2), torch.zeros(around, dtype=torch.long))
        item = replace(batch, neighbors=neighbors)
        sizes[int(batch.node[0])] = int(costs(pack(item)[1])[0])
        memory.add(item)
    keys = dict(zip(range(200), np.random.default_rng(3).random(200), strict=True))
    assert len(set(sizes.values())) == 9
    total, expected = 0, []
    for node in sorted(keys, key=keys.get):
        total += sizes[node]
        if total > 9000:
            break
        expected.append(node)
    assert sorted(kept(memory)) == sorted(expected)


@pytest.mark.parametrize("make", MEMORIES.values())
def test_a_pause_changes_nothing(make):
    batches = list(stream(300, 7, classes=3))
    whole = make(40, seed=1)
    for batch in batches:
        whole.add(batch)
    first, second = make(40, seed=1), make(40, seed=99)
    for batch in batches[:20]:
        first.add(batch)
    second.load_state(*first.state())
    assert second.nbytes == first.nbytes
    for batch in batches[20:]:
        second.add(batch)
    assert kept(second) == kept(whole)


@pytest.mark.parametrize("make", MEMORIES.values())
def test_an_empty_memory_can_be_saved(make):
    memory = make(40)
    memory.load_state(*make(40).state())
    assert kept(memory) == []


@pytest.mark.parametrize("make", MEMORIES.values())
def test_limits_that_keep_nothing_are_refused(make):
    with pytest.raises(ValueError, match="capacity must be at least 1, got 0"):
        make(0)
    with pytest.raises(ValueError, match="capacity_bytes must be at least 1, got -5"):
        make(None, -5)
    with pytest.raises(ValueError, match="in items or in bytes, got neither"):
        make()
    with pytest.raises(ValueError, match="must hold at least one item, got 5"):
        make(None, 5).add(next(iter(stream(1, 1))))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_rows_of_any_precision_are_remembered(dtype):
    batches = list(node_continuum(generate()))[:6]
    memory = Reservoir(capacity=40)
    for batch in batches:
        around = batch.neighbors
        features = around.features.to(dtype)
        memory.add(replace(batch, x=batch.x.to(dtype), neighbors=around.with_features(features)))
    kept = memory.batch(range(40))
    assert kept.x.values.dtype == kept.neighbors.features.values.dtype == dtype
    where = {int(node): (batch, i) for batch in batches for i, node in enumerate(batch.node)}
    for item in range(0, 40, 7):
        batch, i = where[int(kept.node[item])]
        mine = kept.x[torch.tensor([item])].to(torch.float64).to_dense()
        theirs = batch.x[torch.tensor([i])].to(dtype).to(torch.float64).to_dense()
        assert torch.equal(mine, theirs)

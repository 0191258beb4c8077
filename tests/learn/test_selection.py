"""Selections of items by features, gradients and losses, each against the dumbest correct loop."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from evergraph.datasets import Growth, generate
from evergraph.graph.neighbors import as_dense
from evergraph.learn import Coverage, Learner, MeanOfFeature, Reservoir, Training
from evergraph.learn.methods import GSS, MIR, SSM, TWP, Influence, TaskFreeMAS
from evergraph.learn.methods.gem import loss_gradient
from evergraph.learn.methods.gradient_selection import item_gradients
from evergraph.learn.methods.retrieval import losses
from evergraph.learn.methods.sparsified import sparsified
from evergraph.learn.methods.topology import apart
from evergraph.nn import FGN
from evergraph.stream import node_continuum

STILL = Training(lr=1e-12, momentum=0.0, averaging=0.0)
MOVING = Training(lr=0.05, steps=1)


@pytest.fixture(scope="module")
def data():
    return generate(Growth(nodes=90, classes=3, features=40, words=8, citations=4))


@pytest.fixture(scope="module")
def batches(data):
    return list(node_continuum(data, scenario="data"))


def learner(method, capacity=12, training=STILL):
    torch.manual_seed(0)
    return Learner(FGN(40), method, Reservoir(capacity), training)


def unit(batch):
    x = as_dense(batch.x).flatten(1).numpy()
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def nearest(rows, labels):
    """The position of an item of the largest class (the smallest label of several)."""
    own = np.flatnonzero(labels == np.bincount(labels).argmax())
    middle = sum(rows[i] for i in own) / len(own)
    return max(own, key=lambda i: np.linalg.norm(rows[i] - middle))


def crowded(rows, labels, distance=1.2):
    own = np.flatnonzero(labels == np.bincount(labels).argmax())

    def others(i):
        return sum(
            labels[j] != labels[i] and np.linalg.norm(rows[i] - rows[j]) < distance
            for j in range(len(rows))
        )

    return max(own, key=others)


@pytest.mark.parametrize(("make", "leaves"), [(MeanOfFeature, nearest), (Coverage, crowded)])
def test_a_full_memory_gives_up_what_suits_least(batches, make, leaves):
    memory = make(capacity=10)
    kept = []
    for batch in batches:
        memory.add(batch)
        kept += list(batch)
        while len(kept) > 10:
            rows = np.concatenate([unit(item) for item in kept])
            kept.pop(leaves(rows, np.array([int(item.target) for item in kept])))
    assert memory.node.tolist() == [int(item.node) for item in kept]
    assert max(memory.target.bincount()) - min(memory.target.bincount()) <= 1


def test_gradients_of_items_are_those_of_each_alone(batches):
    one = learner(Influence())
    one.observe(batches[0])
    found = item_gradients(one, batches[0])
    one.model.eval()
    for row, item in zip(found, batches[0], strict=True):
        assert torch.equal(row, loss_gradient(one, item))
    mean = loss_gradient(one, batches[0])
    assert torch.allclose(found.mean(0), mean, atol=1e-6)


def test_influence_keeps_the_largest_gradients_of_each_class(batches):
    one = learner(Influence(), capacity=9)
    for batch in batches[:4]:
        one.observe(batch)
    size = {}
    for batch in batches[:4]:
        for item, row in zip(batch, item_gradients(one, batch), strict=True):
            size[int(item.node)] = (int(item.target), float(row.square().sum()))
    kept = set(one.memory.node.tolist())
    for label in range(3):
        mine = sorted((n for n in size if size[n][0] == label), key=lambda n: -size[n][1])
        held = [n for n in mine if n in kept]
        assert len(held) == 3
        # the head grew in between, which moved early gradients: nearly the largest
        assert np.mean([mine.index(n) for n in held]) < len(mine) / 2


def test_gss_prefers_items_that_pull_elsewhere(batches):
    """One item repeated fills the memory; others come once, and most of them are kept."""
    one = learner(GSS(sample=8), capacity=8)
    same = batches[0].select(torch.zeros(8, dtype=torch.int64))
    for _ in range(3):
        one.observe(replace(same, node=torch.arange(8)))
    assert set(one.memory.keys[1:].round(3)) <= {1.0, 2.0}
    for batch in batches[1:]:
        one.observe(batch)
    repeated = int(batches[0].target[0])
    assert len(one.memory) == 8
    assert (one.memory.target != repeated).sum() >= 3


def test_losses_of_items_average_to_the_loss(batches):
    one = learner(MIR(), training=MOVING)
    for batch in batches[:3]:
        one.observe(batch)
    found = losses(one, batches[4])
    one.model.eval()
    assert torch.allclose(found.mean(), one.loss(batches[4]), atol=1e-5)
    assert found.shape == (len(batches[4]),)


def test_mir_learns_again_what_has_been_hurt_most(batches, monkeypatch):
    one = learner(MIR(sample=12), training=replace(MOVING, replay_batch_size=4))
    for batch in batches[:3]:
        one.observe(batch)
    old = one.memory.batch(range(12))
    before, sizes, plain = losses(one, old), [], one.loss

    def watched(batch):
        sizes.append(len(batch))
        if len(sizes) == 2:  # the step on new items has been made
            hurt = (losses(one, old) - before).topk(4).indices
            assert set(batch.node.tolist()) == set(old.node[hurt].tolist())
        return plain(batch)

    monkeypatch.setattr(one, "loss", watched)
    one.observe(batches[3])
    assert sizes == [len(batches[3]), 4]


def test_sparsified_items_keep_some_of_their_neighbors(data):
    stream = node_continuum(data, scenario="data", hops=2)
    batch = next(iter(stream))
    few = sparsified(batch, 2, np.random.default_rng(0))
    assert torch.equal(few.target, batch.target)
    for item, small in zip(batch, few, strict=True):
        rows = as_dense(item.neighbors.features).flatten(1).tolist()
        near = small.neighbors
        for hop in (1, 2):
            there = int((item.neighbors.hop == hop).sum())
            assert int((near.hop == hop).sum()) == min(2, there)
        assert all(row in rows for row in as_dense(near.features).flatten(1).tolist())
    drawn = {
        tuple(sparsified(batch, 1, np.random.default_rng(s)).neighbors.features.indices.tolist())
        for s in range(5)
    }
    assert len(drawn) > 1


def test_ssm_learns_with_all_neighbors_and_stores_few(data):
    one = learner(SSM(fanout=1))
    stream = node_continuum(data, scenario="data", pack=one.intake.packing())
    seen, plain = [], one.loss
    one.loss = lambda batch: seen.append(batch) or plain(batch)
    one.observe(first := next(iter(stream)))
    assert len(seen[0].neighbors) == len(first.neighbors) > len(first)
    assert all(len(item.neighbors) <= 1 for item in one.memory.items)


def test_a_plateau_is_found_once_until_a_loss_rises():
    method = TaskFreeMAS(window=3, low=0.5, steady=0.1)
    found = []
    for loss in (2.0, 0.4, 0.4, 0.4, 0.4, 0.4, 3.0, 0.4, 0.4, 0.4):
        method._note(loss)
        steady = method._steady()
        found.append(steady)
        if steady:
            method.plateau = float(np.mean(method.recent)), float(np.std(method.recent))
            method.recent = []
    assert found == [False] * 3 + [True] + [False] * 5 + [True]


def test_task_free_mas_stores_the_items_with_the_highest_losses(batches):
    one = learner(TaskFreeMAS(), 5, MOVING)
    one.observe(batches[0])
    order = losses(one, batches[0]).argsort(descending=True)[:5]
    assert set(one.memory.node.tolist()) == set(batches[0].node[order].tolist())


def test_twp_reads_the_node_and_its_neighborhood_apart(batches):
    one = learner(TWP(topology_share=0.0), training=MOVING)
    one.observe(batches[0])
    one.model.eval()
    batch = one.intake.condensed(batches[0])
    own, around = apart(batch, 1)
    assert len(own.neighbors) == len(around.neighbors) == 0
    assert torch.equal(as_dense(own.x), as_dense(batch.x))
    for item, mean in zip(batches[0], around, strict=True):
        expected = as_dense(item.neighbors.features).mean(0)
        assert torch.allclose(as_dense(mean.x)[0], expected, atol=1e-6)
    slope = loss_gradient(one, batch).abs()
    alone = one.method.importance(one, batch)
    assert torch.allclose(torch.cat([w.flatten() for w in alone.values()]), slope)
    both = TWP().importance(one, batch)
    assert any(bool((both[name] > alone[name] + 1e-9).any()) for name in both)

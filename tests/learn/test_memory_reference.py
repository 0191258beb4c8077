"""Every memory against the dumbest correct loop: a list of items, searched from end to end."""

import copy
import math
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import same as equal

from evergraph.graph import Neighbors, SparseRows
from evergraph.graph.neighbors import as_dense
from evergraph.learn import MEMORIES, Memory
from evergraph.learn.checkpoint import contents_digest
from evergraph.learn.packed import pack
from evergraph.learn.slots import costs
from evergraph.stream.batch import Batch, concatenate

EXAMPLES = Path(__file__).parents[2] / "examples"
Newest = runpy.run_path(str(EXAMPLES / "own_memory.py"))["Newest"]
MAKE = {**MEMORIES, "own": lambda *limits, seed=0: Memory(Newest(), *limits, seed=seed)}


class Plain:
    """What a memory keeps, item by item, in plain lists."""

    def __init__(self, rule, capacity, capacity_bytes, seed):
        self.rule, self.capacity, self.capacity_bytes = rule, capacity, capacity_bytes
        self.rng = np.random.default_rng(seed)
        self.items, self.keys, self.thresholds, self.seen = [], [], {}, 0
        self.cost = {}  # by node

    @property
    def nbytes(self):
        return sum(self.cost[int(item.node)] for item in self.items)

    def full(self):
        too_many = self.capacity is not None and len(self.items) > self.capacity
        return too_many or (self.capacity_bytes is not None and self.nbytes > self.capacity_bytes)

    def put(self, item, key):
        self.items.append(item.compact())
        self.keys.append(key)
        self.cost[int(item.node)] = int(costs(pack(item)[1])[0])

    def drop(self, position):
        del self.items[position]
        return self.keys.pop(position)

    def add(self, batch):
        getattr(self, self.rule.replace("-", "_"))(batch)

    def own(self, batch):
        for item in batch:
            self.put(item, 0.0)
            while self.full():
                self.drop(0)

    def uniform(self, batch):
        for item in batch:
            self.put(item, 0.0)
        while self.full():
            self.drop(int(self.rng.integers(len(self.items))))

    def reservoir(self, batch):
        self._smallest(batch, lambda item: 0)

    def class_balanced(self, batch):
        self._smallest(batch, lambda item: int(item.target[0]))

    def mean_of_feature(self, batch):
        def away(rows, labels, i):
            own = [row for row, label in zip(rows, labels, strict=True) if label == labels[i]]
            return round(float(np.linalg.norm(rows[i] - sum(own) / len(own))), 5)

        self._by_features(batch, away)

    def coverage(self, batch):
        def crowd(rows, labels, i):
            others = [row for row, label in zip(rows, labels, strict=True) if label != labels[i]]
            return sum(2 - 2 * float(rows[i] @ row) < 1.2**2 for row in others)

        self._by_features(batch, crowd)

    def _by_features(self, batch, unfit):
        for item in batch:
            self.put(item, 0.0)
        while self.full():
            rows = [as_dense(item.x).flatten().double().numpy() for item in self.items]
            rows = [row / (np.linalg.norm(row) or 1.0) for row in rows]
            labels = [int(item.target) for item in self.items]
            largest = max(sorted(set(labels)), key=labels.count)
            members = [i for i, label in enumerate(labels) if label == largest]
            self.drop(max(members, key=lambda i: unfit(rows, labels, i)))

    def _smallest(self, batch, group):
        for item, key in zip(batch, self.rng.random(len(batch)).tolist(), strict=True):
            if key < self.thresholds.get(group(item), math.inf):
                self.put(item, key)
                while self.full():
                    groups = [group(kept) for kept in self.items]
                    fullest = max(groups, key=lambda g: (groups.count(g), g))
                    members = [i for i, g in enumerate(groups) if g == fullest]
                    largest = max(members, key=self.keys.__getitem__)
                    self.thresholds[fullest] = self.drop(largest)

    def age_quota(self, batch):
        for item in batch:
            self.put(item, float(self.seen))
            self.seen += 1
        while self.full():
            allowed = len(self.items) - 1
            if self.capacity is not None:
                allowed = min(allowed, self.capacity)
            spans = len(self.items) - allowed
            ages = [self.seen - 1 - key for key in self.keys]
            span = [min(int(age * spans / self.seen), spans - 1) for age in ages]
            kept = []
            for index in reversed(range(spans)):
                members = [i for i, s in enumerate(span) if s == index]
                quota = (allowed - len(kept)) // (index + 1)
                if len(members) > quota:
                    members = self.rng.choice(members, quota, replace=False).tolist()
                kept += members
            self.items = [self.items[i] for i in sorted(kept)]
            self.keys = [self.keys[i] for i in sorted(kept)]


FORMS = ("dense", "sparse", "pairs", "sub-graphs", "numbers", "mixed")


def random_batch(form, rng, first, size, classes=5):
    """Items of a form with any number of neighbors, hops and weights."""
    nodes = {"pairs": 2, "sub-graphs": 3}.get(form, 1)
    counts = torch.from_numpy(rng.integers(0, 4, size * nodes))
    owner = torch.repeat_interleave(counts)
    shape = (size, nodes, 2, 3) if form == "sub-graphs" else (size, 2, 3)
    draw = lambda *sizes: torch.from_numpy(rng.normal(size=sizes)).float()  # noqa: E731
    if form in ("sparse", "pairs"):
        x, y = (
            SparseRows.from_dense(draw(n, 7) * torch.from_numpy(rng.random((n, 7)) < 0.4))
            for n in (size * nodes, len(owner))
        )
    else:
        x, y = draw(*shape), draw(len(owner), 2, 3)
    hop = torch.from_numpy(rng.integers(1, 3, len(owner))) if rng.random() < 0.5 else None
    weight = draw(len(owner), 2) if form == "sub-graphs" else None
    if form == "mixed" and rng.random() < 0.5:
        weight = draw(len(owner))
    target = torch.from_numpy(rng.integers(0, classes, size))
    if form == "numbers":
        target = draw(size, 2)
    node = torch.arange(first, first + size)
    return Batch(x, Neighbors(y, owner, hop, weight), target, node % 3, node)


def history(seed, length=25):
    """A random stream of one form, with batches of all sizes, and limits for a memory."""
    rng = np.random.default_rng(seed)
    form = FORMS[seed % len(FORMS)]
    first, batches = 0, []
    for _ in range(length):
        size = int(rng.integers(1, 12))
        batches.append(random_batch(form, rng, first, size, int(rng.integers(1, 9))))
        first += size
    capacity, nbytes = int(rng.integers(1, 60)), int(rng.integers(1500, 9000))
    return form, batches, [(capacity, None), (None, nbytes), (capacity, nbytes)][seed % 3]


def same(one, other):
    """Whether two batches hold the same numbers; no hop means hop 1."""
    around = [b.neighbors for b in (one, other)]
    hops = [torch.ones_like(n.owner) if n.hop is None else n.hop for n in around]
    parts = [replace(n, hop=hop) for n, hop in zip(around, hops, strict=True)]
    return equal(*(replace(b, neighbors=n) for b, n in zip((one, other), parts, strict=True)))


def digest(memory):
    tensors, values = memory.state()
    return contents_digest(tensors, repr(values))


def fits(name, form):
    return form != "numbers" or name not in ("class-balanced", "mean-of-feature", "coverage")


def assert_same(memory, plain):
    assert memory.node.tolist() == [int(item.node[0]) for item in plain.items]
    assert memory.state()[0]["keys"].tolist() == plain.keys
    assert memory.nbytes == plain.nbytes
    assert not plain.items or same(memory.batch(range(len(memory))), concatenate(plain.items))


@pytest.mark.parametrize("seed", range(18))
@pytest.mark.parametrize("name", MAKE)
def test_what_is_kept_is_what_a_plain_loop_keeps(name, seed):
    form, batches, limits = history(seed)
    if not fits(name, form):
        pytest.skip("needs labels")
    memory, plain = MAKE[name](*limits, seed=seed), Plain(name, *limits, seed)
    rng = np.random.default_rng(seed)
    for batch in batches:
        memory.add(batch)
        plain.add(batch)
        assert_same(memory, plain)
        assert memory._slots.allocated <= memory.nbytes
        assert limits[0] is None or len(memory) <= limits[0]
        assert limits[1] is None or memory.nbytes <= limits[1]
        order = rng.permutation(len(memory))[:7]
        if len(order):
            assert same(memory.batch(order), concatenate([plain.items[i] for i in order]))
            assert same(memory.items[int(order[0])], plain.items[order[0]])
    for parts in (memory.items, memory.items[2:5], memory.items[-1:]):
        assert all(len(item) == 1 for item in parts)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", MAKE)
def test_a_rollback_anywhere_restores_everything(name, seed):
    """Some batches are taken back, some at once with those before them; the rest is as without."""
    form, batches, limits = history(seed)
    if not fits(name, form):
        pytest.skip("needs labels")
    memory, plain = MAKE[name](*limits, seed=seed), Plain(name, *limits, seed)
    rng = np.random.default_rng(seed + 100)
    for batch in batches:
        before = digest(memory)
        outer = memory.savepoint()
        if rng.random() < 0.5:
            memory.add(batches[int(rng.integers(len(batches)))])
            middle = digest(memory)
            inner = memory.savepoint()
            for _ in range(int(rng.integers(4))):
                memory.add(batches[int(rng.integers(len(batches)))])
            if rng.random() < 0.5:
                inner()
                assert digest(memory) == middle
            outer()
            assert digest(memory) == before
        memory.add(batch)
        plain.add(batch)
        assert_same(memory, plain)


@pytest.mark.parametrize("name", MAKE)
def test_copies_and_saved_states_go_on_alike(name):
    for seed in range(6):
        form, batches, limits = history(seed)
        if not fits(name, form) or form == "mixed":  # a saved state has all weights or none
            continue
        memory = MAKE[name](*limits, seed=seed)
        for batch in batches[:12]:
            memory.add(batch)
        twin, late = copy.deepcopy(memory), MAKE[name](*limits, seed=99)
        late.load_state(*memory.state())
        for other in (twin, late):
            assert digest(other) == digest(memory)
        for batch in batches[12:]:
            for one in (memory, twin, late):
                one.add(batch)
        assert digest(twin) == digest(memory)
        assert digest(late) == digest(memory)


def test_items_may_be_kept_in_another_order():
    class Shuffled:
        name, labels_only = "Shuffled", False

        def add(self, slots, batch, rng):
            slots.extend(batch, batch.node.numpy())
            slots.keep(rng.permutation(len(slots))[:20].tolist())

    memory, nodes = Memory(Shuffled(), 20), []
    rng = np.random.default_rng(0)
    for batch in history(1)[1]:
        memory.add(batch)
        nodes += batch.node.tolist()
        nodes = [nodes[i] for i in rng.permutation(len(nodes))[:20]]
        assert memory.node.tolist() == memory.state()[0]["keys"].tolist() == nodes


def test_a_position_that_is_not_there_is_refused():
    memory = MAKE["reservoir"](5)
    memory.add(history(0)[1][0].select(torch.tensor([0])))
    with pytest.raises(IndexError):
        memory.batch([1])
    with pytest.raises(IndexError, match="position must be below 1 items, got 1"):
        memory._slots.drop(1)

"""Every source, model, task, method and memory that go together; the rest says why it cannot.

A learner observes, predicts, is saved, loaded into a fresh one and continues: the same weights,
outputs and memory to the last bit.
"""

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import nn

from evergraph.datasets import generate
from evergraph.datasets.generate import Growth
from evergraph.graph import Neighbors, SparseRows
from evergraph.graph.neighbors import Linked
from evergraph.learn import (
    MEMORIES,
    ClassBalanced,
    Classification,
    Learner,
    LinkPrediction,
    Regression,
    Reservoir,
    Training,
)
from evergraph.learn.methods import METHODS
from evergraph.nn import FGN, Readout, Requires, baseline
from evergraph.stream import Batch, NeighborConfig, PairSource, link_continuum, node_continuum

PLACES = torch.tensor([[[1, 1, 0], [1, 1, 1], [0, 1, 1]]], dtype=torch.bool)
NARROW, WIDE = 6, 80  # features of dense and of sparse items


@cache
def dataset(sparse):
    data = generate(Growth(nodes=60, classes=3, features=WIDE, words=8, citations=3))
    if sparse:
        return data
    features = torch.randn(60, NARROW, generator=torch.Generator().manual_seed(0))
    return replace(data, graph=replace(data.graph, features=features))


class SubGraphs:
    """Items of three nodes with two channels, whose neighbors the model knows as places."""

    def __len__(self):
        return 40

    def batch(self, index, task=-1, position=None):
        x = torch.stack([torch.sin(torch.arange(36.0) * (i + 1)) for i in index.tolist()])
        nobody = torch.zeros(0, dtype=torch.long)
        around = Neighbors(torch.zeros(0, 2, NARROW), nobody)
        return Batch(x.view(-1, 3, 2, NARROW), around, index % 3, index * 0 + task, index)


class OneGraph:
    """Whole graphs in a batch: the neighbors of an item are other items."""

    def __len__(self):
        return 40

    def batch(self, index, task=-1, position=None):
        x = torch.stack([torch.cos(torch.arange(float(NARROW)) * (i + 1)) for i in index.tolist()])
        size = len(index)
        near = (torch.arange(size).unsqueeze(1) + torch.arange(3)) % size
        weight = torch.tensor([1.0, 0.5, 0.0]).repeat(size, 1)
        return Batch(x.unsqueeze(1), Linked(near, weight), index % 3, index * 0 + task, index)


def edge_labels(sparse=False):
    graph = dataset(sparse).graph
    labels = (graph.labels[graph.edges[0]] == graph.labels[graph.edges[1]]).long()
    return PairSource(graph, graph.edges, labels, NeighborConfig())


SOURCES = {
    "nodes, sparse": lambda: node_continuum(dataset(True), scenario="data").source,
    "nodes, dense": lambda: node_continuum(dataset(False), scenario="data").source,
    "links": lambda: link_continuum(dataset(False).graph).source,
    "links, sparse": lambda: link_continuum(dataset(True).graph).source,
    "edges": edge_labels,
    "sub-graphs": SubGraphs,
    "linked": OneGraph,
}
PAIRS = ("links", "links, sparse", "edges")
TASKS = {"classes": Classification, "numbers": Regression, "links": LinkPrediction}


def batches(source, task, count=4, size=6):
    """The first batches of a source, with targets that the task understands."""
    for start in range(0, count * size, size):
        batch = SOURCES[source]().batch(torch.arange(start, start + size))
        if task == "classes":
            target = batch.node % 3
        elif task == "links":
            target = batch.node % 2
        else:
            target = (batch.node.float() / 10).sin().unsqueeze(1)
        yield replace(batch, target=target)


class Own(nn.Module):
    """A network of a user's own: one layer over the features, and a head that grows."""

    def __init__(self, width):
        super().__init__()
        self.body = nn.Linear(width, 5)
        self.head = Readout(1, 5, 0)
        self.requires = Requires()

    def forward(self, batch):
        x = batch.x.to_dense() if isinstance(batch.x, SparseRows) else batch.x
        y = torch.tanh(self.body(x.reshape(len(batch), -1)))
        return self.head(y.unsqueeze(1), torch.zeros(1))


def model(name, source):
    """A network of this name that reads items of this source."""
    features = WIDE if source.endswith("sparse") else NARROW
    channels, nodes = (2, 3) if source == "sub-graphs" else (1, 2 if source in PAIRS else 1)
    if name == "own":
        return Own(features * channels * nodes)
    if name in ("gcn", "gat"):
        return baseline(name, features, hidden=(5, 4))
    settings = {
        "broadcast": {"channels": (2, 3)},
        "transform": {"channels": (2, 2), "features": (4, 3), "dropout": 0.2},
        "residual": {"channels": (1, 1), "layer": "residual"},
    }[name]
    head = {"head": "pairs"} if source in PAIRS else {"nodes": nodes}
    places = PLACES if source == "sub-graphs" else None
    return FGN(features, in_channels=channels, places=places, **settings, **head)


def learner(source, name, task, method, memory=None, seed=0):
    torch.manual_seed(seed)
    settings = {"every": 2} if method in ("ewc", "mas", "lwf", "twp") else {}
    settings |= {"window": 2, "low": 9.0, "steady": 9.0} if method == "mas-task-free" else {}
    settings |= {"epochs": 1} if method == "joint" else {}
    kept = None if memory is None else MEMORIES[memory](9, seed=seed)
    kind = "adam" if name == "transform" else "sgd"
    training = Training(kind, 0.02, 0.5, steps=1, averaging=0.5, replay_batch_size=5, cycle=40)
    parts = METHODS[method](**settings), kept, training, seed, TASKS[task]()
    return Learner(model(name, source), *parts)


def assert_resumes(tmp_path, *arguments):
    """Observe, predict, save, load, continue: nothing differs from a learner left alone."""
    source, _, task, *_ = arguments
    first, second, third, fourth = batches(source, task)
    whole, early = learner(*arguments), learner(*arguments)
    for one in (whole, early):
        one.observe(first)
        assert len(one.predict(third)) == len(third)
        one.observe(second)
    early.save(tmp_path / "learner", {"note": 1})
    torch.rand(3)  # what others do with randomness does not matter
    late = learner(*arguments, seed=7)
    assert late.load(tmp_path / "learner") == {"note": 1}
    assert torch.equal(late.output(third), whole.output(third))
    for one in (whole, late):
        one.observe(third)
        one.learn_one(fourth.select(torch.tensor([2])))
    assert torch.equal(late.output(fourth), whole.output(fourth))
    assert torch.equal(late.predict(fourth), whole.predict(fourth))
    assert late.classes == whole.classes
    assert late.position == whole.position == 4
    assert_equal(late.model.state_dict(), whole.model.state_dict())
    assert_equal(late.optimizer.state, whole.optimizer.state)
    assert_equal(late.average, whole.average)
    for part in ("method", "memory"):
        if getattr(whole, part) is not None:
            (mine, values), (other, told) = (getattr(one, part).state() for one in (late, whole))
            assert_equal(mine, other)
            assert values == told
    if whole.memory is not None:
        assert 0 < len(whole.memory) <= 9
        assert whole.memory.nbytes == late.memory.nbytes


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for key, value in other.items():
        assert torch.equal(one[key], value), key


def readable(source):
    """The networks that read items of a source."""
    names = ["broadcast", "transform", "residual", "own"]
    return names + (["gcn", "gat"] if source.startswith("nodes") or source == "linked" else [])


def solvable(source):
    return [task for task in TASKS if task != "links" or source in PAIRS]


@pytest.mark.parametrize(
    ("source", "name", "task"),
    [(s, m, t) for s in SOURCES for m in readable(s) for t in solvable(s)],
)
def test_every_model_learns_every_task_of_its_sources(source, name, task, tmp_path):
    assert_resumes(tmp_path, source, name, task, "replay", "reservoir")


def memories(method):
    """The memories that a method goes with; some choose by themselves and ask no rule."""
    if method in ("influence", "gss", "mas-task-free"):
        return ["reservoir"]
    return MEMORIES if METHODS[method].needs_memory else [None]


def go_together(task, method, memory):
    needs_labels = METHODS[method].labels_only
    balanced = memory in ("class-balanced", "mean-of-feature", "coverage")
    return not (task != "classes" and needs_labels) and not (task == "numbers" and balanced)


@pytest.mark.parametrize(
    ("task", "method", "memory"),
    [
        (task, method, memory)
        for task in TASKS
        for method in METHODS
        for memory in memories(method)
        if go_together(task, method, memory)
    ],
)
def test_every_method_learns_every_task_with_every_memory(task, method, memory, tmp_path):
    assert_resumes(tmp_path, "links", "broadcast", task, method, memory)


@pytest.mark.parametrize(
    ("source", "method"),
    [
        (source, method)
        for source in ("nodes, sparse", "sub-graphs", "linked")
        for method in METHODS
        if not (source == "linked" and method in ("analytic", "kernel"))
    ],
)
@pytest.mark.parametrize("name", ["transform", "own"])
def test_every_method_takes_items_of_every_form(source, method, name, tmp_path):
    memory = "uniform" if METHODS[method].needs_memory else None
    assert_resumes(tmp_path, source, name, "classes", method, memory)


class Bare(nn.Module):
    """A module without anything that a learner asks for."""

    def __init__(self, **parts):
        super().__init__()
        self.body = nn.Linear(NARROW, 3)
        for name, part in parts.items():
            setattr(self, name, part)


@pytest.mark.parametrize("method", [name for name in METHODS if METHODS[name].needs_memory])
def test_methods_that_rehearse_need_a_memory(method):
    name = METHODS[method].__name__
    with pytest.raises(ValueError, match=rf"{name} needs a memory, got None; give one.*Reservoir"):
        learner("links", "broadcast", "links", method)


@pytest.mark.parametrize("method", ["lwf", "analytic", "kernel"])
@pytest.mark.parametrize("task", ["numbers", "links"])
def test_methods_of_classes_need_labels(method, task):
    name, told = METHODS[method].__name__, type(TASKS[task]()).__name__
    with pytest.raises(ValueError, match=rf"{name} needs labels, got {told}.*; use Classification"):
        learner("links", "broadcast", task, method)


@pytest.mark.parametrize(
    ("source", "task", "method", "memory", "change", "message"),
    [
        (
            "nodes, dense", "numbers", "replay", "class-balanced", {},
            r"ClassBalanced .* needs labels, got targets of torch.float32.*; use Reservoir",
        ),
        (
            "nodes, dense", "links", "finetune", None, {},
            r"links are items of two nodes, got 1; use link_continuum",
        ),
        (
            "sub-graphs", "links", "finetune", None, {},
            r"links are items of two nodes, got 3; use link_continuum",
        ),
        (
            "nodes, dense", "classes", "finetune", None, {"target": torch.rand(6)},
            r"labels must be integers.* got torch.float32 .* use task=Regression",
        ),
        (
            "nodes, dense", "classes", "finetune", None, {"target": torch.rand(6, 2)},
            r"labels must be integers of shape \(B,\).* shape \(6, 2\)",
        ),
        (
            "nodes, dense", "numbers", "finetune", None, {"target": torch.arange(6)},
            r"targets must be floating point of shape \(B, 1\), got torch.int64 .*; use task=Cl",
        ),
        (
            "links", "links", "finetune", None, {"target": torch.arange(6)},
            r"targets of links must be int64, 0 or 1, .*values \[0, 1, 2, 3, 4\]; use Class",
        ),
        (
            "linked", "classes", "analytic", None, {},
            r"Analytic reads self-contained items, .* select items from it first",
        ),
        (
            "linked", "classes", "kernel", None, {},
            r"Kernel reads self-contained items, .* select items from it first",
        ),
        (
            "links, sparse", "classes", "analytic", None, {},
            r"Analytic reads one sparse row per item, got 2; use dense features",
        ),
        (
            "nodes, dense", "classes", "der", "reservoir", {"node": torch.full((6,), -1)},
            r"DER finds the outputs of an item by its identifier: set batch.node",
        ),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_told_why(source, task, method, memory, change, message):
    one = learner(source, "own", task, method, memory)
    first = next(batches(source, task))
    before = {name: tensor.clone() for name, tensor in one.model.state_dict().items()}
    with pytest.raises(ValueError, match=message):
        one.observe(replace(first, **change))
    assert one.position == 0
    assert one.memory is None or not len(one.memory)
    assert_equal(one.model.state_dict(), before)
    assert one.classes == []


@pytest.mark.parametrize("name", ["gcn", "gat"])
@pytest.mark.parametrize("source", ["links", "sub-graphs"])
def test_networks_for_single_nodes_refuse_others(name, source):
    one = Learner(
        baseline(name, NARROW, in_channels=2 if source == "sub-graphs" else 1),
        METHODS["finetune"](),
    )
    with pytest.raises(ValueError, match=r"items must have 1 nodes each, .* for this model, got"):
        one.observe(next(batches(source, "classes")))


def test_a_network_must_be_one():
    finetune = METHODS["finetune"]()
    with pytest.raises(TypeError, match="model must be a torch module, got function"):
        Learner(lambda batch: batch, finetune)
    with pytest.raises(TypeError, match=r"must have a head, .*evergraph.nn.Readout; Bare has none"):
        Learner(Bare(requires=Requires()), finetune)
    with pytest.raises(TypeError, match=r"must have a requires, .*nn.Requires; Bare has none"):
        Learner(Bare(head=Readout(1, 3, 0)), finetune)


def test_memories_refuse_what_fits_in_no_slot():
    one = Learner(Own(NARROW), METHODS["replay"](), Reservoir(capacity_bytes=10))
    with pytest.raises(ValueError, match=r"capacity_bytes must hold at least one item, got 10 for"):
        one.observe(next(batches("nodes, dense", "classes")))
    with pytest.raises(ValueError, match="a capacity in items or in bytes, got neither"):
        ClassBalanced()

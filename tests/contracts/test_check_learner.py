"""`check_learner` passes for every method and memory, and every check of it can fail."""

import itertools
import os
import threading

import pytest
import torch
from test_learners import batches, learner, memories

from evergraph.learn import Learner
from evergraph.learn.methods import METHODS, Finetune
from evergraph.testing import check_learner

BATCHES = list(batches("nodes, dense", "classes"))


@pytest.mark.parametrize(
    ("method", "memory"),
    [(method, memory) for method in METHODS for memory in memories(method)],
)
def test_every_method_passes_with_every_memory(method, memory):
    parts = ("nodes, dense", "gcn", "classes", method, memory)
    check_learner(lambda: learner(*parts), BATCHES, points=8)


@pytest.mark.parametrize(
    ("source", "name", "task"),
    [
        ("nodes, sparse", "transform", "classes"),
        ("links, sparse", "broadcast", "links"),
        ("sub-graphs", "transform", "classes"),
        ("linked", "residual", "numbers"),
        ("edges", "own", "numbers"),
    ],
)
def test_items_of_every_form_pass(source, name, task):
    parts = (source, name, task, "replay", "reservoir")
    check_learner(lambda: learner(*parts), list(batches(source, task)), points=8)


def test_three_batches_are_needed():
    with pytest.raises(ValueError, match="checks need at least three batches, got 2"):
        check_learner(lambda: None, BATCHES[:2])


# -- parts that are broken in one way each, and the checks that must find it ---------------------


class Touchy(Learner):
    """Counts what it is offered, before it is known to be good."""

    def observe(self, batch):
        self.rng.random()
        super().observe(batch)


class Offended(Learner):
    """Remembers what it was offered where no digest sees it, and learns accordingly."""

    offered = 0

    def observe(self, batch):
        self.offered += 1
        super().observe(batch)

    def loss(self, batch):
        return super().loss(batch) * self.offered


class Stubborn(Finetune):
    """Keeps what it has counted when a batch is rolled back."""

    def __init__(self):
        self.count = torch.zeros(())

    def observe(self, learner, batch):
        self.count += 1  # in place
        super().observe(learner, batch)

    def state(self):
        return {"count": self.count.clone()}, {}

    def load_state(self, tensors, values):
        self.count = tensors["count"]


class Moody(Finetune):
    """Uses random numbers that are not the learner's."""

    def observe(self, learner, batch):
        learner.descend(learner.loss(batch) * (1 + torch.rand(())))


NUMBERS = itertools.count()


class Numbered(Finetune):
    """No two are alike."""

    def __init__(self):
        self.number = next(NUMBERS)

    def state(self):
        return {}, {"number": self.number}

    def load_state(self, tensors, values):
        self.number = values["number"]


class Vandal(Finetune):
    """Scales the features of a batch in place."""

    def observe(self, learner, batch):
        super().observe(learner, batch)
        batch.x.mul_(1.5)


class Forgetful(Finetune):
    """Does not save what it needs."""

    def __init__(self):
        self.seen = 0

    def observe(self, learner, batch):
        self.seen += 1
        for _ in range(self.seen):
            learner.descend(learner.loss(batch))


class Shared(Finetune):
    """Copies are the same object."""

    def __init__(self):
        self.seen = 0

    def observe(self, learner, batch):
        self.seen += 1
        super().observe(learner, batch)

    def state(self):
        return {}, {"seen": self.seen}

    def load_state(self, tensors, values):
        self.seen = values["seen"]

    def __deepcopy__(self, memo):
        return self


class Unpicklable(Finetune):
    """Holds what no pickle can hold."""

    def __init__(self):
        self.lock = threading.Lock()

    def __deepcopy__(self, memo):
        return Unpicklable()

    def savepoint(self):
        return lambda: None


class ByProcess(Finetune):
    """Learns something else in another process."""

    home = os.getpid()

    def observe(self, learner, batch):
        scale = 1 if os.getpid() == self.home else 2
        learner.descend(learner.loss(batch) * scale)


class Peeking(Finetune):
    """Learns from being asked."""

    def predictor(self, learner):
        learner.rng.random()
        return super().predictor(learner)


class Slow(Learner):
    """Learns single items twice."""

    def learn_one(self, item):
        self.observe(item)
        self.observe(item)


class Careless(Learner):
    """Checks nothing."""

    def __init__(self, *parts):
        super().__init__(*parts)
        self.intake.check_to_learn = lambda batch: None


class Swallowing(Finetune):
    """Goes on after any exception."""

    def observe(self, learner, batch):
        try:
            super().observe(learner, batch)
        except BaseException:
            learner.position += 0


def make(method=Finetune, kind=Learner):
    model = learner("nodes, dense", "own", "classes", "finetune").model
    return kind(model, method())


@pytest.mark.parametrize(
    ("parts", "failing"),
    [
        ({"method": Numbered}, "makes the same learner every time"),
        ({"method": Moody}, "makes the same learner every time"),
        ({"method": Moody}, "leaves its input and the global random state alone"),
        ({"method": Vandal}, "leaves its input and the global random state alone"),
        ({"method": Peeking}, "leaves its input and the global random state alone"),
        ({"kind": Slow}, "learn_one equals observe on one item"),
        ({"kind": Touchy}, "refuses negative labels"),
        ({"kind": Offended}, "learns the same after refusals"),
        ({"kind": Careless}, "refuses 1e20 as a feature"),
        ({"kind": Careless}, "refuses features with gradients"),
        ({"method": Stubborn}, "rolls back an exception at any call of observe"),
        ({"method": Swallowing}, "rolls back an exception at any call of observe"),
        ({"method": Peeking}, "learns the same while others predict"),
        ({"method": Shared}, "copies"),
        ({"method": Unpicklable}, "pickles"),
        ({"method": ByProcess}, "forks"),
        ({"method": Forgetful}, "saves, loads and continues bit by bit"),
    ],
)
def test_every_check_can_fail(parts, failing):
    with pytest.raises(AssertionError, match=rf"checks failed:(?s:.*)\n- {failing}: ."):
        check_learner(lambda: make(**parts), BATCHES, points=20)


def test_failures_are_listed_together():
    passed = check_learner(make, BATCHES, points=2)
    with pytest.raises(AssertionError) as found:
        check_learner(lambda: make(Forgetful), BATCHES, points=2)
    first, *rest = str(found.value).splitlines()
    assert first == f"{len(rest)} of {len(passed)} checks failed:"
    assert "- saves, loads and continues bit by bit: it continues differently after load" in rest

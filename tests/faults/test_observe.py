"""Learning, saving and loading are all or nothing: an exception at any call leaves no mixture."""

import copy
from dataclasses import replace
from functools import partial

import pytest
import torch

from evergraph import FGN, Learner, Reservoir, Training
from evergraph.learn import MEMORIES
from evergraph.learn.methods import METHODS
from evergraph.testing.faults import EVERY, PYTHON
from tests.faults.points import (
    BATCHES,
    INTERRUPT,
    NEW_CLASS,
    QUICK,
    SYSTEM,
    every_point,
    learner,
    load_points,
    observe_points,
    of_the_system,
    save_points,
)

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # by an interrupt


def dense(batch):
    around = batch.neighbors.with_features(batch.neighbors.features.to_dense().unsqueeze(1))
    return replace(batch, x=batch.x.to_dense().unsqueeze(1), neighbors=around)


def sparse_gradients(optimizer="sgd"):
    torch.manual_seed(0)
    model = FGN(40, sparse_gradient=True)
    made = Learner(model, METHODS["replay"](), Reservoir(6), Training(optimizer, 0.1, **QUICK))
    made.observe(BATCHES[0])
    return made


def test_an_exception_at_any_call_of_observe_changes_nothing():
    tally = observe_points(learner, NEW_CLASS, INTERRUPT)
    assert tally.wrong == []
    assert tally.old > 100


def test_an_exception_at_any_call_of_the_system_in_save_leaves_whole_files():
    made = learner("finetune", learned=1)
    tally = save_points(made, BATCHES[4], INTERRUPT | SYSTEM, EVERY, of_the_system)
    assert tally.wrong == []
    assert min(tally.old, tally.new) > 10


def test_an_exception_at_any_call_of_load_changes_nothing():
    tally = load_points(partial(learner, "finetune"), INTERRUPT, PYTHON)
    assert tally.wrong == []
    assert tally.old > 10


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_put_back(method):
    """At every call of a compiled function too; `make faults` counts them."""
    wrong = {name: count().wrong for name, count in every_point(method).items()}
    assert not any(wrong.values()), wrong


@pytest.mark.slow
@pytest.mark.parametrize("memory", MEMORIES)
def test_every_memory_is_put_back(memory):
    assert observe_points(partial(learner, memory=memory), BATCHES[3]).wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gcn", "gat"])
def test_other_networks_are_put_back(kind):
    assert observe_points(partial(learner, kind=kind, optimizer="sgd"), BATCHES[3]).wrong == []


@pytest.mark.slow
def test_rows_of_a_sparse_gradient_are_put_back():
    assert observe_points(sparse_gradients, BATCHES[1]).wrong == []


def test_a_step_that_makes_numbers_non_finite_is_rolled_back():
    made = learner(optimizer="sgd")
    before = made.digest()
    with torch.no_grad():
        made.optimizer.lr = float("inf")
    with pytest.raises(FloatingPointError):
        made.observe(BATCHES[4])
    made.optimizer.lr = 0.01
    assert made.digest() == before


def test_a_second_writer_is_refused():
    made = learner()
    with made._writer, pytest.raises(RuntimeError, match="another thread is learning"):
        made.observe(BATCHES[3])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda b: replace(b, target=b.target.double() * float("nan")), "labels must be integers"),
        (lambda b: replace(b, target=b.target.double() + 0.5), "labels must be integers"),
        (lambda b: replace(b, target=b.target > 0), "labels must be integers"),
        (lambda b: replace(b, target=b.target - 5), "labels must be 0 or more"),
        (lambda b: replace(b, target=b.target + 10**12), "below 2"),
        (lambda b: replace(b, x=replace(b.x, values=b.x.values * 1e20)), "at most 1e\\+12 in size"),
        (lambda b: replace(b, x=replace(b.x, values=b.x.values * torch.inf)), "must be finite"),
        (lambda b: replace(b, x=replace(b.x, values=b.x.values.requires_grad_())), "gradients"),
        (dense, "items must stay sparse rows"),
    ],
)
def test_what_is_refused_leaves_no_trace(spoil, message):
    made = learner()
    before = made.digest()
    with pytest.raises(ValueError, match=message):
        made.observe(spoil(copy.deepcopy(BATCHES[3])))
    assert made.digest() == before
    made.observe(BATCHES[3])

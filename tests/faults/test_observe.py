"""Learning is all or nothing: an exception at any call leaves the state as it was."""

import copy
from dataclasses import replace

import pytest
import torch
from injection import count_calls, raise_at

from evergraph import FGN, Learner, Reservoir, Training, baseline, node_continuum
from evergraph.datasets import generate
from evergraph.datasets.generate import PRESETS
from evergraph.learn import MEMORIES
from evergraph.learn.methods import METHODS

DATA = generate(type(PRESETS["citation"])(nodes=120, features=40, classes=3))
BATCHES = list(node_continuum(DATA, batch_size=4))
QUICK = {"steps": 1, "replay_batches": 1, "replay_batch_size": 4, "averaging": 0.9}


def learner(method="replay", memory="reservoir", optimizer="adam", kind="fgn"):
    model = FGN(40, dropout=0.2) if kind == "fgn" else baseline(kind, 40, dropout=0.2)
    way = METHODS[method](**({"every": 1} if method in ("ewc", "mas", "lwf") else {}))
    kept = MEMORIES[memory](6) if way.needs_memory else None
    training = Training(optimizer=optimizer, lr=0.01, **QUICK)
    made = Learner(model, way, kept, training)
    for batch in BATCHES[:3]:
        made.observe(batch)
    return made


def dense(batch):
    around = batch.neighbors.with_features(batch.neighbors.features.to_dense().unsqueeze(1))
    return replace(batch, x=batch.x.to_dense().unsqueeze(1), neighbors=around)


def check_every_call(made, batch, points=60):
    before = made.digest()
    done = copy.deepcopy(made)
    done.observe(batch)
    after = done.digest()
    assert after != before
    calls = count_calls(lambda: copy.deepcopy(made).observe(batch))
    chosen = range(1, calls + 1) if calls <= points else range(1, calls + 1, calls // points)
    for number in chosen:
        trial = copy.deepcopy(made)
        raised = raise_at(number, lambda trial=trial: trial.observe(batch))
        found = trial.digest()
        assert found in (before, after), f"a mixture after call {number} of {calls}"
        if found == before:
            assert raised
            trial.observe(batch)
            assert trial.digest() == after


@pytest.mark.parametrize("method", METHODS)
def test_an_exception_at_any_call_of_observe_changes_nothing(method):
    new_class = next(b for b in BATCHES if int(b.target[0]) == 1)
    check_every_call(learner(method), new_class)


@pytest.mark.parametrize("memory", MEMORIES)
def test_memories_are_put_back(memory):
    check_every_call(learner(memory=memory), BATCHES[3], points=40)


@pytest.mark.parametrize("kind", ["gcn", "gat"])
def test_other_networks_are_put_back(kind):
    check_every_call(learner(kind=kind, optimizer="sgd"), BATCHES[3], points=30)


def test_rows_of_a_sparse_gradient_are_put_back():
    model = FGN(40, sparse_gradient=True)
    made = Learner(model, METHODS["replay"](), Reservoir(6), Training(lr=0.1, **QUICK))
    made.observe(BATCHES[0])
    check_every_call(made, BATCHES[1], points=40)


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

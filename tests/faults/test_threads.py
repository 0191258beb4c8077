"""One writer and any number of readers: learning does not depend on who predicts meanwhile."""

import copy
import pickle
import threading

import pytest
import torch

from tests.faults.points import BATCHES, learner


@pytest.mark.parametrize("method", ["replay", "lwf", "analytic", "kernel", "joint"])
def test_predicting_threads_do_not_change_what_is_learned(method):
    alone = learner(method)
    watched = copy.deepcopy(alone)
    stop, errors = threading.Event(), []

    def read():
        while not stop.is_set():
            try:
                torch.rand(3)  # other code draws from torch's global generator
                assert len(watched.predict(BATCHES[0])) == len(BATCHES[0])
            except BaseException as error:
                errors.append(error)
                return

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for batch in BATCHES[3:9]:
            watched.observe(batch)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not errors
    for batch in BATCHES[3:9]:
        alone.observe(batch)
    if method != "joint":  # which trains whenever a prediction is asked for
        assert watched.digest() == alone.digest()


def test_the_global_random_state_is_not_touched():
    made = learner()
    before = torch.get_rng_state()
    made.observe(BATCHES[3])
    made.predict(BATCHES[3])
    assert torch.equal(torch.get_rng_state(), before)


def test_copies_and_pickles_learn_alike():
    made = learner()
    others = [copy.deepcopy(made), pickle.loads(pickle.dumps(made))]
    for one in (made, *others):
        one.observe(BATCHES[3])
    assert {one.digest() for one in others} == {made.digest()}


def test_a_thread_that_saves_gets_a_state_between_batches(tmp_path):
    made, alone = learner(), learner()
    digests = [alone.digest()]
    for batch in BATCHES[3:9]:
        alone.observe(batch)
        digests.append(alone.digest())
    stop, found = threading.Event(), []

    def write():
        while not stop.is_set():
            made.save(tmp_path / "c")
            other = learner(learned=0)
            other.load(tmp_path / "c")
            found.append(other.digest())

    thread = threading.Thread(target=write)
    thread.start()
    for batch in BATCHES[3:9]:
        made.observe(batch)
    stop.set()
    thread.join()
    assert found
    assert set(found) <= set(digests)
    assert made.digest() == alone.digest()


def test_a_snapshot_does_not_change():
    made = learner()
    predict = made.predictor()
    before = predict(made.intake.condensed(BATCHES[0]))
    made.observe(BATCHES[4])
    assert torch.equal(predict(made.intake.condensed(BATCHES[0])), before)

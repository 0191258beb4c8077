"""Checks for a learner with a method, memory, task or model of your own; pytest is not needed."""

from __future__ import annotations

import copy
import os
import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from evergraph.learn.learner import Learner
from evergraph.stream.batch import Batch
from evergraph.testing.faults import Injected, files_of, inject
from evergraph.testing.others import in_fork, reader
from evergraph.testing.spoiled import spoiled


@dataclass(frozen=True)
class Check:
    """One check of a learner: `run` raises an AssertionError if it fails."""

    name: str
    run: Callable[[], None]


def check_learner(
    make_learner: Callable[[], Learner], batches: Iterable[Batch], points: int | None = None
) -> list[str]:
    """Run all checks, and raise one AssertionError that names those that fail.

    Args:
        make_learner: makes the learner to check, the same one every time.
        batches: at least three batches that it can learn one after the other.
        points: at how many calls inside `observe` an exception is raised; None is every call.

    Returns:
        The names of the checks, which have all passed.

    Example:
        >>> from evergraph import FGN, Finetune, node_continuum
        >>> from evergraph.datasets import generate
        >>> batches = list(node_continuum(generate()))[:3]
        >>> passed = check_learner(lambda: Learner(FGN(500), Finetune()), batches, points=5)
        >>> passed[0], len(passed) > 20
        ('makes the same learner every time', True)
    """
    passed, failed = [], []
    for check in learner_checks(make_learner, batches, points):
        try:
            check.run()
        except Exception as error:
            told = error if isinstance(error, AssertionError) else repr(error)
            failed.append(f"- {check.name}: {told}")
        else:
            passed.append(check.name)
    if failed:
        total = len(failed) + len(passed)
        raise AssertionError("\n".join([f"{len(failed)} of {total} checks failed:", *failed]))
    return passed


def learner_checks(
    make_learner: Callable[[], Learner], batches: Iterable[Batch], points: int | None = None
) -> Iterator[Check]:
    """The checks of `check_learner` one by one, for a test of each."""
    subject = _Subject(make_learner, list(batches), points)
    yield Check("makes the same learner every time", subject.repeats)
    yield Check("leaves its input and the global random state alone", subject.is_pure)
    yield Check("learn_one equals observe on one item", subject.learns_one)
    for name, wrong in spoiled(subject.last):
        yield Check(f"refuses {name}", partial(subject.refuses, wrong))
    yield Check("learns the same after refusals", subject.learns_after_refusals)
    yield Check("rolls back an exception at any call of observe", subject.rolls_back)
    yield Check("learns the same while others predict", subject.is_read)
    yield Check("copies", lambda: subject.continues(copy.deepcopy))
    yield Check("pickles", lambda: subject.continues(lambda one: pickle.loads(pickle.dumps(one))))
    if hasattr(os, "fork"):
        yield Check("forks", subject.forks)
    yield Check("saves, loads and continues bit by bit", subject.resumes)


@dataclass
class _Subject:
    """A learner to check, and what it learns."""

    make: Callable[[], Learner]
    batches: list[Batch]
    points: int | None

    def __post_init__(self) -> None:
        if len(self.batches) < 3:
            raise ValueError(f"checks need at least three batches, got {len(self.batches)}")

    @property
    def last(self) -> Batch:
        return self.batches[-1]

    def fresh(self) -> Learner:
        """A new learner; initial parameters come from torch's global random state."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.make()

    def learned(self, steps: int | None = None) -> Learner:
        """A learner that has learned all batches but the last, or so many of them."""
        learner = self.fresh()
        for batch in self.batches[: len(self.batches) - 1 if steps is None else steps]:
            learner.observe(batch)
        return learner

    @cached_property
    def whole(self) -> str:
        """The digest of a learner that has learned all batches undisturbed."""
        return self.learned(len(self.batches)).digest()

    def repeats(self) -> None:
        expected = self.whole
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(123)  # what others do with randomness does not matter
            again = self.learned(len(self.batches)).digest()
        require(again == expected, "two learners that are made alike end up different")

    def is_pure(self) -> None:
        learner, batch = self.learned(), copy.deepcopy(self.last)
        before = torch.get_rng_state()
        learner.observe(batch)
        state, ready = learner.digest(), learner.method.ready  # if not, a prediction trains first
        first, second = learner.output(batch), learner.output(batch)
        require(torch.equal(first, second), "predicting twice gives two answers")
        require(bool(first.isfinite().all()), "predictions are not finite")
        if ready:
            require(learner.digest() == state, "predicting changes the state")
        require(torch.equal(torch.get_rng_state(), before), "torch's random state has changed")
        old = self.last.tensors()
        same = all(torch.equal(value, old[name]) for name, value in batch.tensors().items())
        require(same, "observe or predict has changed the batch")

    def learns_one(self) -> None:
        item = self.last.select(torch.tensor([0]))
        one, other = self.learned(), self.learned()
        one.learn_one(item)
        other.observe(item)
        require(one.digest() == other.digest(), "learn_one and observe of one item differ")

    @cached_property
    def offered(self) -> Learner:
        """The learner that is offered all wrong inputs, since none of them changes it."""
        return self.learned()

    def refuses(self, wrong: Any) -> None:
        learner = self.offered
        before = learner.digest()
        try:
            learner.observe(wrong)
        except (TypeError, ValueError) as error:
            require(bool(str(error)), f"{error!r} has no message")
        else:
            del self.offered
            raise AssertionError("it was learned; a ValueError or TypeError was expected")
        if learner.digest() != before:
            del self.offered
            raise AssertionError("it was refused, but the state has changed")

    def learns_after_refusals(self) -> None:
        learner = self.offered
        del self.offered
        learner.observe(self.last)
        require(learner.digest() == self.whole, "it learned something else")

    def rolls_back(self) -> None:
        learner = self.learned()
        before, files = learner.digest(), files_of(learner)
        total = inject(partial(self.learned().observe, self.last), files).calls
        step = 1 if self.points is None else max(total // self.points, 1)
        for number in range(1, total + 1, step):
            outcome = inject(partial(learner.observe, self.last), files, number)
            where = f"an exception at call {number} of {total} inside observe"
            if outcome.error is not None and not isinstance(outcome.error, Injected):
                raise AssertionError(f"{where} becomes {outcome.error!r}") from outcome.error
            after = learner.digest()
            require(after in (before, self.whole), f"{where} leaves a mixture of old and new state")
            if after != before:
                learner = self.learned()
            else:
                require(outcome.error is not None, f"{where} is lost, and so is the batch")
        learner.observe(self.last)
        require(learner.digest() == self.whole, "after exceptions, learning is not the same")

    def is_read(self) -> None:
        alone, watched = self.learned(1), self.learned(1)
        with reader(watched, self.batches[0]) as errors:
            for batch in self.batches[1:]:
                watched.observe(batch)
        require(not errors, f"a reading thread got {errors[:1]}")
        for batch in self.batches[1:]:
            alone.observe(batch)
        if alone.method.ready:  # otherwise a prediction trains, which is meant to change the state
            require(alone.digest() == watched.digest(), "it learned something else")

    def continues(self, copied: Callable[[Learner], Learner]) -> None:
        learner = self.learned()
        before = learner.digest()
        other = copied(learner)
        require(other.digest() == before, "the copy has another state")
        other.observe(self.last)
        require(learner.digest() == before, "what the copy learns changes the original")
        require(other.digest() == self.whole, "the copy learns something else")

    def forks(self) -> None:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # a forked process has no thread pool
        try:
            learner = self.learned()
            before = learner.digest()
            told = in_fork(lambda: self._learn_last(learner))
            expected = self._learn_last(self.learned())
            require(told == expected, f"the forked process learns something else: {told}")
            require(learner.digest() == before, "what the forked process learns changes this one")
        finally:
            torch.set_num_threads(threads)

    def _learn_last(self, learner: Learner) -> str:
        learner.observe(self.last)
        return learner.digest()

    def resumes(self) -> None:
        learner, late = self.learned(), self.fresh()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "learner"
            learner.save(path, {"note": 1})
            require(late.load(path) == {"note": 1}, "load does not return the extra of save")
            require(late.digest() == learner.digest(), "the loaded state is another one")
            late.save(Path(folder) / "again", {"note": 1})
            again = (Path(folder) / "again").read_bytes()
            require(path.read_bytes() == again, "the same state gives other bytes")
        late.observe(self.last)
        require(late.digest() == self.whole, "it continues differently after load")


def require(condition: bool, message: str) -> None:
    """Raise an AssertionError, also where Python leaves assertions out."""
    if not condition:
        raise AssertionError(message)

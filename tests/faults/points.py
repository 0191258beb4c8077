"""Raise exceptions at every call inside observe, save and load, and look at what is left."""

import errno
import pathlib
import tempfile
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import torch

from evergraph import FGN, Learner, Training, baseline, node_continuum
from evergraph.datasets import generate
from evergraph.datasets.generate import PRESETS
from evergraph.learn import MEMORIES, CheckpointError
from evergraph.learn.checkpoint import previous
from evergraph.learn.methods import METHODS
from evergraph.testing.faults import EVERY, PACKAGE, PYTHON, inject

DATA = generate(type(PRESETS["citation"])(nodes=120, features=40, classes=3))
BATCHES = list(node_continuum(DATA, batch_size=4))
NEW_CLASS = next(batch for batch in BATCHES if int(batch.target[0]) == 1)
QUICK = {"steps": 1, "replay_batches": 1, "replay_batch_size": 4, "averaging": 0.9}
SCRATCH = "/dev/shm" if Path("/dev/shm").is_dir() else None  # no waiting for a disk
FILES = (PACKAGE, pathlib.__file__)  # where calls of the operating system are made
INTERRUPT = {"KeyboardInterrupt": KeyboardInterrupt}
SYSTEM = {
    "MemoryError": MemoryError,
    "ENOSPC": OSError(errno.ENOSPC, "No space left on device"),
    "EIO": OSError(errno.EIO, "Input/output error"),
}


def learner(method="replay", memory="reservoir", optimizer="adam", kind="fgn", learned=3):
    """A small learner that has learned a few batches, the same one every time."""
    torch.manual_seed(0)
    model = FGN(40, dropout=0.2) if kind == "fgn" else baseline(kind, 40, dropout=0.2)
    way = METHODS[method](**({"every": 1} if method in ("ewc", "mas", "lwf") else {}))
    kept = MEMORIES[memory](6) if way.needs_memory else None
    made = Learner(model, way, kept, Training(optimizer=optimizer, lr=0.01, **QUICK))
    for batch in BATCHES[:learned]:
        made.observe(batch)
    return made


@dataclass
class Tally:
    """How many exceptions were raised, what was left, and what was wrong."""

    points: int = 0
    old: int = 0
    new: int = 0
    wrong: list[str] = field(default_factory=list)

    def note(self, is_old, is_new, where):
        self.points += 1
        self.old += is_old
        self.new += is_new and not is_old
        if not (is_old or is_new):
            self.wrong.append(where)


def of_the_system(function):
    """Whether a compiled function asks the operating system for something."""
    owner = getattr(function, "__self__", None)
    module = getattr(function, "__module__", None) or type(owner).__module__
    return module in ("posix", "fcntl", "io", "_io")


def anything(function):
    """Every compiled function."""
    return True


def at_every_call(attempt, errors, events, wanted=anything):
    """Number, name of the error and outcome of attempts that fail at each of their calls."""
    for name, error in errors.items():
        for number in count(1):
            outcome = inject(attempt(), FILES, number, error, events, wanted)
            if outcome.calls < number:
                break
            if outcome.error is not None and not expected(outcome.error, error):
                raise AssertionError(f"{name} at call {number} became another") from outcome.error
            yield number, name, outcome


def expected(found, error):
    """Whether an exception is the one that was raised, or the package's word for it."""
    kind = error if isinstance(error, type) else type(error)
    return isinstance(found, kind | CheckpointError) or isinstance(found.__context__, kind)


def observe_points(make, batch, errors=INTERRUPT, events=PYTHON):
    """Exceptions at every call inside `observe`: the state is the old one or the new one."""
    made, done, tally = make(), make(), Tally()
    before = made.digest()
    done.observe(batch)
    after = done.digest()
    assert before != after

    def attempt():
        nonlocal made
        if made.digest() != before:
            made = make()
        return partial(made.observe, batch)

    for number, name, outcome in at_every_call(attempt, errors, events):
        found = made.digest()
        tally.note(found == before, found == after, f"{name} at call {number}: a mixture")
        if found == before and outcome.error is None:
            tally.wrong.append(f"{name} at call {number}: lost, and the batch with it")
    assert made.digest() in (before, after)  # of the last attempt, which nothing disturbed
    return tally


def save_points(made, batch, errors=INTERRUPT, events=EVERY, wanted=anything):
    """Exceptions at every call inside `save`: each generation is whole, nothing is left over."""
    tally = Tally()
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        path = Path(folder) / "learner"
        generations = []
        for _ in range(2):
            made.save(path)
            generations.append(path.read_bytes())
            made.observe(batch)
        digest = made.digest()
        made.save(path)
        older, old, new = *generations, path.read_bytes()

        def attempt():
            for left in Path(folder).iterdir():
                if left not in (path, previous(path)):
                    left.unlink()
            path.write_bytes(old)
            previous(path).write_bytes(older)
            return partial(made.save, path)

        for number, name, outcome in at_every_call(attempt, errors, events, wanted):
            where = f"{name} at call {number}"
            found, kept = path.read_bytes(), previous(path).read_bytes()
            tally.note(found == old, found == new, f"{where}: half a file")
            if kept not in (older, old):
                tally.wrong.append(f"{where}: the generation before is not whole")
            if outcome.error is None and found != new:
                tally.wrong.append(f"{where}: nobody was told that nothing was saved")
            if made.digest() != digest:
                tally.wrong.append(f"{where}: the learner has changed")
            left = {file.name for file in Path(folder).iterdir()}
            if left != {"learner", "learner.previous"}:
                made.save(path)
            if {file.name for file in Path(folder).iterdir()} != {"learner", "learner.previous"}:
                tally.wrong.append(f"{where}: files are left over")
    return tally


def load_points(make, errors=INTERRUPT, events=EVERY, wanted=anything):
    """Exceptions at every call inside `load`: the state is the old one or the loaded one."""
    made, other, tally = make(learned=1), make(learned=3), Tally()
    before, after = made.digest(), other.digest()
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        path = Path(folder) / "learner"
        other.save(path)

        def attempt():
            nonlocal made
            if made.digest() != before:
                made = make(learned=1)
            return partial(made.load, path)

        for number, name, outcome in at_every_call(attempt, errors, events, wanted):
            found = made.digest()
            tally.note(found == before, found == after, f"{name} at call {number}: a mixture")
            if found == before and outcome.error is None:
                tally.wrong.append(f"{name} at call {number}: nobody was told")
    return tally


def every_point(method):
    """Each action of a method: its name, and a function that raises at all of its calls."""
    make = partial(learner, method)
    calls, memory = ("call", "c_call"), {"MemoryError": MemoryError}
    system = (SYSTEM, EVERY, of_the_system)
    return {
        "observe, interrupted": partial(observe_points, make, NEW_CLASS, INTERRUPT, calls),
        "observe, out of memory": partial(observe_points, make, NEW_CLASS, memory),
        "save, interrupted": lambda: save_points(make(), NEW_CLASS),
        "save, refused": lambda: save_points(make(), NEW_CLASS, *system),
        "load, interrupted": partial(load_points, make),
        "load, refused": partial(load_points, make, *system),
    }

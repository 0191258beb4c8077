"""A learner that follows a stream in a process of its own, of this code or of a checkout before.

Run by path with the root of a checkout in PYTHONPATH. It reads one number of items a line, learns
as many of them, and writes what they cost as a line of JSON; `Follower` is the other end.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

METHODS = ("replay", "analytic")
CAPACITY, BATCH = 500, 100


class Follower:
    """One end of the process.

    Args:
        root: of the code that learns.
        dataset: how many nodes to generate, or the name of a data set, which comes class by class.
        method: see `METHODS`.
        batch: how many items arrive together.
        capacity: of the memory, in items.
        data: the folder of data sets.
    """

    def __init__(
        self,
        root: Path,
        dataset: str,
        method: str,
        batch: int = BATCH,
        capacity: int = CAPACITY,
        data: Path | None = None,
    ) -> None:
        paths = str(root.resolve()), os.environ.get("PYTHONPATH", "")
        single = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        environment = {**os.environ, **single, "PYTHONPATH": os.pathsep.join(paths)}
        folder = "" if data is None else str(data)
        arguments = (dataset, method, str(batch), str(capacity), folder)
        self._process = subprocess.Popen(
            [sys.executable, __file__, *arguments], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.start: dict[str, float] = self._read()

    def learn(self, items: int) -> dict[str, float]:
        """What the next items cost; no items are left if it says 0."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{items}\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        """Let the process end."""
        self._process.communicate()

    def _read(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process that learns ended with {self._process.wait()}")
        found: dict[str, float] = json.loads(line)
        return found


def learner_and_stream(
    dataset: Any, method: str, scenario: str, batch: int, capacity: int
) -> tuple[Any, Any]:
    """The same learner and the same stream, in the names that this checkout has for them."""
    now = (Path(str(import_module("evergraph").__file__)).parent / "learn").is_dir()
    learn, methods, nn = (
        import_module(f"evergraph.{name}")
        for name in (("learn", "learn.methods", "nn") if now else ("learner", "methods", "models"))
    )
    memory, training = (
        learn if now else import_module(f"evergraph.{name}") for name in ("memory", "training")
    )
    import_module("torch").manual_seed(0)
    rates = {"lr": 0.05, "steps": 1, "replay_batches": 1, "replay_batch_size": batch}
    learner = learn.Learner(
        nn.FGN(dataset.graph.num_features, 0, concatenate=True),
        methods.Replay() if method == "replay" else methods.Analytic(),
        memory.Reservoir(capacity) if method == "replay" else None,
        training.Training(**rates if method == "replay" else {}),
    )
    if now:
        stream = import_module("evergraph.stream").node_continuum
        pack = learner.intake.packing()
        return learner, stream(dataset, scenario=scenario, batch_size=batch, pack=pack)
    old = import_module("evergraph.continuum")
    return learner, old.Continuum(dataset, old.Settings(scenario=scenario, batch_size=batch))


def stretch(learner: Any, batches: Iterator[Any], items: int) -> dict[str, float]:
    """Learn so many items, each predicted before if that is cheap; the closed form solves once."""
    cpu, wall, seen, correct, batch = time.process_time(), time.perf_counter(), 0, 0, None
    while seen < items and (batch := next(batches, None)) is not None:
        if learner.classes and learner.memory is not None:
            correct += int((learner.predict(batch) == batch.target).sum())
        learner.observe(batch)
        seen += len(batch)
    if learner.memory is None and batch is not None:
        learner.predict(batch)
    kept = learner.method if learner.memory is None else learner.memory
    return {
        "items": seen,
        "cpu": time.process_time() - cpu,
        "wall": time.perf_counter() - wall,
        "correct": correct,
        "kept_bytes": getattr(kept, "nbytes", 0),
        **memory_mb(),
    }


def memory_mb() -> dict[str, float]:
    """Resident memory now and at its peak."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    now = next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")), peak)
    return {"resident_mb": now, "peak_mb": peak}


def main(name: str, method: str, batch: str, capacity: str, data: str) -> None:
    """Answer every line until there are no more."""
    import_module("torch").set_num_threads(1)
    datasets, generator = (import_module(f"evergraph.datasets{n}") for n in ("", ".generate"))
    if name.isdecimal():
        growth = replace(generator.PRESETS["citation"], nodes=int(name), train=1.0, test=0.0)
        dataset, scenario = generator.generate(growth), "time"
    else:
        dataset, scenario = datasets.load(name, Path(data) if data else None), "class"
    learner, stream = learner_and_stream(dataset, method, scenario, int(batch), int(capacity))
    _write(memory_mb())
    batches = iter(stream)
    for line in sys.stdin:
        _write(stretch(learner, batches, int(line)))


def _write(found: dict[str, float]) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])

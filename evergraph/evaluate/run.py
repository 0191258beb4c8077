"""The one loop: stream, predict, learn, test, time, save and resume, for every application."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.evaluate.metrics import average_accuracy, average_forgetting, maximum_forgetting
from evergraph.learn.checkpoint import locked, read_checkpoint, require_same
from evergraph.learn.learner import Learner
from evergraph.learn.ranks import ALONE, Ranks
from evergraph.stream.batch import Batch
from evergraph.stream.continuum import Continuum

SCHEMA = 2  # of the JSON that `run` returns; docs/results.md describes it
CURVE_POINTS = 12

Build = Callable[[int], tuple[Continuum, Learner]]
"""Makes the stream and the learner of a seed."""
Report = Callable[[int, int, float], None]
"""Called with the seed's number, the items seen and the last accuracy."""
Scores = dict[str, tuple[float, int]]
"""The accuracy on the test items of each class (or of all), and how many there are."""
Scorer = Callable[[Learner, Continuum, Tensor, int], Scores]
"""Tests a learner on some items after so many batches of the stream."""


class Stopped(RuntimeError):  # noqa: N818 - not an error
    """A run was asked to stop; what was done is in its checkpoint, if it has one."""


@dataclass
class Record:
    """What is known of one seed so far; the items of `runs` in the JSON.

    Attributes:
        seed: of the stream, the model and the memory.
        matrix: accuracy on each test group after each task.
        curve: items seen and accuracy on all test items.
        prequential: correct and all predictions made before learning.
        learn_seconds, test_seconds: wall-clock time.
        learn_cpu_seconds: CPU time of learning.
        memory_bytes: the most that memory and method kept.
        clipped: how many feature values were clipped as outliers.
        class_accuracy: accuracy on the test items of each class, at the end.
        class_history: the same after each task.
    """

    seed: int = 0
    matrix: list[list[float]] = field(default_factory=list)
    curve: list[list[float]] = field(default_factory=list)
    prequential: list[int] = field(default_factory=lambda: [0, 0])
    learn_seconds: float = 0.0
    test_seconds: float = 0.0
    learn_cpu_seconds: float = 0.0
    memory_bytes: int = 0
    clipped: int = 0
    class_accuracy: dict[str, float] = field(default_factory=dict)
    class_history: list[dict[str, float]] = field(default_factory=list)


def by_class(learner: Learner, stream: Continuum, index: Tensor, position: int) -> Scores:
    """Test items: accuracy by class, or the task's own measure over all of them."""
    pairs = [(learner.output(b), b.target) for b in stream.test(index, position)]
    if not pairs:
        return {}
    outputs, targets = (torch.cat(part) for part in zip(*pairs, strict=True))
    if not learner.classes:
        return {"": (learner.task.measure(outputs, targets), len(targets))}
    return {
        str(label): (learner.task.measure(outputs[mine], targets[mine]), int(mine.sum()))
        for label in targets.unique().tolist()
        if (mine := targets == label).any()
    }


def run(
    build: Build,
    seeds: Sequence[int],
    config: Mapping[str, Any],
    *,
    checkpoint: Path | None = None,
    resume: bool = False,
    every: float = 10.0,
    report: Report = lambda number, seen, accuracy: None,
    scorer: Scorer = by_class,
    balanced: bool = False,
    stop: Callable[[], bool] = lambda: False,
    ranks: Ranks = ALONE,
) -> dict[str, Any]:
    """Run all seeds and summarize them.

    Args:
        build: makes the stream and the learner of a seed.
        seeds: all that is random follows from them.
        config: what is run, as JSON can hold it; a checkpoint of another one is refused.
        checkpoint: a file to save the state in, every so many seconds and in the end; the state is
            complete, so that a run that was killed resumes as if nothing had happened.
        resume: continue from the checkpoint; from the beginning if there is none yet.
        every: seconds between checkpoints.
        report: see `Report`.
        scorer: see `Scorer`.
        stop: asked after every batch; if it says so, the state is saved and `Stopped` is raised.
        balanced: whether entries of the accuracy matrix are means over classes, as CGLB counts.
        ranks: who runs the same, each with a part of the items; all get the same result. Measures
            are then means over items, as accuracy is.
    """
    with locked(checkpoint) if checkpoint is not None and ranks.is_first else nullcontext():
        about = {"config": dict(config), "seeds": [*seeds]}
        pending = _pending(checkpoint, resume, about)
        records = [Record(**old) for old in pending["records"]] if pending else []
        groups: list[str] = []
        for number in range(len(records), len(seeds)):
            stream, learner = build(seeds[number])
            groups, record = list(stream.group_names), Record(seed=seeds[number])
            if pending and checkpoint is not None:
                record = Record(**learner.load(checkpoint)["current"])
                pending = None
            extra = {**about, "records": [*map(asdict, records)]}
            saved = ranks.now()
            for seen in _one_pass(stream, learner, record, scorer, balanced, ranks):
                report(number, seen, record.curve[-1][1] if record.curve else float("nan"))
                told = ranks.gather((stop(), time.monotonic()))  # one clock is that of all
                asked = any(wish for wish, _ in told)
                late = told[0][1] - saved >= every or learner.position == len(stream)
                if checkpoint is not None and (asked or late):
                    learner.save(checkpoint, {**extra, "current": asdict(record)})
                    saved = ranks.now()
                if asked:
                    raise Stopped(f"stopped after {seen} items of seed {seeds[number]}")
            records.append(record)
    return {**summarize(config, records), "groups": groups}


def _pending(
    checkpoint: Path | None, resume: bool, here: Mapping[str, Any]
) -> dict[str, Any] | None:
    """What a checkpoint of the same run holds; None if there is none yet."""
    if checkpoint is None or not checkpoint.exists():
        return None
    if not resume:
        raise ValueError(
            f"{checkpoint} is there already: resume it, move it, or choose another file"
        )
    there: dict[str, Any] = read_checkpoint(checkpoint)[1]["extra"]
    mine, theirs = ({**run["config"], "seeds": run["seeds"]} for run in (here, there))
    require_same(checkpoint, mine, theirs)
    return there


def _one_pass(
    stream: Continuum,
    learner: Learner,
    record: Record,
    scorer: Scorer,
    balanced: bool,
    ranks: Ranks,
) -> Iterator[int]:
    """One pass over a stream from where the learner stands; yields the items seen so far."""
    schedule = stream.schedule
    seen = sum(map(len, schedule.batches[: learner.position]))
    step = max(len(stream) // CURVE_POINTS, 1)
    lazy = learner.method.lazy
    first = schedule.epochs == 1  # items that come again are no test
    for batch in stream.batches(learner.position):
        position = learner.position
        start = time.perf_counter()
        if position and learner.classes and first and not lazy:
            for correct, known in ranks.gather(_correct(learner, batch)):
                record.prequential[0] += correct
                record.prequential[1] += known
        middle, cpu = time.perf_counter(), time.process_time()
        learner.observe(batch)
        after = time.perf_counter()
        record.learn_cpu_seconds += time.process_time() - cpu
        seen += len(schedule.batches[position])
        ends = schedule.ends_task(position)
        if ends or (not lazy and (position + 1) % step == 0):
            own = [scorer(learner, stream, g, position + 1) for g in stream.test_groups]
            tested = [_joined(parts) for parts in zip(*ranks.gather(own), strict=True)]
            _note(record, tested, seen, ends, balanced)
        record.learn_seconds += after - middle
        record.test_seconds += middle - start + time.perf_counter() - after
        kept = learner.method.nbytes + (0 if learner.memory is None else learner.memory.nbytes)
        record.memory_bytes = max(record.memory_bytes, kept)
        record.clipped = learner.intake.gate.clipped
        yield seen


def _correct(learner: Learner, batch: Batch) -> tuple[int, int]:
    """How many labels of a batch are predicted, and how many are known."""
    if not len(batch):
        return 0, 0
    known = batch.target >= 0
    return int((learner.predict(batch) == batch.target)[known].sum()), int(known.sum())


def _joined(parts: Sequence[Scores]) -> Scores:
    """Scores of several parts of the test items: the mean of each label over its items."""
    if len(parts) == 1:
        return parts[0]
    sizes = {label: 0 for part in parts for label in part}
    for part in parts:
        for label, (_, size) in part.items():
            sizes[label] += size
    return {
        label: (sum(p[label][0] * p[label][1] for p in parts if label in p) / size, size)
        for label, size in sorted(sizes.items(), key=lambda pair: (len(pair[0]), pair[0]))
    }


def _note(record: Record, tested: Sequence[Scores], seen: int, ends: bool, balanced: bool) -> None:
    """Write down how well all groups were tested."""
    every = [score for group in tested for score in group.values()]
    record.curve.append([seen, _mean(every, balanced=False)])
    if ends:
        record.matrix.append([_mean(group.values(), balanced) for group in tested])
        record.class_accuracy = {
            label: score[0] for group in tested for label, score in group.items()
        }
        record.class_history.append(record.class_accuracy)


def _mean(scores: Iterable[tuple[float, int]], balanced: bool) -> float:
    """The mean accuracy over items, or over classes if balanced; NaN if there are none."""
    known = list(scores)
    if not known:
        return float("nan")
    accuracy, size = np.array(known).T
    return float(np.mean(accuracy) if balanced else np.average(accuracy, weights=size))


def _prequential(records: Sequence[Record]) -> float | None:
    """The share of labels that were predicted before learning, mean of seeds; None if none was."""
    shares = [correct / total for correct, total in (r.prequential for r in records) if total]
    return float(np.mean(shares)) if shares else None


def summarize(config: Mapping[str, Any], records: Sequence[Record]) -> dict[str, Any]:
    """The numbers of all seeds together: the JSON of a run."""
    final = [record.curve[-1][1] for record in records]
    items = [record.curve[-1][0] for record in records]
    matrices = [np.array(record.matrix) for record in records]
    mean = np.mean(matrices, axis=0)  # NaN for a task without test items, which JSON does not know
    learning = sum(record.learn_seconds for record in records)
    return {
        "schema": SCHEMA,
        "config": dict(config),
        "seeds": [record.seed for record in records],
        "accuracy_mean": float(np.mean(final)),
        "accuracy_sd": float(np.std(final, ddof=1)) if len(final) > 1 else 0.0,
        "accuracy_per_seed": final,
        "forgetting_mean": float(np.mean([maximum_forgetting(m) for m in matrices])),
        "prequential_mean": _prequential(records),
        "average_accuracy_mean": float(np.mean([average_accuracy(m) for m in matrices])),
        "average_forgetting_mean": float(np.mean([average_forgetting(m) for m in matrices])),
        "class_accuracy": [record.class_accuracy for record in records],
        "accuracy_matrix": _plain(mean.tolist()),
        "curve": [record.curve for record in records],
        "seconds": learning + sum(record.test_seconds for record in records),
        "items_per_second": sum(items) / learning,
        "memory_bytes": max(record.memory_bytes for record in records),
        "clipped": sum(record.clipped for record in records),
        "runs": [{**asdict(r), "matrix": _plain(r.matrix)} for r in records],
    }


def _plain(matrix: Sequence[Sequence[float]]) -> list[list[float | None]]:
    """A matrix as JSON holds it: null where nothing was measured."""
    return [[None if value != value else value for value in row] for row in matrix]

"""Node classification on a growing graph: the main job of the program."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from evergraph.evaluate.config import Config, build, plain
from evergraph.learn.checkpoint import read_checkpoint
from evergraph.stream.continuum import Continuum
from evergraph.graph.dataset import Dataset
from evergraph.learn.learner import Learner
from evergraph.evaluate.metrics import (
    Prequential,
    average_accuracy,
    average_forgetting,
    maximum_forgetting,
)

CURVE_POINTS = 12

Report = Callable[[int, int, float], None]
"""Called with the seed's number, the items seen and the last accuracy."""


@dataclass
class Record:
    """What is known of one seed so far.

    Attributes:
        matrix: accuracy on each test group after each task.
        curve: items seen and accuracy on all test items.
        prequential: correct and all predictions made before learning.
        learning, testing: seconds.
        memory_bytes: the most that the method kept.
        class_accuracy: accuracy on the test items of each class, at the end.
    """

    matrix: list[list[float]] = field(default_factory=list)
    curve: list[list[float]] = field(default_factory=list)
    prequential: list[int] = field(default_factory=lambda: [0, 0])
    learning: float = 0.0
    testing: float = 0.0
    memory_bytes: int = 0
    class_accuracy: dict[str, float] = field(default_factory=dict)


def _quiet(number: int, seen: int, accuracy: float) -> None:
    """Report to nobody."""


def _numbered(report: Report, number: int) -> Callable[[int, float], None]:
    def follow(seen: int, accuracy: float) -> None:
        report(number, seen, accuracy)

    return follow


def run(
    config: Config,
    seeds: tuple[int, ...],
    dataset: Dataset,
    checkpoint: Path | None = None,
    resume: bool = False,
    every: float = 10.0,
    report: Report = _quiet,
) -> dict[str, Any]:
    """Run all seeds and summarize them.

    Args:
        config: what to run.
        seeds: of the stream, the network and the memory.
        dataset: loaded before, by `evergraph.datasets.load`.
        checkpoint: a file to save the state in, every so many seconds; the state is complete, so
            that a run that was killed goes on as if nothing had happened.
        resume: go on from the checkpoint; from the beginning if there is none yet.
        every: seconds between checkpoints.
        report: see `Report`.
    """
    for part in ("train", "test"):
        if not len(getattr(dataset, part)):
            raise ValueError(
                f"data set {dataset.name!r} must have {part} nodes with labels, got none; see the "
                "columns `label` and `split`"
            )
    records: list[Record] = []
    first: dict[str, Any] | None = None
    if resume and checkpoint is not None and checkpoint.exists():
        first = _peek(checkpoint)
        if first["config"] != plain(config) or first["seeds"] != list(seeds):
            raise ValueError(_other(checkpoint, first, config, seeds))
        records = [Record(**old) for old in first["records"]]
    for number in range(len(records), len(seeds)):
        stream, learner = build(config, dataset, seeds[number])
        record = Record()
        if first is not None:
            assert checkpoint is not None
            record = Record(**learner.load(checkpoint)["current"])
            first = None
        saver = None
        if checkpoint is not None:
            extra = {"config": plain(config), "seeds": list(seeds)}
            saver = Saver(checkpoint, every, extra, [asdict(r) for r in records])
        _follow(stream, learner, record, saver, _numbered(report, number), config.protocol)
        records.append(record)
    return summarize(config, seeds, records)


@dataclass
class Saver:
    """Saves a learner and what is known so far, not more often than every so many seconds."""

    path: Path
    every: float
    extra: dict[str, Any]
    records: list[dict[str, Any]]
    last: float = field(default_factory=time.monotonic)

    def __call__(self, learner: Learner, record: Record) -> None:
        """Save if it is time."""
        if time.monotonic() - self.last >= self.every:
            extra = {**self.extra, "records": self.records, "current": asdict(record)}
            learner.save(self.path, extra)
            self.last = time.monotonic()


def _follow(
    stream: Continuum,
    learner: Learner,
    record: Record,
    save: Saver | None,
    report: Callable[[int, float], None],
    protocol: str,
) -> None:
    """One pass over a stream from where the learner stands."""
    seen = sum(len(nodes) for _, nodes in stream.schedule[: learner.position])
    step = max(len(stream) // CURVE_POINTS, 1)
    groups = stream.test_groups()
    lazy = getattr(learner.method, "lazy", False)  # predicting is dear: only where it must be
    first = stream.settings.epochs == 1  # items that come again are no test
    score = Prequential()
    score.correct, score.count = record.prequential
    for batch in stream.batches(learner.position):
        position = learner.position
        start = time.perf_counter()
        if learner.classes and first and not lazy:
            score.update(learner.predict(batch).tolist(), batch.target.tolist())
        middle = time.perf_counter()
        learner.observe(batch)
        after = time.perf_counter()
        seen += len(batch)
        ends = stream.ends_task(position)
        if ends or (not lazy and (position + 1) % step == 0):
            tested = [_by_class(learner, stream, group, position + 1) for group in groups]
            every = [score for group in tested for score in group.values()]
            record.curve.append([seen, _mean(every, balanced=False)])
            if ends:
                balanced = protocol != "paper"  # as CGLB counts
                record.matrix.append([_mean(group.values(), balanced) for group in tested])
                record.class_accuracy = {
                    str(label): score[0] for group in tested for label, score in group.items()
                }
        record.learning += after - middle
        record.testing += middle - start + time.perf_counter() - after
        record.prequential = [score.correct, score.count]
        record.memory_bytes = max(record.memory_bytes, kept_bytes(learner))
        report(seen, record.curve[-1][1] if record.curve else float("nan"))
        if save is not None:
            save(learner, record)


def _by_class(
    learner: Learner, stream: Continuum, nodes: Tensor, position: int
) -> dict[int, tuple[float, int]]:
    """Accuracy and number of the test items of each class among some nodes."""
    labels = stream.labels[nodes]
    out = {}
    for label in labels.unique().tolist():
        mine = nodes[labels == label]
        out[label] = (learner.evaluate(stream.test(mine, position)), len(mine))
    return out


def _mean(scores: Iterable[tuple[float, int]], balanced: bool) -> float:
    """The mean accuracy over items, or over classes if balanced; NaN if there are none."""
    known = list(scores)
    if not known:
        return float("nan")
    accuracy, size = np.array(known).T
    return float(np.mean(accuracy) if balanced else np.average(accuracy, weights=size))


def kept_bytes(learner: Learner) -> int:
    """What a learner keeps of the past, beside its network."""
    method = learner.method
    own = getattr(method, "nbytes", None)
    if own is None:
        own = sum(tensor.nbytes for tensor in method.state()[0].values())
    return int(own) + (0 if learner.memory is None else learner.memory.nbytes)


def summarize(config: Config, seeds: tuple[int, ...], records: list[Record]) -> dict[str, Any]:
    """The numbers of all seeds together."""
    final = [record.curve[-1][1] for record in records]
    items = [record.curve[-1][0] for record in records]
    matrices = np.array([record.matrix for record in records])
    mean = matrices.mean(axis=0)  # NaN for a task without test items, which JSON does not know
    learning = sum(record.learning for record in records)
    return {
        "config": plain(config),
        "seeds": list(seeds),
        "accuracy_mean": float(np.mean(final)),
        "accuracy_sd": float(np.std(final, ddof=1)) if len(final) > 1 else 0.0,
        "accuracy_per_seed": final,
        "forgetting_mean": float(np.mean([maximum_forgetting(m) for m in matrices])),
        "prequential_mean": float(
            np.mean([r.prequential[0] / max(r.prequential[1], 1) for r in records])
        ),
        "average_accuracy_mean": float(np.mean([average_accuracy(m) for m in matrices])),
        "average_forgetting_mean": float(np.mean([average_forgetting(m) for m in matrices])),
        "class_accuracy": [record.class_accuracy for record in records],
        "accuracy_matrix": [[None if v != v else v for v in row] for row in mean.tolist()],
        "curve": [record.curve for record in records],
        "seconds": learning + sum(record.testing for record in records),
        "items_per_second": sum(items) / learning,
        "memory_bytes": max(record.memory_bytes for record in records),
    }


def _peek(checkpoint: Path) -> dict[str, Any]:
    extra: dict[str, Any] = read_checkpoint(checkpoint)[1]["extra"]
    return extra


def _other(checkpoint: Path, there: dict[str, Any], config: Config, seeds: tuple[int, ...]) -> str:
    here = {**plain(config), "seeds": list(seeds)}
    old = {**there["config"], "seeds": there["seeds"]}
    differ = [
        f"{k} is {old.get(k)!r} there, {here[k]!r} here" for k in here if here[k] != old.get(k)
    ]
    return (
        f"checkpoint {checkpoint} belongs to another configuration: {'; '.join(differ)}; "
        "use the same options, or another checkpoint"
    )

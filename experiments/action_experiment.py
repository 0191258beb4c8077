"""One cell of the tables: a network, a split, a stream and a method, over several seeds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from evergraph.apps.action.networks import network
from evergraph.apps.action.recording import Array, Recordings
from experiments.action_statistics import Linear, StatisticsScaling, window_statistics
from evergraph.apps.action.streams import Stream, schedule
from evergraph.apps.action.windows import Windowing, Windows, as_batch, cut, split_in_time
from evergraph.learn.learner import Learner, Method
from evergraph.learn.memory import MEMORIES
from evergraph.learn.methods import Analytic, Finetune, Replay
from evergraph.evaluate.metrics import maximum_backward_forgetting
from evergraph.learn.training import Training

Split = Literal["time", "subjects"]
CHUNK = 100  # windows that are classified together
CLASSICAL = ("trees", "ridge")


@dataclass(frozen=True)
class Config:
    """What to run.

    Attributes:
        model: a name of `networks.NETWORKS`; `trees` (ExtraTrees) or `ridge`, which see window
            statistics.
        split: `time`, the paper's, or `subjects`, who are left out.
        left_out: the subjects to test on, for the split by subjects.
        stream: see `streams.schedule`.
        method: `replay`, `finetune` or `analytic`; regular learning is `finetune` on shuffled
            windows.
        memory: windows at the most.
        memory_bytes: bytes at the most.
        memory_rule: see `evergraph.learn.memory`.
        length, stride, test_stride: samples; see `Windowing`.
        batch_size: windows that come together.
        epochs: passes of regular learning.
        replay_batches: batches from memory for each new one.
        replay_batch_size: windows in each of them.
        lr, dropout, averaging: see `Training`; the average follows every gradient step.
        disturb: change training windows a little, see `Augmentation`.
        strength: of the ridge.
        settle: samples to drop at the beginning of each recording.
        validation: take the test windows from the training part, to choose settings; of the split
            in time.
    """

    model: str = "fgn"
    split: Split = "time"
    left_out: tuple[str, ...] = ()
    stream: Stream = "regular"
    method: str = "finetune"
    memory: int = 5000
    memory_bytes: int | None = None
    memory_rule: str = "reservoir"
    length: int = 50
    stride: int = 200
    test_stride: int = 100
    batch_size: int = 50
    epochs: int = 2
    replay_batches: int = 1
    replay_batch_size: int = 50
    lr: float = 2e-3
    dropout: float = 0.1
    averaging: float = 0.95
    disturb: bool = False
    strength: float = 1e-4
    settle: int = 0
    validation: bool = False


@dataclass
class Record:
    """What one seed gave.

    Attributes:
        recall, precision: of each class in the end.
        accuracy: share of test windows that are right.
        snapshots: recall of each class after each task.
        curve: windows seen and accuracy.
        confusion: counts, true by predicted.
        train_seconds, test_ms: processor time of learning, and of one prediction.
        memory_bytes: what was kept in the end.
    """

    accuracy: float = 0.0
    recall: list[float] = field(default_factory=list)
    precision: list[float] = field(default_factory=list)
    snapshots: list[list[float]] = field(default_factory=list)
    curve: list[tuple[int, float]] = field(default_factory=list)
    confusion: list[list[int]] = field(default_factory=list)
    train_seconds: float = 0.0
    test_ms: float = 0.0
    memory_bytes: int = 0


Report = Callable[[int, int, float], None]
"""Called with the windows seen, all windows and the last accuracy."""


def _quiet(seen: int, total: int, accuracy: float) -> None:
    """Report to nobody."""


def divide(config: Config, data: Recordings) -> tuple[Recordings, Recordings]:
    """The recordings to train and to test on."""
    if config.split == "subjects":
        if not config.left_out:
            raise ValueError("a split by subjects needs left_out, the subjects to test on")
        return data.without(config.left_out), data.of(config.left_out)
    train, test = split_in_time(data, settle=config.settle)
    return split_in_time(train, share=0.875) if config.validation else (train, test)


@dataclass(frozen=True, eq=False)
class Prepared:
    """Windows that are ready to learn from and to test on.

    Attributes:
        data: the recordings that the training windows are cut from.
        train, test: windows.
    """

    data: Recordings
    train: Windows
    test: Windows


def prepare(config: Config, data: Recordings) -> Prepared:
    """Split the recordings and cut their windows: the same for all networks and seeds."""
    train_data, test_data = divide(config, data)
    rate = data.layout.rate
    train, test = (
        cut(part.recordings, data.activities, Windowing(config.length, stride), rate)
        for part, stride in ((train_data, config.stride), (test_data, config.test_stride))
    )
    return Prepared(train_data, train, test)


def run(
    config: Config,
    data: Recordings,
    seed: int = 0,
    report: Report = _quiet,
    prepared: Prepared | None = None,
) -> tuple[Record, Learner | None]:
    """Learn and test one seed; also returns the learner, if there is one."""
    ready = prepared or prepare(config, data)
    train, test = ready.train, ready.test
    if config.model in CLASSICAL:
        train, test = _as_statistics(train, test)
    if config.model == "trees":
        return _trees(train, test, len(data.activities), seed), None
    learner = build(config, data, seed, train)
    order = schedule(config.stream, train, ready.data, config.batch_size, config.epochs, seed)
    record = Record()
    seen, total = 0, sum(len(part) for part in order.batches)
    for batch, last in order.of(train):
        start = time.process_time()
        learner.observe(batch)
        record.train_seconds += time.process_time() - start
        seen += len(batch)
        if last:
            _snapshot(record, learner, test, len(data.activities), seen)
        report(seen, total, record.accuracy)
    record.memory_bytes = int(getattr(learner.method, "nbytes", 0))
    record.memory_bytes += 0 if learner.memory is None else learner.memory.nbytes
    return record, learner


def build(config: Config, data: Recordings, seed: int, train: Windows) -> Learner:
    """The learner of one seed; the scale of signals is that of the training windows."""
    methods: dict[str, Callable[[], Method]] = {"finetune": Finetune, "replay": Replay}
    if config.model == "ridge":
        method = Analytic(strength=config.strength, blocks=("x",))
        return Learner(Linear(train.x.shape[-1]), method, seed=seed)
    if config.method not in methods:
        raise ValueError(
            f"method must be one of {', '.join(methods)} for {config.model}, got {config.method!r}"
        )
    features = config.length // 2
    model: Any = network(
        config.model, data.layout, features, seed, config.disturb, rate=config.dropout
    )
    model.scaling.update(train.x)
    training = Training(
        optimizer="adam",
        lr=config.lr,
        steps=1,
        replay_batches=config.replay_batches,
        replay_batch_size=config.replay_batch_size,
        averaging=config.averaging,
        average_steps=True,
    )
    memory = None
    if config.method == "replay":
        memory = MEMORIES[config.memory_rule](config.memory, config.memory_bytes, seed=seed)
    return Learner(model, methods[config.method](), memory, training, seed)


def predictions(learner: Learner, x: Tensor) -> Tensor:
    """The label of each window."""
    return torch.cat([learner.predict(as_batch(part)) for part in x.split(CHUNK)])


def _snapshot(record: Record, learner: Learner, test: Windows, classes: int, seen: int) -> None:
    start = time.process_time()
    found = predictions(learner, test.x)
    record.test_ms = (time.process_time() - start) * 1e3 / len(test)
    _count(record, found, test.target, classes)
    record.curve.append((seen, record.accuracy))


def _count(record: Record, found: Tensor, target: Tensor, classes: int) -> None:
    confusion = np.zeros((classes, classes), dtype=int)
    np.add.at(confusion, (target.numpy(), found.numpy()), 1)
    right = np.diagonal(confusion)
    record.accuracy = float(right.sum() / confusion.sum())
    record.recall = (right / np.maximum(confusion.sum(1), 1)).tolist()
    record.precision = (right / np.maximum(confusion.sum(0), 1)).tolist()
    record.confusion = confusion.tolist()
    record.snapshots.append(record.recall)


def _as_statistics(train: Windows, test: Windows) -> tuple[Windows, Windows]:
    small, other = window_statistics(train.x), window_statistics(test.x)
    scaling = StatisticsScaling(small)
    return replace(train, x=scaling.items(small)), replace(test, x=scaling.items(other))


def _trees(train: Windows, test: Windows, classes: int, seed: int) -> Record:
    try:
        from sklearn.ensemble import ExtraTreesClassifier
    except ImportError as error:
        raise ValueError("trees need scikit-learn: pip install evergraph[action]") from error
    record, start = Record(), time.process_time()
    forest = ExtraTreesClassifier(n_estimators=200, random_state=seed)
    forest.fit(train.x.flatten(1).numpy(), train.target.numpy())
    middle = time.process_time()
    found = torch.from_numpy(forest.predict(test.x.flatten(1).numpy()))
    record.train_seconds = middle - start
    record.test_ms = (time.process_time() - middle) * 1e3 / len(test)
    _count(record, found, test.target, classes)
    record.curve.append((len(train), record.accuracy))
    return record


def summarize(config: Config, records: list[Record], seeds: list[int]) -> dict[str, Any]:
    """One cell: all seeds together."""
    accuracies = [record.accuracy for record in records]
    forgetting: list[Array] = [
        maximum_backward_forgetting(np.array(record.snapshots)) for record in records
    ]
    streams = config.stream != "regular"
    return {
        "model": config.model,
        "split": config.split,
        "stream": config.stream,
        "method": config.method,
        "memory": config.memory if config.method == "replay" else None,
        "mean": float(np.mean(accuracies)),
        "sd": float(np.std(accuracies, ddof=1)) if len(accuracies) > 1 else 0.0,
        "runs": accuracies,
        "forgetting": float(np.mean(forgetting)) if streams else None,
        "ms_per_window": float(np.median([record.test_ms for record in records])),
        "recall": np.mean([record.recall for record in records], axis=0).tolist(),
        "precision": np.mean([record.precision for record in records], axis=0).tolist(),
        "confusion": np.sum([record.confusion for record in records], axis=0).tolist(),
        "curves": [record.curve for record in records],
        "train_seconds": float(np.mean([record.train_seconds for record in records])),
        "memory_bytes": max(record.memory_bytes for record in records),
        "seeds": seeds,
        "config": asdict(config),
    }

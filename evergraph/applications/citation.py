"""Node classification on a growing graph: the main job of the program."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from evergraph.applications.presets import preset
from evergraph.checkpoint import read_checkpoint
from evergraph.continuum import Continuum, Scenario, Settings, Visibility
from evergraph.dataset import Dataset
from evergraph.learner import Learner, Training
from evergraph.memory import MEMORIES
from evergraph.methods import METHODS
from evergraph.metrics import Prequential, maximum_forgetting
from evergraph.models import FGN


@dataclass(frozen=True)
class Config:
    """Everything that decides a run, apart from the seed.

    Attributes:
        dataset: a name that `evergraph datasets` lists, or a folder.
        scenario: `regular`, `data`, `class` or `time`.
        model: `fgn`.
        method: how forgetting is fought, see `evergraph.methods`.
        memory: capacity in items.
        memory_rule: what is kept, see `evergraph.memory`.
        batch_size: items that arrive together.
        visibility: `all` or `arrived`.
        classes_per_task, class_order: of class-incremental streams.
        tasks: into how many parts other streams are cut for evaluation.
        epochs: passes of the regular stream.
        settings: learning rate and the like; what is not given comes from the presets.
    """

    dataset: str = "cora"
    scenario: Scenario = "class"
    model: str = "fgn"
    method: str = "replay"
    memory: int = 500
    memory_rule: str = "reservoir"
    batch_size: int = 10
    visibility: Visibility = "all"
    classes_per_task: int = 1
    class_order: tuple[int, ...] | None = None
    tasks: int = 1
    epochs: int = 20
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reject what nobody knows, and fill the settings in."""
        for name, known in (("method", METHODS), ("memory_rule", MEMORIES), ("model", MODELS)):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}"
                )
        given = {**preset(self.method, self.dataset), **self.settings}
        object.__setattr__(self, "settings", given)


MODELS = {"fgn": FGN}
CURVE_POINTS = 25
MODEL_SETTINGS = ("normalization", "dropout", "channels", "centered", "concatenate", "directed")
TRAINING_SETTINGS = (
    "optimizer", "lr", "momentum", "weight_decay", "steps", "replay_every", "averaging",
)  # fmt: skip
METHOD_SETTINGS = ("strength", "every", "solver", "blocks", "sample")

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
    """

    matrix: list[list[float]] = field(default_factory=list)
    curve: list[list[float]] = field(default_factory=list)
    prequential: list[int] = field(default_factory=lambda: [0, 0])
    learning: float = 0.0
    testing: float = 0.0
    memory_bytes: int = 0


def _quiet(number: int, seen: int, accuracy: float) -> None:
    """Report to nobody."""


def _numbered(report: Report, number: int) -> Callable[[int, float], None]:
    def follow(seen: int, accuracy: float) -> None:
        report(number, seen, accuracy)

    return follow


def build(config: Config, dataset: Dataset, seed: int) -> tuple[Continuum, Learner]:
    """The stream and the learner of one seed."""
    s = config.settings
    stream = Continuum(
        dataset,
        Settings(
            scenario=config.scenario,
            batch_size=config.batch_size,
            classes_per_task=config.classes_per_task,
            class_order=config.class_order,
            tasks=config.tasks,
            epochs=config.epochs,
            hops=s["hops"],
            cap=s.get("cap"),
            visibility=config.visibility,
            seed=seed,
        ),
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = MODELS[config.model](
            dataset.graph.num_features,
            0,
            hops=s["hops"],
            **_pick(s, MODEL_SETTINGS),
        )
    method = METHODS[config.method](**_pick(s, METHOD_SETTINGS))
    needs = config.method in ("replay", "gem", "agem", "der")
    memory = MEMORIES[config.memory_rule](config.memory, seed=seed) if needs else None
    training = Training(
        replay_batch_size=config.batch_size,
        replay_batches=s.get("replay_batches"),
        **_pick(s, TRAINING_SETTINGS),
    )
    return stream, Learner(model, method, memory, training, seed)


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
    records: list[Record] = []
    first: dict[str, Any] | None = None
    if resume and checkpoint is not None and checkpoint.exists():
        first = _peek(checkpoint)
        if first["config"] != _plain(config) or first["seeds"] != list(seeds):
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
            extra = {"config": _plain(config), "seeds": list(seeds)}
            saver = Saver(checkpoint, every, extra, [asdict(r) for r in records])
        _follow(stream, learner, record, saver, _numbered(report, number))
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
) -> None:
    """One pass over a stream from where the learner stands."""
    seen = sum(len(nodes) for _, nodes in stream.schedule[: learner.position])
    step = max(len(stream) // CURVE_POINTS, 1)
    groups = stream.test_groups()
    lazy = getattr(learner.method, "lazy", False)  # predicting is dear: only where it must be
    score = Prequential()
    score.correct, score.count = record.prequential
    for batch in stream.batches(learner.position):
        position = learner.position
        start = time.perf_counter()
        if learner.classes and not lazy:
            score.update(learner.predict(batch).tolist(), batch.target.tolist())
        middle = time.perf_counter()
        learner.observe(batch)
        after = time.perf_counter()
        seen += len(batch)
        ends = stream.ends_task(position)
        if ends or (not lazy and (position + 1) % step == 0):
            row = [learner.evaluate(stream.test(group, position + 1)) for group in groups]
            sizes = [len(group) for group in groups]
            record.curve.append([seen, float(np.average(row, weights=sizes))])
            if ends:
                record.matrix.append(row)
        record.learning += after - middle
        record.testing += middle - start + time.perf_counter() - after
        record.prequential = [score.correct, score.count]
        record.memory_bytes = max(record.memory_bytes, kept_bytes(learner))
        report(seen, record.curve[-1][1] if record.curve else float("nan"))
        if save is not None:
            save(learner, record)


def kept_bytes(learner: Learner) -> int:
    """What a learner keeps of the past, beside its network."""
    own = getattr(learner.method, "nbytes", 0)
    return int(own) + (0 if learner.memory is None else learner.memory.nbytes)


def summarize(config: Config, seeds: tuple[int, ...], records: list[Record]) -> dict[str, Any]:
    """The numbers of all seeds together."""
    final = [record.curve[-1][1] for record in records]
    items = [record.curve[-1][0] for record in records]
    matrices = np.array([record.matrix for record in records])
    learning = sum(record.learning for record in records)
    return {
        "config": _plain(config),
        "seeds": list(seeds),
        "accuracy_mean": float(np.mean(final)),
        "accuracy_sd": float(np.std(final, ddof=1)) if len(final) > 1 else 0.0,
        "accuracy_per_seed": final,
        "forgetting_mean": float(np.mean([maximum_forgetting(m) for m in matrices])),
        "prequential_mean": float(
            np.mean([r.prequential[0] / max(r.prequential[1], 1) for r in records])
        ),
        "accuracy_matrix": matrices.mean(axis=0).tolist(),
        "curve": [record.curve for record in records],
        "seconds": learning + sum(record.testing for record in records),
        "items_per_second": sum(items) / learning,
        "memory_bytes": max(record.memory_bytes for record in records),
    }


def _pick(settings: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: settings[name] for name in names if name in settings}


def _plain(config: Config) -> dict[str, Any]:
    """The configuration as JSON gives it back."""
    out = asdict(config)
    out["class_order"] = None if config.class_order is None else list(config.class_order)
    out["settings"] = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in config.settings.items()
    }
    return out


def _peek(checkpoint: Path) -> dict[str, Any]:
    extra: dict[str, Any] = read_checkpoint(checkpoint)[1]["extra"]
    return extra


def _other(checkpoint: Path, there: dict[str, Any], config: Config, seeds: tuple[int, ...]) -> str:
    here = {**_plain(config), "seeds": list(seeds)}
    old = {**there["config"], "seeds": there["seeds"]}
    differ = [
        f"{k} is {old.get(k)!r} there, {here[k]!r} here" for k in here if here[k] != old.get(k)
    ]
    return (
        f"checkpoint {checkpoint} belongs to another configuration: {'; '.join(differ)}; "
        "use the same options, or another checkpoint"
    )

"""One run of `experiments.action`: windows, a stream, a learner, and how well it does."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from evergraph.apps.action.network import network, signals
from evergraph.apps.action.recording import Recordings
from evergraph.apps.action.splits import split_in_time
from evergraph.apps.action.windows import Scenario, Windows, cut, join, schedule
from evergraph.checks import check_one_of
from evergraph.evaluate.run import run
from evergraph.extras import require
from evergraph.learn.learner import Learner, Method, Predictor
from evergraph.learn.memory import Reservoir
from evergraph.learn.methods import Analytic, Finetune, Replay
from evergraph.learn.training import Training
from evergraph.nn.fgn import FGN
from evergraph.stream.batch import Batch, concatenate
from evergraph.stream.continuum import Continuum

CLASSICAL = ("trees", "ridge")


@dataclass(frozen=True)
class Config:
    """What to run: a network, or `trees` and `ridge`, which see statistics of windows.

    `split` is the paper's, in time, or by the subjects `left_out`; `validation` takes the test
    windows of the split in time from the training part. Length and strides are in samples, see
    `cut`; `epochs` is for regular learning, which is `finetune` on shuffled windows, and
    `strength` for the ridge. The average of the parameters follows every gradient step.
    """

    model: str = "fgn"
    split: Literal["time", "subjects"] = "time"
    left_out: tuple[str, ...] = ()
    scenario: Scenario = "regular"
    method: str = "finetune"
    memory: int = 5000
    length: int = 50
    stride: int = 200
    test_stride: int = 100
    batch_size: int = 50
    epochs: int = 2
    replay_batches: int = 1
    replay_batch_size: int = 50
    lr: float = 2e-3
    averaging: float = 0.95
    augment: bool = False
    strength: float = 1e-4
    validation: bool = False


def divide(config: Config, data: Recordings) -> tuple[Recordings, Recordings]:
    """The recordings to train and to test on."""
    if config.split == "subjects":
        if not config.left_out:
            raise ValueError("a split by subjects needs left_out, the subjects to test on")
        return data.without(config.left_out), data.of(config.left_out)
    train, test = split_in_time(data)
    return split_in_time(train, share=0.875) if config.validation else (train, test)


class Prepared(NamedTuple):
    """Training recordings and windows, those followed by the test windows, and whose these are."""

    data: Recordings
    train: Windows
    windows: Windows
    subjects: tuple[str, ...]


def prepare(config: Config, data: Recordings) -> Prepared:
    """Split the recordings and cut their windows."""
    early, late = divide(config, data)
    train, test = (
        cut(part.recordings, data.activities, config.length, stride)
        for part, stride in ((early, config.stride), (late, config.test_stride))
    )
    subjects = tuple(late.recordings[n].subject for n in test.source.tolist())
    return Prepared(early, train, join(train, test), subjects)


def build(
    config: Config, data: Recordings, ready: Prepared, seed: int
) -> tuple[Continuum, Learner]:
    """The stream and the learner of a seed; the scale of signals is that of training windows."""
    train, windows = ready.train, ready.windows
    order = schedule(config.scenario, train, ready.data, config.batch_size, config.epochs, seed)
    test = torch.arange(len(train), len(windows))
    groups: list[Tensor] = [test]
    names: tuple[str, ...] = ("all",)
    if config.scenario == "class":
        names = order.names
        labels = [data.activities.index(name) for name in names]
        groups = [test[windows.target[test] == label] for label in labels]
    elif config.split == "subjects":
        pairs = [config.left_out[i : i + 2] for i in range(0, len(config.left_out), 2)]
        mine = [[subject in pair for subject in ready.subjects] for pair in pairs]
        groups, names = [test[torch.tensor(m)] for m in mine], tuple(map(" ".join, pairs))
    if config.model in CLASSICAL:
        windows = replace(windows, x=statistics_items(windows.x, len(train)))
        method: Method = Trees(seed=seed)
        if config.model == "ridge":
            method = Analytic(strength=config.strength, blocks=("x",))
        empty = FGN(windows.x.shape[-1], layer="transform", channels=(), message="none")
        learner = Learner(empty, method, seed=seed, outliers="pass")
    else:
        learner = network_learner(config, data, train, seed)
    return Continuum(windows, order, test, groups, names), learner


def network_learner(config: Config, data: Recordings, train: Windows, seed: int) -> Learner:
    """A network with its method, memory and training."""
    check_one_of("method", config.method, ("finetune", "replay"))
    model: Any = network(config.model, data.layout, config.length // 2, seed, config.augment)
    model.encoder.update(train.x)
    training = Training(
        optimizer="adam", lr=config.lr, steps=1, replay_batches=config.replay_batches,
        replay_batch_size=config.replay_batch_size, averaging=config.averaging, average_steps=True,
    )  # fmt: skip
    memory = Reservoir(config.memory, seed=seed) if config.method == "replay" else None
    method = Finetune() if memory is None else Replay()
    return Learner(model, method, memory, training, seed, outliers="pass")


def window_statistics(x: Tensor) -> Tensor:
    """Six statistics of every signal of windows `(B, 2 S, C, F)`: `(B, 6 S C)`.

    Example:
        >>> window_statistics(torch.rand(3, 10, 9, 25)).shape
        torch.Size([3, 270])
    """
    y = signals(x)
    change = y.diff(dim=-1).abs()
    of_values = (y.mean(-1), y.std(-1, correction=0), y.amin(-1), y.amax(-1))
    return torch.cat([*of_values, change.mean(-1), change.amax(-1)], dim=1)


def statistics_items(x: Tensor, train: int) -> Tensor:
    """Statistics of windows, scaled by those of the first `train`, as items `(B, 1, D + 1)`.

    The analytic method brings items to unit length; next to a large constant this leaves their
    size as it is, and the constant is what a regression needs for its offset.
    """
    found = window_statistics(x)
    mean, deviation = found[:train].mean(0), found[:train].std(0, correction=0)
    scaled = ((found - mean) / deviation.masked_fill(deviation < 1e-6, 1.0)).clamp(-10, 10)
    constant = scaled.new_full((len(scaled), 1), 10 * math.sqrt(scaled.shape[1]))
    return torch.cat([scaled, constant], dim=1).unsqueeze(1)


@dataclass
class Trees(Method):
    """ExtraTrees on all items so far, fitted anew when a prediction is asked for."""

    lazy: ClassVar[bool] = True
    labels_only: ClassVar[bool] = True
    seed: int = 0
    items: list[Batch] = field(default_factory=list, repr=False)
    forest: Any = field(default=None, repr=False)

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Keep the batch."""
        self.items.append(batch)
        self.forest = None

    @property
    def ready(self) -> bool:
        """Whether the trees know all items."""
        return self.forest is not None

    def prepare(self, learner: Learner) -> None:
        """Fit the trees, in an order that does not depend on the stream."""
        every = concatenate(self.items)
        every = every.select(every.node.argsort())
        trees = require("sklearn.ensemble", "action").ExtraTreesClassifier
        forest = trees(n_estimators=200, random_state=self.seed)
        self.forest = forest.fit(_flat(every), every.target.numpy())

    def predictor(self, learner: Learner) -> Predictor:
        """The share of trees for each class."""
        forest = self.forest
        columns = [forest.classes_.tolist().index(label) for label in learner.classes]
        return lambda batch: torch.from_numpy(forest.predict_proba(_flat(batch))[:, columns])


def _flat(batch: Batch) -> Any:
    assert isinstance(batch.x, Tensor)
    return batch.x.flatten(1).numpy()


def compute(
    config: Config,
    data: Recordings,
    seed: int = 0,
    report: Callable[[int, int], None] = lambda seen, total: None,
    ready: Prepared | None = None,
) -> dict[str, Any]:
    """One run: what `run` returns, the confusion matrix, and the CPU time of a prediction."""
    ready = ready or prepare(config, data)
    total = len(ready.train) * (config.epochs if config.scenario == "regular" else 1)
    made: list[tuple[Continuum, Learner]] = []

    def make(number: int) -> tuple[Continuum, Learner]:
        made.append(build(config, data, ready, number))
        return made[0]

    result = run(make, [seed], asdict(config), report=lambda _, seen, last: report(seen, total))
    stream, learner = made[0]
    confusion = np.zeros((len(data.activities), len(data.activities)), dtype=int)
    seconds = 0.0
    for batch in stream.test():
        start = time.process_time()
        found = learner.predict(batch)
        seconds += time.process_time() - start
        np.add.at(confusion, (batch.target.numpy(), found.numpy()), 1)
    milliseconds = seconds * 1e3 / int(confusion.sum())
    return {**result, "confusion": confusion.tolist(), "ms_per_window": milliseconds}

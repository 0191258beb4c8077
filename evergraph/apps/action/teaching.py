"""How the models of a recognizer are built, and how windows are taught to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from evergraph.apps.action.network import network
from evergraph.apps.action.recording import Layout, Recording
from evergraph.apps.action.rich import CLOSED, Settings, rich_network, turned
from evergraph.apps.action.windows import Windows, cut
from evergraph.learn.learner import Learner
from evergraph.learn.memory import Reservoir
from evergraph.learn.methods import Analytic, Finetune, Replay
from evergraph.learn.training import Training
from evergraph.stream.schedule import Schedule, shuffled

CLOSED_BATCH = 1000  # windows that the closed form learns together
AND = "+"  # between the names of models whose probabilities are averaged

Report = Callable[[int, int], None]
Converged = Callable[[int], bool]


@dataclass(frozen=True)
class RecognizerConfig:
    """How a recognizer is built and trained; see also `evergraph.learn.training.Training`."""

    model: str = "fgn"  # a name of `network.NETWORKS` or `rich.CLOSED`, or two with a + between
    length: int = 50  # of windows, in samples
    stride: int = 25
    across: bool = False  # windows reach across changes of activity, and show what fills most
    memory: int = 5000  # windows that are kept to continue learning
    memory_bytes: int | None = None  # that they may take
    batch_size: int = 50  # windows that are learned together
    epochs: int = 2  # passes over the recordings in training
    learn_batches: int = 60  # in how many a new recording is learned, at the least
    replay_batches: int = 2  # from memory for each new one
    lr: float = 2e-3
    averaging: float = 0.95
    augment: bool = False  # change training windows a little: helps with people not seen before
    settings: Settings = field(default_factory=Settings)  # of the closed form
    seed: int = 0

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the models whose probabilities are averaged."""
        return tuple(self.model.split(AND))


def windows_of(
    recordings: Sequence[Recording],
    activities: Sequence[str],
    layout: Layout,
    config: RecognizerConfig,
) -> Windows:
    """The windows of recordings as the settings of a recognizer have them."""
    rate = layout.rate if config.across else None
    return cut(recordings, activities, config.length, config.stride, rate)


def built(name: str, layout: Layout, config: RecognizerConfig) -> Learner:
    """A learner of one of the models, which knows nothing yet."""
    features, settings = config.length // 2, config.settings.of(name)
    closed = name in CLOSED
    return Learner(
        rich_network(layout, features, settings)
        if closed
        else network(name, layout, features, config.seed, config.augment),
        closed_form(settings) if closed else Replay(),
        Reservoir(config.memory, config.memory_bytes, seed=config.seed),
        Training(
            optimizer="adam",
            lr=config.lr,
            steps=1,
            replay_batches=config.replay_batches,
            replay_batch_size=config.batch_size,
            averaging=config.averaging,
        ),
        config.seed,
        outliers="pass",  # the gate sees samples, before windows are cut
    )


def closed_form(settings: Settings) -> Analytic:
    """The method of a closed form with these settings."""
    between = 1.0 if settings.persons else settings.between
    return Analytic(
        "lda", settings.strength, blocks=("x",), between=between, by_task=settings.persons
    )


def is_closed(learner: Learner) -> bool:
    """Whether it is a closed form, which needs no passes and does not depend on the order."""
    return isinstance(learner.method, Analytic)


@dataclass(frozen=True)
class Teaching:
    """Windows to be learned, and for how long.

    Attributes:
        windows: of recordings.
        person: `(N,)`, whose they are, as tasks of the items.
        layout: sensors and channels.
        config: batches, passes and turned copies.
        epochs: passes of a network; by default as many as `learn_batches` takes.
        rescale: whether the scale of the signals follows these windows.
    """

    windows: Windows
    person: Tensor
    layout: Layout
    config: RecognizerConfig
    epochs: int | None = None
    rescale: bool = False

    def __call__(self, learner: Learner, report: Report, converged: Converged) -> None:
        """Teach a learner; `converged` is asked after each pass of a network."""
        if self.rescale or not learner.classes:
            learner.model.encoder.update(self.windows.x)
        if is_closed(learner):
            self._sum_up(learner, report)
        else:
            self._train(learner, report, converged)

    def _sum_up(self, learner: Learner, report: Report) -> None:
        """One pass, with turned copies; memory is what later lessons are tested on."""
        angle, memory = self.config.settings.turn, learner.memory
        assert memory is not None
        order = self._order(CLOSED_BATCH, 1)
        for done, index in enumerate(order.batches, 1):
            batch = replace(self.windows.batch(index), task=self.person[index])
            learner.observe(batch)
            if angle:
                copies = turned(self.windows.x[index], self.layout, angle)
                learner.observe(replace(batch, x=copies))
            memory.add(batch)
            report(done, len(order))

    def _train(self, learner: Learner, report: Report, converged: Converged) -> None:
        """Passes of gradient steps, memory replayed in each; it takes every window once."""
        size = self.config.batch_size
        each = -(-len(self.windows) // size)
        order = self._order(size, self.epochs or -(-self.config.learn_batches // each))
        again = Replay(store=False) if learner.classes else Finetune()
        first = learner.method
        for done, (index, number) in enumerate(zip(order.batches, order.tasks, strict=True), 1):
            learner.method = again if number else first
            learner.observe(replace(self.windows.batch(index), task=self.person[index]))
            report(done, len(order))
            if done % each == 0 and converged(done // each):
                break
        learner.method = first

    def _order(self, size: int, passes: int) -> Schedule:
        rng, every = np.random.default_rng(self.config.seed), torch.arange(len(self.windows))
        return Schedule.from_groups({str(i): shuffled(every, rng) for i in range(passes)}, size)

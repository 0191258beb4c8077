"""A trained recognizer in a folder: it predicts, and learns more without the old data."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.apps.action.network import network
from evergraph.apps.action.novelty import Calibration, distance, summary
from evergraph.apps.action.outliers import ChannelGate
from evergraph.apps.action.recording import Layout, Recording
from evergraph.apps.action.rich import CLOSED, Settings, rich_network, turned
from evergraph.apps.action.score import ALLOWED_LOSS, Lesson, Score, require_kept
from evergraph.apps.action.windows import Windows, as_batch, check_windows, cut
from evergraph.learn.checkpoint import CheckpointError, previous, read_generation
from evergraph.learn.gate import Outliers
from evergraph.learn.learner import Learner
from evergraph.learn.memory import Reservoir
from evergraph.learn.methods import Analytic, Finetune, Replay
from evergraph.learn.training import Training
from evergraph.stream.batch import Batch, concatenate
from evergraph.stream.schedule import Schedule, shuffled

FILE = "recognizer.safetensors"
CHUNK = 100
CLOSED_BATCH = 1000  # windows that the closed form learns together

FORGED = ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError
"""What comes out of a model folder whose content is not what `save` writes."""


@dataclass(frozen=True)
class RecognizerConfig:
    """How a recognizer is built and trained; see also `evergraph.learn.training.Training`."""

    model: str = "fgn"  # a name of `network.NETWORKS` or `rich.CLOSED`
    length: int = 50  # of windows, in samples
    stride: int = 25
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


class Recognizer:
    """Learns activities from recordings and recognizes them; `activities` are known so far.

    A window's task is the number of its person in `people`, which a closed form reads.
    `notes` say why the newest generation of a model folder could not be read, see `load`.

    Example:
        >>> from evergraph.apps.action.recording import generate
        >>> data = generate()
        >>> recognizer = Recognizer(data.layout, config=RecognizerConfig(model="mlp"))
        >>> recognizer.learn(data.recordings, epochs=2).skipped
        0
        >>> recognizer.evaluate(data.recordings).accuracy > 0.9
        True
    """

    notes: tuple[str, ...] = ()

    def __init__(
        self,
        layout: Layout,
        activities: Sequence[str] = (),
        config: RecognizerConfig = RecognizerConfig(),  # noqa: B008
    ) -> None:
        check_windows(config.length, config.stride)
        self.layout, self.config = layout, config
        self.activities = list(activities)
        features = config.length // 2
        settings = config.settings.of(config.model)
        self.people: list[str] = []
        self.learner = Learner(
            rich_network(layout, features, settings)
            if self.closed
            else network(config.model, layout, features, config.seed, config.augment),
            Analytic("lda", settings.strength, blocks=("x",), between=settings.between)
            if self.closed
            else Replay(),
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
        self.gate = ChannelGate()
        self.calibration = Calibration()
        self._known: tuple[int, Tensor] | None = None  # summaries of memory, and when

    @property
    def closed(self) -> bool:
        """Whether it is a closed form, which needs no passes and does not depend on the order."""
        return self.config.model in CLOSED

    def learn(
        self,
        recordings: Sequence[Recording],
        epochs: int | None = None,
        rescale: bool = False,
        report: Callable[[int, int], None] = lambda done, total: None,
        allowed_loss: float | None = ALLOWED_LOSS,
        outliers: Outliers = "clip",
        converged: Callable[[int], bool] = lambda passes: False,
    ) -> Lesson:
        """Learn recordings, new activities included, all or nothing.

        Old windows come from memory. The scale of the signals is set by the first recordings; it
        follows later ones with `rescale`. `epochs` are passes over the recordings, memory is
        replayed in each; by default as many as it takes to learn `learn_batches` batches. `report`
        is called with the batches learned and all batches.

        A lesson that costs the old activities too much is undone with a `LostError`: if their mean
        recall on the windows in memory falls by more than `allowed_loss`, or that of one by more
        than `ALLOWED_LOSS_OF_ONE`. None allows anything. `outliers`, see `Gate`, are `clip`ped to
        what a sensor channel measured before, `refuse`d, or they `pass`. `converged` is asked after
        each pass, with their number, whether there are enough.
        """
        for recording in recordings:
            if not recording.activity:
                raise ValueError(f"{recording.name} needs an activity to learn from, got none")
        names = list(dict.fromkeys(recording.activity for recording in recordings))
        activities = self.activities + [name for name in names if name not in self.activities]
        self.layout.check(recordings)
        items = [] if self.learner.memory is None else self.learner.memory.items
        old = concatenate(items) if items else None
        kept = copy.deepcopy((self.learner, self.gate)), self.activities, self.people
        try:
            recordings, clipped = self.gate(recordings, self.layout, outliers)
            windows = self._cut(recordings, activities)
            before = None if old is None else self._score(old)
            self.activities = activities
            self.people = list(dict.fromkeys([*self.people, *(r.subject for r in recordings)]))
            owner = torch.tensor([self.people.index(one.subject) for one in recordings])
            person = owner[windows.source]
            self._learn(windows, person, epochs, rescale, report, converged)
            after = None if old is None else self._score(old)
            if before is not None and after is not None and allowed_loss is not None:
                require_kept(before, after, allowed_loss)
        except BaseException:
            (self.learner, self.gate), self.activities, self.people = kept
            raise
        return Lesson(windows.skipped, clipped, before, after)

    def _learn(
        self,
        windows: Windows,
        person: Tensor,
        epochs: int | None,
        rescale: bool,
        report: Callable[[int, int], None],
        converged: Callable[[int], bool],
    ) -> None:
        if rescale or not self.learner.classes:
            self.learner.model.encoder.update(windows.x)
        rng = np.random.default_rng(self.config.seed)
        size = CLOSED_BATCH if self.closed else self.config.batch_size
        passes = epochs or -(-self.config.learn_batches // -(-len(windows) // size))
        passes = 1 if self.closed else passes
        every = torch.arange(len(windows))
        order = Schedule.from_groups({str(i): shuffled(every, rng) for i in range(passes)}, size)
        again = Replay(store=False) if self.learner.classes else Finetune()
        first = self.learner.method
        each = -(-len(windows) // size)
        for done, (index, number) in enumerate(zip(order.batches, order.tasks, strict=True), 1):
            if not self.closed:  # memory takes every window once
                self.learner.method = again if number else first
            batch = replace(windows.batch(index), task=person[index])
            self.learner.observe(batch)
            if self.closed:
                self._observe_turned(batch)
                if self.learner.memory is not None:  # what later lessons are tested on
                    self.learner.memory.add(batch)
            report(done, len(order))
            if done % each == 0 and converged(done // each):
                break
        self.learner.method = first

    def _observe_turned(self, batch: Batch) -> None:
        angle = self.config.settings.turn
        if angle:
            assert isinstance(batch.x, Tensor)
            self.learner.observe(replace(batch, x=turned(batch.x, self.layout, angle)))

    def probabilities(self, x: Tensor) -> Tensor:
        """For windows as measured, `(B, 2 S, C, F)`: the share of each activity, `(B, K)`."""
        columns = (self._output(x) / self.calibration.temperature).softmax(-1)
        out = columns.new_zeros(len(x), len(self.activities))
        out[:, torch.tensor(self.learner.classes)] = columns
        return out

    def _output(self, x: Tensor) -> Tensor:
        """What activities are decided on, in the order of the learner's classes."""
        return torch.cat([self.learner.output(as_batch(part)).float() for part in x.split(CHUNK)])

    def novelty(self, x: Tensor) -> Tensor:
        """The share of held-back windows that are more like those in memory, `(B,)`."""
        if not self.calibration.usual:
            return torch.zeros(len(x))
        return self.calibration.novelty(self._distance(x))

    def _distance(self, x: Tensor) -> Tensor:
        encoder, position = self.learner.model.encoder, self.learner.position
        units = encoder.mean, encoder.deviation
        if self._known is None or self._known[0] != position:
            items = [] if self.learner.memory is None else self.learner.memory.items
            windows = concatenate(items).x if items else x
            assert isinstance(windows, Tensor)
            self._known = position, summary(windows, *units)
        return distance(summary(x, *units), self._known[1])

    def calibrated(self, recordings: Sequence[Recording]) -> Calibration:
        """What recordings that were not learned say about its outputs."""
        windows = self._cut(recordings, self.activities)
        place = {label: column for column, label in enumerate(self.learner.classes)}
        target = torch.tensor([place[label] for label in windows.target.tolist()])
        return Calibration.of(self._output(windows.x), target, self._distance(windows.x))

    def evaluate(self, recordings: Sequence[Recording]) -> Score:
        """Recognize recordings whose activities are known."""
        unknown = sorted({r.activity for r in recordings} - set(self.activities))
        if unknown:
            shown = ", ".join(repr(name) for name in unknown)
            raise ValueError(
                f"activities must be known to the model ({', '.join(self.activities)}), got "
                f"{shown}; teach them first with `evergraph action learn`"
            )
        windows = self._cut(recordings, self.activities)
        return self._score(as_batch(windows.x, windows.target))

    def _score(self, batch: Batch) -> Score:
        assert isinstance(batch.x, Tensor)
        found = self.probabilities(batch.x).argmax(-1)
        return Score.of(batch.target.numpy(), found.numpy(), self.activities)

    def _cut(self, recordings: Sequence[Recording], activities: Sequence[str]) -> Windows:
        self.layout.check(recordings)
        return cut(recordings, activities, self.config.length, self.config.stride)

    def save(self, folder: Path) -> None:
        """Write everything to a folder, all or nothing; the generation before is kept beside it.

        A damaged newest generation gives its place to the one before, and is not kept itself.
        """
        path = folder / FILE
        if previous(path).is_file():
            try:
                read_generation(path)
            except CheckpointError:
                previous(path).replace(path)
        about: dict[str, Any] = {"layout": asdict(self.layout), "config": asdict(self.config)}
        about |= {"activities": self.activities, "people": self.people}
        about |= {"gate": self.gate.state()}
        about |= {"calibration": self.calibration.state()}
        self.learner.save(path, about)

    @classmethod
    def load(cls, folder: Path) -> Recognizer:
        """Read what `save` wrote: the newest generation, or the one before if that is damaged."""
        path = model_file(folder)
        try:
            return cls._read(path)
        except CheckpointError as error:
            damage = error
        try:
            found = cls._read(previous(path))
        except CheckpointError as error:
            raise ValueError(
                f"{folder} is not whole and was left as it is: restore it from a copy, or train "
                f"again ({damage})"
            ) from error
        found.notes = (f"The generation before the newest is used, because {damage}.",)
        return found

    @classmethod
    def _read(cls, path: Path) -> Recognizer:
        try:
            extra = read_generation(path)[1]["extra"]
            layout, config = extra["layout"], extra["config"]
            settings = Settings(**config.get("settings", {}))
            found = cls(
                Layout(tuple(layout["sensors"]), tuple(layout["channels"]), layout["rate"]),
                extra["activities"],
                RecognizerConfig(**{**config, "settings": settings}),
            )
            found.people = list(extra.get("people", ()))
            found.learner.load(path)
            found.gate.load_state(extra["gate"])
            calibration = extra.get("calibration", {})  # of files from before there was one
            usual = tuple(map(float, calibration.get("usual", ())))
            found.calibration = Calibration(float(calibration.get("temperature", 1.0)), usual)
        except CheckpointError:
            raise
        except FORGED as error:
            raise ValueError(f"{path} is not a recognizer of this program: {error}") from error
        return found


def model_file(folder: Path) -> Path:
    """The file of a model folder, which must be there, or the generation before it."""
    path = folder / FILE
    if not path.is_file() and not previous(path).is_file():
        raise ValueError(
            f"{folder} must be a model folder with {FILE}; make one with `evergraph action train`"
        )
    return path

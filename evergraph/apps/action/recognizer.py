"""A trained recognizer in a folder: it predicts, and learns more without the old data."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from evergraph.apps.action.novelty import Calibration, distance, summary, temperature
from evergraph.apps.action.outliers import ChannelGate
from evergraph.apps.action.recording import Layout, Recording
from evergraph.apps.action.rich import Settings
from evergraph.apps.action.score import ALLOWED_LOSS, Lesson, Score, require_kept
from evergraph.apps.action.teaching import (
    RecognizerConfig,
    Report,
    Teaching,
    built,
    is_closed,
    windows_of,
)
from evergraph.apps.action.windows import Windows, as_batch, check_windows
from evergraph.learn.checkpoint import CheckpointError, previous, read_generation
from evergraph.learn.gate import Outliers
from evergraph.learn.learner import Learner
from evergraph.stream.batch import Batch, concatenate

FILE = "recognizer.safetensors"
CHUNK = 100

FORGED = ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError
"""What comes out of a model folder whose content is not what `save` writes."""


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
        self.people: list[str] = []
        self.members = [built(name, layout, config) for name in config.models]
        self.gate = ChannelGate()
        self.calibration = Calibration()
        self._known: tuple[int, Tensor] | None = None  # summaries of memory, and when

    @property
    def learner(self) -> Learner:
        """The first of the models whose probabilities are averaged."""
        return self.members[0]

    @property
    def closed(self) -> bool:
        """Whether all of it is a closed form, which needs no passes."""
        return all(map(is_closed, self.members))

    def learn(
        self,
        recordings: Sequence[Recording],
        epochs: int | None = None,
        rescale: bool = False,
        report: Report = lambda done, total: None,
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
        kept = copy.deepcopy((self.members, self.gate)), self.activities, self.people
        try:
            recordings, clipped = self.gate(recordings, self.layout, outliers)
            windows = self._cut(recordings, activities)
            before = None if old is None else self._score(old)
            self.activities = activities
            self.people = list(dict.fromkeys([*self.people, *(r.subject for r in recordings)]))
            owner = torch.tensor([self.people.index(one.subject) for one in recordings])
            person = owner[windows.source]
            teach = Teaching(windows, person, self.layout, self.config, epochs, rescale)
            for member in self.members:
                teach(member, report, converged)
            after = None if old is None else self._score(old)
            if before is not None and after is not None and allowed_loss is not None:
                require_kept(before, after, allowed_loss)
        except BaseException:
            (self.members, self.gate), self.activities, self.people = kept
            raise
        return Lesson(windows.skipped, clipped, before, after)

    def probabilities(self, x: Tensor) -> Tensor:
        """For windows as measured, `(B, 2 S, C, F)`: the share of each activity, `(B, K)`.

        It is the mean of what the models say.
        """
        out = torch.zeros(len(x), len(self.activities))
        sharp = self.calibration.temperatures or (1.0,) * len(self.members)
        for member, by in zip(self.members, sharp, strict=True):
            shares = (_output(member, x) / by).softmax(-1) / len(self.members)
            out[:, torch.tensor(member.classes)] += shares
        return out

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
        found = []
        for member in self.members:
            target = torch.tensor([member.classes.index(k) for k in windows.target.tolist()])
            found.append(temperature(_output(member, windows.x), target))
        return Calibration.of(found, self._distance(windows.x))

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
        return windows_of(recordings, activities, self.layout, self.config)

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
        if len(self.members) > 1:
            about |= {"mark": self.learner.digest()}
        for number, member in enumerate(self.members[1:], 2):
            _keep_matching(_beside(path, number), _mark(path))
            member.save(_beside(path, number), {"mark": about["mark"]})
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
            for number, member in enumerate(found.members[1:], 2):
                member.load(_matching(_beside(path, number), extra["mark"]))
            found.gate.load_state(extra["gate"])
            calibration = extra["calibration"]
            found.calibration = Calibration(
                *(tuple(map(float, calibration[name])) for name in ("temperatures", "usual"))
            )
        except CheckpointError:
            raise
        except FORGED as error:
            raise ValueError(f"{path} is not a recognizer of this program: {error}") from error
        return found


def _output(member: Learner, x: Tensor) -> Tensor:
    """What activities are decided on, in the order of the learner's classes."""
    return torch.cat([member.output(as_batch(part)).float() for part in x.split(CHUNK)])


def _beside(path: Path, number: int) -> Path:
    """The file of a further model, which goes with either generation of the first."""
    return path.with_name(f"recognizer-{number}.safetensors")


def _mark(path: Path) -> str | None:
    """What the files of one generation have in common; None if there is none or it is damaged."""
    with suppress(CheckpointError):
        mark: str | None = read_generation(path)[1]["extra"].get("mark")
        return mark
    return None


def _matching(path: Path, mark: str) -> Path:
    """The generation of a further model that was saved with the first."""
    found = next((one for one in (path, previous(path)) if _mark(one) == mark), None)
    if found is None:
        raise CheckpointError(f"{path} is damaged, or not of the generation of {FILE}")
    return found


def _keep_matching(path: Path, mark: str | None) -> None:
    """Drop what was saved without the first model, so that a second kill does no harm either."""
    if mark is not None and _mark(path) != mark and _mark(previous(path)) == mark:
        previous(path).replace(path)


def model_file(folder: Path) -> Path:
    """The file of a model folder, which must be there, or the generation before it."""
    path = folder / FILE
    if not path.is_file() and not previous(path).is_file():
        raise ValueError(
            f"{folder} must be a model folder with {FILE}; make one with `evergraph action train`"
        )
    return path

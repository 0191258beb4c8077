"""A trained recognizer in a folder: it predicts, and learns more without the old data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from evergraph.apps.action.network import network
from evergraph.apps.action.recording import Layout, Recording, Recordings
from evergraph.apps.action.windows import Windows, as_batch, check_windows, cut
from evergraph.learn.checkpoint import CheckpointError, read_checkpoint
from evergraph.learn.learner import Learner
from evergraph.learn.memory import Reservoir
from evergraph.learn.methods import Finetune, Replay
from evergraph.learn.training import Training
from evergraph.stream.schedule import Schedule, shuffled

FILE = "recognizer.safetensors"
CHUNK = 100

FORGED = ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError
"""What comes out of a model folder whose content is not what `save` writes."""


@dataclass(frozen=True)
class RecognizerConfig:
    """How a recognizer is built and trained; see also `evergraph.learn.training.Training`."""

    model: str = "fgn"  # a name of `network.NETWORKS`
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
    seed: int = 0


@dataclass(frozen=True)
class Score:
    """How well windows are recognized; `confusion` counts true by predicted activities."""

    accuracy: float
    recall: dict[str, float]
    precision: dict[str, float]
    confusion: list[list[int]]
    activities: tuple[str, ...]
    windows: int


class Recognizer:
    """Learns activities from recordings and recognizes them; `activities` are known so far.

    Example:
        >>> from evergraph.apps.action.recording import generate
        >>> data = generate()
        >>> recognizer = Recognizer(data.layout, config=RecognizerConfig(model="mlp"))
        >>> too_short = recognizer.learn(data.recordings, epochs=2)
        >>> recognizer.evaluate(data.recordings).accuracy > 0.9
        True
    """

    def __init__(
        self,
        layout: Layout,
        activities: Sequence[str] = (),
        config: RecognizerConfig = RecognizerConfig(),  # noqa: B008
    ) -> None:
        check_windows(config.length, config.stride)
        self.layout, self.config = layout, config
        self.activities = list(activities)
        self.learner = Learner(
            network(config.model, layout, config.length // 2, config.seed, config.augment),
            Replay(),
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
        )

    def learn(
        self,
        recordings: Sequence[Recording],
        epochs: int | None = None,
        rescale: bool = False,
        report: Callable[[int, int], None] = lambda done, total: None,
    ) -> int:
        """Learn recordings, new activities included; returns how many were too short.

        Old windows come from memory. The scale of the signals is set by the first recordings; it
        follows later ones with `rescale`. `epochs` are passes over the recordings, memory is
        replayed in each; by default as many as it takes to learn `learn_batches` batches. `report`
        is called with the batches learned and all batches.
        """
        for recording in recordings:
            if not recording.activity:
                raise ValueError(f"{recording.name} needs an activity to learn from, got none")
        names = list(dict.fromkeys(recording.activity for recording in recordings))
        activities = self.activities + [name for name in names if name not in self.activities]
        windows = self._cut(recordings, activities)
        if rescale or not self.learner.classes:
            self.learner.model.encoder.update(windows.x)
        self.activities = activities
        rng, size = np.random.default_rng(self.config.seed), self.config.batch_size
        passes = epochs or -(-self.config.learn_batches // -(-len(windows) // size))
        every = torch.arange(len(windows))
        order = Schedule.from_groups({str(i): shuffled(every, rng) for i in range(passes)}, size)
        again = Replay(store=False) if self.learner.classes else Finetune()
        first = self.learner.method
        try:
            for done, (index, number) in enumerate(zip(order.batches, order.tasks, strict=True)):
                self.learner.method = again if number else first  # memory takes every window once
                self.learner.observe(windows.batch(index))
                report(done + 1, len(order))
        finally:
            self.learner.method = first
        return windows.skipped

    def probabilities(self, x: Tensor) -> Tensor:
        """For windows as measured, `(B, 2 S, C, F)`: the share of each activity, `(B, K)`."""
        parts = [self.learner.output(as_batch(part)).softmax(-1) for part in x.split(CHUNK)]
        columns = torch.cat(parts)
        out = columns.new_zeros(len(x), len(self.activities))
        out[:, torch.tensor(self.learner.classes)] = columns
        return out

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
        found = self.probabilities(windows.x).argmax(-1)
        size = len(self.activities)
        confusion = np.zeros((size, size), dtype=int)
        np.add.at(confusion, (windows.target.numpy(), found.numpy()), 1)
        right, true, told = np.diagonal(confusion), confusion.sum(1), confusion.sum(0)
        there = {name: i for i, name in enumerate(self.activities) if true[i]}
        return Score(
            float(right.sum() / confusion.sum()),
            {name: float(right[i] / true[i]) for name, i in there.items()},
            {name: float(right[i] / max(told[i], 1)) for name, i in there.items()},
            confusion.tolist(),
            tuple(self.activities),
            len(windows),
        )

    def _cut(self, recordings: Sequence[Recording], activities: Sequence[str]) -> Windows:
        self.layout.check(recordings)
        return cut(recordings, activities, self.config.length, self.config.stride)

    def save(self, folder: Path) -> None:
        """Write everything to a folder, all or nothing."""
        about = {"layout": asdict(self.layout), "config": asdict(self.config)}
        self.learner.save(folder / FILE, {**about, "activities": self.activities})

    @classmethod
    def load(cls, folder: Path) -> Recognizer:
        """Read what `save` wrote; refuses a folder that is not whole."""
        path = folder / FILE
        if not path.is_file():
            raise ValueError(
                f"{folder} must be a model folder with {FILE}; make one with "
                "`evergraph action train`"
            )
        try:
            _, values = read_checkpoint(path)
            extra = values["extra"]
            layout = extra["layout"]
            found = cls(
                Layout(tuple(layout["sensors"]), tuple(layout["channels"]), layout["rate"]),
                extra["activities"],
                RecognizerConfig(**extra["config"]),
            )
            found.learner.load(path)
        except CheckpointError as error:
            raise ValueError(
                f"{folder} is not whole and was left as it is: restore it from a copy, or train "
                f"again ({error})"
            ) from error
        except FORGED as error:
            raise ValueError(f"{path} is not a recognizer of this program: {error}") from error
        return found


def same_layout(data: Recordings, layout: Layout) -> Recordings:
    """Recordings in the layout of a model: the same signals at the same rate, or an error."""
    order = layout.order(data.layout.columns, data.name)
    if data.layout.rate != layout.rate:
        raise ValueError(
            f"{data.name} has {data.layout.rate:g} samples per second, the model {layout.rate:g}; "
            f"read it with --rate {layout.rate:g}"
        )
    moved = tuple(
        replace(r, samples=r.samples.reshape(len(r), -1)[:, order].reshape(-1, *layout.shape))
        for r in data.recordings
    )
    return replace(data, layout=layout, recordings=moved)

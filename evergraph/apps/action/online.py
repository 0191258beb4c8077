"""Predictions while samples come: bounded memory, bounded delay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch

from evergraph.apps.action.folder import columns_for
from evergraph.apps.action.recognizer import Recognizer
from evergraph.apps.action.recording import Array
from evergraph.apps.action.resample import Piece, Resampler, check_rate
from evergraph.apps.action.rows import Block, Rows
from evergraph.apps.action.windows import nodes

BLOCK = 0.4  # seconds of samples that are worked on together
WARM_UP = 25  # rows after which the rate is judged


@dataclass(frozen=True)
class Prediction:
    """What is going on in a window.

    Attributes:
        time: of the first sample of the window, seconds.
        activity: the most likely one.
        probability: its share.
        missing: sensors that had dropped out; they are taken at their usual mean.
    """

    time: float
    activity: str
    probability: float
    missing: tuple[str, ...] = ()


@dataclass
class Follower:
    """Turns samples into predictions, window by window, and keeps one window of samples.

    A sensor that is gone for longer than the resampler bridges is put at the mean that the model
    learned for it, and named in the prediction. When all are gone, or time jumps, the window
    starts anew.

    Attributes:
        recognizer: the model.
        stride: samples from one prediction to the next.
        windows: predictions so far.
        degraded: how many of them had a sensor missing.
    """

    recognizer: Recognizer
    stride: int
    windows: int = 0
    degraded: int = 0
    resampler: Resampler = field(init=False)
    _samples: Array = field(init=False, repr=False)
    _start: float = 0.0
    _skip: int = 0  # samples that no window needs, when the stride is longer than a window

    def __post_init__(self) -> None:
        """Start with nothing."""
        if self.stride < 1:
            raise ValueError(f"stride must be at least 1, got {self.stride}")
        layout = self.recognizer.layout
        self.resampler = Resampler(layout.rate)
        self._samples = np.zeros((0, len(layout.columns)))

    def feed(self, time: Array, values: Array) -> list[Prediction]:
        """Take rows `(n,)`, `(n, S * C)`, NaN where nothing was measured."""
        return self._follow(self.resampler.feed(time, values))

    def finish(self) -> list[Prediction]:
        """The last windows, when nothing more comes."""
        return self._follow(self.resampler.flush())

    def _follow(self, pieces: list[Piece]) -> list[Prediction]:
        made: list[Prediction] = []
        for piece in pieces:
            if piece.fresh:
                self._samples, self._start, self._skip = piece.samples, piece.start, 0
            else:
                self._samples = np.concatenate([self._samples, piece.samples])
            made += self._windows()
        return made

    def _windows(self) -> list[Prediction]:
        """Predict all windows that are complete, together: many at once cost less than each."""
        found: list[tuple[float, Array]] = []
        length = self.recognizer.settings.length
        self._advance(self._skip)
        while len(self._samples) >= length:
            window = self._samples[:length]
            silent = np.flatnonzero(~np.isfinite(window).any(axis=1))
            step = int(silent[-1]) + 1 if len(silent) else self.stride
            if not len(silent):
                found.append((round(self._start, 6), window))
            self._advance(step)
        return self._predict(found) if found else []

    def _advance(self, step: int) -> None:
        gone = min(step, len(self._samples))
        self._samples, self._skip = self._samples[gone:], step - gone
        self._start += gone / self.recognizer.layout.rate

    def _predict(self, windows: list[tuple[float, Array]]) -> list[Prediction]:
        layout = self.recognizer.layout
        length = self.recognizer.settings.length
        shape = (len(windows), length, len(layout.sensors), len(layout.channels))
        samples = np.stack([window for _, window in windows]).reshape(shape).astype(np.float32)
        gone = ~np.isfinite(samples)
        lost = np.asarray(gone.any((1, 3)))
        if lost.any():
            usual = self.recognizer.learner.model.scaling.mean.numpy()
            samples = np.where(gone, usual, samples)
            self.degraded += int(lost.any(1).sum())
        first = length * np.arange(len(windows))
        x = torch.from_numpy(nodes(samples.reshape(-1, *shape[2:]), first, length))
        probability, best = self.recognizer.probabilities(x).max(-1)
        self.windows += len(windows)
        names = [self.recognizer.activities[place] for place in best.tolist()]
        missing = [
            tuple(name for name, out in zip(layout.sensors, row, strict=True) if out)
            for row in lost.tolist()
        ]
        parts = zip(windows, names, probability.tolist(), missing, strict=True)
        return [Prediction(start, name, share, out) for (start, _), name, share, out in parts]


def follow(
    recognizer: Recognizer, lines: Iterable[str], source: str, stride: int
) -> Iterator[tuple[Prediction, Follower]]:
    """Predictions for CSV text as it comes; see `rows.Rows` for its columns."""
    layout = recognizer.layout
    rows = Rows(lines, source, block=max(1, round(BLOCK * layout.rate)))
    order = columns_for(rows.header, layout)
    follower = Follower(recognizer, stride)
    waiting: list[Block] = []
    judged = False
    for block in rows:
        waiting.append(block)
        judged = judged or sum(len(part.time) for part in waiting) >= WARM_UP
        if judged:
            yield from _take(follower, waiting, order, source)
            waiting = []
    if not judged and not waiting:
        raise ValueError(f"{source} must have at least one row below its header, got none")
    yield from _take(follower, waiting, order, source)
    yield from ((made, follower) for made in follower.finish())


def _take(
    follower: Follower, blocks: list[Block], order: list[int], source: str
) -> Iterator[tuple[Prediction, Follower]]:
    rate = follower.recognizer.layout.rate
    if sum(len(block.time) for block in blocks) > 1:
        check_rate(np.concatenate([block.time for block in blocks]), rate, source)
    for block in blocks:
        for made in follower.feed(block.time, block.values[:, order]):
            yield made, follower

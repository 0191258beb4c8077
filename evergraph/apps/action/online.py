"""Online predictions for a stream of samples, with bounded memory and delay."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import compress
from pathlib import Path

import numpy as np
import torch

from evergraph.apps.action.csv_stream import Rows, labels_at
from evergraph.apps.action.novelty import UNKNOWN
from evergraph.apps.action.recognizer import Recognizer
from evergraph.apps.action.recording import Array
from evergraph.apps.action.resample import Piece, Resampler, check_rate
from evergraph.apps.action.windows import nodes
from evergraph.checks import check_positive

BLOCK = 0.4  # seconds of samples that are processed together
WARM_UP = 25  # rows that the sampling rate is estimated from before the first prediction


@dataclass(frozen=True)
class Prediction:
    """The most probable activity in the window whose first sample is at `time`, in seconds.

    Sensors in `missing` had no data and were replaced by their training mean. `novelty` is the
    share of held-back windows that are more like what the model knows.
    """

    time: float
    activity: str
    probability: float
    missing: tuple[str, ...] = ()
    novelty: float = 0.0

    def line(self) -> str:
        """A line of CSV."""
        text = StringIO()
        row = [f"{self.time:.3f}", self.activity, f"{self.probability:.4f}"]
        row += ["+".join(self.missing), f"{self.novelty:.4f}"]
        csv.writer(text, lineterminator="").writerow(row)
        return text.getvalue()


class Follower:
    """Predicts window by window from arriving samples; keeps one window of samples.

    A sensor that is missing for longer than the resampler interpolates is replaced by its
    training mean and named in the prediction. If all sensors are missing, or after a break in
    time, the window restarts.

    `stride` is in samples. `windows` counts the predictions so far, `degraded` those with a missing
    sensor; `resampler` brings the rows to the rate of the model.
    A window whose novelty is `unknown` or more shows an unknown activity; with 1 none does.
    """

    def __init__(self, recognizer: Recognizer, stride: int, unknown: float = 1.0) -> None:
        check_positive(stride=stride)
        self.recognizer, self.stride, self.unknown = recognizer, stride, unknown
        self.windows = self.degraded = 0
        self.resampler = Resampler(recognizer.layout.rate)
        self._samples: Array = np.zeros((0, len(recognizer.layout.columns)))
        self._start = 0.0
        self._skip = 0  # samples that no window needs, if the stride is longer than a window

    def feed(self, time: Array, values: Array) -> list[Prediction]:
        """Add rows `(n,)`, `(n, S * C)`, NaN where a value is missing."""
        return self._follow(self.resampler.feed(time, values))

    def finish(self) -> list[Prediction]:
        """The remaining predictions, after the last row."""
        return self._follow(self.resampler.flush())

    def _follow(self, pieces: list[Piece]) -> list[Prediction]:
        made: list[Prediction] = []
        for start, samples, fresh in pieces:
            if fresh:
                self._samples, self._start, self._skip = samples, start, 0
            else:
                self._samples = np.concatenate([self._samples, samples])
            made += self._predict(list(self._complete_windows()))
        return made

    def _complete_windows(self) -> Iterator[tuple[float, Array]]:
        """Start and samples of every complete window; each is returned once."""
        length = self.recognizer.config.length
        self._advance(self._skip)
        while len(self._samples) >= length:
            window = self._samples[:length]
            silent = np.flatnonzero(~np.isfinite(window).any(axis=1))
            if len(silent):
                self._advance(int(silent[-1]) + 1)
            else:
                yield round(self._start, 6), window
                self._advance(self.stride)

    def _advance(self, step: int) -> None:
        gone = min(step, len(self._samples))
        self._samples, self._skip = self._samples[gone:], step - gone
        self._start += gone / self.recognizer.layout.rate

    def _predict(self, windows: list[tuple[float, Array]]) -> list[Prediction]:
        """Predict all windows as one batch, which costs less than one at a time."""
        if not windows:
            return []
        layout, length = self.recognizer.layout, self.recognizer.config.length
        samples = np.stack([window for _, window in windows]).astype(np.float32)
        samples = samples.reshape(len(windows), length, *layout.shape)
        gone = ~np.isfinite(samples)
        lost = np.asarray(gone.any((1, 3)))
        if lost.any():
            mean = self.recognizer.learner.model.encoder.mean.numpy()
            samples = np.where(gone, mean, samples)
            self.degraded += int(lost.any(1).sum())
        first = length * np.arange(len(windows))
        x = torch.from_numpy(nodes(samples.reshape(-1, *layout.shape), first, length))
        probability, best = self.recognizer.probabilities(x).max(-1)
        novelty = self.recognizer.novelty(x).tolist()
        self.windows += len(windows)
        names = [
            UNKNOWN if self.unknown < 1 and new >= self.unknown else self.recognizer.activities[i]
            for i, new in zip(best.tolist(), novelty, strict=True)
        ]
        parts = zip(windows, names, probability.tolist(), lost, novelty, strict=True)
        return [
            Prediction(start, name, share, tuple(compress(layout.sensors, out)), round(new, 4))
            for (start, _), name, share, out, new in parts
        ]


def follow(
    recognizer: Recognizer,
    table: Path | Iterable[str],
    source: str,
    stride: int,
    unknown: float = 1.0,
) -> Iterator[tuple[Prediction, Follower]]:
    """Predictions for a file or for CSV text as it arrives, see `csv_stream.Rows`."""
    layout = recognizer.layout
    block = max(1, round(BLOCK * layout.rate))
    rows = Rows(table, source, block, first_block=block * math.ceil(WARM_UP / block))
    order = layout.order(rows.header.signals, rows.header.source)
    follower = Follower(recognizer, stride, unknown)
    for part in rows:
        check_rate(part.time, layout.rate, source)
        yield from ((made, follower) for made in follower.feed(part.time, part.values[:, order]))
    yield from ((made, follower) for made in follower.finish())


def draw(
    made: Sequence[Prediction], file: str, recognizer: Recognizer, stride: int, picture: Path
) -> None:
    """A recording as colored bands: what was predicted, and what was true if the file tells."""
    from evergraph.evaluate.figures import bands  # matplotlib takes a while

    rate, time = recognizer.layout.rate, [one.time for one in made]
    labels = {"predicted": [one.activity for one in made]}
    if file != "-":
        half = recognizer.config.length / rate / 2
        labels["true"] = labels_at(Path(file), [start + half for start in time])
    bands({name: row for name, row in labels.items() if row}, time, stride / rate, picture)

"""Resampling to a fixed rate, the same for a whole file and for a stream, and filling of gaps."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from evergraph.apps.action.recording import Array

MAX_GAP = 0.25  # seconds that are interpolated; also the delay of a stream


class Piece(NamedTuple):
    """Consecutive samples at the new rate."""

    start: float  # time of the first one in seconds
    samples: Array  # (n, D) float64; NaN where a gap is longer than `MAX_GAP`
    fresh: bool  # whether they follow a break in time, or continue the previous piece


class Resampler:
    """Resamples D columns to a fixed rate while rows arrive, with a bounded delay.

    Rows within the same sampling interval are averaged, time and value, and the averages are
    interpolated linearly. Gaps of a column up to `MAX_GAP` seconds are interpolated too; longer
    ones stay NaN. A gap between rows longer than that is a break: sampling restarts after it.

    `breaks` holds the time of the last row before and of the first row after each break.
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.breaks: list[tuple[float, float]] = []
        self._last: float | None = None
        self._restart(0.0)

    def _restart(self, origin: float) -> None:
        self._origin, self._fresh = origin, True
        self._raw: list[tuple[Array, Array]] = []  # rows of the interval that is not complete
        self._time, self._value = np.zeros(0), np.zeros((0, 0))  # averages of past intervals
        self._first = 0  # index of the interval of the first average that is kept
        self._next = 0  # index of the next sample to produce

    def feed(self, time: Array, values: Array, final: bool = False) -> list[Piece]:
        """Add rows `(n,)`, `(n, D)` in order of time; returns the samples that are settled.

        With `final` no rows follow: that gives all samples, in one piece between any two breaks.
        """
        if not len(time):
            return []
        pieces: list[Piece] = []
        before = np.append(time[0] if self._last is None else self._last, time[:-1])
        starts = np.flatnonzero(time - before > MAX_GAP + 1e-9).tolist()
        for first, last in pairwise(sorted({0, *starts, len(time)})):
            if self._last is None:
                self._restart(float(time[first]))
            elif first in starts:
                pieces += self.flush()
                self.breaks.append((self._last, float(time[first])))
                self._restart(float(time[first]))
            self._raw.append((time[first:last], values[first:last]))
            self._last = float(time[last - 1])
            pieces += self._settle(final or last < len(time))
        return pieces

    def flush(self) -> list[Piece]:
        """The remaining samples, after the last row."""
        return self._settle(final=True) if self._last is not None else []

    def _settle(self, final: bool) -> list[Piece]:
        self._average(final)
        ready = self._first + len(self._time)
        if not final:
            ready -= math.ceil(MAX_GAP * self.rate)
        if ready <= self._next:
            return []
        start = self._origin + self._next / self.rate
        piece = Piece(start, self._interpolate(self._next, ready), self._fresh)
        self._fresh, self._next = False, ready
        keep = max(self._next - math.ceil(MAX_GAP * self.rate) - 1, self._first)
        drop = keep - self._first
        self._time, self._value, self._first = self._time[drop:], self._value[drop:], keep
        return [piece]

    def _average(self, final: bool) -> None:
        """Average the rows of every complete interval; of all intervals if `final`."""
        if not self._raw:
            return
        time = np.concatenate([part for part, _ in self._raw])
        values = np.concatenate([part for _, part in self._raw]).astype(np.float64)
        interval = np.floor((time - self._origin) * self.rate + 0.5 + 1e-6).astype(int)
        done = np.ones(len(time), dtype=bool) if final else interval < interval[-1]
        self._raw = [] if final else [(time[~done], values[~done])]
        if not done.any():
            return
        interval, time, values = interval[done], time[done], values[done]
        at = np.flatnonzero(np.diff(interval, prepend=-1))
        here = interval[at] - (self._first + len(self._time))
        finite = np.isfinite(values)
        count = np.add.reduceat(finite, at, axis=0, dtype=np.int64)
        total = np.add.reduceat(np.where(finite, values, 0.0), at, axis=0)
        size = int(here[-1]) + 1
        new = np.full((size, values.shape[1]), np.nan)
        new[here] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
        middle = np.full(size, np.nan)
        middle[here] = np.add.reduceat(time, at) / np.diff(np.append(at, len(time)))
        self._time = np.concatenate([self._time, middle])
        self._value = np.concatenate([self._value.reshape(-1, values.shape[1]), new])

    def _interpolate(self, first: int, last: int) -> Array:
        """Samples `first` to before `last`, interpolated between the averages."""
        place = np.arange(self._first, self._first + len(self._time))
        center, slack = self._origin + place / self.rate, 1e-6 / self.rate
        known = np.isfinite(self._value)
        row = np.arange(len(place))[:, None]
        early = (self._time <= center + slack)[:, None] & known
        late = (self._time >= center - slack)[:, None] & known
        before = np.maximum.accumulate(np.where(known, row, -1), axis=0)
        after = np.minimum.accumulate(np.where(known, row, len(place))[::-1], axis=0)[::-1]
        none = np.full((1, known.shape[1]), -1)
        left = np.where(early, row, np.concatenate([none, before[:-1]]))
        right = np.where(late, row, np.concatenate([after[1:], none + 1 + len(place)]))
        chosen = slice(first - self._first, last - self._first)
        left, right, center = left[chosen], right[chosen], center[chosen, None]
        has_left, has_right = left >= 0, right < len(place)
        left, right = np.where(has_left, left, 0), np.where(has_right, right, 0)
        column = np.arange(self._value.shape[1])
        a, b = self._value[left, column], self._value[right, column]
        ta, tb = self._time[left], self._time[right]
        span = np.where(tb > ta, tb - ta, 1.0)
        share = np.clip(np.where(left == right, 0.0, (center - ta) / span), 0, 1)
        between = has_left & has_right & (tb - ta <= MAX_GAP + 1 / self.rate + 1e-9)
        one = 1 / self.rate + 1e-9
        near_a, near_b = has_left & (center - ta <= one), has_right & (tb - center <= one)
        alone = np.where(near_a, a, np.where(near_b, b, np.nan))
        return np.where(between, a + share * (b - a), alone)


def check_rate(time: Array, rate: float, where: str) -> None:
    """Raise if the median rate of the rows is below half of `rate`."""
    found = float(1 / np.median(np.diff(time))) if len(time) > 1 else math.inf
    if found < rate / 2:
        hint = "; is its time in seconds?" if found < 1 else ""
        raise ValueError(
            f"{where} must come with at least {rate / 2:g} samples per second to be brought to "
            f"{rate:g}, got {found:.3g}{hint}"
        )


def fill(samples: Array) -> tuple[Array, int]:
    """Replace values that are not finite by linear interpolation in time; also their number.

    A column without any finite value becomes 0.

    Example:
        >>> fill(np.array([[1.0], [np.nan], [3.0]]))[0].ravel().tolist()
        [1.0, 2.0, 3.0]
    """
    flat = samples.reshape(len(samples), -1)
    bad = ~np.isfinite(flat)
    if not bad.any():
        return samples, 0
    out, time = flat.copy(), np.arange(len(flat))
    for column in np.flatnonzero(bad.any(axis=0)):
        good = ~bad[:, column]
        known = np.interp(time, time[good], flat[good, column]) if good.any() else 0.0
        out[:, column] = np.where(good, flat[:, column], known)
    return out.reshape(samples.shape), int(bad.sum())

"""Recordings of body-worn sensors: what all sources of data are brought to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Layout:
    """Which sensors with which channels at which rate; all recordings of a set share one.

    Attributes:
        sensors: names, S of them.
        channels: names, C of them, the same for every sensor.
        rate: samples per second.

    Example:
        >>> Layout(("arm", "leg"), ("x", "y"), 25.0).columns
        ('arm.x', 'arm.y', 'leg.x', 'leg.y')
    """

    sensors: tuple[str, ...]
    channels: tuple[str, ...]
    rate: float

    def __post_init__(self) -> None:
        """Reject layouts that hold nothing."""
        if not self.sensors or not self.channels:
            raise ValueError(
                f"a layout needs sensors and channels, got {self.sensors} and {self.channels}"
            )
        if not self.rate > 0:
            raise ValueError(f"rate must be positive, got {self.rate}")

    @property
    def columns(self) -> tuple[str, ...]:
        """`sensor.channel` for every signal, sensor by sensor."""
        return tuple(f"{sensor}.{channel}" for sensor in self.sensors for channel in self.channels)


@dataclass(frozen=True, eq=False)
class Recording:
    """An uninterrupted run of samples of one person doing one thing.

    Attributes:
        samples: `(T, S, C)` float32, finite.
        activity: its name; empty where it is unknown.
        subject: who wears the sensors.
        trial: orders the recordings of one subject and activity.
        start: time of the first sample in seconds.
        name: where it comes from.
    """

    samples: Array
    activity: str
    subject: str
    trial: int = 0
    start: float = 0.0
    name: str = ""

    def __post_init__(self) -> None:
        """Reject samples that cannot be windows."""
        if self.samples.ndim != 3:
            raise ValueError(
                f"samples of {self.name or 'a recording'} must have shape (T, S, C), got "
                f"{self.samples.shape}"
            )

    def __len__(self) -> int:
        return len(self.samples)

    def part(self, first: int, last: int, rate: float) -> Recording:
        """Samples `first` to `last` as a recording of their own."""
        return replace(
            self, samples=self.samples[first:last], start=self.start + max(first, 0) / rate
        )


@dataclass(frozen=True)
class Recordings:
    """A data set: recordings of one layout, and what had to be done to them.

    Attributes:
        layout: of all of them.
        recordings: in the order of their source.
        activities: names of the classes; a label is a position in here.
        name: of the source.
        notes: lost packets filled, gaps cut, and the like, for the user to read.
    """

    layout: Layout
    recordings: tuple[Recording, ...]
    activities: tuple[str, ...]
    name: str
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Reject recordings of another layout or of unknown activities."""
        shape = (len(self.layout.sensors), len(self.layout.channels))
        for recording in self.recordings:
            if recording.samples.shape[1:] != shape:
                raise ValueError(
                    f"{recording.name} must have {shape[0]} sensors with {shape[1]} channels, "
                    f"got {recording.samples.shape[1:]}"
                )
            if recording.activity and recording.activity not in self.activities:
                raise ValueError(
                    f"{recording.name} shows {recording.activity!r}, which is not among the "
                    f"activities {', '.join(self.activities)}"
                )

    @property
    def subjects(self) -> tuple[str, ...]:
        """All subjects in order of appearance."""
        return tuple(dict.fromkeys(recording.subject for recording in self.recordings))

    def of(self, subjects: Iterable[str]) -> Recordings:
        """The recordings of these subjects only."""
        wanted = set(subjects)
        unknown = wanted - set(self.subjects)
        if unknown:
            raise ValueError(
                f"subjects must be among {', '.join(self.subjects)}, got "
                f"{', '.join(sorted(unknown))}"
            )
        kept = tuple(r for r in self.recordings if r.subject in wanted)
        return replace(self, recordings=kept)

    def without(self, subjects: Iterable[str]) -> Recordings:
        """All but the recordings of these subjects."""
        gone = set(subjects)
        self.of(gone)  # refuse names that are not there
        return self.of(subject for subject in self.subjects if subject not in gone)


def fill(samples: Array) -> tuple[Array, int]:
    """Replace what is not finite by linear interpolation in time; also returns how many it were.

    A column without a single number becomes 0.

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

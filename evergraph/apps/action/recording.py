"""Recordings of body-worn sensors: the form that every source of data is converted to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Layout:
    """Sensors, channels and sampling rate, shared by all recordings of a data set.

    Attributes:
        sensors: S names.
        channels: C names, the same for every sensor.
        rate: samples per second.

    Example:
        >>> Layout(("arm", "leg"), ("x", "y"), 25.0).columns
        ('arm.x', 'arm.y', 'leg.x', 'leg.y')
    """

    sensors: tuple[str, ...]
    channels: tuple[str, ...]
    rate: float

    def __post_init__(self) -> None:
        """Reject empty layouts and rates that are not positive."""
        if not self.sensors or not self.channels:
            raise ValueError(
                f"a layout needs sensors and channels, got {self.sensors} and {self.channels}"
            )
        if not self.rate > 0:
            raise ValueError(f"rate must be positive, got {self.rate}")

    @property
    def shape(self) -> tuple[int, int]:
        """S and C."""
        return len(self.sensors), len(self.channels)

    @property
    def columns(self) -> tuple[str, ...]:
        """`sensor.channel` for every signal, sensor by sensor."""
        return tuple(f"{sensor}.{channel}" for sensor in self.sensors for channel in self.channels)


@dataclass(frozen=True, eq=False)
class Recording:
    """Consecutive samples of one subject during one activity.

    Attributes:
        samples: `(T, S, C)` float32, finite.
        activity: name of the class; empty if unknown.
        subject: the person who wears the sensors.
        trial: orders the recordings of one subject and activity.
        start: time of the first sample in seconds.
        name: the file or array it was read from.
    """

    samples: Array
    activity: str
    subject: str
    trial: int = 0
    start: float = 0.0
    name: str = ""

    def __post_init__(self) -> None:
        """Reject samples of any other shape than (T, S, C)."""
        if self.samples.ndim != 3:
            raise ValueError(
                f"samples of {self.name or 'a recording'} must have shape (T, S, C), got "
                f"{self.samples.shape}"
            )

    def __len__(self) -> int:
        return len(self.samples)

    def part(self, first: int, last: int, rate: float) -> Recording:
        """The samples from `first` to before `last` as a recording."""
        return replace(
            self, samples=self.samples[first:last], start=self.start + max(first, 0) / rate
        )


@dataclass(frozen=True)
class Recordings:
    """A data set of recordings with a common layout.

    Attributes:
        layout: sensors, channels and rate.
        recordings: in the order of the source.
        activities: class names; a label is an index into them.
        name: of the source.
        notes: messages for the user about repaired or dropped samples.
    """

    layout: Layout
    recordings: tuple[Recording, ...]
    activities: tuple[str, ...]
    name: str
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Reject recordings of another layout or of unknown activities."""
        shape = self.layout.shape
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
        """The recordings of these subjects."""
        wanted = set(subjects)
        unknown = wanted - set(self.subjects)
        if unknown:
            raise ValueError(
                f"subjects must be among {', '.join(self.subjects)}, got "
                f"{', '.join(sorted(unknown))}"
            )
        return replace(self, recordings=tuple(r for r in self.recordings if r.subject in wanted))

    def without(self, subjects: Iterable[str]) -> Recordings:
        """The recordings of all other subjects."""
        excluded = set(subjects)
        self.of(excluded)  # raises if a name is unknown
        return self.of(subject for subject in self.subjects if subject not in excluded)

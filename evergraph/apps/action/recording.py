"""Recordings of body-worn sensors, which every source of data is converted to, and made-up ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evergraph.checks import check_positive

Array = np.ndarray[Any, Any]

SENSORS = ("torso", "right_arm", "left_arm", "right_leg", "left_leg")
CHANNELS = ("acc_x", "acc_y", "acc_z", "gyr_x", "gyr_y", "gyr_z")
ACTIVITIES = ("standing", "sitting", "lying", "walking", "running", "rowing", "cycling", "turning")


def are_missing(names: Iterable[str]) -> str:
    """`a is missing` or `a, b are missing`, for error messages."""
    listed = list(names)
    return f"{', '.join(listed)} {'is' if len(listed) == 1 else 'are'} missing"


@dataclass(frozen=True)
class Layout:
    """S sensors, C channels of each, and samples per second, shared by all of a data set.

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

    def order(self, columns: Iterable[str], source: str) -> list[int]:
        """Indices that bring the columns of a source into the order of this layout."""
        place = {name: number for number, name in enumerate(columns)}
        missing = [name for name in self.columns if name not in place]
        if missing:
            raise ValueError(
                f"{source} must have the columns {', '.join(self.columns)}; {are_missing(missing)}"
            )
        return [place[name] for name in self.columns]

    def check(self, recordings: Iterable[Recording]) -> None:
        """Raise if a recording has another shape than (T, S, C)."""
        for recording in recordings:
            if recording.samples.shape[1:] != self.shape:
                raise ValueError(
                    f"{recording.name or 'a recording'} must have {self.shape[0]} sensors with "
                    f"{self.shape[1]} channels, got {recording.samples.shape[1:]}"
                )


@dataclass(frozen=True, eq=False)
class Recording:
    """Consecutive samples of one subject during one activity."""

    samples: Array  # (T, S, C) float32, finite
    activity: str  # name of the class; empty if unknown
    subject: str  # the person who wears the sensors
    trial: int = 0  # orders the recordings of one subject and activity
    start: float = 0.0  # time of the first sample in seconds
    name: str = ""  # the file or array it was read from

    def __len__(self) -> int:
        return len(self.samples)

    def part(self, first: int, last: int, rate: float) -> Recording:
        """The samples from `first` to before `last` as a recording."""
        return replace(
            self, samples=self.samples[first:last], start=self.start + max(first, 0) / rate
        )


@dataclass(frozen=True)
class Recordings:
    """A data set of recordings with a common layout."""

    layout: Layout
    recordings: tuple[Recording, ...]
    activities: tuple[str, ...]  # class names; a label is an index into them
    name: str
    notes: tuple[str, ...] = ()  # for the user, about repaired or dropped samples

    def __post_init__(self) -> None:
        """Reject recordings of another layout or of unknown activities."""
        self.layout.check(self.recordings)
        for recording in self.recordings:
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
        excluded = set(self.of(subjects).subjects)
        return self.of(subject for subject in self.subjects if subject not in excluded)

    def in_layout(self, layout: Layout) -> Recordings:
        """The same recordings in a layout of the same signals and rate, or an error."""
        order = layout.order(self.layout.columns, self.name)
        if self.layout.rate != layout.rate:
            raise ValueError(
                f"{self.name} has {self.layout.rate:g} samples per second, the model "
                f"{layout.rate:g}; read it with --rate {layout.rate:g}"
            )
        moved = tuple(
            replace(r, samples=r.samples.reshape(len(r), -1)[:, order].reshape(-1, *layout.shape))
            for r in self.recordings
        )
        return replace(self, layout=layout, recordings=moved)


def generate(
    *, sensors: int = 5, channels: int = 6, activities: int = 6, subjects: int = 3, trials: int = 2,
    seconds: float = 30.0, rate: float = 25.0, noise: float = 0.3, seed: int = 0,
) -> Recordings:  # fmt: skip
    """Synthetic recordings of periodic movements, so many of each kind and `seconds` long.

    An activity has a constant posture, a frequency, and an amplitude and a phase per signal, so
    that the sensors are correlated in time. Each subject adds an own posture offset and vigor.
    `noise` is a standard deviation; movements have amplitudes of about 1.

    Example:
        >>> data = generate()
        >>> len(data.recordings), data.recordings[0].samples.shape
        (36, (750, 5, 6))
    """
    check_positive(
        sensors=sensors, channels=channels, activities=activities, subjects=subjects, trials=trials
    )
    if seconds * rate < 2:
        raise ValueError(f"seconds must hold at least two samples, got {seconds}")
    rng = np.random.default_rng(seed)
    layout = Layout(_names(SENSORS, sensors, "sensor"), _names(CHANNELS, channels, "ch"), rate)
    known, shape = _names(ACTIVITIES, activities, "activity"), (sensors, channels)
    habits = []
    for number in range(activities):
        size = rng.gamma(2.0, 0.5, shape) * (number >= activities // 3)  # the first are at rest
        posture, phase = rng.normal(0, 1, shape), rng.uniform(0, 2 * np.pi, (2, *shape))
        habits.append((posture, size, phase, rng.uniform(0.6, 2.4)))

    def move(posture: Array, size: Array, phase: Array, hertz: float) -> Array:
        time = (np.arange(round(seconds * rate)) / rate + rng.uniform(0, 10))[:, None, None]
        turn = 2 * np.pi * hertz * time
        wave = np.sin(turn + phase[0]) + 0.4 * np.sin(2 * turn + phase[1])
        drift = 0.1 * np.sin(2 * np.pi * 0.05 * time + phase[1])
        around = rng.normal(0, noise, (len(time), *shape))
        return np.asarray(posture + size * wave + drift + around, dtype=np.float32)

    made = []
    for trial in range(trials):
        for person in range(subjects):
            style = np.random.default_rng((seed, person))
            lean, vigor = style.normal(0, 0.3, shape), style.uniform(0.8, 1.2)
            subject = f"p{person + 1}"
            for activity, (posture, size, phase, frequency) in zip(known, habits, strict=True):
                samples = move(posture + lean, size * vigor, phase, frequency * vigor)
                name = f"{activity}-{subject}-{trial + 1}"
                made.append(Recording(samples, activity, subject, trial, name=name))
    return Recordings(layout, tuple(made), known, "generated")


def _names(known: tuple[str, ...], count: int, other: str) -> tuple[str, ...]:
    return known[:count] + tuple(f"{other}{i + 1}" for i in range(len(known), count))

"""Synthetic recordings, for tests and for trying the package without data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evergraph.apps.action.recording import Array, Layout, Recording, Recordings

SENSORS = ("torso", "right_arm", "left_arm", "right_leg", "left_leg")
CHANNELS = ("acc_x", "acc_y", "acc_z", "gyr_x", "gyr_y", "gyr_z")
ACTIVITIES = ("standing", "sitting", "lying", "walking", "running", "rowing", "cycling", "turning")


@dataclass(frozen=True)
class Settings:
    """Size and noise of a synthetic data set.

    Attributes:
        sensors, channels, activities, subjects, trials: number of each.
        seconds: length of each recording.
        rate: samples per second.
        noise: standard deviation; movements have amplitudes of about 1.
        seed: of the random generator.
    """

    sensors: int = 5
    channels: int = 6
    activities: int = 6
    subjects: int = 3
    trials: int = 2
    seconds: float = 30.0
    rate: float = 25.0
    noise: float = 0.3
    seed: int = 0

    def __post_init__(self) -> None:
        """Reject settings without recordings."""
        for name in ("sensors", "channels", "activities", "subjects", "trials"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.seconds * self.rate < 2:
            raise ValueError(f"seconds must hold at least two samples, got {self.seconds}")


def generate(settings: Settings = Settings()) -> Recordings:  # noqa: B008
    """Generate recordings of periodic movements.

    An activity has a constant posture, a frequency, and an amplitude and a phase per signal, so
    that the sensors are correlated in time. Each subject adds an own posture offset and vigor.

    Example:
        >>> data = generate()
        >>> len(data.recordings), data.recordings[0].samples.shape
        (36, (750, 5, 6))
    """
    s = settings
    rng = np.random.default_rng(s.seed)
    layout = Layout(
        _names(SENSORS, s.sensors, "sensor"), _names(CHANNELS, s.channels, "ch"), s.rate
    )
    activities = _names(ACTIVITIES, s.activities, "activity")
    shape = (s.sensors, s.channels)
    habits = []
    for number in range(s.activities):
        size = rng.gamma(2.0, 0.5, shape) * (number >= s.activities // 3)  # the first are at rest
        posture, phase = rng.normal(0, 1, shape), rng.uniform(0, 2 * np.pi, (2, *shape))
        habits.append((posture, size, phase, rng.uniform(0.6, 2.4)))
    made = []
    for trial in range(s.trials):
        for subject in range(s.subjects):
            style = np.random.default_rng((s.seed, subject))
            lean, vigor = style.normal(0, 0.3, shape), style.uniform(0.8, 1.2)
            for activity, (posture, size, phase, frequency) in zip(activities, habits, strict=True):
                samples = _move(s, rng, posture + lean, size * vigor, phase, frequency * vigor)
                name = f"{activity}-p{subject + 1}-{trial + 1}"
                made.append(Recording(samples, activity, f"p{subject + 1}", trial, name=name))
    return Recordings(layout, tuple(made), activities, "generated")


def _move(
    s: Settings, rng: np.random.Generator, posture: Array, size: Array, phase: Array, hertz: float
) -> Array:
    time = np.arange(round(s.seconds * s.rate)) / s.rate + rng.uniform(0, 10)
    turn = 2 * np.pi * hertz * time[:, None, None]
    wave = np.sin(turn + phase[0]) + 0.4 * np.sin(2 * turn + phase[1])
    drift = 0.1 * np.sin(2 * np.pi * 0.05 * time[:, None, None] + phase[1])
    noise = rng.normal(0, s.noise, (len(time), *size.shape))
    return np.asarray(posture + size * wave + drift + noise, dtype=np.float32)


def _names(known: tuple[str, ...], count: int, other: str) -> tuple[str, ...]:
    return known[:count] + tuple(f"{other}{i + 1}" for i in range(len(known), count))

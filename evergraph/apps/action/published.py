"""Readers of two published data sets, WARD and DSADS, in the layouts they are distributed in.

WARD (the data of the paper): 5 sensors × 5 channels, 13 activities, 20 subjects. Either the raw
files `WARD1.0/Subject<i>/a<j>t<k>.mat`, which include gravity, or the converted `ward.mat`, in
which every signal of every trial is shifted and scaled by its own statistics, test part included.
Sources disagree whether it was sampled at 30 or 20 Hz, so the rate is a parameter.

DSADS (UCI Daily and Sports Activities): 5 sensors × 9 channels, 19 activities, 8 subjects, 25 Hz.
Either the original text files `aXX/pY/sZZ.txt` (125 samples × 45 columns each), or one npz file
with the integer array `x` (segments, 125, 45) and `scale` (45,), `activity` and `subject`. The 60
segments of one subject and activity are consecutive in time and form one recording.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from scipy.io import loadmat
from scipy.io.matlab import MatReadError

from evergraph.apps.action.recording import Array, Layout, Recording, Recordings

WARD_RATE = 30.0
WARD_SETTLE = 75  # samples that the paper's code drops at the beginning of a trial
WARD_SENSORS = ("left_arm", "right_arm", "waist", "left_ankle", "right_ankle")
WARD_CHANNELS = ("acc_x", "acc_y", "acc_z", "gyr_x", "gyr_y")
WARD_ACTIVITIES = (
    "ReSt", "ReSi", "ReLi", "WaFo", "WaLe", "WaRi", "TuLe", "TuRi", "Up", "Down", "Jog", "Jump",
    "Push",
)  # fmt: skip
DSADS_LAYOUT = Layout(
    sensors=("torso", "right_arm", "left_arm", "right_leg", "left_leg"),
    channels=("acc_x", "acc_y", "acc_z", "gyr_x", "gyr_y", "gyr_z", "mag_x", "mag_y", "mag_z"),
    rate=25.0,
)
DSADS_ACTIVITIES = (
    "sitting", "standing", "lying_back", "lying_right", "stairs_up", "stairs_down",
    "elevator_still", "elevator_moving", "walking_lot", "treadmill_flat", "treadmill_inclined",
    "running", "stepper", "cross_trainer", "bike_horizontal", "bike_vertical", "rowing",
    "jumping", "basketball",
)  # fmt: skip
DSADS_SEGMENT = (125, 45)  # samples and columns
_WARD_FILE = re.compile(r"Subject(\d+)[/\\]a(\d+)t(\d+)\.mat$")
_DSADS_FILE = re.compile(r"a(\d+)[/\\]p(\d+)[/\\]s(\d+)\.txt$")

Trial = tuple[int, int, int, str, Array]
"""Subject, activity and trial of WARD, all from 1; name; `(T, S, C)` samples."""


def read_ward_raw(folder: Path, rate: float = WARD_RATE) -> Recordings:
    """Read the folder with `Subject<i>/a<j>t<k>.mat`; lost packets are interpolated."""
    found = sorted(
        (trial, subject, activity, path)
        for (subject, activity, trial), path in _numbered(folder, "a*t*.mat", _WARD_FILE)
    )
    if not found:
        raise ValueError(f"{folder} must hold files such as Subject1/a1t1.mat, but has none")
    trials = (
        (subject, activity, trial, path.name, _ward_samples(path, activity))
        for trial, subject, activity, path in found
    )
    return _ward(trials, rate, folder.name)


def read_ward_mat(path: Path, rate: float = WARD_RATE) -> Recordings:
    """Read `ward.mat`: a cell `data` of subjects × actions × trials, each T × 25 or empty."""
    data = _load_mat(path, "data")
    if data.dtype != object or data.ndim != 3:
        raise ValueError(
            f"data of {path} must be a cell of subjects × actions × trials, got {data.dtype} "
            f"of shape {data.shape}"
        )
    trials = []
    subjects, activities, repeats = data.shape
    for trial, subject, activity in np.ndindex(repeats, subjects, activities):
        cell = np.asarray(data[subject, activity, trial])
        place = (subject + 1, activity + 1, trial + 1)
        name = "data{{{},{},{}}}".format(*place)
        if cell.size:
            if cell.ndim != 2 or cell.shape[1] != 25:
                raise ValueError(f"{name} of {path} must be T × 25, got {cell.shape}")
            trials.append((*place, name, cell.astype(np.float32).reshape(-1, 5, 5)))
    return _ward(trials, rate, path.name)


def _ward(trials: Iterable[Trial], rate: float, name: str) -> Recordings:
    recordings, lost = [], 0
    for subject, activity, trial, source, samples in trials:
        if not 1 <= activity <= len(WARD_ACTIVITIES):
            raise ValueError(
                f"actions of WARD are 1 to {len(WARD_ACTIVITIES)}, got {activity} in {source}"
            )
        filled, count = fill(samples)
        lost += count
        label = WARD_ACTIVITIES[activity - 1]
        recordings.append(Recording(filled, label, f"s{subject}", trial, name=source))
    if not recordings:
        raise ValueError(f"{name} must hold at least one trial, but has none")
    notes = (f"{lost} numbers of lost packets were filled in",) if lost else ()
    layout = Layout(WARD_SENSORS, WARD_CHANNELS, rate)
    return _recordings(layout, recordings, WARD_ACTIVITIES, name, notes)


def _ward_samples(path: Path, activity: int) -> Array:
    """The samples of a raw file, `(T, S, C)`; lost packets are infinite."""
    record = _load_mat(path, "WearableData")
    if record.dtype.names is None or "Reading" not in record.dtype.names:
        raise ValueError(f"WearableData of {path} must have a field Reading")
    record = record.reshape(-1)[0]
    if "Class" in (record.dtype.names or ()):
        label = str(np.asarray(record["Class"]).reshape(-1)[0]).strip()  # a number or a text
        if label and int(float(label)) != activity:
            raise ValueError(f"{path} says it is of class {label}, but its name says {activity}")
    cells = np.asarray(record["Reading"], dtype=object).reshape(-1)
    if len(cells) != len(WARD_SENSORS):
        raise ValueError(
            f"Reading of {path} must have {len(WARD_SENSORS)} sensors, got {len(cells)}"
        )
    parts = [np.asarray(cell, dtype=np.float64) for cell in cells]
    for part in parts:
        if part.ndim != 2 or part.shape[1] != len(WARD_CHANNELS):
            raise ValueError(f"every sensor of {path} must be T × 5, got {part.shape}")
    length = min(len(part) for part in parts)
    return np.stack([part[:length] for part in parts], axis=1).astype(np.float32)


def _load_mat(path: Path, variable: str) -> Array:
    try:
        file: dict[str, Any] = loadmat(path)
    except (OSError, ValueError, NotImplementedError, TypeError, MatReadError) as error:
        raise ValueError(f"{path} is not a readable .mat file: {error}") from error
    if variable not in file:
        raise ValueError(f"{path} must hold the variable {variable}")
    return np.asarray(file[variable])


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


def read_dsads_npz(path: Path) -> Recordings:
    """Read the npz file."""
    needed = ("x", "scale", "activity", "subject")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in needed if name in file.files}
    except (OSError, EOFError, ValueError, BadZipFile, AttributeError) as error:
        raise ValueError(f"{path} is not a readable .npz file: {error}") from error
    missing = [name for name in needed if name not in arrays]
    if missing:
        raise ValueError(f"{path} must hold the arrays {', '.join(missing)} too")
    x, scale, activity, subject = (arrays[name] for name in needed)
    if x.ndim != 3 or x.shape[1:] != DSADS_SEGMENT:
        raise ValueError(f"x of {path} must have shape (N, 125, 45), got {x.shape}")
    groups = {}
    for a, p in sorted(set(zip(activity.tolist(), subject.tolist(), strict=True))):
        chosen = x[(activity == a) & (subject == p)].reshape(-1, x.shape[2])
        groups[a, p] = chosen.astype(np.float32) * scale.astype(np.float32)
    return _dsads(groups, path.name)


def read_dsads_text(folder: Path) -> Recordings:
    """Read the folder with the original text files."""
    found: dict[tuple[int, int], dict[int, Path]] = {}
    for (a, p, s), path in _numbered(folder, "s*.txt", _DSADS_FILE):
        found.setdefault((a - 1, p - 1), {})[s] = path
    if not found:
        raise ValueError(f"{folder} must hold files such as a01/p1/s01.txt, but has none")
    groups = {
        place: np.concatenate([_dsads_segment(files[s]) for s in sorted(files)])
        for place, files in sorted(found.items())
    }
    return _dsads(groups, folder.name)


def _dsads_segment(path: Path) -> Array:
    try:
        segment = np.loadtxt(path, delimiter=",", dtype=np.float32, ndmin=2)
    except ValueError as error:
        raise ValueError(f"{path} must hold numbers separated by commas: {error}") from error
    if segment.shape != DSADS_SEGMENT:
        raise ValueError(f"{path} must hold 125 lines of 45 numbers, got {segment.shape}")
    return segment


def _dsads(groups: dict[tuple[int, int], Array], name: str) -> Recordings:
    recordings = [
        Recording(
            samples.reshape(-1, *DSADS_LAYOUT.shape),
            DSADS_ACTIVITIES[a],
            f"p{p + 1}",
            name=f"a{a + 1:02d}/p{p + 1}",
        )
        for (a, p), samples in groups.items()
    ]
    return _recordings(DSADS_LAYOUT, recordings, DSADS_ACTIVITIES, name)


def _numbered(
    folder: Path, glob: str, pattern: re.Pattern[str]
) -> Iterator[tuple[tuple[int, ...], Path]]:
    """The files whose path matches a pattern, with the numbers in it."""
    for path in folder.rglob(glob):
        match = pattern.search(str(path))
        if match:
            yield tuple(int(part) for part in match.groups()), path


def _recordings(
    layout: Layout,
    recordings: list[Recording],
    known: tuple[str, ...],
    name: str,
    notes: tuple[str, ...] = (),
) -> Recordings:
    present = {recording.activity for recording in recordings}
    activities = tuple(activity for activity in known if activity in present)
    return Recordings(layout, tuple(recordings), activities, name, notes)

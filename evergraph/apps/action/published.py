"""The published data sets: WARD, which the paper has, and DSADS.

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
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from scipy.io import loadmat
from scipy.io.matlab import MatReadError

from evergraph.apps.action.recording import SENSORS, Array, Layout, Recording, Recordings
from evergraph.apps.action.resample import fill

WARD_RATE = 30.0
WARD_SETTLE = 75  # samples that the paper's code drops at the beginning of a trial
WARD_SENSORS = ("left_arm", "right_arm", "waist", "left_ankle", "right_ankle")
WARD_CHANNELS = ("acc_x", "acc_y", "acc_z", "gyr_x", "gyr_y")
WARD_ACTIVITIES = (
    "ReSt", "ReSi", "ReLi", "WaFo", "WaLe", "WaRi", "TuLe", "TuRi", "Up", "Down", "Jog", "Jump",
    "Push",
)  # fmt: skip
DSADS_CHANNELS = tuple(f"{kind}_{axis}" for kind in ("acc", "gyr", "mag") for axis in "xyz")
DSADS_LAYOUT = Layout(SENSORS, DSADS_CHANNELS, 25.0)
DSADS_ACTIVITIES = (
    "sitting", "standing", "lying_back", "lying_right", "stairs_up", "stairs_down",
    "elevator_still", "elevator_moving", "walking_lot", "treadmill_flat", "treadmill_inclined",
    "running", "stepper", "cross_trainer", "bike_horizontal", "bike_vertical", "rowing",
    "jumping", "basketball",
)  # fmt: skip
DSADS_SEGMENT = (125, 45)  # samples and columns

Trial = tuple[int, str, int, str, Array]
"""Activity from 1, subject, trial, name and `(T, S, C)` samples, of a published data set."""


def read_ward_raw(folder: Path, rate: float = WARD_RATE) -> Recordings:
    """Read the folder with `Subject<i>/a<j>t<k>.mat`; lost packets are interpolated."""
    files = _numbered(folder, r"Subject(\d+)[/\\]a(\d+)t(\d+)\.mat$", "Subject1/a1t1.mat")
    found = sorted((trial, subject, activity, path) for (subject, activity, trial), path in files)
    trials = (
        (activity, f"s{subject}", trial, path.name, _ward_samples(path, activity))
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
    for trial, subject, activity in np.ndindex(data.shape[2], *data.shape[:2]):
        cell = np.asarray(data[subject, activity, trial])
        name = f"data{{{subject + 1},{activity + 1},{trial + 1}}}"
        if cell.size:
            if cell.ndim != 2 or cell.shape[1] != 25:
                raise ValueError(f"{name} of {path} must be T × 25, got {cell.shape}")
            samples = cell.astype(np.float32).reshape(-1, 5, 5)
            trials.append((activity + 1, f"s{subject + 1}", trial + 1, name, samples))
    return _ward(trials, rate, path.name)


def _ward(trials: Iterable[Trial], rate: float, name: str) -> Recordings:
    return _published(trials, Layout(WARD_SENSORS, WARD_CHANNELS, rate), WARD_ACTIVITIES, name)


def _ward_samples(path: Path, activity: int) -> Array:
    """The samples of a raw file, `(T, S, C)`; lost packets are infinite."""
    record = _load_mat(path, "WearableData")
    names = record.dtype.names or ()
    if "Reading" not in names:
        raise ValueError(f"WearableData of {path} must have a field Reading")
    record = record.reshape(-1)[0]
    if "Class" in names:
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
    groups = sorted(set(zip(activity.tolist(), subject.tolist(), strict=True)))
    scale = scale.astype(np.float32)
    parts = (
        (a + 1, p + 1, x[(activity == a) & (subject == p)].astype(np.float32) * scale)
        for a, p in groups
    )
    return _dsads(parts, path.name)


def read_dsads_text(folder: Path) -> Recordings:
    """Read the folder with the original text files."""
    found: dict[tuple[int, int], dict[int, Path]] = {}
    files = _numbered(folder, r"a(\d+)[/\\]p(\d+)[/\\]s(\d+)\.txt$", "a01/p1/s01.txt")
    for (a, p, s), path in files:
        found.setdefault((a, p), {})[s] = path
    parts = (
        (a, p, np.stack([_dsads_segment(part[s]) for s in sorted(part)]))
        for (a, p), part in sorted(found.items())
    )
    return _dsads(parts, folder.name)


def _dsads_segment(path: Path) -> Array:
    try:
        segment = np.loadtxt(path, delimiter=",", dtype=np.float32, ndmin=2)
    except ValueError as error:
        raise ValueError(f"{path} must hold numbers separated by commas: {error}") from error
    if segment.shape != DSADS_SEGMENT:
        raise ValueError(f"{path} must hold 125 lines of 45 numbers, got {segment.shape}")
    return segment


def _dsads(groups: Iterable[tuple[int, int, Array]], name: str) -> Recordings:
    trials = (
        (a, f"p{p}", 0, f"a{a:02d}/p{p}", segments.reshape(-1, *DSADS_LAYOUT.shape))
        for a, p, segments in groups
    )
    return _published(trials, DSADS_LAYOUT, DSADS_ACTIVITIES, name)


def _published(
    trials: Iterable[Trial], layout: Layout, known: tuple[str, ...], name: str
) -> Recordings:
    recordings, lost = [], 0
    for activity, subject, trial, source, samples in trials:
        if not 1 <= activity <= len(known):
            raise ValueError(
                f"activities of {name} must be 1 to {len(known)}, got {activity} in {source}"
            )
        filled, count = fill(samples)
        lost += count
        recordings.append(Recording(filled, known[activity - 1], subject, trial, name=source))
    if not recordings:
        raise ValueError(f"{name} must hold at least one trial, but has none")
    present = {recording.activity for recording in recordings}
    activities = tuple(activity for activity in known if activity in present)
    notes = (f"{lost} numbers of lost packets were filled in",) if lost else ()
    return Recordings(layout, tuple(recordings), activities, name, notes)


def _numbered(folder: Path, pattern: str, example: str) -> list[tuple[tuple[int, ...], Path]]:
    """The files whose path matches a pattern, with the numbers in it."""
    matches = ((re.search(pattern, str(path)), path) for path in folder.rglob("*"))
    found = [(tuple(map(int, match.groups())), path) for match, path in matches if match]
    if not found:
        raise ValueError(f"{folder} must hold files such as {example}, but has none")
    return found

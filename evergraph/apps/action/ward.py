"""WARD, the data of the paper: 5 sensors × 5 channels, 13 actions, 20 subjects.

Two forms: the raw `WARD1.0/Subject<i>/a<j>t<k>.mat` with gravity, and the converted `ward.mat`, in
which every signal of every trial has been shifted and scaled by itself, test part included. Sources
disagree whether it was sampled at 30 or at 20 Hz, so that the rate is a parameter.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import loadmat
from scipy.io.matlab import MatReadError

from evergraph.apps.action.recording import Array, Layout, Recording, Recordings, fill

SENSORS = ("left_arm", "right_arm", "waist", "left_ankle", "right_ankle")
CHANNELS = ("acc_x", "acc_y", "acc_z", "gyr_x", "gyr_y")
ACTIVITIES = (
    "ReSt", "ReSi", "ReLi", "WaFo", "WaLe", "WaRi", "TuLe", "TuRi", "Up", "Down", "Jog", "Jump",
    "Push",
)  # fmt: skip
RATE = 30.0
SETTLE = 75  # samples that the paper's code drops at the beginning of a trial
_PLACE = re.compile(r"Subject(\d+)[/\\]a(\d+)t(\d+)\.mat$")


def read_raw(folder: Path, rate: float = RATE) -> Recordings:
    """Read the folder with `Subject<i>/a<j>t<k>.mat`; lost packets are filled in between."""
    found = []
    for path in folder.rglob("a*t*.mat"):
        match = _PLACE.search(str(path))
        if match:
            subject, action, trial = (int(part) for part in match.groups())
            found.append((trial, subject, action, path))
    if not found:
        raise ValueError(f"{folder} must hold files such as Subject1/a1t1.mat, but has none")
    recordings, lost = [], 0
    for trial, subject, action, path in sorted(found):
        samples, filled = fill(_trial(path, action))
        lost += filled
        recordings.append(_recording(samples, subject, action, trial, path.name))
    return _recordings(recordings, lost, rate, folder.name)


def read_converted(path: Path, rate: float = RATE) -> Recordings:
    """Read `ward.mat`: a cell `data` of subjects × actions × trials, each T × 25 or empty."""
    data = _load(path, "data")
    if data.dtype != object or data.ndim != 3:
        raise ValueError(
            f"data of {path} must be a cell of subjects × actions × trials, got {data.dtype} "
            f"of shape {data.shape}"
        )
    recordings, lost = [], 0
    for trial in range(data.shape[2]):
        for subject in range(data.shape[0]):
            for action in range(data.shape[1]):
                cell = np.asarray(data[subject, action, trial])
                if not cell.size:
                    continue
                name = f"data{{{subject + 1},{action + 1},{trial + 1}}}"
                if cell.ndim != 2 or cell.shape[1] != len(SENSORS) * len(CHANNELS):
                    raise ValueError(f"{name} of {path} must be T × 25, got {cell.shape}")
                samples, filled = fill(_sensors(cell))
                lost += filled
                recordings.append(_recording(samples, subject + 1, action + 1, trial + 1, name))
    return _recordings(recordings, lost, rate, path.name)


def _trial(path: Path, action: int) -> Array:
    """The samples of a raw file, `(T, S, C)`; lost packets are infinite."""
    record = _load(path, "WearableData")
    if record.dtype.names is None or "Reading" not in record.dtype.names:
        raise ValueError(f"WearableData of {path} must have a field Reading")
    record = record.reshape(-1)[0]
    if "Class" in (record.dtype.names or ()):
        label = str(np.asarray(record["Class"]).reshape(-1)[0]).strip()  # a number or a text
        if label and int(float(label)) != action:
            raise ValueError(f"{path} says it is of class {label}, but its name says {action}")
    cells = np.asarray(record["Reading"], dtype=object).reshape(-1)
    if len(cells) != len(SENSORS):
        raise ValueError(f"Reading of {path} must have {len(SENSORS)} sensors, got {len(cells)}")
    parts = [np.asarray(cell, dtype=np.float64) for cell in cells]
    for part in parts:
        if part.ndim != 2 or part.shape[1] != len(CHANNELS):
            raise ValueError(f"every sensor of {path} must be T × 5, got {part.shape}")
    length = min(len(part) for part in parts)
    return np.stack([part[:length] for part in parts], axis=1).astype(np.float32)


def _load(path: Path, variable: str) -> Array:
    try:
        file: dict[str, Any] = loadmat(path)
    except (OSError, ValueError, NotImplementedError, TypeError, MatReadError) as error:
        raise ValueError(f"{path} is not a readable .mat file: {error}") from error
    if variable not in file:
        raise ValueError(f"{path} must hold the variable {variable}")
    return np.asarray(file[variable])


def _sensors(samples: Array) -> Array:
    shape = (len(samples), len(SENSORS), len(CHANNELS))
    return np.asarray(samples, dtype=np.float32).reshape(shape)


def _recording(samples: Array, subject: int, action: int, trial: int, name: str) -> Recording:
    if not 1 <= action <= len(ACTIVITIES):
        raise ValueError(f"actions of WARD are 1 to {len(ACTIVITIES)}, got {action} in {name}")
    return Recording(samples, ACTIVITIES[action - 1], f"s{subject}", trial, name=name)


def _recordings(made: list[Recording], lost: int, rate: float, name: str) -> Recordings:
    if not made:
        raise ValueError(f"{name} must hold at least one trial, but has none")
    present = {recording.activity for recording in made}
    activities = tuple(activity for activity in ACTIVITIES if activity in present)
    notes = (f"{lost} numbers of lost packets were filled in",) if lost else ()
    return Recordings(Layout(SENSORS, CHANNELS, rate), tuple(made), activities, name, notes)

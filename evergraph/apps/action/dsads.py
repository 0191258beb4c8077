"""UCI Daily and Sports Activities (DSADS): 5 sensors × 9 channels, 19 activities, 8 subjects.

Either the original text layout `aXX/pY/sZZ.txt` (125 samples × 45 columns each), or one compressed
file with the arrays `x` (segments, 125, 45) of integers, `scale` (45,), `activity` and `subject`.
The 60 segments of one subject and activity follow each other in time and make one recording.
"""

from __future__ import annotations

import re
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from evergraph.apps.action.recording import Array, Layout, Recording, Recordings

LAYOUT = Layout(
    sensors=("torso", "right_arm", "left_arm", "right_leg", "left_leg"),
    channels=("acc_x", "acc_y", "acc_z", "gyr_x", "gyr_y", "gyr_z", "mag_x", "mag_y", "mag_z"),
    rate=25.0,
)
ACTIVITIES = (
    "sitting", "standing", "lying_back", "lying_right", "stairs_up", "stairs_down",
    "elevator_still", "elevator_moving", "walking_lot", "treadmill_flat", "treadmill_inclined",
    "running", "stepper", "cross_trainer", "bike_horizontal", "bike_vertical", "rowing",
    "jumping", "basketball",
)  # fmt: skip
SEGMENT = 125
ARRAYS = ("x", "scale", "activity", "subject")
_PLACE = re.compile(r"a(\d+)[/\\]p(\d+)[/\\]s(\d+)\.txt$")


def read_npz(path: Path) -> Recordings:
    """Read the compressed file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in ARRAYS if name in file.files}
    except (OSError, EOFError, ValueError, BadZipFile, AttributeError) as error:
        raise ValueError(f"{path} is not a readable .npz file: {error}") from error
    missing = [name for name in ARRAYS if name not in arrays]
    if missing:
        raise ValueError(f"{path} must hold the arrays {', '.join(missing)} too")
    x, scale = arrays["x"], arrays["scale"].astype(np.float32)
    activity, subject = arrays["activity"], arrays["subject"]
    if x.ndim != 3 or x.shape[1:] != (SEGMENT, 45):
        raise ValueError(f"x of {path} must have shape (N, {SEGMENT}, 45), got {x.shape}")
    groups = {}
    for a, p in sorted(set(zip(activity.tolist(), subject.tolist(), strict=True))):
        chosen = (activity == a) & (subject == p)
        groups[a, p] = x[chosen].reshape(-1, 45).astype(np.float32) * scale
    return _recordings(groups, path)


def read_text(folder: Path) -> Recordings:
    """Read the folder with the original text files."""
    found: dict[tuple[int, int], dict[int, Path]] = {}
    for path in folder.rglob("s*.txt"):
        match = _PLACE.search(str(path))
        if match:
            a, p, s = (int(part) for part in match.groups())
            found.setdefault((a - 1, p - 1), {})[s] = path
    if not found:
        raise ValueError(f"{folder} must hold files such as a01/p1/s01.txt, but has none")
    groups = {
        place: np.concatenate([_segment(files[s]) for s in sorted(files)])
        for place, files in sorted(found.items())
    }
    return _recordings(groups, folder)


def _segment(path: Path) -> Array:
    try:
        segment = np.loadtxt(path, delimiter=",", dtype=np.float32, ndmin=2)
    except ValueError as error:
        raise ValueError(f"{path} must hold numbers separated by commas: {error}") from error
    if segment.shape != (SEGMENT, 45):
        raise ValueError(f"{path} must hold {SEGMENT} lines of 45 numbers, got {segment.shape}")
    return segment


def _recordings(groups: dict[tuple[int, int], Array], source: Path) -> Recordings:
    shape = (-1, len(LAYOUT.sensors), len(LAYOUT.channels))
    made = tuple(
        Recording(samples.reshape(shape), ACTIVITIES[a], f"p{p + 1}", name=f"a{a + 1:02d}/p{p + 1}")
        for (a, p), samples in groups.items()
    )
    present = {recording.activity for recording in made}
    activities = tuple(name for name in ACTIVITIES if name in present)
    return Recordings(LAYOUT, made, activities, source.name)

"""Loading recordings: published data sets, generated data, or a folder of the user's files."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np

from evergraph.apps.action.csv_stream import Block, Header, read_file
from evergraph.apps.action.generate import generate
from evergraph.apps.action.published import (
    WARD_RATE,
    read_dsads_npz,
    read_dsads_text,
    read_ward_mat,
    read_ward_raw,
)
from evergraph.apps.action.recording import Array, Layout, Recording, Recordings
from evergraph.apps.action.resample import check_rate, resample

RATE = 25.0

Progress = Callable[[int, int], None]


def load(
    where: str, rate: float | None = None, progress: Progress = lambda done, total: None
) -> Recordings:
    """Detect the kind of data and read it.

    Args:
        where: `generated`; a DSADS `.npz` file or its folder `a01/p1/s01.txt`; a WARD `ward.mat`
            or its folder `Subject1/a1t1.mat`; or a folder of CSV or Parquet files.
        rate: samples per second: the rate of WARD, which is uncertain, or the rate that the
            user's own files are resampled to.
        progress: called with the number of files read and of all files.
    """
    if where == "generated":
        return generate()
    path = Path(where)
    if not path.exists():
        raise ValueError(f"no file or folder at {path}; give one, or `generated` for a first try")
    if path.is_file():
        if path.suffix == ".npz":
            return read_dsads_npz(path)
        if path.suffix == ".mat":
            return read_ward_mat(path, rate or WARD_RATE)
        raise ValueError(
            f"{path} must be a DSADS .npz or a WARD .mat file; put recordings of your own, as CSV "
            "or Parquet, into a folder and name the folder"
        )
    if next(path.rglob("a*t*.mat"), None) is not None:
        return read_ward_raw(path, rate or WARD_RATE)
    if next(path.rglob("a[0-9]*/p[0-9]*/s[0-9]*.txt"), None) is not None:
        return read_dsads_text(path)
    return read_folder(path, rate or RATE, progress)


def read_folder(
    folder: Path, rate: float = RATE, progress: Progress = lambda done, total: None
) -> Recordings:
    """Read every `*.csv` and `*.parquet` file of a folder.

    Columns: `time` in seconds; `sensor.channel` for every signal, with the same channels for
    every sensor; optionally `activity` (or `label`) and `subject`. Without these columns they are
    taken from the file name `activity-subject-trial.csv`, whose last two parts are optional.
    Samples are resampled to one rate. Sections in which a sensor is missing for more than a
    quarter of a second are dropped and reported in the notes.

    Args:
        folder: the folder.
        rate: samples per second to resample to.
        progress: called with the number of files read and of all files.
    """
    paths = sorted(p for p in folder.iterdir() if p.suffix.lower() in (".csv", ".parquet"))
    if not paths:
        raise ValueError(f"{folder} must hold recordings as .csv or .parquet files, but has none")
    recordings: list[Recording] = []
    notes: list[str] = []
    layout: Layout | None = None
    for number, path in enumerate(paths):
        header, block = read_file(path)
        if layout is None:
            layout = Layout(header.sensors, header.channels, rate)
        extra = [name for name in header.sensors if name not in layout.sensors]
        extra += [name for name in header.channels if name not in layout.channels]
        if extra:
            notes.append(f"{path.name}: left out, as not in {paths[0].name}: {', '.join(extra)}")
        if header.ignored:
            notes.append(f"{path.name}: columns left out: {', '.join(header.ignored)}")
        recordings += recordings_of(path, header, block, layout, notes)
        progress(number + 1, len(paths))
    assert layout is not None
    unlabeled = [recording.name for recording in recordings if not recording.activity]
    if unlabeled:
        raise ValueError(
            f"{unlabeled[0]} has rows without an activity; add a column 'activity', or leave the "
            "rows out"
        )
    activities = tuple(sorted({recording.activity for recording in recordings}))
    return Recordings(layout, tuple(recordings), activities, folder.name, tuple(notes))


def recordings_of(
    path: Path, header: Header, block: Block, layout: Layout, notes: list[str]
) -> list[Recording]:
    """One recording per run of rows with the same activity and subject; appends to `notes`."""
    values = block.values[:, header.order(layout)]
    check_rate(block.time, layout.rate, str(path))
    activity, subject, trial = _parse_name(path)
    labels = block.labels if header.label >= 0 else [activity] * len(block.time)
    subjects = block.subjects if header.subject >= 0 else [subject] * len(block.time)
    kinds = list(zip(labels, subjects, strict=True))
    edges = [0, *(i for i in range(1, len(kinds)) if kinds[i] != kinds[i - 1]), len(kinds)]
    recordings: list[Recording] = []
    for first, last in pairwise(edges):
        pieces, breaks = resample(block.time[first:last], values[first:last], layout.rate)
        for piece in pieces:
            for start, samples in _complete(piece.samples):
                samples = samples.astype(np.float32).reshape(-1, *layout.shape)
                begin = piece.start + start / layout.rate
                recordings.append(Recording(samples, *kinds[first], trial, begin, path.name))
            notes += _missing(path.name, piece.samples, piece.start, layout)
        notes += [f"{path.name}: nothing between {a:g} s and {b:g} s" for a, b in breaks]
    return recordings


def _complete(samples: Array) -> list[tuple[int, Array]]:
    """The runs of samples without NaN, each with the index of its first sample."""
    good = np.isfinite(samples).all(axis=1)
    change = np.flatnonzero(np.diff(np.concatenate([[False], good, [False]]).astype(int)))
    return [(int(a), samples[a:b]) for a, b in zip(change[::2], change[1::2], strict=True)]


def _missing(name: str, samples: Array, start: float, layout: Layout) -> list[str]:
    """A note for every sensor with samples that are NaN."""
    notes = []
    finite = np.isfinite(samples).reshape(len(samples), *layout.shape)
    missing = np.asarray(~finite.all(axis=2))
    for sensor, gone in zip(layout.sensors, missing.T, strict=True):
        if gone.any():
            seconds, first = int(gone.sum()) / layout.rate, int(np.argmax(gone)) / layout.rate
            notes.append(
                f"{name}: {seconds:g} s without {sensor}, from {start + first:g} s on, cut out"
            )
    return notes


def _parse_name(path: Path) -> tuple[str, str, int]:
    """Activity, subject and trial from a file name."""
    parts = path.stem.split("-")
    subject = parts[1] if len(parts) > 1 else "someone"
    trial = int(parts[2]) if len(parts) > 2 and parts[2].isdigit() else 0
    return parts[0], subject, trial

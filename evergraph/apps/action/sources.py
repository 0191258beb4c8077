"""Loading recordings: published data sets, generated data, CSV and Parquet files of the user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from evergraph.apps.action.csv_stream import Block, Header, read_file
from evergraph.apps.action.published import (
    WARD_RATE,
    read_dsads_npz,
    read_dsads_text,
    read_ward_mat,
    read_ward_raw,
)
from evergraph.apps.action.recording import (
    Layout,
    Recording,
    Recordings,
    generate,
)
from evergraph.apps.action.resample import Resampler, check_rate

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
    where: Path,
    rate: float = RATE,
    progress: Progress = lambda done, total: None,
    layout: Layout | None = None,
    activity: str = "",
) -> Recordings:
    """Read every `*.csv` and `*.parquet` file of a folder, or one such file.

    Columns: `time` in seconds; `sensor.channel` for every signal, with the same channels for
    every sensor; optionally `activity` (or `label`) and `subject`. Without these columns they are
    taken from the file name `activity-subject-trial.csv`, whose last two parts are optional.
    Samples are resampled to one rate. Sections in which a sensor is missing for more than a
    quarter of a second are dropped and reported in the notes.

    The signals are those of the first file, or `layout`, which has its own rate; `activity` is
    what all files show, whatever they say.
    """
    paths = [where]
    if where.is_dir():
        paths = sorted(p for p in where.iterdir() if p.suffix.lower() in (".csv", ".parquet"))
    if not paths:
        raise ValueError(f"{where} must hold recordings as .csv or .parquet files, but has none")
    recordings: list[Recording] = []
    notes: list[str] = []
    reference = paths[0].name if layout is None else "the model"
    for number, path in enumerate(paths):
        header, block = read_file(path)
        layout = layout or Layout(header.sensors, header.channels, rate)
        extra = [name for name in header.sensors if name not in layout.sensors]
        extra += [name for name in header.channels if name not in layout.channels]
        if extra:
            notes.append(f"{path.name}: left out, as not in {reference}: {', '.join(extra)}")
        if header.ignored:
            notes.append(f"{path.name}: columns left out: {', '.join(header.ignored)}")
        recordings += _recordings_of(path, header, block, layout, notes)
        progress(number + 1, len(paths))
    if activity:
        recordings = [replace(recording, activity=activity) for recording in recordings]
    unlabeled = [recording.name for recording in recordings if not recording.activity]
    if unlabeled:
        raise ValueError(
            f"{unlabeled[0]} has rows without an activity; add a column 'activity', or leave the "
            "rows out"
        )
    assert layout is not None
    activities = tuple(sorted({recording.activity for recording in recordings}))
    return Recordings(layout, tuple(recordings), activities, where.name, tuple(notes))


def _recordings_of(
    path: Path, header: Header, block: Block, layout: Layout, notes: list[str]
) -> list[Recording]:
    """One recording per run of rows with the same activity and subject; appends to `notes`."""
    values = block.values[:, layout.order(header.signals, header.source)]
    check_rate(block.time, layout.rate, str(path))
    told, who, number, *_ = [*path.stem.split("-"), "", ""]
    trial = int(number) if number.isdigit() else 0
    labels = block.labels if header.label >= 0 else [told] * len(values)
    subjects = block.subjects if header.subject >= 0 else [who or "someone"] * len(values)
    kinds = list(zip(labels, subjects, strict=True))
    edges = [0, *(i for i in range(1, len(kinds)) if kinds[i] != kinds[i - 1]), len(kinds)]
    recordings: list[Recording] = []
    for first, last in pairwise(edges):
        resampler = Resampler(layout.rate)
        for start, samples, _ in resampler.feed(block.time[first:last], values[first:last], True):
            samples = samples.reshape(-1, *layout.shape)
            there = np.asarray(np.isfinite(samples).all(axis=2))
            whole = np.concatenate([[False], there.all(axis=1), [False]])
            change = np.flatnonzero(np.diff(whole.astype(int)))  # runs without NaN
            for a, b in zip(change[::2].tolist(), change[1::2].tolist(), strict=True):
                part, begin = samples[a:b].astype(np.float32), start + a / layout.rate
                recordings.append(Recording(part, *kinds[first], trial, begin, path.name))
            for sensor, gone in zip(layout.sensors, np.logical_not(there).T, strict=True):
                if gone.any():
                    seconds, at = gone.sum() / layout.rate, start + gone.argmax() / layout.rate
                    notes.append(
                        f"{path.name}: {seconds:g} s without {sensor}, from {at:g} s on, cut out"
                    )
        notes += [f"{path.name}: nothing between {a:g} s and {b:g} s" for a, b in resampler.breaks]
    return recordings

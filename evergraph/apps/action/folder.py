"""The user's own recordings: a folder of CSV or Parquet files, one per recording."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from evergraph.apps.action.recording import Array, Layout, Recording, Recordings
from evergraph.apps.action.resample import Resampler, check_rate, join
from evergraph.apps.action.rows import Block, Header, read_file

RATE = 25.0


def read_folder(
    folder: Path, rate: float = RATE, progress: Callable[[int, int], None] = lambda done, all_: None
) -> Recordings:
    """Read every `*.csv` and `*.parquet` of a folder.

    Columns: `time` in seconds; `sensor.channel` for every signal, the same channels for every
    sensor; `activity` (or `label`) and `subject` if you like. Without them the name of the file
    tells: `activity-subject-trial.csv`, of which the last two may be left out. Samples are
    brought to one rate. Stretches where a sensor is missing for longer than a quarter of a second
    are cut out and noted.

    Args:
        folder: the folder.
        rate: samples per second to work with.
        progress: called with the files read and all files.
    """
    paths = sorted(p for p in folder.iterdir() if p.suffix.lower() in (".csv", ".parquet"))
    if not paths:
        raise ValueError(f"{folder} must hold recordings as .csv or .parquet files, but has none")
    made: list[Recording] = []
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
        made += recordings_of(path, header, block, layout, notes)
        progress(number + 1, len(paths))
    assert layout is not None
    if any(not recording.activity for recording in made):
        bare = next(recording.name for recording in made if not recording.activity)
        raise ValueError(
            f"{bare} has rows without an activity; add a column 'activity', or leave the rows out"
        )
    activities = tuple(dict.fromkeys(recording.activity for recording in made))
    return Recordings(layout, tuple(made), tuple(sorted(activities)), folder.name, tuple(notes))


def recordings_of(
    path: Path, header: Header, block: Block, layout: Layout, notes: list[str]
) -> list[Recording]:
    """The recordings in one file: one for each run of rows with the same activity and subject."""
    order = columns_for(header, layout)
    check_rate(block.time, layout.rate, str(path))
    activity, subject, trial = _from_name(path)
    labels = block.labels if header.label >= 0 else [activity] * len(block.time)
    subjects = block.subjects if header.subject >= 0 else [subject] * len(block.time)
    kinds = list(zip(labels, subjects, strict=True))
    edges = [0, *(i for i in range(1, len(kinds)) if kinds[i] != kinds[i - 1]), len(kinds)]
    made: list[Recording] = []
    for first, last in pairwise(edges):
        resampler = Resampler(layout.rate)
        pieces = resampler.feed(block.time[first:last], block.values[first:last][:, order])
        for piece in join(pieces + resampler.flush()):
            for start, samples in _whole(piece.samples):
                shape = (-1, len(layout.sensors), len(layout.channels))
                made.append(
                    Recording(
                        samples.astype(np.float32).reshape(shape),
                        *kinds[first],
                        trial=trial,
                        start=piece.start + start / layout.rate,
                        name=path.name,
                    )
                )
            _note(path, piece.samples, piece.start, layout, notes)
        notes += [f"{path.name}: nothing between {a:g} s and {b:g} s" for a, b in resampler.breaks]
    return made


def columns_for(header: Header, layout: Layout) -> list[int]:
    """Where the signals of a layout stand among those of a table; all must be there."""
    found = [f"{s}.{c}" for s in header.sensors for c in header.channels]
    missing = [name for name in layout.columns if name not in found]
    if missing:
        raise ValueError(
            f"{header.source} must have the columns {', '.join(layout.columns)}; "
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
        )
    return [found.index(name) for name in layout.columns]


def _whole(samples: Array) -> list[tuple[int, Array]]:
    """The stretches without anything missing, with their places."""
    good = np.isfinite(samples).all(axis=1)
    change = np.flatnonzero(np.diff(np.concatenate([[False], good, [False]]).astype(int)))
    return [(int(a), samples[a:b]) for a, b in zip(change[::2], change[1::2], strict=True)]


def _note(path: Path, samples: Array, start: float, layout: Layout, notes: list[str]) -> None:
    there = np.isfinite(samples).reshape(len(samples), len(layout.sensors), -1)
    missing = np.asarray(~there.all(axis=2))
    for number, sensor in enumerate(layout.sensors):
        count = int(missing[:, number].sum())
        if count:
            first = start + int(np.argmax(missing[:, number])) / layout.rate
            notes.append(
                f"{path.name}: {count / layout.rate:g} s without {sensor}, "
                f"from {first:g} s on, cut out"
            )


def _from_name(path: Path) -> tuple[str, str, int]:
    parts: Sequence[str] = path.stem.split("-")
    subject = parts[1] if len(parts) > 1 else "someone"
    trial = int(parts[2]) if len(parts) > 2 and parts[2].isdigit() else 0
    return parts[0], subject, trial

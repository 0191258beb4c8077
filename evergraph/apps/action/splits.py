"""Which recordings are learned from, and which are held back to test on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from evergraph.apps.action.recording import Recording, Recordings
from evergraph.apps.action.windows import INSTANTS
from evergraph.checks import check_one_of


def split_in_time(
    data: Recordings, share: float = 0.8, settle: int = 0
) -> tuple[Recordings, Recordings]:
    """The paper's split: train on the first share of each recording, test on the rest.

    Cut windows after the split, so that none overlaps both parts. `settle` samples are dropped at
    the start of each recording (the paper's code drops 75).
    """
    if not 0 < share < 1:
        raise ValueError(f"share must lie between 0 and 1, got {share}")
    rate = data.layout.rate
    early, late = [], []
    for recording in data.recordings:
        at = settle + round(share * (len(recording) - settle))
        early.append(recording.part(settle, at, rate))
        late.append(recording.part(at, len(recording), rate))
    return replace(data, recordings=tuple(early)), replace(data, recordings=tuple(late))


def divide(
    data: Recordings, split: str, leave_out: str = ""
) -> tuple[Recordings, Recordings | None]:
    """Recordings to learn from and to test on: `split` in `time`, `none`, or by subjects.

    `leave_out` names subjects to test on, separated by commas, whatever the split.
    """
    if leave_out:
        gone = [name.strip() for name in leave_out.split(",") if name.strip()]
        if set(gone) >= set(data.subjects):
            raise ValueError(f"--leave-out must leave somebody to learn from, got {leave_out!r}")
        return data.without(gone), data.of(gone)
    check_one_of("split", split, ("time", "none"))
    return split_in_time(data) if split == "time" else (data, None)


def divide_for(
    data: Recordings, length: int, share: float = 0.8
) -> tuple[Recordings, Recordings, list[str]]:
    """Split in time, but hold back whole recordings where the ends hold no window.

    An activity whose recordings are so short that none of their ends has `length` samples gives
    every fifth of its recordings, or the last. Returns the activities that this was done for too.
    """
    early, late = split_in_time(data, share)
    tested = {one.activity for one in late.recordings if len(one) >= length}
    short = [name for name in data.activities if name not in tested]
    every = round(1 / (1 - share))
    train, test, moved = [], [], []
    for name in data.activities:
        mine = [i for i, one in enumerate(data.recordings) if one.activity == name]
        usable = [i for i in mine if len(data.recordings[i]) >= length]
        if name not in short or len(usable) < 2:
            train += [early.recordings[i] for i in mine if name not in short]
            train += [data.recordings[i] for i in mine if name in short]
            test += [late.recordings[i] for i in mine if name not in short]
            continue
        held = set(usable[every - 1 :: every] or usable[-1:])
        train += [data.recordings[i] for i in mine if i not in held]
        test += [data.recordings[i] for i in sorted(held)]
        moved.append(name)
    return replace(data, recordings=tuple(train)), replace(data, recordings=tuple(test)), moved


def propose_length(recordings: Sequence[Recording], most: int = 50) -> int:
    """The longest window up to `most` samples that half of the recordings of each activity hold.

    They hold two of them side by side, so that one may be learned and one tested.

    Example:
        >>> one = Recording(np.zeros((50, 5, 9), np.float32), "sitting", "p1")
        >>> propose_length([one])
        24
    """
    sizes: dict[str, list[int]] = {}
    for one in recordings:
        sizes.setdefault(one.activity, []).append(len(one))
    shortest = min((int(np.median(found)) for found in sizes.values()), default=most)
    return max(min(most, shortest // 2) // INSTANTS * INSTANTS, 4)


class HeldBack(NamedTuple):
    """Recordings to learn from and to test on, and what the user should know of the split."""

    training: Recordings
    testing: Recordings | None
    known: tuple[str, ...]  # activities that can be learned
    untested: tuple[str, ...]  # those of them that have no window to test on
    unlearned: tuple[str, ...]  # activities all of whose recordings are shorter than a window
    notes: list[str]


def hold_back(data: Recordings, split: str, leave_out: str, length: int) -> HeldBack:
    """The same as `divide`, with whole recordings held back where their ends are too short."""
    short = _without_windows(data.recordings, length)
    notes = []
    if short:
        longest = ", ".join(f"{name} has {most}" for name, most in short.items())
        notes.append(
            f"A window takes {length} samples, but the longest recording of {longest}: "
            f"use --length {propose_length(data.recordings, length)} or less."
        )
    if split == "time" and not leave_out:
        training, testing, moved = divide_for(data, length)
        if moved:
            notes.append(
                f"The ends of recordings of {', '.join(moved)} are shorter than a window: every "
                "fifth recording is held back whole."
            )
    else:
        training, testing = divide(data, split, leave_out)  # type: ignore[assignment]
    there = {one.activity for one in training.recordings if len(one) >= length}
    known = tuple(name for name in data.activities if name in there)
    if testing is None:
        return HeldBack(training, None, known, known, tuple(short), notes)
    held = tuple(one for one in testing.recordings if one.activity in there)
    tested = {one.activity for one in held if len(one) >= length}
    if not tested:
        raise ValueError(
            f"what is held back must have a window of {length} samples to test on, but has none; "
            "use --split none, --leave-out or a shorter --length"
        )
    only = sorted({one.activity for one in testing.recordings} - there)
    if only:
        notes.append(
            f"Not tested, because nothing like it is left to learn from: {', '.join(only)}"
        )
    untested = tuple(name for name in known if name not in tested)
    testing = replace(testing, recordings=held)
    return HeldBack(training, testing, known, untested, tuple(short), notes)


def _without_windows(recordings: Sequence[Recording], length: int) -> dict[str, int]:
    """Activities whose longest recording is shorter than a window, with its samples."""
    longest: dict[str, int] = {}
    for one in recordings:
        longest[one.activity] = max(longest.get(one.activity, 0), len(one))
    return {name: size for name, size in longest.items() if size < length}

"""Windows of two instants cut from recordings; each sensor at each instant is a node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from evergraph.apps.action.recording import Array, Recording, Recordings
from evergraph.checks import check_one_of, check_positive
from evergraph.graph.neighbors import Neighbors
from evergraph.stream.batch import Batch
from evergraph.stream.schedule import Schedule, shuffled

INSTANTS = 2
Scenario = Literal["regular", "paper", "class", "subject"]


@dataclass(frozen=True, eq=False)
class Windows:
    """N labeled windows: the source of a stream."""

    x: Tensor  # (N, 2 S, C, F) float32: the sensors of the first instant, then of the second
    target: Tensor  # (N,) int64, index of the activity; -1 if unknown
    source: Tensor  # (N,) int64, index of the recording
    skipped: int = 0  # recordings shorter than a window

    def __len__(self) -> int:
        return len(self.x)

    def batch(self, index: Tensor, task: int = -1, position: int | None = None) -> Batch:
        """The windows at these numbers, whatever has come before them."""
        return as_batch(self.x[index], self.target[index], task, index)


def as_batch(
    x: Tensor, target: Tensor | None = None, task: int = -1, node: Tensor | None = None
) -> Batch:
    """Windows `(B, 2 S, C, F)` as a batch without neighbors: x holds all nodes of a window."""
    unknown = torch.full((len(x),), -1)
    none = Neighbors(x.new_zeros(0, *x.shape[-2:]), torch.zeros(0, dtype=torch.long))
    target, node = (unknown if part is None else part for part in (target, node))
    return Batch(x, none, target, torch.full((len(x),), task), node)


def check_windows(length: int, stride: int) -> None:
    """Raise if windows of this length do not divide into two instants, or do not advance."""
    if length < 4 or length % INSTANTS:
        raise ValueError(f"length must be even and at least 4, got {length}")
    check_positive(stride=stride)


def cut(
    recordings: Sequence[Recording], activities: Sequence[str], length: int = 50, stride: int = 50
) -> Windows:
    """All windows of all recordings, in order; recordings that are too short are skipped.

    `length` samples make a window, half of them each instant; `stride` is from one to the next.

    Example:
        >>> one = Recording(np.zeros((120, 5, 9), np.float32), "sitting", "p1")
        >>> cut([one], ["sitting"], length=50, stride=25).x.shape
        torch.Size([3, 10, 9, 25])
    """
    check_windows(length, stride)
    label = {activity: number for number, activity in enumerate(activities)}
    found = []
    for number, recording in enumerate(recordings):
        first = np.arange(0, len(recording) - length + 1, stride)
        if len(first):
            x = torch.from_numpy(nodes(recording.samples, first, length))
            target = torch.full((len(x),), label.get(recording.activity, -1))
            found.append((x, target, torch.full_like(target, number)))
    skipped = len(recordings) - len(found)
    if not found:
        raise ValueError(
            f"no recording holds a window of {length} samples: {skipped} are shorter; "
            "record longer or take shorter windows"
        )
    x, target, source = (torch.cat(part) for part in zip(*found, strict=True))
    return Windows(x, target, source, skipped)


def join(first: Windows, second: Windows) -> Windows:
    """All windows in one source; the recordings of the second are counted on from the first's."""
    moved = second.source + (int(first.source.max()) + 1 if len(first) else 0)
    return Windows(
        torch.cat([first.x, second.x]),
        torch.cat([first.target, second.target]),
        torch.cat([first.source, moved]),
        first.skipped + second.skipped,
    )


def nodes(samples: Array, first: Array, length: int) -> Array:
    """The windows of samples `(T, S, C)` that begin at `first`: `(N, 2 S, C, F)` float32."""
    count, features, (sensors, channels) = len(first), length // INSTANTS, samples.shape[1:]
    chosen = samples[first[:, None] + np.arange(length)]  # N, T, S, C
    halves = chosen.reshape(count, INSTANTS, features, sensors, channels)
    out = np.ascontiguousarray(halves.transpose(0, 1, 3, 4, 2), dtype=np.float32)
    return out.reshape(count, INSTANTS * sensors, channels, features)


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


def schedule(
    scenario: Scenario,
    windows: Windows,
    data: Recordings,
    batch_size: int = 50,
    epochs: int = 1,
    seed: int = 0,
) -> Schedule:
    """Order the windows that were cut from the recordings of data.

    `regular` shuffles them, in `epochs` passes: not a stream, but the bound above one. `paper` is
    the order of the paper's code: trial by trial, subject by subject, activities cycling; a task
    is a subject's trial. `class` brings all of one activity, then the next, in random order of
    activities, each shuffled. `subject` brings one person after the other with all activities
    shuffled, as a data set of a new user would come.
    """
    check_one_of("scenario", scenario, get_args(Scenario))
    check_positive(epochs=epochs)
    rng = np.random.default_rng(seed)
    if scenario == "regular":
        every = torch.arange(len(windows))
        passes = {f"pass {i + 1}": shuffled(every, rng) for i in range(epochs)}
        return Schedule.from_groups(passes, batch_size, epochs)
    members: dict[str, list[int]] = {}
    for number, recording in enumerate(data.recordings):
        name = {
            "paper": f"{recording.trial:04d} {recording.subject}",
            "class": recording.activity,
            "subject": recording.subject,
        }[scenario]
        members.setdefault(name, []).append(number)
    groups = {}
    if scenario == "paper":  # activities in their order, windows in the order of time
        for name in sorted(members, key=_natural):
            kind = {n: data.activities.index(data.recordings[n].activity) for n in members[name]}
            mine = sorted(kind, key=kind.__getitem__)
            groups[name] = torch.cat([(windows.source == n).nonzero()[:, 0] for n in mine])
    else:
        for name in [list(members)[i] for i in rng.permutation(len(members))]:
            chosen = torch.isin(windows.source, torch.tensor(members[name]))
            groups[name] = shuffled(chosen.nonzero()[:, 0], rng)
    return Schedule.from_groups(groups, batch_size)


def _natural(name: str) -> tuple[object, ...]:
    """Sort p2 before p10."""
    digits = "".join(c if c.isdigit() else " " for c in name).split()
    letters = "".join(c for c in name if not c.isdigit())
    return (*(int(d) for d in digits), letters)

"""Windows of two instants cut from recordings; each sensor at each instant is a node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from evergraph.apps.action.recording import Array, Recording, Recordings
from evergraph.checks import check_one_of, check_positive
from evergraph.graph.neighbors import Neighbors
from evergraph.stream.batch import Batch
from evergraph.stream.schedule import Schedule, shuffled

INSTANTS = 2
GAP = 1.5  # samples between two recordings that follow each other
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
    recordings: Sequence[Recording],
    activities: Sequence[str],
    length: int = 50,
    stride: int = 50,
    across: float | None = None,
) -> Windows:
    """All windows of all recordings, in order; recordings that are too short are skipped.

    `length` samples make a window, half of them each instant; `stride` is from one to the next.
    With `across`, the rate of the samples, recordings of one person that follow each other in a
    file without a break are cut as one, and a window shows the activity of most of its samples.

    Example:
        >>> one = Recording(np.zeros((120, 5, 9), np.float32), "sitting", "p1")
        >>> cut([one], ["sitting"], length=50, stride=25).x.shape
        torch.Size([3, 10, 9, 25])
    """
    check_windows(length, stride)
    label = {activity: number for number, activity in enumerate(activities)}
    found = []
    for run in _runs(recordings, across):
        mine = [recordings[number] for number in run]
        samples = np.concatenate([one.samples for one in mine]) if len(run) > 1 else mine[0].samples
        first = np.arange(0, len(samples) - length + 1, stride)
        if len(first):
            sizes = [len(one) for one in mine]
            shown = np.repeat([label.get(one.activity, -1) for one in mine], sizes)
            inside = first[:, None] + np.arange(length)
            target = torch.from_numpy(shown[inside]).mode(dim=1).values.long()
            source = torch.from_numpy(np.repeat(run, sizes)[first + length // 2])
            found.append((torch.from_numpy(nodes(samples, first, length)), target, source))
    used = {int(n) for _, _, source in found for n in source.unique()}
    skipped = sum(len(one) < length for n, one in enumerate(recordings) if n not in used)
    if not found:
        raise ValueError(
            f"no recording holds a window of {length} samples: {skipped} are shorter; "
            "record longer or take shorter windows"
        )
    x, target, source = (torch.cat(part) for part in zip(*found, strict=True))
    return Windows(x, target, source, skipped)


def _runs(recordings: Sequence[Recording], rate: float | None) -> list[list[int]]:
    """The numbers of recordings that are cut as one: each for itself if there is no rate."""
    found: list[list[int]] = []
    for number, one in enumerate(recordings):
        last = recordings[number - 1] if number else None
        follows = (
            rate is not None
            and last is not None
            and (last.name, last.subject, last.trial) == (one.name, one.subject, one.trial)
            and abs(one.start - last.start - len(last) / rate) * rate <= GAP
        )
        if follows:
            found[-1].append(number)
        else:
            found.append([number])
    return found


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

"""The order in which windows come: the paper's stream, class by class, or person by person."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from evergraph.apps.action.recording import Recordings
from evergraph.apps.action.windows import Windows
from evergraph.stream.batch import Batch

Stream = Literal["regular", "paper", "class", "subject"]
STREAMS: tuple[str, ...] = get_args(Stream)


@dataclass(frozen=True)
class Schedule:
    """Batches of window numbers, in the order in which they come.

    Attributes:
        batches: `(B,)` int64 each.
        tasks: the task of each batch: the pass, the subject, or the activity.
        names: of the tasks.
    """

    batches: tuple[Tensor, ...]
    tasks: tuple[int, ...]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.batches)

    def of(self, windows: Windows) -> Iterator[tuple[Batch, bool]]:
        """Each batch, and whether it is the last of its task."""
        for position, (index, task) in enumerate(zip(self.batches, self.tasks, strict=True)):
            last = position + 1 == len(self) or self.tasks[position + 1] != task
            yield windows.batch(index, task), last


def schedule(
    stream: Stream,
    windows: Windows,
    data: Recordings,
    batch_size: int = 50,
    epochs: int = 1,
    seed: int = 0,
) -> Schedule:
    """Order the windows.

    `regular` shuffles them, several times over: not a stream, but the bound above one. `paper` is
    the order of the paper's code: trial by trial, subject by subject, activities cycling; a task
    is a subject's trial. `class` brings all of one activity, then the next, in random order of
    activities, each shuffled by recording. `subject` brings one person after the other with all
    activities shuffled, as a data set of a new user would come.

    Args:
        stream: one of the four.
        windows: cut from the recordings of data.
        data: their recordings.
        batch_size: windows that come together.
        epochs: passes of `regular`; streams pass once.
        seed: of all that is random.
    """
    if stream not in STREAMS:
        raise ValueError(f"stream must be one of {', '.join(STREAMS)}, got {stream!r}")
    if batch_size < 1 or epochs < 1:
        raise ValueError(f"batch_size and epochs must be at least 1, got {batch_size}, {epochs}")
    rng = np.random.default_rng(seed)
    groups = _groups(stream, windows, data, rng, epochs)
    batches: list[Tensor] = []
    tasks: list[int] = []
    for task, (_, order) in enumerate(groups):
        for part in torch.from_numpy(order).split(batch_size):
            batches.append(part)
            tasks.append(task)
    return Schedule(tuple(batches), tuple(tasks), tuple(name for name, _ in groups))


def _groups(
    stream: Stream, windows: Windows, data: Recordings, rng: np.random.Generator, epochs: int
) -> list[tuple[str, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]]:
    source = windows.source.numpy()
    if stream == "regular":
        return [(f"pass {i + 1}", rng.permutation(len(windows))) for i in range(epochs)]
    places: dict[str, list[int]] = {}
    for number, recording in enumerate(data.recordings):
        name = {
            "paper": f"{recording.trial:04d} {recording.subject}",
            "class": recording.activity,
            "subject": recording.subject,
        }[stream]
        places.setdefault(name, []).append(number)
    names = sorted(places, key=_natural) if stream == "paper" else list(places)
    if stream != "paper":
        names = [names[i] for i in rng.permutation(len(names))]
    groups = []
    for name in names:
        members = places[name]
        if stream == "paper":  # activities in their order, windows in the order of time
            members = sorted(
                members, key=lambda n: data.activities.index(data.recordings[n].activity)
            )
            order = np.concatenate([np.flatnonzero(source == n) for n in members])
        else:
            order = rng.permutation(np.flatnonzero(np.isin(source, members)))
        if len(order):
            groups.append((name, order))
    return groups


def _natural(name: str) -> tuple[object, ...]:
    """Sort p2 before p10."""
    digits = "".join(c if c.isdigit() else " " for c in name).split()
    letters = "".join(c for c in name if not c.isdigit())
    return (*(int(d) for d in digits), letters)

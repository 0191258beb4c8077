"""Settings of the closed form, found by leaving out parts of the training recordings in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from evergraph.apps.action.recording import Layout
from evergraph.apps.action.rich import BLOCKS, RichFeatures, Settings, turned
from evergraph.apps.action.windows import Windows
from evergraph.learn.methods.analytic import discriminant, of_classes

FOLDS = 3  # a third of the people, or of what each of them did, is left out at a time
Step = tuple[dict[str, Any], ...]
"""Changes of settings, of which the best is kept if it is better than none."""
STEPS: tuple[Step, ...] = (
    ({"persons": True}, {"between": 4.0}),
    ({"turn": 0.25},),
    ({"correlations": 0.25},),
    ({"graph": 0.25},),
    ({"gravity": 0.25, "mean": 0.25}, {"gravity": 0.0, "mean": 0.0}),
    ({"strength": 0.2}, {"strength": 1.8}),
)
"""What is tried, one step after the other, from settings in which all features count alike."""

Report = Callable[[int, int], None]


class Trial(NamedTuple):
    """Settings, and the share of windows left out that is recognized with them."""

    settings: Settings
    accuracy: float


@dataclass(frozen=True)
class Table:
    """Scaled features of windows before blocks are weighted, and those of turned copies.

    Attributes:
        rows: `(N, D)`.
        copies: the same by the angle that sensors are turned by.
        target: `(N,)`, the activities.
        sizes: how many features each block has.
    """

    rows: Tensor
    copies: dict[float, Tensor]
    target: Tensor
    sizes: dict[str, int]

    @classmethod
    def of(
        cls, encoder: RichFeatures, windows: Windows, layout: Layout, angles: set[float]
    ) -> Table:
        """The features of windows by an encoder with the weight 1 for all blocks."""
        copies = {a: encoder.scaled(turned(windows.x, layout, a)) for a in angles if a}
        return cls(encoder.scaled(windows.x), copies, windows.target, encoder.sizes)

    def weight(self, settings: Settings) -> Tensor:
        """The weight of each feature, `(D,)`."""
        of = settings.weights
        return torch.cat([torch.full((n,), of.get(name, 0.0)) for name, n in self.sizes.items()])


def encoder_of(layout: Layout, windows: Windows, tried: Iterable[Settings]) -> RichFeatures:
    """All features that one of the settings reads, at weight 1 and in the scale of windows."""
    needed = {name for one in tried for name in one.weights}
    ones: dict[str, Any] = {name: float(name in needed) for name in BLOCKS}
    made = RichFeatures(layout, windows.x.shape[-1], Settings(**ones))
    made.update(windows.x)
    return made


class Discriminants:
    """What `Analytic` solves, in floating point, for many settings on some rows of a table.

    Args:
        table: the features of windows.
        person: `(N,)`, whose they are.
        rows: the numbers of the windows that are learned.
    """

    def __init__(self, table: Table, person: Tensor, rows: Tensor) -> None:
        self.table = table
        pairs = torch.stack([table.target[rows], person[rows]], 1)
        group, member = pairs.unique(dim=0, return_inverse=True)
        self.classes = group[:, 0].unique()
        self._owner = (group[:, :1] == self.classes).numpy()
        self._count = torch.bincount(member).double().numpy()
        self._sums: dict[float, tuple[Tensor, Tensor]] = {}
        for angle, values in {0.0: table.rows, **table.copies}.items():
            own = values[rows]
            gram, total = own.T @ own, own.new_zeros(len(group), own.shape[1])
            total.index_add_(0, member, own)
            if angle:
                gram, total = gram + self._sums[0.0][0], total + self._sums[0.0][1]
            self._sums[angle] = gram, total

    def predict(self, settings: Settings, rows: Tensor) -> Tensor:
        """The activities of rows `(N, D)` that are not weighted yet."""
        weight = self.table.weight(settings)
        kept = weight.nonzero()[:, 0]
        scale = weight[kept].double()
        gram, total = self._sums[settings.turn]
        gram = gram[kept][:, kept].double() * scale.unsqueeze(1) * scale
        total = total[:, kept].double() * scale
        count = self._count * (2 if settings.turn else 1)
        owner = np.eye(len(self._owner)) if settings.persons else self._owner
        between = 1.0 if settings.persons else settings.between
        solved, offset = discriminant(
            gram.numpy(), total.T.numpy(), count, owner, settings.strength, between
        )
        scores = ((rows[:, kept].double() * scale) @ torch.from_numpy(solved)).numpy() + offset
        if settings.persons:
            scores = of_classes(scores, self._owner)
        found: Tensor = self.classes[torch.from_numpy(scores.argmax(1))]
        return found


class Part(NamedTuple):
    """Windows that are left out at a time, and what is learned without them, `(N,)` each."""

    held: Tensor
    learned: Tensor


def parts_of_people(person: Tensor) -> list[Part]:
    """A third of the people at a time."""
    people = person.unique()
    folds = min(FOLDS, len(people))
    held = [torch.isin(person, people[fold::folds]) for fold in range(folds)]
    return [Part(mine, ~mine) for mine in held]


def parts_of_time(windows: Windows, person: Tensor, overlap: int = 0) -> list[Part]:
    """A third in time of what each person did of each activity; all people stay known.

    `overlap` windows on each side of what is held have samples in common with it, and are not
    learned either.

    Example:
        >>> from evergraph.apps.action.windows import Windows
        >>> windows = Windows(torch.zeros(6, 2, 1, 2), torch.zeros(6).long(), torch.zeros(6).long())
        >>> [part.learned.tolist() for part in parts_of_time(windows, torch.zeros(6), 1)][0]
        [False, False, False, True, True, True]
    """
    fold = torch.zeros(len(windows), dtype=torch.long)
    pairs = torch.stack([windows.target, person.long()], 1)
    for number in (group := pairs.unique(dim=0, return_inverse=True)[1]).unique():
        mine = (group == number).nonzero()[:, 0]
        fold[mine] = torch.arange(len(mine)) * FOLDS // len(mine)
    parts = []
    for number in range(FOLDS):
        held = fold == number
        near = held.clone()
        for step in range(1, min(overlap, len(held) - 1) + 1):
            same = windows.source[step:] == windows.source[:-step]
            near[step:] |= held[:-step] & same
            near[:-step] |= held[step:] & same
        parts.append(Part(held, ~near))
    return [part for part in parts if part.held.any() and part.learned.any()]


def search(
    windows: Windows,
    person: Tensor,
    layout: Layout,
    parts: Sequence[Part],
    starts: Sequence[Settings] = (Settings(),),
    steps: Sequence[Step] = STEPS,
    report: Report = lambda done, total: None,
) -> list[Trial]:
    """Try settings on what is left out, one step after the other; the best comes first.

    A step is taken only if it is better than what was there. Features are scaled by all windows.

    Args:
        windows: to learn from.
        person: `(N,)`, whose they are.
        layout: sensors and channels.
        parts: what is left out in turn.
        starts: settings to begin with, each for itself; blocks that they leave out stay out.
        steps: changes of them.
        report: called with the trials made and all of them.
    """
    angles = {one.turn for one in starts}
    angles |= {one["turn"] for step in steps for one in step if "turn" in one}
    table = Table.of(encoder_of(layout, windows, starts), windows, layout, angles)
    solvers = [Discriminants(table, person, part.learned.nonzero()[:, 0]) for part in parts]
    plans = [[[one for one in step if _applies(one, start)] for step in steps] for start in starts]
    total = sum(1 + sum(map(len, plan)) for plan in plans)
    trials: list[Trial] = []

    def tried(settings: Settings) -> Trial:
        right = [
            solver.predict(settings, table.rows[part.held]) == table.target[part.held]
            for solver, part in zip(solvers, parts, strict=True)
        ]
        trials.append(Trial(settings, float(torch.cat(right).double().mean())))
        report(len(trials), total)
        return trials[-1]

    for start, plan in zip(starts, plans, strict=True):
        best = tried(start)
        for step in plan:
            fresh = [tried(replace(best.settings, **one)) for one in step]
            best = max([best, *fresh], key=lambda trial: trial.accuracy)
    return sorted(trials, key=lambda trial: -trial.accuracy)


def _applies(change: dict[str, Any], start: Settings) -> bool:
    """Whether a change is of what the settings read."""
    return all(getattr(start, name) for name in change if name in BLOCKS)

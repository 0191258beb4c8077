"""Settings of the closed form, found by leaving out people of the training recordings in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from evergraph.apps.action.recording import Layout
from evergraph.apps.action.rich import BLOCKS, RichFeatures, Settings, turned
from evergraph.apps.action.windows import Windows
from evergraph.learn.methods.analytic import discriminant

FOLDS = 3  # a third of the people is left out at a time
FIRST = (
    Settings(), Settings(between=1.0), Settings(turn=0.0), Settings(gravity=0.0, mean=0.0),
)  # fmt: skip
"""What is compared first: all that there is, and one part left out at a time."""
STRENGTHS = (0.2, 0.6, 1.8)
"""What is compared then, with the best of the first."""

Report = Callable[[int, int], None]


class Trial(NamedTuple):
    """Settings, and the share of windows of people left out that is recognized with them."""

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
    ones = Settings(**{name: float(name in needed) for name in BLOCKS})
    made = RichFeatures(layout, windows.x.shape[-1], ones)
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
        solved, offset = discriminant(
            gram.numpy(), total.T.numpy(), count, self._owner, settings.strength, settings.between
        )
        scores = (rows[:, kept].double() * scale) @ torch.from_numpy(solved)
        found: Tensor = self.classes[(scores + torch.from_numpy(offset)).argmax(1)]
        return found


def search(
    windows: Windows,
    person: Tensor,
    layout: Layout,
    graph: Sequence[float] = (0.0, Settings().graph),
    first: Sequence[Settings] = FIRST,
    strengths: Sequence[float] = STRENGTHS,
    report: Report = lambda done, total: None,
) -> list[Trial]:
    """Try settings on people who are left out, a third of them at a time; the best comes first.

    For each weight of the feature graph the `first` are tried, then `strengths` with the best of
    them. Features are scaled by all windows.

    Args:
        windows: to learn from.
        person: `(N,)`, whose they are.
        layout: sensors and channels.
        graph: weights of the feature graph.
        first: other settings.
        strengths: λ.
        report: called with the trials made and all of them.
    """
    tried = {weight: [replace(one, graph=weight) for one in first] for weight in graph}
    every = [one for some in tried.values() for one in some]
    table = Table.of(
        encoder_of(layout, windows, every), windows, layout, {one.turn for one in every}
    )
    people = person.unique()
    folds = min(FOLDS, len(people))
    held = [torch.isin(person, people[fold::folds]) for fold in range(folds)]
    solvers = [Discriminants(table, person, (~mine).nonzero()[:, 0]) for mine in held]
    trials: list[Trial] = []

    def best(some: Sequence[Settings]) -> Settings:
        fresh = []
        for settings in some:
            right = [
                solver.predict(settings, table.rows[mine]) == table.target[mine]
                for solver, mine in zip(solvers, held, strict=True)
            ]
            fresh.append(Trial(settings, float(torch.cat(right).double().mean())))
            report(len(trials) + len(fresh), len(graph) * (len(first) + len(strengths)))
        trials.extend(fresh)
        return max(fresh, key=lambda trial: trial.accuracy).settings

    for some in tried.values():
        found = best(some)
        others = [replace(found, strength=one) for one in strengths if one != found.strength]
        if others:
            best(others)
    return sorted(trials, key=lambda trial: -trial.accuracy)

"""How well a recognizer does, and what a lesson may cost it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from evergraph.apps.action.recording import Array

ALLOWED_LOSS = 0.1  # of the mean recall of the old activities, in one lesson
ALLOWED_LOSS_OF_ONE = 0.5  # of the recall of each of them


@dataclass(frozen=True)
class Score:
    """How well windows are recognized; `confusion` counts true by predicted activities."""

    accuracy: float
    recall: dict[str, float]
    precision: dict[str, float]
    confusion: list[list[int]]
    activities: tuple[str, ...]
    windows: int

    @classmethod
    def of(cls, true: Array, predicted: Array, activities: Sequence[str]) -> Score:
        """The score of predicted numbers of activities."""
        confusion = np.zeros((len(activities), len(activities)), dtype=int)
        np.add.at(confusion, (true, predicted), 1)
        right, there, told = np.diagonal(confusion), confusion.sum(1), confusion.sum(0)
        present = {name: i for i, name in enumerate(activities) if there[i]}
        return cls(
            float(right.sum() / confusion.sum()),
            {name: float(right[i] / there[i]) for name, i in present.items()},
            {name: float(right[i] / max(told[i], 1)) for name, i in present.items()},
            confusion.tolist(),
            tuple(activities),
            len(true),
        )


class Lesson(NamedTuple):
    """What `Recognizer.learn` did; the scores are on the windows that memory held before it."""

    skipped: int  # recordings shorter than a window
    clipped: int  # values that were outliers
    before: Score | None  # None if memory was empty
    after: Score | None

    def on_memory(self) -> dict[str, Any]:
        """Accuracy and recall of the old activities before and after; empty if not tested."""
        if self.before is None or self.after is None:
            return {}
        after = self.after.recall
        return {
            "windows": self.before.windows,
            "accuracy": [self.before.accuracy, self.after.accuracy],
            "recall": {name: [was, after[name]] for name, was in self.before.recall.items()},
        }


class LostError(ValueError):
    """A lesson that would cost the old activities too much."""


def require_kept(before: Score, after: Score, allowed_loss: float) -> None:
    """Raise a LostError if the old activities have lost more than a lesson may cost."""
    lost = {name: was - after.recall[name] for name, was in before.recall.items()}
    if fmean(lost.values()) <= allowed_loss and max(lost.values()) <= ALLOWED_LOSS_OF_ONE:
        return
    was, now = (fmean(score.recall[name] for name in lost) for score in (before, after))
    worst = [name for name in sorted(lost, key=lambda name: -lost[name]) if lost[name] > 0][:3]
    most = ", ".join(
        f"{name} {before.recall[name]:.2f} → {after.recall[name]:.2f}" for name in worst
    )
    raise LostError(
        f"the old activities would lose too much: mean recall {was:.3f} → {now:.3f} on the "
        f"{before.windows} windows in memory ({most}), allowed are {allowed_loss:g} of the mean "
        f"and {ALLOWED_LOSS_OF_ONE:g} of one; the model stays as it was: check the recording, or "
        "use --force"
    )

"""One command picks a model: on recordings that are held back, of other people where there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from evergraph.apps.action.novelty import Calibration
from evergraph.apps.action.recognizer import FEWEST_PASSES, Recognizer, RecognizerConfig
from evergraph.apps.action.recording import Recordings
from evergraph.apps.action.rich import CLOSED
from evergraph.apps.action.windows import divide_for

AUTO = "auto"
CANDIDATES = (*CLOSED, "fgn")
"""Models that are compared, the cheapest first: it is taken where others are no better."""
PEOPLE = 3  # from so many on people are held back
SHARE = 4  # one in so many


@dataclass(frozen=True)
class Choice:
    """What was picked, and why.

    Attributes:
        model: its name.
        passes: over the recordings, after which it was best.
        accuracy: of each candidate on what was held back.
        held_back: what that was, in words.
        calibration: of the model, on the same windows.
    """

    model: str
    passes: int
    accuracy: dict[str, float]
    held_back: str
    calibration: Calibration

    @property
    def text(self) -> str:
        """A sentence for the user."""
        shown = ", ".join(f"{name} {value:.3f}" for name, value in self.accuracy.items())
        why = (
            f"best on {self.held_back}" if len(self.accuracy) > 1 else f"tested on {self.held_back}"
        )
        passes = f", {self.passes} passes" if self.model not in CLOSED else ""
        return f"Picked {self.model}{passes}: {why}, held back from training ({shown})."


def candidates(model: str) -> tuple[str, ...]:
    """The models that are compared if a user asks for this one."""
    return CANDIDATES if model == AUTO else (model,)


def inner_split(data: Recordings, length: int) -> tuple[Recordings, Recordings, str]:
    """What to learn from, what to compare models on, and what that is, in words.

    Every fourth person is held back if there are three or more and the others show all activities;
    else the end of each recording, or whole recordings where they are too short.
    """
    people = data.subjects
    if len(people) >= PEOPLE:
        held = people[SHARE - 1 :: SHARE] or people[-1:]
        train, valid = data.without(held), data.of(held)
        if {r.activity for r in train.recordings} == {r.activity for r in data.recordings}:
            return train, valid, f"the people {', '.join(held)}"
    train, valid, _ = divide_for(data, length)
    return train, valid, "the end of each recording"


def choose(
    data: Recordings,
    config: RecognizerConfig,
    models: Sequence[str] = CANDIDATES,
    epochs: int | None = None,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Choice:
    """Train candidates without what is held back, and take the best there.

    Networks are trained for `epochs` passes, or until held-back windows are recognized no better.
    """
    train, valid, words = inner_split(data, config.length)
    known = {r.activity for r in train.recordings}
    held = [r for r in valid.recordings if r.activity in known and len(r) >= config.length]
    if not held:
        words = "nothing, because there is too little to hold back"
        return Choice(models[0], epochs or FEWEST_PASSES, {}, words, Calibration())
    accuracy: dict[str, float] = {}
    best: tuple[int, Recognizer] | None = None
    for model in models:
        recognizer = Recognizer(data.layout, tuple(known), replace(config, model=model))
        passes = recognizer.train(train.recordings, held, epochs, report)
        accuracy[model] = recognizer.evaluate(held).accuracy
        if accuracy[model] > max((v for k, v in accuracy.items() if k != model), default=-1.0):
            best = passes, recognizer
    assert best is not None
    passes, recognizer = best
    return Choice(recognizer.config.model, passes, accuracy, words, recognizer.calibrated(held))

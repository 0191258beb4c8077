"""One command picks a model: on recordings that are held back, of other people where there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from evergraph.apps.action.novelty import Calibration
from evergraph.apps.action.recognizer import Recognizer
from evergraph.apps.action.recording import Recording, Recordings
from evergraph.apps.action.rich import CLOSED, Settings
from evergraph.apps.action.search import search
from evergraph.apps.action.splits import divide_for
from evergraph.apps.action.teaching import AND, RecognizerConfig, windows_of

AUTO = "auto"
CANDIDATES = (*CLOSED, "fgn")
"""Models that are compared, the cheapest first: it is taken where others are no better."""
PEOPLE = 3  # from so many on people are held back
SHARE = 4  # one in so many
MOST_BATCHES, FEWEST_PASSES = 2000, 20  # the longest training that looks for convergence
PATIENCE = 60, 3  # batches and passes without a gain after which it has converged

Report = Callable[[int, int], None]


@dataclass(frozen=True)
class Choice:
    """What was picked, and why.

    Attributes:
        model: its name.
        passes: over the recordings, after which it was best.
        accuracy: of each candidate on what was held back.
        held_back: what that was, in words.
        calibration: of the model, on the same windows.
        settings: of the closed form.
        left_out: the accuracy of each closed form with people left out in turn, which its settings
            were chosen by; empty if there are fewer than three people.
    """

    model: str
    passes: int
    accuracy: dict[str, float]
    held_back: str
    calibration: Calibration
    settings: Settings
    left_out: dict[str, float]

    @property
    def text(self) -> str:
        """A sentence for the user."""
        shown = _listed(self.accuracy)
        why = (
            f"best on {self.held_back}" if len(self.accuracy) > 1 else f"tested on {self.held_back}"
        )
        passes = f", {self.passes} passes" if self.model not in CLOSED else ""
        text = f"Picked {self.model}{passes}: {why}, held back from training ({shown})."
        if self.left_out:
            text += f" Closed forms with people left out in turn: {_listed(self.left_out)}."
        return text


def _listed(accuracy: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in accuracy.items())


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


def best_settings(
    data: Recordings, config: RecognizerConfig, models: Sequence[str], report: Report
) -> tuple[Settings, dict[str, float]]:
    """Settings of the closed forms among the models, and how well each knows people left out.

    With fewer than three people, whom nothing can be told from, they are those of `config`.
    """
    closed = [one for name in models for one in name.split(AND) if one in CLOSED]
    if len(data.subjects) < PEOPLE or not closed:
        return config.settings, {}
    windows = windows_of(data.recordings, data.activities, data.layout, config)
    number = torch.tensor([data.subjects.index(one.subject) for one in data.recordings])
    weights = {name: Settings().of(name).graph for name in closed}
    trials = search(
        windows, number[windows.source], data.layout, tuple(weights.values()), report=report
    )
    known = {
        name: max(trial.accuracy for trial in trials if trial.settings.graph == weight)
        for name, weight in weights.items()
    }
    return trials[0].settings, known


def choose(
    data: Recordings,
    config: RecognizerConfig,
    models: Sequence[str] = CANDIDATES,
    epochs: int | None = None,
    report: Report = lambda done, total: None,
) -> Choice:
    """Train candidates without what is held back, and take the best there.

    With three or more people the closed forms are compared by leaving people out in turn, which
    sets all that they are solved with, and the best of them stands for all. Networks are trained
    for `epochs` passes, or until held-back windows are recognized no better. The mean of the closed
    form and the network is a candidate too; a simpler one is taken where it is as good.
    """
    settings, left_out = best_settings(data, config, models, report)
    if left_out:
        chosen = CLOSED[1] if settings.graph else CLOSED[0]
        models = [name for name in models if name == chosen or name not in CLOSED]
    config = replace(config, settings=settings)
    train, valid, words = inner_split(data, config.length)
    known = {r.activity for r in train.recordings}
    held = [r for r in valid.recordings if r.activity in known and len(r) >= config.length]
    if not held:
        words = "nothing, because there is too little to hold back"
        passes = epochs or FEWEST_PASSES
        return Choice(models[0], passes, {}, words, Calibration(), settings, left_out)
    trained: dict[str, tuple[int, Recognizer]] = {}
    for model in models:
        recognizer = Recognizer(data.layout, tuple(known), replace(config, model=model))
        passes = train_until_converged(recognizer, train.recordings, held, epochs, report)
        recognizer.calibration = recognizer.calibrated(held)
        trained[model] = passes, recognizer
    accuracy = {name: one.evaluate(held).accuracy for name, (_, one) in trained.items()}
    closed = [name for name in models if name in CLOSED]
    for other in [name for name in models if closed and name not in CLOSED]:
        both = averaged(trained, max(closed, key=accuracy.__getitem__), other, held)
        trained |= both
        accuracy |= {name: one.evaluate(held).accuracy for name, (_, one) in both.items()}
    best = max(accuracy, key=accuracy.__getitem__)
    passes, recognizer = trained[best]
    return Choice(best, passes, accuracy, words, recognizer.calibration, settings, left_out)


def averaged(
    trained: dict[str, tuple[int, Recognizer]], first: str, second: str, held: Sequence[Recording]
) -> dict[str, tuple[int, Recognizer]]:
    """The mean of what two trained models say, calibrated on what was held back."""
    passes, network = trained[second]
    closed, name = trained[first][1], f"{first}{AND}{second}"
    both = Recognizer(closed.layout, closed.activities, replace(closed.config, model=name))
    both.members = [closed.learner, network.learner]
    both.gate, both.calibration = closed.gate, both.calibrated(held)
    return {name: (passes, both)}


def train_until_converged(
    recognizer: Recognizer,
    recordings: Sequence[Recording],
    validation: Sequence[Recording],
    epochs: int | None = None,
    report: Report = lambda done, total: None,
) -> int:
    """Learn until held-back recordings are recognized no better; returns the best passes.

    With `epochs` it makes so many passes. Otherwise it stops when accuracy on `validation` has not
    grown for `PATIENCE`. The recognizer is then that of the last pass.
    """
    if epochs is not None or recognizer.closed:
        recognizer.learn(recordings, epochs, report=report)
        return epochs or 1
    config = recognizer.config
    windows = windows_of(recordings, recognizer.activities, recognizer.layout, config)
    each = -(-len(windows) // config.batch_size)
    best: list[tuple[float, int]] = [(-1.0, 0)]

    def converged(passes: int) -> bool:
        accuracy = recognizer.evaluate(validation).accuracy
        best[0] = max(best[0], (accuracy, passes), key=lambda one: one[0])
        since = passes - best[0][1]
        return since >= PATIENCE[1] and since * each >= PATIENCE[0]

    most = max(FEWEST_PASSES, MOST_BATCHES // each)
    recognizer.learn(recordings, most, report=report, converged=converged)
    return best[0][1]

"""One command picks a model: on recordings that are held back, of other people where there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch

from evergraph.apps.action.novelty import Calibration
from evergraph.apps.action.recognizer import Recognizer
from evergraph.apps.action.recording import Recording, Recordings
from evergraph.apps.action.rich import CLOSED, Settings
from evergraph.apps.action.search import parts_of_people, parts_of_time, search
from evergraph.apps.action.splits import divide_for
from evergraph.apps.action.teaching import AND, RecognizerConfig, windows_of
from evergraph.checks import check_one_of

AUTO = "auto"
CANDIDATES = (*CLOSED, "fgn")
"""Models that are compared, the cheapest first: it is taken where others are no better."""
PEOPLE = 3  # from so many on people are held back
SHARE = 4  # one in so many
MOST_BATCHES, FEWEST_PASSES = 2000, 20  # the longest training that looks for convergence
PATIENCE = 60, 3  # batches and passes without a gain after which it has converged

Report = Callable[[int, int], None]
People = Literal["new", "known"]
"""Who will be recognized: people who were not there in training, or those who were."""


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
        left_out: the accuracy of each closed form on what was left out in turn, which its settings
            were chosen by; empty if there was too little.
        parts: what was left out in turn, in words.
    """

    model: str
    passes: int
    accuracy: dict[str, float]
    held_back: str
    calibration: Calibration
    settings: Settings
    left_out: dict[str, float]
    parts: str = ""

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
            text += f" Closed forms with {self.parts} left out in turn: {_listed(self.left_out)}."
            text += " Each person has means of their own." if self.settings.persons else ""
        return text


def _listed(accuracy: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in accuracy.items())


def candidates(model: str) -> tuple[str, ...]:
    """The models that are compared if a user asks for this one."""
    return CANDIDATES if model == AUTO else (model,)


def are_known(data: Recordings, people: People) -> bool:
    """Whether models are compared on more of the same people, as where there are two or one."""
    check_one_of("people", people, get_args(People))
    return people == "known" or len(data.subjects) < PEOPLE


def inner_split(
    data: Recordings, length: int, people: People = "new"
) -> tuple[Recordings, Recordings, str]:
    """What to learn from, what to compare models on, and what that is, in words.

    Every fourth person is held back if there are three or more and the others show all activities;
    else, or if those who are there are to be recognized, the end of each recording, or whole
    recordings where they are too short.
    """
    if not are_known(data, people):
        held = data.subjects[SHARE - 1 :: SHARE] or data.subjects[-1:]
        train, valid = data.without(held), data.of(held)
        if {r.activity for r in train.recordings} == {r.activity for r in data.recordings}:
            return train, valid, f"the people {', '.join(held)}"
    train, valid, _ = divide_for(data, length)
    return train, valid, "the end of each recording"


def best_settings(
    data: Recordings,
    config: RecognizerConfig,
    models: Sequence[str],
    report: Report,
    people: People = "new",
) -> tuple[Settings, dict[str, float], str]:
    """Settings of the closed forms among the models, and how well each knows what is left out.

    That is a third of the people in turn, or a third of what each of them did. The settings are
    those of `config` where there is too little for either.
    """
    closed = [one for name in models for one in name.split(AND) if one in CLOSED]
    if not closed or all(len(one) < config.length for one in data.recordings):
        return config.settings, {}, ""
    windows = windows_of(data.recordings, data.activities, data.layout, config)
    number = torch.tensor([data.subjects.index(one.subject) for one in data.recordings])
    person = number[windows.source]
    if are_known(data, people):
        words = "thirds of what each person did"
        overlap = -(-config.length // config.stride) - 1
        parts = parts_of_time(windows, person, overlap)
    else:
        words, parts = "people", parts_of_people(person)
    if not parts:
        return config.settings, {}, ""
    starts = {name: Settings().of(name) for name in closed}
    trials = search(windows, person, data.layout, parts, tuple(starts.values()), report=report)
    known = {
        name: max(one.accuracy for one in trials if bool(one.settings.graph) == bool(start.graph))
        for name, start in starts.items()
    }
    return trials[0].settings, known, words


def choose(
    data: Recordings,
    config: RecognizerConfig,
    models: Sequence[str] = CANDIDATES,
    epochs: int | None = None,
    report: Report = lambda done, total: None,
    people: People = "new",
) -> Choice:
    """Train candidates without what is held back, and take the best there.

    The closed forms are compared by leaving people out in turn, or with fewer than three or if
    `people` are known, thirds of what each of them did. This sets all that they are solved with,
    and the best of them stands for all. Networks are trained
    for `epochs` passes, or until held-back windows are recognized no better. The mean of the closed
    form and the network is a candidate too; a simpler one is taken where it is as good.
    """
    settings, left_out, parts = best_settings(data, config, models, report, people)
    if left_out:
        chosen = CLOSED[1] if settings.graph else CLOSED[0]
        models = [name for name in models if name == chosen or name not in CLOSED]
    config = replace(config, settings=settings)
    train, valid, words = inner_split(data, config.length, people)
    known = {r.activity for r in train.recordings}
    held = [r for r in valid.recordings if r.activity in known and len(r) >= config.length]
    if not held:
        words = "nothing, because there is too little to hold back"
        passes = epochs or FEWEST_PASSES
        return Choice(models[0], passes, {}, words, Calibration(), settings, left_out, parts)
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
    calibration = recognizer.calibration
    return Choice(best, passes, accuracy, words, calibration, settings, left_out, parts)


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

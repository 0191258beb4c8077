"""Train a matcher on a folder, or on the pictures that installed packages bring."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from evergraph.apps.matching.arrangements import (
    Kind,
    candidate_network,
    candidate_task,
    graph_batch,
)
from evergraph.apps.matching.candidates import Proposal, propose
from evergraph.apps.matching.evaluate import evaluate
from evergraph.apps.matching.frames import with_frames, without
from evergraph.apps.matching.homography import Views, album_pairs
from evergraph.apps.matching.images import Image, list_images, read_image
from evergraph.apps.matching.matcher import Matcher
from evergraph.apps.matching.sources import layout_of, photograph, split
from evergraph.apps.matching.tartanair import sequence_pairs, sequences
from evergraph.apps.matching.truth import Pair
from evergraph.checks import check_positive
from evergraph.learn.learner import Learner
from evergraph.learn.methods import Finetune
from evergraph.learn.tasks import Task
from evergraph.learn.training import Training
from evergraph.nn.fgn import FGN
from evergraph.stream.batch import Batch, concatenate
from evergraph.stream.schedule import shuffled

Report = Callable[[int], None]


def _quiet(step: int) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class Fit:
    """How to train: Adam, minibatches of whole pairs, each of them equally often."""

    steps: int = 300  # gradient steps
    pairs_per_step: int = 8
    lr: float = 3e-3
    cycle: bool = True  # raise and lower the rate in one cycle

    def __post_init__(self) -> None:
        """Reject what trains nothing."""
        check_positive(steps=self.steps, pairs_per_step=self.pairs_per_step)

    @property
    def training(self) -> Training:
        """The settings of a learner."""
        return Training("adam", self.lr, steps=1, cycle=self.steps * self.cycle)


GENTLE = Fit(steps=150, lr=1e-3)
"""For networks that know something already."""


def examples(pairs: Sequence[Pair], proposal: Proposal = Proposal()) -> list[Batch]:  # noqa: B008
    """The labeled candidate graphs of pairs; those without any label are left out."""
    framed = ((pair, with_frames(pair.first, pair.second)) for pair in pairs)
    graphs = ((pair, propose(*sides, proposal)) for pair, sides in framed)
    labeled = ((graph, pair.labels(graph.first, graph.second)) for pair, graph in graphs)
    return [graph_batch(graph, labels) for graph, labels in labeled if (labels >= 0).any()]


def fit(
    network: nn.Module,
    data: Sequence[Batch],
    how: Fit = Fit(),  # noqa: B008
    seed: int = 0,
    task: Task | None = None,
    report: Report = _quiet,
) -> None:
    """Train a network in place with the package's learner; on candidates if no task is given."""
    if not data:
        raise ValueError("expected at least one pair with candidates to train on, got none")
    task = candidate_task() if task is None else task
    needed = how.steps * how.pairs_per_step
    epochs = -(-needed // len(data))
    order = shuffled(torch.arange(len(data)), np.random.default_rng(seed), epochs)
    learner = Learner(network, Finetune(), training=how.training, task=task)  # type: ignore[arg-type]
    for step, chosen in enumerate(order[:needed].split(how.pairs_per_step), start=1):
        learner.observe(concatenate([data[i] for i in chosen.tolist()]))
        report(step)
    network.eval()


def train_on(
    kind: Kind,
    data: Sequence[Batch],
    valid: Sequence[Pair],
    how: Fit,
    views: Views,
    seed: int,
    report: Report = _quiet,
    adapted: FGN | None = None,
    **changes: Any,
) -> tuple[Matcher, dict[str, Any]]:
    """A matcher from labeled candidates, and its F1 on other pairs; changes are the network's.

    With a network to adapt, see `adapt`.
    """
    start = time.process_time()
    if adapted is None:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            network = candidate_network(kind, **changes)
        fit(network, data, how, seed, report=report)
    else:
        network = adapt(adapted, data, how, seed, report)
    tool = Matcher(kind, network=network, detector=views.detector, points=2 * views.points)
    return tool, {
        "validation_f1": evaluate(valid, tool.match_pair)["f1"],
        "train_seconds": time.process_time() - start,
        "parameters": sum(p.numel() for p in network.parameters()),
    }


def adapt(
    start: FGN, data: Sequence[Batch], how: Fit = GENTLE, seed: int = 0, report: Report = _quiet
) -> FGN:
    """A network trained on from where another is; its weights are the mean of both.

    Half way, it keeps what the first knows of other points (Wortsman et al., CVPR 2022), which
    stays as it is.
    """
    network = deepcopy(start)
    fit(network, data, how, seed, report=report)
    with torch.no_grad():
        for own, other in zip(network.parameters(), start.parameters(), strict=True):
            own.lerp_(other, 0.5)
    return network


def train(
    folder: Path | None,
    kind: Kind = "fgn",
    count: int = 1000,
    how: Fit = Fit(),  # noqa: B008
    views: Views = Views(),  # noqa: B008
    seed: int = 0,
    report: Report = _quiet,
    start: Matcher | None = None,
    bare: bool = False,
) -> tuple[Matcher, dict[str, Any]]:
    """Train on a folder, or on the bundled pictures of a seed's split if there is none.

    `start` is a matcher that is adapted (see `adapt`) in place of a new one; `bare` trains for
    points without scale or orientation (`bare_pairs`).
    """
    began = time.process_time()
    if folder is not None and layout_of(folder) == "tartanair":
        learn, valid, names = _frames(folder, count, views, seed)
        if bare:
            learn, valid = dropped(learn, seed), dropped(valid, seed)
    else:
        learn, valid, names = _pictures(folder, count, views, seed, bare)
    data = examples(learn)
    making = time.process_time() - began
    network = None if start is None else start.network
    kind = kind if start is None else start.kind
    tool, found = train_on(kind, data, valid, how, views, seed, report, network)
    found["train_seconds"] += making
    return tool, {**found, "kind": kind, "seed": seed, "pairs": len(data), "images": names}


Data = tuple[list[Pair], list[Pair], list[str]]
"""Pairs to learn from, pairs to choose with, and the names of what is learned from."""


def dropped(pairs: Sequence[Pair], seed: int) -> list[Pair]:
    """The same pairs without scales, without orientations (a quarter each), or without both."""
    cases = ((True, True), (True, False), (False, True), (True, True))
    drawn = np.random.default_rng(seed).integers(len(cases), size=len(pairs))
    return [
        replace(pair, first=without(pair.first, *cases[n]), second=without(pair.second, *cases[n]))
        for pair, n in zip(pairs, drawn.tolist(), strict=True)
    ]


def bare_pairs(images: Sequence[Image], count: int, seed: int, views: Views) -> list[Pair]:
    """Pairs of points without scale or orientation.

    In half of them what SIFT knows is dropped at random; the others have corners, whose
    descriptors are upright, so that these views are turned by a third of the angle at the most.
    """
    upright = replace(views, detector="corners", angle=views.angle / 3)
    found = dropped(album_pairs(images, count - count // 2, seed, views), seed)
    return found + album_pairs(images, max(count // 2, 1), seed, upright)


def _pictures(folder: Path | None, count: int, views: Views, seed: int, bare: bool) -> Data:
    """Homographies of the images of a folder, or of the bundled ones."""
    if folder is None:
        chosen = split(seed)
        parts = [[photograph(n) for n in names] for names in (chosen.train, chosen.validation)]
        names = list(chosen.train)
    else:
        paths = list_images(folder)
        held = max(len(paths) // 5, 1) if len(paths) > 1 else 0
        parts = [[read_image(p) for p in part] for part in (paths[held:], paths[:held] or paths)]
        names = [path.name for path in paths[held:]]
    make = bare_pairs if bare else album_pairs
    learn = make(parts[0], count, 10 * seed, views)
    return learn, make(parts[1], max(count // 10, 1), 10 * seed + 1, views), names


def _frames(folder: Path, count: int, views: Views, seed: int) -> Data:
    """Frames of TartanAir's layout, each with the next one."""
    known = sequences(folder)
    size = (1, views.size[0], views.points, views.detector)
    found = [pair for one in known for pair in sequence_pairs(one, *size)]
    if len(found) < 2:
        raise ValueError(f"expected at least 3 frames to train on in {folder}")
    order = np.random.default_rng(seed).permutation(len(found))[:count]
    shuffled = [found[i] for i in order]
    held = max(len(order) // 5, 1)
    return shuffled[held:], shuffled[:held], [one.name for one in known]

"""Train a matcher on a folder, or on the pictures that installed packages bring."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from evergraph.apps.matching.arrangements import CandidateArrangement
from evergraph.apps.matching.evaluate import evaluate
from evergraph.apps.matching.fit import Example, Fit, examples, fit
from evergraph.apps.matching.homography import Views, album_pairs
from evergraph.apps.matching.images import list_images, read_image
from evergraph.apps.matching.matcher import Matcher
from evergraph.apps.matching.network import CandidateNetwork
from evergraph.apps.matching.sources import layout_of, photograph, split
from evergraph.apps.matching.tartanair import sequence_pairs, sequences
from evergraph.apps.matching.truth import Pair

Follow = Callable[[int, float], None]


def train_on(
    kind: str,
    data: Sequence[Example],
    valid: Sequence[Pair],
    how: Fit,
    views: Views,
    seed: int,
    follow: Follow = lambda step, loss: None,
) -> tuple[Matcher, dict[str, Any]]:
    """A matcher from labeled candidates, and what other pairs say of it."""
    start = time.process_time()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = CandidateNetwork(kind)  # type: ignore[arg-type]
    fit(network, data, how, seed, follow)
    tool = Matcher(CandidateArrangement(network), views.detector, 2 * views.points)
    told = {
        "validation_f1": evaluate(valid, tool.match_pair)["f1"],
        "train_seconds": time.process_time() - start,
        "parameters": sum(p.numel() for p in network.parameters()),
    }
    return tool, told


def train(
    folder: Path | None,
    kind: str = "fgn",
    count: int = 1000,
    how: Fit = Fit(),  # noqa: B008
    views: Views = Views(),  # noqa: B008
    seed: int = 0,
    follow: Follow = lambda step, loss: None,
) -> tuple[Matcher, dict[str, Any]]:
    """Train on a folder, or on the bundled pictures of a seed's split if there is none."""
    start = time.process_time()
    learn, valid, names = _data(folder, count, views, seed)
    data = examples(learn)
    making = time.process_time() - start
    tool, told = train_on(kind, data, valid, how, views, seed, follow)
    told["train_seconds"] += making
    return tool, {**told, "kind": kind, "seed": seed, "pairs": len(data), "images": names}


def _data(
    folder: Path | None, count: int, views: Views, seed: int
) -> tuple[list[Pair], list[Pair], list[str]]:
    """Pairs to learn from, pairs to choose with, and the names of what is learned from."""
    few = max(count // 10, 1)
    if folder is None:
        chosen = split(seed)
        parts = [[photograph(n) for n in names] for names in (chosen.train, chosen.validation)]
        names = list(chosen.train)
    elif layout_of(folder) == "tartanair":
        found = [
            pair
            for one in sequences(folder)
            for pair in sequence_pairs(one, 1, views.size[0], views.points, views.detector)
        ]
        if len(found) < 2:
            raise ValueError(f"expected at least 3 frames to train on in {folder}")
        order = np.random.default_rng(seed).permutation(len(found))[:count].tolist()
        held = max(len(order) // 5, 1)
        shuffled = [found[i] for i in order]
        return shuffled[held:], shuffled[:held], [one.name for one in sequences(folder)]
    else:
        paths = list_images(folder)
        held = max(len(paths) // 5, 1) if len(paths) > 1 else 0
        parts = [[read_image(p) for p in part] for part in (paths[held:], paths[:held] or paths)]
        names = [path.name for path in paths[held:]]
    learn, valid = (
        album_pairs(part, size, 10 * seed + place, views)
        for place, (part, size) in enumerate(zip(parts, (count, few), strict=True))
    )
    return learn, valid, names

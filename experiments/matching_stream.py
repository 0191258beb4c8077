"""One pass over four scene domains: how much is forgotten, with and without a memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from evergraph.apps.matching.arrangements import CandidateArrangement
from evergraph.apps.matching.evaluate import evaluate
from evergraph.apps.matching.features import detect
from evergraph.apps.matching.matcher import Matcher, Online
from evergraph.apps.matching.network import CandidateNetwork, Kind
from evergraph.apps.matching.sources import photograph, split
from evergraph.apps.matching.tartanair import Frame, frame_pair
from evergraph.apps.matching.truth import Pair
from evergraph.evaluate.metrics import average_accuracy, maximum_forgetting
from evergraph.learn.memory import Reservoir
from evergraph.learn.methods import METHODS
from evergraph.learn.training import Training
from experiments.matching_render import CATEGORIES, sequence

Report = Callable[[str], None]


@dataclass(frozen=True)
class Stream:
    """Sizes of the stream.

    Attributes:
        frames: of each training sequence; every two neighbors make a pair.
        sequences: of each domain.
        memory: candidates that may be kept.
        points: of each frame.
        lr: learning rate, Adam.
        steps: on each new pair.
    """

    frames: int = 9
    sequences: int = 2
    memory: int = 2000
    points: int = 256
    lr: float = 3e-3
    steps: int = 3

    def plain(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self)


def domains(how: Stream, seed: int) -> tuple[dict[str, list[Pair]], dict[str, list[Pair]]]:
    """Pairs to learn from and to test on, of every category; they share no picture."""
    chosen = split(seed)
    parts = []
    for names, offset in ((chosen.train, 0), ((*chosen.test, *chosen.surfaces), 500)):
        textures = [photograph(name) for name in names]
        parts.append({
            domain: [
                pair
                for number in range(how.sequences)
                for pair in _pairs(category, textures, how, 1000 * seed + offset + number)
            ]
            for domain, category in CATEGORIES.items()
        })  # fmt: skip
    return parts[0], parts[1]


def _pairs(category: Any, textures: list[Any], how: Stream, seed: int) -> list[Pair]:
    frames = [
        Frame(detect(image, "sift", how.points), depth, pose, (image.shape[1], image.shape[0]))
        for image, depth, pose in sequence(category, textures, how.frames, seed)
    ]
    return [frame_pair(a, b) for a, b in zip(frames, frames[2:], strict=False)]


def follow(
    train: dict[str, list[Pair]],
    test: dict[str, list[Pair]],
    method: str,
    how: Stream,
    seed: int,
    kind: Kind = "fgn",
    report: Report = lambda what: None,
) -> dict[str, Any]:
    """One pass over the domains in order; F1 on each after each."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = CandidateNetwork(kind)
    training = Training(
        optimizer="adam", lr=how.lr, steps=how.steps, replay_batches=how.steps,
        replay_batch_size=600,
    )  # fmt: skip
    memory = None if method == "finetune" else Reservoir(how.memory, seed=seed)
    online = Online(METHODS[method](), memory, training, seed)
    matcher = Matcher(CandidateArrangement(network), points=how.points, online=online)
    start = time.process_time()
    matrix = []
    for domain, pairs in train.items():
        report(f"{method}, seed {seed}: {domain}")
        for pair in pairs:
            matcher.learn(pair)
        matrix.append([evaluate(shown, matcher.match_pair)["f1"] for shown in test.values()])
    table = np.array(matrix)
    return {
        "method": method,
        "network": kind,
        "seed": seed,
        "f1_matrix": matrix,
        "f1": average_accuracy(table),
        "forgetting": maximum_forgetting(table),
        "memory_bytes": 0 if memory is None else memory.nbytes,
        "seconds": time.process_time() - start,
    }


def summary(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means and spreads over the seeds, by method."""
    out = []
    for method in dict.fromkeys(run["method"] for run in runs):
        mine = [run for run in runs if run["method"] == method]
        matrix = np.mean([run["f1_matrix"] for run in mine], axis=0)
        row: dict[str, Any] = {"method": method, "runs": len(mine), "f1_matrix": matrix.tolist()}
        for name in ("f1", "forgetting"):
            values = [run[name] for run in mine]
            row[name] = float(np.mean(values))
            row[f"{name}_sd"] = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        row["memory_bytes"] = max(run["memory_bytes"] for run in mine)
        out.append(row)
    return out

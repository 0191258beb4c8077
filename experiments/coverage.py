"""Beyond the paper: do label sets hold the right class as often as they say, and is the new seen?

For each split half of the labelled nodes is given to the exact learner, the other half is a stream
of nodes in five parts: a part is asked for, then its labels are learned. Novelty is asked for the
stream when one class has no label in the first half.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import rankdata

from evergraph.cli.console import AsJson, DataRoot, complaints, progress, use_threads, write
from evergraph.evaluate.evidence import provenance
from evergraph.evaluate.run import SCHEMA
from evergraph.feature_graph.fixed_point import ONE, Blocks
from evergraph.graph.growing import GrowingGraph
from evergraph.graph.ids import Id
from evergraph.learn.exact import ExactLearner, landmark_order
from evergraph.learn.solution import Solution
from experiments.cells import DATASETS, Folder, load, page, show, value

TARGETS = (0.8, 0.9, 0.95)
PARTS = 5  # of the stream
VALIDATION = 100  # seeds from here on compare scores of novelty; reported ones begin at 0
Floats = NDArray[np.float64]


def auroc(score: Floats, positive: NDArray[np.bool_]) -> float:
    """How often a positive item has the larger score, ties counting half.

    Example:
        >>> auroc(np.array([0.1, 0.9, 0.5, 0.5]), np.array([False, True, True, False]))
        0.875
    """
    rank, ones = rankdata(score), int(positive.sum())
    zeros = len(positive) - ones
    return float((rank[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def novelty_scores(solution: Solution, learner: ExactLearner, rows: Floats) -> dict[str, Floats]:
    """The score that `Solution.novelty` ranks, and those it was compared with."""
    kernel = rows[:, learner.embedding.parts["kernel"]] / ONE
    return {
        "strangeness": solution._strangeness(rows / ONE),
        "class distance": _class_distance(learner, rows / ONE),
        "1 - probability": 1 - solution.probabilities(rows).max(1),
        "landmark distance": 1 - kernel.max(1),
    }


def _class_distance(learner: ExactLearner, rows: Floats, strength: float = 0.3) -> Floats:
    """The squared Mahalanobis distance to the nearest class mean, with λ on the diagonal of G."""
    sums = learner.sums
    means = np.array([sums.totals[c] / sums.counts[c] for c in sorted(sums.counts)]).T / ONE
    inverse = np.linalg.inv(sums.gram / ONE**2 + strength * np.eye(len(sums.gram)))
    solved = inverse @ means
    own = ((rows @ inverse) * rows).sum(1, keepdims=True)
    return np.asarray((own - 2 * rows @ solved + (means * solved).sum(0)).min(1))


class Split:
    """A random half of the labelled nodes of a data set, and the other half as a stream."""

    def __init__(self, name: str, seed: int, data_root: Path | None) -> None:
        graph = load(name, data_root).graph
        self.ids: list[Id] = [f"{seed}:{node}" for node in range(graph.num_nodes)]
        self.graph = GrowingGraph.from_graph(graph, self.ids)
        self.slots = self.graph.slots(self.ids)
        found = self.graph.labels(self.slots)
        self.truth = np.array(["" if label is None else label for label in found])
        order = np.random.default_rng(seed).permutation(np.flatnonzero(self.truth != ""))
        self.first, self.stream = np.array_split(order, 2)
        self.label(self.stream, False)

    def label(self, nodes: NDArray[np.int64], known: bool) -> None:
        """Give nodes their labels, or take them away."""
        for node in nodes.tolist():
            self.graph.put_label(self.ids[node], str(self.truth[node]) if known else None)

    def learner(self, without: str = "") -> ExactLearner:
        """A learner whose landmarks are of the first half and of no left-out class."""
        able = [self.ids[k] for k in self.first.tolist() if self.truth[k] != without]
        blocks = Blocks()
        chosen = self.graph.slots(sorted(able, key=landmark_order)[: blocks.landmarks])
        indptr, index, values = self.graph.rows(chosen)
        shape = len(chosen), self.graph.num_features
        rows = sparse.csr_array((values.astype(np.int64), index, indptr), shape=shape)
        return ExactLearner(self.graph, blocks, rows)


def coverage(split: Split) -> dict[str, Any]:
    """How often label sets hold the right class, how large they are, and accuracy."""
    learner = split.learner()
    held, sizes, right = [], [], []
    for part in np.array_split(split.stream, PARTS):
        solution, rows = learner.solution(), learner.rows(split.slots[part])
        likely, names = solution.probabilities(rows), np.array(solution.classes)
        correct = names == split.truth[part][:, None]
        sets = [solution.label_sets(likely, target) for target in TARGETS]
        held.append(np.array([(inside & correct).any(1) for inside in sets]))
        sizes.append(np.array([inside.sum(1) for inside in sets]))
        right.append(names[likely.argmax(1)] == split.truth[part])
        split.label(part, True)
    return {
        "coverage": dict(zip(map(str, TARGETS), np.hstack(held).mean(1).tolist(), strict=True)),
        "set_size": dict(zip(map(str, TARGETS), np.hstack(sizes).mean(1).tolist(), strict=True)),
        "accuracy": float(np.concatenate(right).mean()),
    }


def novelty(split: Split, seed: int) -> dict[str, float]:
    """AUROC of each score for one class without labels, another for each seed."""
    classes = np.unique(split.truth[split.truth != ""])
    left_out = str(classes[seed % len(classes)])
    split.label(split.first[split.truth[split.first] == left_out], False)
    learner = split.learner(without=left_out)
    rows, new = learner.rows(split.slots[split.stream]), split.truth[split.stream] == left_out
    scores = novelty_scores(learner.solution(), learner, rows)
    return {name: auroc(score, new) for name, score in scores.items()}


def _summary(values: list[float]) -> dict[str, Any]:
    spread = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return {"mean": float(np.mean(values)), "se": spread, "per_seed": values}


def cells(
    names: list[str], seeds: int, validation: int, data_root: Path | None
) -> Iterator[dict[str, Any]]:
    """One cell per data set."""
    for name in names:
        runs = [coverage(Split(name, seed, data_root)) for seed in range(seeds)]
        found = [novelty(Split(name, seed, data_root), seed) for seed in range(seeds)]
        trial = range(VALIDATION, VALIDATION + validation)
        tried = [novelty(Split(name, seed, data_root), seed) for seed in trial]
        yield {
            "schema": SCHEMA,
            "config": {"dataset": name, "parts": PARTS, "first": 0.5, "blocks": "default"},
            "seeds": list(range(seeds)),
            "coverage": {t: _summary([r["coverage"][t] for r in runs]) for t in map(str, TARGETS)},
            "set_size": {t: _summary([r["set_size"][t] for r in runs]) for t in map(str, TARGETS)},
            "accuracy": _summary([r["accuracy"] for r in runs]),
            "novelty_auroc": {k: _summary([r[k] for r in found]) for k in found[0]},
            "validation_seeds": list(trial),
            "validation_auroc": {k: _summary([r[k] for r in tried]) for k in found[0]},
            **provenance(),
        }


def command(
    datasets: Annotated[str, typer.Option(help="Data sets, separated by commas.")] = ",".join(
        DATASETS
    ),
    seeds: Annotated[int, typer.Option(min=1, help="Random splits that are reported.")] = 10,
    validation: Annotated[
        int, typer.Option(min=1, help="Other splits, on which scores of novelty are compared.")
    ] = 5,
    results: Folder = Path("results"),
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Coverage of conformal label sets on a stream, and AUROC of novelty for left-out classes."""
    use_threads(1)
    names, made = datasets.split(","), []
    with complaints(), progress(as_json) as shown:
        task = shown.add_task("data sets", total=len(names))
        for cell in cells(names, seeds, validation, data_root):
            made.append(cell)
            shown.update(task, advance=1)
            write({"schema": SCHEMA, "cells": made}, results / "coverage.json")
    columns = ("data set", *(f"covered, {t:g}" for t in TARGETS), *made[0]["novelty_auroc"])
    rows = [
        [
            cell["config"]["dataset"],
            *(
                value(part["mean"], part["se"])
                for group in ("coverage", "novelty_auroc")
                for part in cell[group].values()
            ),
        ]
        for cell in made
    ]
    note = f"Mean ± standard error of {seeds} random splits; scores of novelty as AUROC."
    page(results / "coverage.md", "Coverage of label sets, and novelty", columns, rows, note)
    show("Coverage and novelty", columns, rows, made, as_json)


if __name__ == "__main__":
    typer.run(command)

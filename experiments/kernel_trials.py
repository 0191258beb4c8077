"""What the kernel of feature graphs owes to each of its parts, on many graphs and random splits.

At most 600 training nodes are drawn by class, and 1,000 others are asked for. Everything is chosen
by leave-one-out on the training nodes, in the same way for each row of the table.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from scipy import sparse

from evergraph.cli.console import AsJson, DataRoot, complaints, progress, use_threads, write
from evergraph.evaluate.config import Config, build
from evergraph.evaluate.evidence import provenance
from evergraph.evaluate.run import SCHEMA
from evergraph.feature_graph.fixed_point import Rows, unit
from evergraph.feature_graph.kernel import Planes, Similarity
from evergraph.graph.dataset import Dataset, split_by_class
from evergraph.learn.dual import (
    STRENGTHS,
    Choice,
    Mixture,
    Stored,
    left_out,
    mixtures,
    solve,
    tried,
)
from evergraph.learn.methods.kernel import rows_of
from experiments.cells import Folder, load, page, show

GRAPHS = (
    "cora", "citeseer", "pubmed", "cora_ml", "acm", "squirrel-filtered", "minesweeper", "tolokers",
    "amazon-computers", "citation-domains", "arxiv-stream", "coauthor-physics", "flickr", "uai",
)  # fmt: skip
MOST_TRAINED, TESTED, PRIOR_WIDTH = 600, 1000, 4096
WHOLE = "whole"
Ints = NDArray[np.int64]
Pair = tuple[Similarity, Similarity]
"""Training items to each other, and test items to training items."""


def items(data: Dataset, seed: int, part: str) -> tuple[Planes, Ints]:
    """The items of a part of a data set as `evergraph run --method kernel` sees them."""
    stream, learner = build(Config(dataset="x", scenario="data", method="kernel"), data, seed)
    batches = list(stream if part == "train" else stream.test())
    rows = sparse.csr_array(sparse.vstack([rows_of(learner, batch) for batch in batches]))
    width = int(np.prod(batches[0].width))
    return Planes.of(rows, width), torch.cat([b.target for b in batches]).numpy()


def remembered(train: Planes, items: Planes, weight: float = 1.0) -> Planes:
    """Rows e(I + C) in place of e, with the feature graph C of all training items, unit again.

    `C = Σ x mᵀ + m xᵀ` with the largest row sum 1; it is not formed.
    """
    mean = total(train.means) / len(train.means)
    ones = [abs(part) @ np.ones(part.shape[1]) for part in (train.x, mean)]
    sums: Any = abs(train.x).T @ ones[1] + abs(mean).T @ ones[0]
    largest = float(sums.max())
    x, m = train.x.toarray() / largest, mean.toarray()

    def spread(rows: Any) -> Any:
        added = (rows @ train.x.T).toarray() @ m / largest + (rows @ mean.T).toarray() @ x
        return unit(sparse.csr_array(np.rint(rows.toarray() + weight * added).astype(np.int64)))

    return Planes(spread(items.x), items.means, [spread(part) for part in items.roots])


def total(parts: list[Rows]) -> Rows:
    """The sum of sparse rows."""
    found: Any = parts[0]
    for part in parts[1:]:
        found = found + part
    return sparse.csr_array(found)


def summed(items: Planes) -> Planes:
    """X and all means summed, a SAGE's view."""
    return Planes(unit(total([items.x, *items.means]).astype(np.int64)), [], [])


def pair_of(train: Planes, test: Planes) -> Pair:
    """Training items to each other, and test items to them."""
    return Similarity(train, train), Similarity(test, train)


def trial(data: Dataset, seed: int) -> dict[str, tuple[float, str]]:
    """The accuracy of each variant on the test nodes, and what it chose."""
    (train, known), (test, asked) = (items(data, seed, part) for part in ("train", "test"))
    names = np.unique(known)
    target = np.searchsorted(names, known)

    def stored(found: Similarity) -> Stored:
        return Stored(found, target, len(names), np.ones_like(target))

    def accuracy(pair: Pair, choice: Choice) -> tuple[float, str]:
        scores = solve(stored(pair[0]), choice)(pair[1])
        chosen = f"{choice.mixture}, λ {choice.strength:g}"
        return float((names[scores.argmax(1)] == asked).mean()), chosen

    def best(choices: list[Choice], allowed: list[Mixture]) -> Choice:
        return min((c for c in choices if c.mixture in allowed), key=lambda c: c.loss)

    plain = pair_of(train, test)
    every = tried(stored(plain[0]), mixtures())
    chosen: dict[str, Callable[[], tuple[float, str]]] = {
        WHOLE: lambda: accuracy(plain, best(every, mixtures())),
        "no products": lambda: accuracy(plain, best(every, mixtures(products=False))),
        "no roots": lambda: accuracy(plain, best(every, mixtures(roots=False))),
        "no exp": lambda: accuracy(plain, best(every, mixtures(raised=False))),
        "nothing together": lambda: accuracy(plain, best(every, mixtures(together=False))),
        "all hops alike": lambda: accuracy(plain, best(every, mixtures(reads=("all",)))),
        "by squares": lambda: accuracy(plain, by_squares(stored(plain[0]))),
        "x + m": lambda: accuracy(
            both := pair_of(summed(train), summed(test)),
            min(tried(stored(both[0]), [Mixture(x=1)]), key=lambda c: c.loss),
        ),
    }
    out = {name: run() for name, run in chosen.items()}
    if train.x.shape[1] <= PRIOR_WIDTH:
        own, other = remembered(train, train), remembered(train, test)
        pair = pair_of(own, other)
        more = tried(stored(pair[0]), mixtures())
        better = min(more, key=lambda c: c.loss).loss < best(every, mixtures()).loss
        out["with prior"] = accuracy(pair, best(more, mixtures())) if better else out[WHOLE]
    return out


def by_squares(stored: Stored) -> Choice:
    """What leave-one-out chooses by squared errors."""
    found: list[Choice] = []
    for mixture in mixtures():
        kernel, truth, _ = stored.problem(mixture)
        for strength, scores in zip(STRENGTHS, left_out(kernel, truth, STRENGTHS), strict=True):
            found.append(Choice(float(((scores - truth) ** 2).mean()), mixture, strength))
    return min(found, key=lambda choice: choice.loss)


def split(data: Dataset, seed: int) -> Dataset:
    """A random split: training nodes by class, test nodes among the others."""
    labels = data.graph.labels
    assert labels is not None
    known = int((labels >= 0).sum())
    share, asked = min(MOST_TRAINED / known, 0.4), min(TESTED / known, 0.4)
    train, test = split_by_class(labels, train=share, test=asked, seed=seed)
    return replace(data, train=train, test=test)


def command(
    datasets: Annotated[str, typer.Option(help="Data sets, separated by commas.")] = ",".join(
        GRAPHS
    ),
    seeds: Annotated[int, typer.Option(min=1, help="Random splits of each.")] = 3,
    results: Folder = Path("results"),
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Run all variants; data sets that are in the file with as many splits are kept."""
    use_threads(1)
    path, names = results / "kernel_trials.json", datasets.split(",")
    old = json.loads(path.read_text())["cells"] if path.exists() else []
    made = {cell["config"]["dataset"]: cell for cell in old}
    with complaints("What is done is kept: call it again to continue."), progress(as_json) as shown:
        task = shown.add_task("data sets", total=len(names))
        for name in names:
            if name not in made or len(made[name]["seeds"]) < seeds:
                made[name] = _cell(name, seeds, data_root)
                write({"schema": SCHEMA, "cells": list(made.values())}, path)
            shown.update(task, advance=1)
    cells = list(made.values())
    columns, rows = table(cells)
    note = (
        f"Accuracy of the whole, and differences to it in points with their standard errors over "
        f"random splits; {MOST_TRAINED} training and {TESTED} test nodes at most."
    )
    page(path.with_suffix(".md"), "Parts of the feature-graph kernel", columns, rows, note)
    show("Parts of the feature-graph kernel", columns, rows, cells, as_json)


def _cell(name: str, seeds: int, data_root: Path | None) -> dict[str, Any]:
    data = load(name, data_root)
    runs = [trial(split(data, seed), seed) for seed in range(seeds)]
    return {
        "schema": SCHEMA,
        "config": {"dataset": name, "trained": MOST_TRAINED, "tested": TESTED},
        "seeds": list(range(seeds)),
        "accuracy": {key: [run[key][0] for run in runs] for key in runs[0]},
        "chosen": {key: [run[key][1] for run in runs] for key in runs[0]},
        **provenance(),
    }


def table(cells: list[dict[str, Any]]) -> tuple[tuple[str, ...], list[list[str]]]:
    """The whole, and the paired difference of each variant; the last row is the mean."""
    names = list(dict.fromkeys(key for cell in cells for key in cell["accuracy"] if key != WHOLE))
    rows: list[list[str]] = []
    every: dict[str, list[float]] = {key: [] for key in (WHOLE, *names)}
    for cell in cells:
        whole = np.array(cell["accuracy"][WHOLE])
        every[WHOLE].append(whole.mean())
        row = [cell["config"]["dataset"], f"{whole.mean():.3f}"]
        for key in names:
            if key not in cell["accuracy"]:
                row.append("")
                continue
            points = 100 * (np.array(cell["accuracy"][key]) - whole)
            every[key].append(points.mean())
            error = points.std(ddof=1) / np.sqrt(len(points)) if len(points) > 1 else 0.0
            row.append(f"{points.mean():+.1f} ± {error:.1f}")
        rows.append(row)
    means = [f"{np.mean(every[key]):+.2f}" for key in names]
    rows.append(["mean", f"{np.mean(every[WHOLE]):.3f}", *means])
    return ("data set", WHOLE, *names), rows


if __name__ == "__main__":
    typer.run(command)

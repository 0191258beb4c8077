"""A training step of the two-layer broadcast FGN, ours against the plain F × F way.

Both sides start from the same parameters and see the same batch. Without Cora and Citeseer at
hand, batches with the same numbers of features, words and neighbors are generated.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import typer
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.batches import Case, bags_of_words, dense_embeddings, from_dataset
from benchmarks.measure import milliseconds, peak_mb
from benchmarks.naive import naive_logits
from evergraph.cli.console import AsJson, DataRoot, Out, progress, publish, table_of
from evergraph.datasets import DatasetNotFound, load
from evergraph.evaluate.evidence import provenance
from evergraph.feature_graph import build
from evergraph.graph import Neighbors
from evergraph.graph.neighbors import as_dense
from evergraph.nn.fgn import FGN

Step = Callable[[], Tensor]
WIDTHS, SHARES = (64, 128, 256, 768), (0.1, 0.25, 0.5, 0.75, 1.0)
LINES = {
    "features": ("num_features", ",.0f"),
    "naive, ms": ("naive_ms", ",.0f"),
    "naive, tuned by hand, ms": ("lean_ms", ",.0f"),
    "ours, ms": ("fast_ms", ",.2f"),
    "ratio to naive": ("ratio", ",.1f"),
    "the same, CPU time": ("ratio_cpu", ",.1f"),
    "ratio to tuned": ("ratio_to_lean", ",.1f"),
    "largest difference, logits": ("max_abs_diff_logits", ".0e"),
    "largest difference, gradients": ("max_abs_diff_grad", ".0e"),
    "naive, peak MB": ("naive_peak_mb", ",.0f"),
    "ours, peak MB": ("fast_peak_mb", ",.1f"),
}


def speed(case: Case, naive_repeats: int = 5, fast_repeats: int = 200) -> dict[str, Any]:
    """Forward, backward and SGD on one batch, both ways, with the same parameters.

    The classifier is the plain linear layer on both sides (`centered=False`). The differences
    are taken on the first step, before the two can drift apart. `lean` is the naive way tuned by
    hand, in place, as far as torch goes.
    """
    fast, naive, lean = (_model(case) for _ in range(3))
    around = case.batch.neighbors
    assert isinstance(around, Neighbors)
    dense = as_dense(case.batch.x), around.with_features(as_dense(around.features))
    steps: dict[str, Step] = {
        "fast": _step(fast, case.batch.target, lambda: fast(case.batch)),
        "naive": _step(naive, case.batch.target, lambda: naive_logits(naive, *dense)),
        "lean": _step(lean, case.batch.target, lambda: naive_logits(lean, *dense, lean=True)),
    }
    compared = _compare(fast, naive, steps)
    repeats = {"fast": fast_repeats, "naive": naive_repeats, "lean": naive_repeats}
    times = milliseconds(steps, repeats)
    cpu = milliseconds(steps, repeats, time.process_time)
    return {
        "dataset": case.name,
        "origin": case.origin,
        "items": len(case.batch.target),
        "neighbors": len(case.batch.neighbors),
        "num_features": case.num_features,
        "naive_ms": times["naive"],
        "fast_ms": times["fast"],
        "ratio": times["naive"] / times["fast"],
        "ratio_cpu": cpu["naive"] / cpu["fast"],
        "lean_ms": times["lean"],
        "ratio_to_lean": times["lean"] / times["fast"],
        **compared,
        "naive_peak_mb": peak_mb(steps["naive"]),
        "fast_peak_mb": peak_mb(steps["fast"]),
    }


def forms(num_features: int, share: float, repeats: int = 5) -> dict[str, Any]:
    """The same step on the support and with F × F matrices, at a share of nonzeros in x."""
    own = round(share * num_features)
    case = bags_of_words(50, num_features, own, min(3 * own, num_features), weighted=True)
    around = case.batch.neighbors
    assert isinstance(around, Neighbors)
    dense = replace(
        case.batch, x=as_dense(case.batch.x),
        neighbors=around.with_features(as_dense(around.features)),
    )  # fmt: skip
    support, matrices = (_model(case) for _ in range(2))

    def in_matrices() -> Tensor:
        with patch.object(build, "SPARSE_BELOW", 0.0):
            out: Tensor = matrices(dense)
        return out

    steps = {
        "support": _step(support, case.batch.target, lambda: support(case.batch)),
        "dense": _step(matrices, case.batch.target, in_matrices),
    }
    difference = float((steps["support"]() - steps["dense"]()).abs().max())
    times = milliseconds(steps, dict.fromkeys(steps, repeats), time.process_time)
    ratio = times["support"] / times["dense"]
    row = {"num_features": num_features, "share": share, "support_over_dense_cpu": ratio}
    return {**row, "max_abs_diff_logits": difference}


def _model(case: Case) -> FGN:
    torch.manual_seed(0)
    return FGN(case.num_features, case.num_classes, channels=(10, 10), centered=False)


def _step(model: FGN, target: Tensor, logits: Step) -> Step:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> Tensor:
        optimizer.zero_grad()
        out = logits()
        cross_entropy(out, target).backward()
        optimizer.step()
        return out.detach()

    return step


def _compare(fast: FGN, naive: FGN, steps: dict[str, Step]) -> dict[str, float]:
    logits = (steps["fast"]() - steps["naive"]()).abs().max()
    gradients = [
        (p.grad - q.grad).abs().max()
        for p, q in zip(fast.parameters(), naive.parameters(), strict=True)
        if p.grad is not None and q.grad is not None
    ]
    return {
        "max_abs_diff_logits": float(logits),
        "max_abs_diff_grad": float(torch.stack(gradients).max()),
    }


def cases(data_root: Path | None) -> list[Case]:
    """Cora, Citeseer and dense embeddings."""
    found = []
    for name, words in (("cora", (1433, 18, 67, 4)), ("citeseer", (3703, 32, 91, 4))):
        try:
            found.append(from_dataset(load(name, data_root, fetch=False), 10))
        except DatasetNotFound:
            found.append(bags_of_words(10, *words, name=name))
    return [*found, dense_embeddings(256, 128, 20)]


def command(as_json: AsJson = False, out: Out = None, data_root: DataRoot = None) -> None:
    """Time a training step of FGN: the paper's F × F matrices against the exact fast forms."""
    evidence = provenance()  # of the code as it starts, whatever changes meanwhile
    rows = []
    with progress(as_json) as shown:
        task = shown.add_task("comparing", total=3 + len(WIDTHS) * len(SHARES))
        for case in cases(data_root):
            shown.update(task, description=f"{case.name}, naive and fast in turns", advance=1)
            rows.append(speed(case))
        shares = []
        for width, share in itertools.product(WIDTHS, SHARES):
            shown.update(task, description="support and matrices in turns", advance=1)
            shares.append(forms(width, share))
    names = [f"{r['dataset']}{' (generated)' * (r['origin'] == 'generated')}" for r in rows]
    text = [[line, *(format(r[k], form) for r in rows)] for line, (k, form) in LINES.items()]
    title = "One training step: F × F matrices against ours"
    found = {**evidence, "cases": rows, "forms": shares}
    publish(found, as_json, out, lambda: table_of(title, ("", *names), text))


if __name__ == "__main__":
    typer.run(command)

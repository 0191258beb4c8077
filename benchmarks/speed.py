"""A training step of the two-layer broadcast FGN, ours against the plain F × F way."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.batches import Case
from benchmarks.measure import milliseconds, peak_mb
from benchmarks.naive import naive_logits
from evergraph.feature_graph import Neighbors
from evergraph.nn.fgn import FGN
from evergraph.graph.rows import SparseRows

Step = Callable[[], Tensor]


def speed(case: Case, naive_repeats: int = 5, fast_repeats: int = 200) -> dict[str, object]:
    """Forward, backward and SGD on one batch, both ways, with the same parameters.

    The classifier is the plain linear layer on both sides (`centered=False`). The differences
    are taken on the first step, before the two can drift apart. `lean` is the naive way tuned by
    hand, in place, as far as torch goes.
    """
    fast, naive, lean = (_model(case) for _ in range(3))
    dense = _dense(case)
    steps: dict[str, Step] = {
        "fast": _step(fast, case.target, lambda: fast(case.x, case.neighbors)),
        "naive": _step(naive, case.target, lambda: naive_logits(naive, *dense)),
        "lean": _step(lean, case.target, lambda: naive_logits(lean, *dense, lean=True)),
    }
    compared = _compare(fast, naive, steps)
    repeats = {"fast": fast_repeats, "naive": naive_repeats, "lean": naive_repeats}
    times = milliseconds(steps, repeats)
    return {
        "dataset": case.name,
        "origin": case.origin,
        "items": len(case.target),
        "neighbors": len(case.neighbors),
        "num_features": case.num_features,
        "naive_ms": times["naive"],
        "fast_ms": times["fast"],
        "ratio": times["naive"] / times["fast"],
        "lean_ms": times["lean"],
        "ratio_to_lean": times["lean"] / times["fast"],
        **compared,
        "naive_peak_mb": peak_mb(steps["naive"]),
        "fast_peak_mb": peak_mb(steps["fast"]),
    }


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


def _dense(case: Case) -> tuple[Tensor, Neighbors]:
    x, y = case.x, case.neighbors.features
    if isinstance(x, SparseRows):
        x = x.to_dense().unsqueeze(1)
    if isinstance(y, SparseRows):
        y = y.to_dense().unsqueeze(1)
    return x, case.neighbors.with_features(y)

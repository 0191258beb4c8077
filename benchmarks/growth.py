"""Time and bytes per item as the features, the neighborhoods and the stream grow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from benchmarks.batches import Case, bags_of_words
from benchmarks.measure import milliseconds, resident_mb
from evergraph.feature_graph import condense
from evergraph.nn.fgn import FGN
from evergraph.graph.rows import SparseRows

BATCH = 10
FEATURES = (500, 1_500, 5_000, 15_000, 50_000)
NEIGHBORS = (1, 5, 20, 100, 500)
STREAM = (1_000, 10_000, 100_000)

Rows = list[dict[str, float]]


def exponent(rows: Rows, size: str, value: str) -> float:
    """The slope of log value over log size: 0 is flat, 1 is linear."""
    x = np.log([row[size] for row in rows])
    y = np.log([row[value] for row in rows])
    return float(np.polyfit(x, y, 1)[0])


def by_features(sizes: Iterable[int] = FEATURES) -> Iterator[dict[str, float]]:
    """A training step and a stored item at the same nonzeros among more and more features."""
    cases = {size: bags_of_words(BATCH, size) for size in sizes}
    yield from _per_item(cases, "features", condensed=True)


def by_neighbors(counts: Iterable[int] = NEIGHBORS) -> Iterator[dict[str, float]]:
    """The same with more and more neighbors, which all have the same number of words."""
    cases = {
        count: bags_of_words(BATCH, 20_000, own=18, support=18 + 16 * (count - 1), neighbors=count)
        for count in counts
    }
    yield from _per_item(cases, "neighbors", condensed=False)


def by_stream(
    lengths: Iterable[int] = STREAM, report: Callable[[int], None] = lambda _: None
) -> Iterator[dict[str, float]]:
    """One pass over a stream: what the last tenth before each length costs per item."""
    batches = [bags_of_words(BATCH, 1_433, seed=seed) for seed in range(100)]
    step = _trainer(batches[0])
    step(batches[0])
    seen = 0
    for length in lengths:
        while seen + BATCH <= length * 9 // 10:
            step(batches[seen // BATCH % len(batches)])
            seen += BATCH
            report(seen)
        start, first = time.perf_counter(), seen
        while seen < length:
            step(batches[seen // BATCH % len(batches)])
            seen += BATCH
            report(seen)
        elapsed = (time.perf_counter() - start) * 1e6
        yield {
            "items": length,
            "us_per_item": elapsed / (seen - first),
            "resident_mb": resident_mb(),
        }


def _per_item(cases: dict[int, Case], size: str, condensed: bool) -> Iterator[dict[str, float]]:
    """Microseconds of a training step and bytes of a stored item, measured in turns."""
    steps = {str(value): partial(_trainer(case), case) for value, case in cases.items()}
    times = milliseconds(steps, dict.fromkeys(steps, 40))
    for value, case in cases.items():
        yield {
            size: value,
            "us_per_item": times[str(value)] * 1e3 / BATCH,
            "bytes_per_item": _stored_bytes(case, condensed) / BATCH,
        }


def _trainer(case: Case) -> Callable[[Case], None]:
    torch.manual_seed(0)
    model = FGN(case.num_features, case.num_classes, sparse_gradient=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train(case: Case) -> None:
        optimizer.zero_grad()
        cross_entropy(model(case.x, case.neighbors), case.target).backward()
        optimizer.step()

    return train


def _stored_bytes(case: Case, condensed: bool) -> int:
    """What a memory keeps of a batch: x and its neighbors, or the pair (x, m)."""
    neighbors = case.neighbors
    if condensed:
        neighbors = condense(replace(neighbors, weight=None), len(case.target))
    x, y = case.x, neighbors.features
    assert isinstance(x, SparseRows)
    assert isinstance(y, SparseRows)
    return x.nbytes + y.nbytes

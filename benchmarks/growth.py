"""Time and bytes per item as the features, the neighborhoods and the stream grow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.table import Table
from torch.nn.functional import cross_entropy

from benchmarks.batches import Case, bags_of_words
from benchmarks.measure import milliseconds, resident_mb
from evergraph.cli.console import AsJson, Out, progress, publish, table_of, use_threads
from evergraph.datasets.generate import PRESETS, generate
from evergraph.evaluate.evidence import provenance
from evergraph.feature_graph import condense
from evergraph.graph import Dataset, Neighbors
from evergraph.learn import Learner, Reservoir, Training
from evergraph.learn.methods import Replay
from evergraph.nn.fgn import FGN
from evergraph.stream import node_continuum

BATCH = 10
FEATURES = (500, 1_500, 5_000, 15_000, 50_000)
NEIGHBORS = (1, 5, 20, 100, 500)
STREAM = (1_000, 10_000, 100_000)
PARTS = 10

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
        start, first = time.perf_counter(), seen
        while seen < length:
            if seen + BATCH > length * 9 // 10 >= seen:  # the last tenth begins
                start, first = time.perf_counter(), seen
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
        cross_entropy(model(case.batch), case.batch.target).backward()
        optimizer.step()

    return train


def _stored_bytes(case: Case, condensed: bool) -> int:
    """What a memory keeps of a batch: x and its neighbors, or the pair (x, m)."""
    x, neighbors = case.batch.x, case.batch.neighbors
    assert isinstance(neighbors, Neighbors)
    if condensed:
        neighbors = condense(replace(neighbors, weight=None), len(case.batch))
    return x.nbytes + neighbors.features.nbytes


def follow(
    dataset: Dataset,
    capacity: int = 500,
    batch_size: int = 100,
    report: Callable[[int], None] = lambda seen: None,
) -> Iterator[dict[str, float]]:
    """One pass in order of arrival with a bounded memory, in ten parts.

    Each batch gets one step and one minibatch of replay, so that the cost per item is constant by
    design; what is measured is whether it is in fact.
    """
    stream = node_continuum(dataset, scenario="time", batch_size=batch_size)
    torch.manual_seed(0)
    learner = Learner(
        FGN(dataset.graph.num_features, 0, concatenate=True),
        Replay(),
        Reservoir(capacity),
        Training(lr=0.05, steps=1, replay_batches=1, replay_batch_size=batch_size),
    )
    seen = correct = 0
    marks = [round(part * len(stream) / PARTS) for part in range(1, PARTS + 1)]
    start, first = time.perf_counter(), 0
    for position, batch in enumerate(stream, start=1):
        if learner.classes:
            correct += int((learner.predict(batch) == batch.target).sum())
        learner.observe(batch)
        seen += len(batch)
        report(seen)
        if position in marks:
            elapsed = time.perf_counter() - start
            assert learner.memory is not None
            yield {
                "items": seen,
                "us_per_item": elapsed * 1e6 / (seen - first),
                "resident_mb": resident_mb(),
                "memory_bytes": learner.memory.nbytes,
                "prequential": correct / (seen - first),
            }
            start, first, correct = time.perf_counter(), seen, 0


def command(
    stream: Annotated[
        int, typer.Option(help="Items of the generated stream that a whole learner follows.")
    ] = 100_000,
    as_json: AsJson = False,
    out: Out = None,
) -> None:
    """Time and bytes per item as features, neighborhoods and the stream grow.

    The exponent is the slope on a log-log scale: 0 means flat, 1 means linear. In the end a whole
    learner (FGN, replay, a reservoir of 500 items) follows a generated citation graph in order of
    arrival: time per item, resident memory, bytes of the reservoir, and prequential accuracy,
    tenth by tenth. Try --stream 1000000.
    """
    evidence = provenance()
    use_threads(1)
    with progress(as_json) as shown:
        task = shown.add_task("more features", total=STREAM[-1])
        sweeps = {"features": list(by_features())}
        shown.update(task, description="more neighbors")
        sweeps["neighbors"] = list(by_neighbors())
        shown.update(task, description="longer stream")
        sweeps["items"] = list(by_stream(report=lambda n: shown.update(task, completed=n)))
        task = shown.add_task("generating a graph to follow", total=stream)
        dataset = generate(replace(PRESETS["citation"], nodes=stream, train=1.0, test=0.0))
        shown.update(task, description="a learner follows the stream")
        tenths = list(follow(dataset, report=lambda n: shown.update(task, completed=n)))
    result: dict[str, Any] = {
        **evidence,
        **{f"by_{size}": rows for size, rows in sweeps.items()},
        "learner": tenths,
        "learner_exponents": {
            f"{value}_by_items": exponent(tenths[1:], "items", value)
            for value in ("us_per_item", "resident_mb", "memory_bytes")
        },
        "exponents": {
            f"{value}_by_{size}": exponent(rows, size, value)
            for size, rows in sweeps.items()
            for value in rows[0]
            if value != size
        },
    }
    publish(result, as_json, out, lambda: _table(sweeps, tenths))


def _table(sweeps: dict[str, Rows], tenths: Rows) -> Table:
    text = []
    for size, rows in {**sweeps, "learner": tenths}.items():
        key = "items" if size == "learner" else size
        for row in rows:
            stored = row.get("bytes_per_item", row.get("memory_bytes"))
            text.append([
                size, f"{row[key]:,.0f}", f"{row['us_per_item']:.0f}",
                "" if stored is None else f"{stored:,.0f}",
                f"{row['resident_mb']:.0f}" if "resident_mb" in row else "",
            ])  # fmt: skip
        slope = exponent(rows, key, "us_per_item")
        text.append(["", "exponent", f"{slope:.2f}", "", ""])
    columns = ("grows", "size", "µs per item", "bytes", "resident MB")
    return table_of("Cost per item while things grow", columns, text)


if __name__ == "__main__":
    typer.run(command)

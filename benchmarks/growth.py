"""Time and bytes per item as the features, the neighborhoods and the stream grow."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.progress import Progress, TaskID
from rich.table import Table
from torch.nn.functional import cross_entropy

from benchmarks.batches import Case, bags_of_words
from benchmarks.follower import Follower
from benchmarks.measure import milliseconds, resident_mb
from evergraph.cli.console import AsJson, Out, progress, publish, table_of, use_threads
from evergraph.evaluate.evidence import provenance
from evergraph.feature_graph import condense
from evergraph.graph import Neighbors
from evergraph.nn.fgn import FGN

BATCH = 10
FEATURES = (500, 1_500, 5_000, 15_000, 50_000)
NEIGHBORS = (1, 5, 20, 100, 500)
STREAM = (1_000, 10_000, 100_000)
PARTS = 10
LEARNERS = {"replay": "learner", "analytic": "closed_form"}  # methods, and keys of the results
BATCHES = (100, 1_000)  # items that arrive together: the classifier in closed form is the same
WARM = 1_000  # items of a stream before the one that counts
STRETCH, TURNS = 5_000, 5  # items of a turn beside other code, and turns
ROOT = Path(__file__).parents[1]

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
    items: int, method: str, report: Callable[[int], None] = lambda seen: None
) -> Iterator[dict[str, float]]:
    """One pass over a generated stream in order of arrival, in ten parts.

    FGN gets one step and one minibatch of replay for each batch, and keeps 500 items; the closed
    form solves once a part. So the cost per item is constant by design; what is measured is whether
    it is in fact.
    """
    warm = Follower(ROOT, str(WARM), method)  # compiles loops, which are kept
    warm.learn(WARM)
    warm.close()
    learner, seen = Follower(ROOT, str(items), method), 0
    for part in range(1, PARTS + 1):
        found = learner.learn(part * items // PARTS - seen)
        seen += int(found["items"])
        report(seen)
        yield {
            "items": seen,
            "us_per_item": found["wall"] * 1e6 / found["items"],
            "cpu_us_per_item": found["cpu"] * 1e6 / found["items"],
            "resident_mb": found["resident_mb"],
            "memory_bytes": found["kept_bytes"],
            "prequential": found["correct"] / found["items"],
        }
    learner.close()


def beside(
    before: Path, items: int, method: str, batch: int = BATCHES[0], turns: int = TURNS
) -> dict[str, float]:
    """What this code and a checkout before take for the same stretch of the same stream, in turns.

    The first stretch, in which loops are loaded and the memory fills, does not count.
    """
    sides = [Follower(root, str(items), method, batch) for root in (ROOT, before)]
    size = min(STRETCH, items // (turns + 1))
    pairs = [[side.learn(size) for side in sides] for _ in range(turns + 1)][1:]
    for side in sides:
        side.close()
    now, old = ([row[k] for row in pairs] for k in range(2))
    assert method != "replay" or [r["correct"] for r in now] == [r["correct"] for r in old]
    cost = [statistics.median(r["cpu"] * 1e6 / r["items"] for r in side) for side in (now, old)]
    return {
        "batch": batch,
        "stretch_items": size * turns,
        "cpu_us_per_item": cost[0],
        "cpu_us_per_item_before": cost[1],
        "throughput_over_before": statistics.median(o["cpu"] / n["cpu"] for n, o in pairs),
        "throughput_over_before_wall": statistics.median(o["wall"] / n["wall"] for n, o in pairs),
        "memory_bytes": now[-1]["kept_bytes"],
        "memory_bytes_before": old[-1]["kept_bytes"],
        "peak_mb": now[-1]["peak_mb"],
        "peak_mb_before": old[-1]["peak_mb"],
        "load": os.getloadavg()[0],
    }


def command(
    stream: Annotated[
        int, typer.Option(help="Items of the generated stream that a whole learner follows.")
    ] = 100_000,
    before: Annotated[
        Path | None, typer.Option(help="A checkout of 7247736 to compare a stretch with.")
    ] = None,
    as_json: AsJson = False,
    out: Out = None,
) -> None:
    """Time and bytes per item as features, neighborhoods and the stream grow.

    The exponent is the slope on a log-log scale: 0 means flat, 1 means linear. In the end whole
    learners (FGN with replay and a reservoir of 500 items, and the closed form) follow a generated
    citation graph in order of arrival: time per item, resident memory, bytes of what is kept, and
    prequential accuracy, tenth by tenth. With --before also beside code of before, in turns. Try
    --stream 1000000.
    """
    evidence = provenance()
    use_threads(1)
    compared = {}
    with progress(as_json) as shown:
        task = shown.add_task("more features", total=STREAM[-1])
        sweeps = {"features": list(by_features())}
        shown.update(task, description="more neighbors")
        sweeps["neighbors"] = list(by_neighbors())
        shown.update(task, description="longer stream")
        sweeps["items"] = list(by_stream(report=lambda n: shown.update(task, completed=n)))
        tenths = {}
        for method, name in LEARNERS.items():
            task = shown.add_task(f"{name} follows the stream", total=stream)
            report = partial(_show, shown, task)
            tenths[name] = list(follow(stream, method, report))
            if before is not None:
                sizes = BATCHES if method == "analytic" else BATCHES[:1]
                compared[name] = [beside(before, stream, method, size) for size in sizes]
    result: dict[str, Any] = {
        **evidence,
        **{f"by_{size}": rows for size, rows in sweeps.items()},
        **tenths,
        **{
            f"{name}_exponents": {
                f"{value}_by_items": exponent(rows[1:], "items", value)
                for value in ("us_per_item", "cpu_us_per_item", "resident_mb", "memory_bytes")
            }
            for name, rows in tenths.items()
        },
        **({"beside_7247736": compared} if compared else {}),
        "exponents": {
            f"{value}_by_{size}": exponent(rows, size, value)
            for size, rows in sweeps.items()
            for value in rows[0]
            if value != size
        },
    }
    publish(result, as_json, out, lambda: _table({**sweeps, **tenths}))


def _show(shown: Progress, task: TaskID, seen: int) -> None:
    shown.update(task, completed=seen)


def _table(sweeps: dict[str, Rows]) -> Table:
    text = []
    for size, rows in sweeps.items():
        key = "items" if size in LEARNERS.values() else size
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

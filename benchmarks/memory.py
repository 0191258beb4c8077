"""What a memory costs: time per item as classes and items grow, bytes counted and paid, replay."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.table import Table

from benchmarks.follower import METHODS, Follower
from benchmarks.measure import give_back, milliseconds, resident_mb
from evergraph.cli.console import AsJson, DataRoot, Out, publish, table_of, use_threads
from evergraph.evaluate.evidence import provenance
from evergraph.graph import Neighbors
from evergraph.learn import ClassBalanced, Memory, Reservoir
from evergraph.stream import Batch, concatenate

BATCH = 10
CLASSES = (10, 100, 1_000)
CAPACITIES = (1_000, 8_000, 40_000)
BALANCED = 8_000  # items, while the number of classes grows
SMALL = 40_000  # items whose bytes are counted
STORED = 20_000  # items in the memory of a whole learner
# Data, method, capacity, items before measuring and with them.
CASES = (
    ("cora", "replay", 500, 100, 1_100),
    ("cora", "analytic", 500, 100, 1_100),
    ("amazon-computers", "analytic", 500, 100, 2_000),
)
ROOT = Path(__file__).parents[1]


def small_batch(first: int, size: int, classes: int) -> Batch:
    """Items of two features and one neighbor, in an order that repeats no class soon."""
    node = torch.arange(first, first + size)
    features = torch.ones(size, 1, 2)
    neighbors = Neighbors(features, torch.arange(size))
    return Batch(features, neighbors, node * 7919 % classes, torch.full((size,), -1), node)


def us_per_item(memory: Memory, capacity: int, classes: int, rounds: int = 200) -> float:
    """Time to offer an item to a memory that has just become full, when most still enter."""
    for first in range(0, capacity, 1_000):
        memory.add(small_batch(first, min(1_000, capacity - first), classes))
    batches = [small_batch(capacity + i * BATCH, BATCH, classes) for i in range(rounds)]
    start = time.process_time()
    for batch in batches:
        memory.add(batch)
    return (time.process_time() - start) * 1e6 / (rounds * BATCH)


def counted_and_paid(items: int = SMALL) -> dict[str, float]:
    """Bytes that a full memory counts, and what the process grew by, in a process of its own.

    What the C library holds back after it was freed is told apart: `resident_mb` has it too.
    """
    code = f"from benchmarks.memory import fill; fill({items})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    counted, resident, paid = map(float, ran.stdout.split())
    return {
        "items": items,
        "counted_mb": counted,
        "paid_mb": paid,
        "resident_mb": resident,
        "ratio": paid / counted,
    }


def fill(items: int) -> None:
    """Fill a memory, go on until a fourth of it has been exchanged, and print all megabytes."""
    warm, memory = Reservoir(100), Reservoir(items)
    for first in range(0, 1_000, BATCH):
        warm.add(small_batch(first, BATCH, 10))
        warm.batch(range(len(warm)))
    start = resident_mb()
    for first in range(0, items * 4 // 3, BATCH):
        memory.add(small_batch(first, BATCH, 10))
    memory.batch(range(50))
    resident = resident_mb() - start
    give_back()
    typer.echo(f"{memory.nbytes / 2**20} {resident} {resident_mb() - start}")


def gather_over_list(capacity: int = 500, size: int = 50) -> float:
    """A minibatch of replay as one gather, over the same from a list of items: CPU time."""
    memory = Reservoir(capacity)
    memory.add(small_batch(0, capacity, 10))
    items, rng = list(memory.items), np.random.default_rng(0)

    def chosen() -> list[int]:
        return [int(i) for i in rng.permutation(capacity)[:size]]

    steps: dict[str, Callable[[], object]] = {
        "gather": lambda: memory.batch(chosen()),
        "list": lambda: concatenate([items[i] for i in chosen()]),
    }
    times = milliseconds(steps, dict.fromkeys(steps, 300), clock=time.process_time)
    return times["gather"] / times["list"]


def beside(before: Path, data: Path | None, items: int = STORED) -> list[dict[str, Any]]:
    """Memory of whole learners of this code and of a checkout before, on the same streams.

    `paid_per_item` is what a process grows by for each item of a memory, all overhead included;
    `kept_bytes` is what a memory or a closed form says; `rise_mb` is the peak over the start, when
    the data are loaded.
    """
    rows = []
    warm, long = items // 10, items + items // 10
    generated = ((str(4 * items), method, items, warm, long) for method in METHODS)
    for dataset, method, capacity, start, length in (*generated, *CASES):
        row: dict[str, Any] = {"dataset": dataset, "method": method, "items": length}
        for root, end in ((ROOT, ""), (before, "_before")):
            learner = Follower(root, dataset, method, capacity=capacity, data=data)
            first, last = learner.learn(start), learner.learn(length - start)
            learner.close()
            row[f"kept_bytes{end}"] = last["kept_bytes"]
            row[f"rise_mb{end}"] = last["peak_mb"] - learner.start["resident_mb"]
            row[f"peak_mb{end}"] = last["peak_mb"]
            if capacity == items and method == "replay":
                grown = last["resident_mb"] - first["resident_mb"]
                row[f"paid_per_item{end}"] = grown * 2**20 / (capacity - first["items"])
        rows.append(row)
    return rows


def measure(classes: Iterable[int], capacities: Iterable[int], balanced: int) -> dict[str, Any]:
    """Microseconds per item: a balanced memory of more classes, a reservoir of more items."""
    return {
        "by_classes": [
            {"classes": n, "us_per_item": us_per_item(ClassBalanced(balanced), balanced, n)}
            for n in classes
        ],
        "by_capacity": [
            {"capacity": n, "us_per_item": us_per_item(Reservoir(n), n, 10)} for n in capacities
        ],
    }


def command(
    small: Annotated[int, typer.Option(help="Items whose bytes are counted.")] = SMALL,
    before: Annotated[
        Path | None, typer.Option(help="A checkout of 7247736 to compare with.")
    ] = None,
    data: DataRoot = None,
    as_json: AsJson = False,
    out: Out = None,
) -> None:
    """Time per item as classes and capacity grow, bytes counted and paid, and a gather of replay.

    Times are of the CPU, for memories that have just become full: nearly every item enters, and
    another one goes.
    """
    evidence = provenance()
    use_threads(1)
    times = measure(CLASSES, CAPACITIES, BALANCED)
    bytes_ = counted_and_paid(small)
    result = {**evidence, **times, "bytes": bytes_, "gather_over_list": gather_over_list()}
    if before is not None:
        result["beside_7247736"] = beside(before, data)
    publish(result, as_json, out, lambda: _table(result))


def _table(result: dict[str, Any]) -> Table:
    rows = []
    for key, size in (("by_classes", "classes"), ("by_capacity", "capacity")):
        for row in result[key]:
            ratio = row["us_per_item"] / result[key][0]["us_per_item"]
            rows.append([size, f"{row[size]:,}", f"{row['us_per_item']:.0f} µs", f"{ratio:.2f}"])
    paid = result["bytes"]
    rows.append(["paid MB", f"{paid['items']:,}", f"{paid['paid_mb']:.1f}", f"{paid['ratio']:.2f}"])
    rows.append(["gather over list", "50", "", f"{result['gather_over_list']:.2f}"])
    return table_of("What a memory costs", ("what", "size", "per item", "ratio"), rows)


if __name__ == "__main__":
    typer.run(command)

"""What safety costs: transactions against bare steps, and learning while eight threads predict.

Both sides of a ratio learn the same batches in turns, in one run. A stream with the sizes of Cora
is generated if Cora is not at hand.
"""

from __future__ import annotations

import copy
import statistics
import threading
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from evergraph.cli.console import AsJson, DataRoot, Out, progress, publish, table_of, use_threads
from evergraph.datasets import DatasetNotFound, load
from evergraph.evaluate.config import Config, build
from evergraph.evaluate.evidence import provenance
from evergraph.evaluate.presets import CLOSED_FORMS
from evergraph.graph import Dataset
from evergraph.learn import Learner, Training
from evergraph.stream.batch import Batch

METHODS = ("finetune", "replay", "gem", "der", "lwf", "ewc", "analytic")
READERS = 8
BLOCK = 10  # batches


def transactions(
    dataset: Dataset, method: str, steps: int, batches: int, repetitions: int
) -> dict[str, Any]:
    """CPU time of `observe` over that of the same steps without a way back.

    The two take turns in blocks of batches, so that each mostly follows itself, as in a stream.
    """
    config = Config(dataset=dataset.name, method=method, settings={"steps": steps})
    stream, first = build(config, dataset, 0)
    parts = [batch for _, batch in zip(range(batches), stream.batches(0), strict=False)]
    times: dict[str, list[float]] = {"safe": [], "bare": []}
    for repetition in range(1 + repetitions):  # the first warms up
        both = {"safe": copy.deepcopy(first), "bare": copy.deepcopy(first)}
        setattr(both["bare"], "_attempt", _unprotected)  # noqa: B010 - of one object only
        for number, start in enumerate(range(0, batches, BLOCK)):
            for name in ("safe", "bare") if number % 2 else ("bare", "safe"):
                block = copy.deepcopy(parts[start : start + BLOCK])  # with nothing kept beside it
                seconds = _learn(both[name], block)
                if repetition:
                    times[name].append(seconds)
        assert both["safe"].digest() == both["bare"].digest()
    pairs = [*zip(times["safe"], times["bare"], strict=True)]
    apart = [one - other for one, other in pairs]
    return {
        "method": method,
        "steps": steps,
        "batches": repetitions * len(parts),
        "observe_ms": 1e3 * sum(times["safe"]) / (repetitions * len(parts)),
        "transaction_us": 1e6 * statistics.median(apart) / BLOCK,
        "ratio_cpu": statistics.median(one / other for one, other in pairs),
        "ratio_cpu_total": sum(times["safe"]) / sum(times["bare"]),
    }


def _unprotected(action: Callable[[], None]) -> None:
    action()


def readers(dataset: Dataset, batches: int, threads: int = READERS) -> dict[str, Any]:
    """Learn a stream alone, and again while threads predict; both learn the same."""
    stream, alone = build(Config(dataset=dataset.name), dataset, 0)
    watched = copy.deepcopy(alone)
    parts = [b for _, b in zip(range(batches), stream.batches(0), strict=False)]
    start = time.perf_counter()
    _learn(alone, parts)
    seconds_alone = time.perf_counter() - start
    predicted, stop = [0] * threads, threading.Event()

    def read(number: int) -> None:
        while not stop.is_set():
            if watched.position:
                predicted[number] += len(watched.predict(parts[0]))

    pool = [threading.Thread(target=read, args=(number,)) for number in range(threads)]
    for thread in pool:
        thread.start()
    start = time.perf_counter()
    try:
        _learn(watched, parts)
    finally:
        seconds = time.perf_counter() - start
        stop.set()
        for thread in pool:
            thread.join()
    return {
        "threads": threads,
        "batches": len(parts),
        "identical": watched.digest() == alone.digest(),
        "items_learned": sum(map(len, parts)),
        "items_predicted": sum(predicted),
        "predicted_per_learned": sum(predicted) / sum(map(len, parts)),
        "wall_clock_ratio": seconds / seconds_alone,
    }


def _learn(learner: Learner, batches: list[Batch]) -> float:
    """CPU seconds that learning takes."""
    start = time.process_time()
    for batch in batches:
        learner.observe(batch)
    return time.process_time() - start


def command(
    batches: int = 60,
    repetitions: int = 8,
    methods: str = ",".join(METHODS),
    steps: Annotated[
        str, typer.Option(help="Gradient steps on each batch, the default of Training and one.")
    ] = f"{Training().steps},1",
    data: DataRoot = None,
    as_json: AsJson = False,
    out: Out = None,
) -> None:
    """Measure transactions and reading threads, with one thread for arithmetic."""
    use_threads(1)
    try:
        dataset = load("cora", data)
    except DatasetNotFound:
        dataset = load("generated")
    counts = [*map(int, steps.split(","))]
    cases = [
        (name, n)
        for n in counts
        for name in methods.split(",")
        if n == counts[0] or name not in CLOSED_FORMS  # which take no steps
    ]
    found = []
    with progress(as_json) as shown:
        bar = shown.add_task("safety", total=len(cases) + 1)
        for name, n in cases:
            found.append(transactions(dataset, name, n, batches, repetitions))
            shown.advance(bar)
        reading = readers(dataset, batches)
    rows = [
        [row["method"], str(row["steps"]), f"{row['observe_ms']:.1f}", f"{row['ratio_cpu']:.3f}"]
        for row in found
    ]
    columns = ("method", "steps a batch", "observe, CPU ms", "over bare steps")
    publish(
        {**provenance(), "dataset": dataset.name, "transactions": found, "readers": reading},
        as_json,
        out,
        lambda: table_of(
            f"Transactions; {reading['threads']} threads predicted "
            f"{reading['predicted_per_learned']:.1f} items for each one learned, the same "
            f"weights: {reading['identical']}",
            columns,
            rows,
        ),
    )


if __name__ == "__main__":
    typer.run(command)

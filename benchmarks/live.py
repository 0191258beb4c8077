"""What one event costs while a graph grows, and one update against learning everything again."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table
from scipy import sparse

from benchmarks.measure import resident_mb
from evergraph.cli.console import AsJson, Out, progress, publish, table_of, use_threads
from evergraph.evaluate.evidence import provenance
from evergraph.feature_graph.fixed_point import Blocks
from evergraph.graph.growing import GrowingGraph
from evergraph.learn.exact import ExactLearner
from evergraph.model import Model, Settings

FEATURES, NONZEROS, CLASSES = 32, 4, 5
LINKS = 2  # edges that a node brings: the mean degree is twice that
WINDOW = 1_000  # edges lead to one of so many nodes that came last
BATCH = 1_000  # events between two moments at which all rows are in the sums
BLOCKS = Blocks(landmarks=64)
KINDS = ("node", "edge", "label")
PARTS = 10
UNIT = 2**16

Rows = list[dict[str, Any]]
Event = tuple[str, tuple[Any, ...]]


def events(count: int, seed: int = 0) -> Iterator[Event]:
    """Nodes with their edges to recent ones; the label comes last, `LINKS + 2` events per node."""
    rng = np.random.default_rng(seed)
    node = 0
    while count > 0:
        size = min(BATCH, count // (LINKS + 2) + 1)
        kinds = rng.integers(0, CLASSES, size).tolist()
        index = np.sort(rng.random((size, FEATURES)).argpartition(NONZEROS, 1)[:, :NONZEROS], 1)
        index[:, 0] = np.minimum(index[:, 0], np.array(kinds))
        values = rng.integers(UNIT // 2, UNIT, index.shape)
        near = (rng.random((size, LINKS)) * np.minimum(WINDOW, node + np.arange(size))[:, None]) + 1
        for at, kind in enumerate(kinds):
            yield "node", (node, index[at], values[at])
            for back in near[at].astype(np.int64).tolist() if node else ():
                yield "edge", (node, max(node - back, 0))
            yield "label", (node, f"class {kind}")
            node, count = node + 1, count - LINKS - 2


def landmarks() -> sparse.csr_array:
    """Features of landmark nodes."""
    rng = np.random.default_rng(1)
    shape = BLOCKS.landmarks, FEATURES
    return sparse.csr_array((rng.random(shape) < NONZEROS / FEATURES) * np.int64(UNIT))


def one_pass(count: int, report: Callable[[int], None] = lambda _: None) -> Rows:
    """A million events, one by one; after each batch the learner is brought up to date.

    Returns:
        For each tenth: microseconds of single events by kind, and events per second of everything.
    """
    graph = GrowingGraph(FEATURES)
    learner = ExactLearner(graph, BLOCKS, landmarks())
    calls = {"node": graph.put_node, "edge": graph.put_edge, "label": graph.put_label}
    rows: Rows = []
    stream = _batches(events(count))
    for part in range(1, PARTS + 1):
        times: dict[str, list[int]] = {kind: [] for kind in KINDS}
        spent, cpu, taken, refreshed = 0.0, 0.0, 0, 0.0
        while len(graph) * (LINKS + 2) < part * count // PARTS:
            batch = next(stream)
            start, begin = time.perf_counter(), time.process_time()
            expect(graph, batch)
            for kind, values in batch:
                call, before = calls[kind], time.perf_counter_ns()
                call(*values)  # type: ignore[operator]
                times[kind].append(time.perf_counter_ns() - before)
            middle = time.process_time()
            learner.refresh()
            refreshed += time.process_time() - middle
            spent, cpu = spent + time.perf_counter() - start, cpu + time.process_time() - begin
            taken += len(batch)
            report(len(batch))
        rows.append({
            "nodes": len(graph), "edges": graph.num_edges, "events_per_second": taken / spent,
            "events_per_cpu_second": taken / cpu, "cpu_us_per_event": cpu * 1e6 / taken,
            "refresh_share": refreshed / cpu,
            **{kind: _quantiles(times[kind]) for kind in KINDS}, "resident_mb": resident_mb(),
        })  # fmt: skip
    return rows


def _batches(stream: Iterator[Event]) -> Iterator[list[Event]]:
    """Events in batches that end with a label."""
    batch: list[Event] = []
    for event in stream:
        batch.append(event)
        if len(batch) >= BATCH and event[0] == "label":
            yield batch
            batch = []
    if batch:
        yield batch


def expect(graph: GrowingGraph, batch: list[Event]) -> None:
    """Announce a batch, as `Model.learn` does."""
    graph.expect({n for kind, values in batch if kind == "edge" for n in values}, graph.hops - 1)
    graph.expect({values[0] for kind, values in batch if kind == "label"}, 0)


def _quantiles(times: list[int]) -> dict[str, float]:
    p50, p99 = np.quantile(np.array(times) / 1e3, (0.5, 0.99)).tolist()
    return {"us_p50": p50, "us_p99": p99, "us_mean": float(np.mean(times)) / 1e3}


def one_update(nodes: int, repeats: int = 30) -> dict[str, float]:
    """An edge and a refresh against making all sums again, at one size, in CPU time."""
    graph = GrowingGraph(FEATURES)
    given = list(events(nodes * (LINKS + 2)))[: nodes * (LINKS + 2)]
    put = [values for kind, values in given if kind == "node"]
    names: dict[int, str] = dict(values for kind, values in given if kind == "label")
    indptr = np.arange(len(put) + 1) * NONZEROS
    index, value = (np.concatenate([row[k] for row in put]) for k in (1, 2))
    ids = [row[0] for row in put]
    graph.put_nodes(ids, indptr, index, value, labels=[names.get(node) for node in ids])
    pairs = [values for kind, values in given if kind == "edge"]
    graph.put_edges([a for a, _ in pairs], [b for _, b in pairs])
    learner = ExactLearner(graph, BLOCKS, landmarks())
    start = time.process_time()
    learner.refresh()
    relearned = time.process_time() - start
    rng, took = np.random.default_rng(2), []
    for _ in range(repeats):
        one, other = rng.integers(0, nodes, 2).tolist()
        start = time.process_time()
        graph.put_edge(one, other)
        learner.refresh()
        took.append(time.process_time() - start)
    update = statistics.median(took)
    return {
        "nodes": nodes, "relearn_cpu_ms": relearned * 1e3, "update_cpu_ms": update * 1e3,
        "ratio": relearned / update,
    }  # fmt: skip


def through_model(count: int, report: Callable[[int], None] = lambda _: None) -> dict[str, Any]:
    """The same stream through a model folder: transactions of `BATCH` events, then single ones."""

    def cells(kind: str, values: tuple[Any, ...]) -> dict[str, Any]:
        if kind == "node":
            words = [f"w{k}" for k in values[1].tolist()]
            return {"type": kind, "id": values[0], "words": words, "value": values[2][0] / UNIT}
        names = ("source", "target") if kind == "edge" else ("id", "label")
        return {"type": kind, **dict(zip(names, values, strict=True))}

    stream = [cells(*event) for event in events(count)]
    first = [event for event in stream if event["type"] == "node"][:WINDOW]
    table = {name: [event[name] for event in first] for name in ("id", "words", "value")}
    rates, singles = [], []
    with TemporaryDirectory() as folder:
        settings = Settings(landmarks=BLOCKS.landmarks)
        with Model.train(Path(folder) / "model", table, settings=settings) as model:
            for start in range(0, len(stream), BATCH):
                batch, begin = stream[start : start + BATCH], time.perf_counter()
                model.learn(batch)
                rates.append(len(batch) / (time.perf_counter() - begin))
                report(len(batch))
            for event in [cells(*event) for event in events(400, seed=9)][:400]:
                begin = time.perf_counter()
                model.learn_one(event)
                singles.append(int((time.perf_counter() - begin) * 1e9))
    tenth = max(len(rates) // PARTS, 1)
    return {
        "events": len(stream),
        "events_per_second": statistics.median(rates),
        "last_to_first": statistics.median(rates[:tenth]) / statistics.median(rates[-tenth:]),
        "one_durable_event": _quantiles(singles),
    }


def command(
    count: Annotated[
        int, typer.Option("--events", min=1_000, help="Events in memory.")
    ] = 1_000_000,
    stored: Annotated[int, typer.Option(min=1_000, help="Events through a folder.")] = 40_000,
    largest: Annotated[int, typer.Option(min=1_000, help="Nodes of the largest graph.")] = 100_000,
    as_json: AsJson = False,
    out: Out = None,
) -> None:
    """Events per second, microseconds per event, and one update against learning all again.

    Ratios of the last tenth to the first say whether the cost is flat in the size of the graph.
    """
    evidence = provenance()
    use_threads(1)
    with progress(as_json) as shown:
        task = shown.add_task("one pass in memory", total=count)
        tenths = one_pass(count, lambda n: shown.update(task, advance=n))
        task = shown.add_task("through a model folder", total=stored)
        model = through_model(stored, lambda n: shown.update(task, advance=n))
        sizes = [size for size in (1_000, 10_000, 100_000) if size <= largest]
        updates = [one_update(size) for size in sizes]
    first, last = tenths[0], tenths[-1]
    result = {
        **evidence,
        "config": {
            "events": count, "features": FEATURES, "nonzeros": NONZEROS, "edges_per_node": LINKS,
            "window": WINDOW, "batch": BATCH, "landmarks": BLOCKS.landmarks,
        },
        "tenths": tenths,
        "last_to_first": {
            "cpu_us_per_event": last["cpu_us_per_event"] / first["cpu_us_per_event"],
            **{f"{k}_{q}": last[k][q] / first[k][q] for k in KINDS for q in ("us_p50", "us_p99")},
        },
        "model": model,
        "updates": updates,
    }  # fmt: skip
    publish(result, as_json, out, lambda: _table(tenths, updates))


def _table(tenths: Rows, updates: Rows) -> Table:
    text = [
        [
            f"{row['nodes']:,}", f"{row['events_per_second']:,.0f}",
            *(f"{row[kind]['us_p50']:.1f} / {row[kind]['us_p99']:.1f}" for kind in KINDS), "",
        ]
        for row in tenths
    ]  # fmt: skip
    text += [[f"{row['nodes']:,}", "", "", "", "", f"1 : {row['ratio']:,.0f}"] for row in updates]
    kinds = (f"{kind}, µs p50 / p99" for kind in KINDS)
    return table_of("A growing graph", ("nodes", "events/s", *kinds, "update : relearning"), text)


if __name__ == "__main__":
    typer.run(command)

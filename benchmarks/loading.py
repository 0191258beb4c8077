"""What loading tables into a growing graph costs, against pyarrow's parsing of the same files."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import typer
from rich.table import Table

from evergraph.cli.console import AsJson, Out, publish, table_of
from evergraph.datasets.graph_tables import read_edges, read_nodes
from evergraph.datasets.schema import Schema
from evergraph.evaluate.evidence import provenance
from evergraph.graph.growing import GrowingGraph

NUMBERS, CATEGORIES, FLAGS, DATES, TEXTS = 10, 4, 3, 2, 1  # columns of nodes beside id and label
Clocks = dict[str, tuple[float, float]]
"""CPU and wall-clock seconds by step."""


def write_tables(folder: Path, nodes: int, edges: int, seed: int = 0) -> tuple[Path, Path]:
    """Two CSV files: nodes with mixed columns and gaps, and edges between them."""
    rng = np.random.default_rng(seed)

    def gaps(values: Any) -> pa.Array:
        return pa.array(values, mask=rng.random(nodes) < 0.02)

    names = pa.array([f"user-{k}" for k in range(nodes)])
    words = np.array([f"word{k}" for k in range(2_000)])
    columns: dict[str, pa.Array] = {"id": names}
    columns |= {f"number{k}": gaps(rng.normal(40, 9, nodes).round(3)) for k in range(NUMBERS)}
    columns |= {
        f"kind{k}": gaps(np.array([f"c{n}" for n in range(30)])[rng.integers(0, 30, nodes)])
        for k in range(CATEGORIES)
    }
    columns |= {f"flag{k}": gaps(rng.random(nodes) < 0.3) for k in range(FLAGS)}
    days = np.datetime64("2020-01-01") + rng.integers(0, 1_500, (DATES, nodes))
    columns |= {f"date{k}": gaps(days[k]) for k in range(DATES)}
    text = [" ".join(row) for row in words[rng.integers(0, len(words), (nodes, 6))]]
    columns |= {"text": pa.array(text), "label": pa.array([f"class{k % 5}" for k in range(nodes)])}
    ends = rng.integers(0, nodes, (2, edges))
    tables = (
        pa.table(columns),
        pa.table({"source": names.take(ends[0]), "target": names.take(ends[1])}),
    )
    paths = folder / "nodes.csv", folder / "edges.csv"
    for table, path in zip(tables, paths, strict=True):
        pyarrow.csv.write_csv(table, path)
    return paths


def load(paths: tuple[Path, Path], clock: Callable[[str], None]) -> GrowingGraph:
    """All steps from files to a graph; `clock` is called after each."""
    nodes = list(read_nodes(paths[0]))
    clock("read nodes")
    schema = Schema.infer(part.features for part in nodes)
    clock("infer")
    for part in nodes:
        schema.fit(part.features)
    clock("fit")
    rows = [schema.encode(part.features) for part in nodes]
    clock("encode")
    graph = GrowingGraph(schema.width)
    for part, row in zip(nodes, rows, strict=True):
        graph.put_nodes(part.ids, *row, labels=part.labels, times=part.times)
    clock("put nodes")
    edges = list(read_edges(paths[1], among=[node for part in nodes for node in part.ids]))
    clock("read edges")
    for link in edges:
        graph.put_edges(link.sources, link.targets, link.weights, link.times)
    clock("put edges")
    return graph


def parse(paths: tuple[Path, Path], clock: Callable[[str], None]) -> None:
    """What pyarrow needs for the same files."""
    for path in paths:
        pyarrow.csv.read_csv(path)
        clock(path.stem)


def clocked(step: Callable[[Callable[[str], None]], object]) -> Clocks:
    """CPU and wall-clock time of the parts of a step."""
    found: Clocks = {}
    last = [time.process_time(), time.perf_counter()]

    def clock(name: str) -> None:
        now = [time.process_time(), time.perf_counter()]
        found[name] = now[0] - last[0], now[1] - last[1]
        last[:] = now

    step(clock)
    return found


def measure(nodes: int, edges: int, repeats: int) -> dict[str, Any]:
    """The best of some turns of both, and their ratio in CPU and wall-clock time."""
    with TemporaryDirectory() as folder:
        paths = write_tables(Path(folder), nodes, edges)
        size = sum(path.stat().st_size for path in paths)
        parse(paths, lambda _: None)  # the files are in memory now
        ours, theirs = [], []
        for _ in range(repeats):
            theirs.append(clocked(lambda clock: parse(paths, clock)))
            ours.append(clocked(lambda clock: load(paths, clock)))

    def total(run: Clocks, which: int) -> float:
        return sum(times[which] for times in run.values())

    best = {name: [min(total(run, k) for run in runs) for k in (0, 1)]
            for name, runs in (("evergraph", ours), ("pyarrow", theirs))}  # fmt: skip
    steps = min(ours, key=lambda run: total(run, 0))
    return {
        "config": {"nodes": nodes, "edges": edges, "columns": 20, "repeats": repeats},
        "megabytes": size / 2**20,
        **{name: {"cpu_s": cpu, "wall_s": wall} for name, (cpu, wall) in best.items()},
        "cpu_ratio": best["evergraph"][0] / best["pyarrow"][0],
        "wall_ratio": best["evergraph"][1] / best["pyarrow"][1],
        "steps": {name: {"cpu_s": cpu, "wall_s": wall} for name, (cpu, wall) in steps.items()},
    }


def command(
    nodes: Annotated[int, typer.Option(min=1, help="Rows of the table of nodes.")] = 100_000,
    edges: Annotated[int, typer.Option(min=1, help="Rows of the table of edges.")] = 500_000,
    repeats: Annotated[int, typer.Option(min=1, help="Turns; the best counts.")] = 9,
    as_json: AsJson = False,
    out: Out = None,
) -> None:
    """CSV files into a growing graph: read, infer, fit, encode, put; against parsing them only."""
    evidence = provenance()
    result = {**evidence, **measure(nodes, edges, repeats)}
    publish(result, as_json, out, lambda: _table(result))


def _table(result: dict[str, Any]) -> Table:
    parts = {**result["steps"], "all": result["evergraph"], "pyarrow": result["pyarrow"]}
    text = [[name, f"{row['cpu_s']:.2f}", f"{row['wall_s']:.2f}"] for name, row in parts.items()]
    text.append(["ratio", f"{result['cpu_ratio']:.1f}", f"{result['wall_ratio']:.1f}"])
    return table_of("Loading tables", ("step", "CPU s", "wall-clock s"), text)


if __name__ == "__main__":
    typer.run(command)

"""What nodes, ghosts, edges and events cost on shards, and what larger graphs need.

One call measures one size and adds it to the file, so that its peak of memory is its own.
"""

from __future__ import annotations

import json
import os
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import typer
from pyarrow import parquet
from rich.table import Table
from scipy.optimize import nnls

from benchmarks.cluster import processes
from evergraph.cli.console import AsJson, publish, table_of, write
from evergraph.cluster import Cluster
from evergraph.cluster.engine import connect
from evergraph.datasets.generate import Growth, generate
from evergraph.datasets.objects import dataset_tables
from evergraph.evaluate.evidence import provenance
from evergraph.model import Settings

BLOCK = 500_000  # nodes of a generated graph; larger ones are several side by side
EVENTS, BATCH = 2_000, 100
LARGE = (10**8, 10**9)
HELD = ("nodes", "ghosts", "held_edges")
COSTS = ("peak_bytes", "bytes", "disk_bytes", "cpu_seconds")
GROWTH = Growth(citations=4.0, features=32, words=6.0)
Row = dict[str, Any]


def write_tables(folder: Path, nodes: int, citations: float) -> tuple[Path, Path]:
    """Files of nodes, all with a label, and of edges, of graphs side by side."""
    places = folder / "nodes", folder / "edges"
    for place in places:
        place.mkdir(parents=True)
    for at, first in enumerate(range(0, nodes, BLOCK)):
        size = min(BLOCK, nodes - first)
        growth = replace(GROWTH, nodes=size, citations=citations)
        for place, chunk in zip(places, dataset_tables(generate(growth, seed=at)), strict=True):
            columns = {
                name: pa.array(chunk.table.column(name).to_numpy() + first)
                if name in ("id", "source", "target")
                else chunk.table.column(name)
                for name in chunk.table.column_names
                if name not in ("split", "time")
            }
            table = pa.table(columns)
            half = -(-table.num_rows // 2)  # files for two shards at least
            for part in range(2):
                name = f"part-{at:03}-{part}.parquet"
                parquet.write_table(table.slice(part * half, half), place / name)
    return places


def cost(folder: Path, nodes: int, citations: float, shards: int, settings: Settings) -> Row:
    """Train from files, then learn events: seconds, bytes and messages.

    If the process is killed, another call with the same folder resumes; the seconds of all calls
    are added up, with the reading that is done again.
    """
    done, spent = folder / "tables.json", folder / "spent.json"
    if not done.exists():
        write_tables(folder / "tables", nodes, citations)
        write(sorted(str(file) for file in (folder / "tables").rglob("*.parquet")), done)
    read = [Path(file).stat().st_size for file in json.loads(done.read_text())]
    before: list[float] = json.loads(spent.read_text()) if spent.exists() else []
    connect(None, shards, 200_000_000)
    tables, path = (folder / "tables" / "nodes", folder / "tables" / "edges"), folder / "cluster"
    with counted(spent, before):
        begun = time.perf_counter()
        cluster = Cluster.train(path, *tables, shards=shards, settings=settings)
        seconds = [*before, time.perf_counter() - begun]
    with cluster:
        each, clock = processes(cluster), dict(cluster.shards.clock)
        row: Row = {
            "nodes": nodes, "edges": sum(one["edges"] for one in each), "shards": shards,
            "files": len(read), "file_bytes": sum(read), "calls": seconds,
            "seconds": sum(seconds), "clock": clock,
            "digest": cluster.digest(), "processes": each,
        }  # fmt: skip
        for place, one in enumerate(each):
            files = (path / f"shard-{place}").iterdir()
            one["disk_bytes"] = sum(file.stat().st_size for file in files)
        row["events"] = learned(cluster, nodes)
    row["coordinator_peak_bytes"] = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return row


@contextmanager
def counted(path: Path, before: list[float]) -> Iterator[None]:
    """Write the seconds of this block to a file while it runs, behind those of earlier calls."""
    over, begun = threading.Event(), time.perf_counter()

    def note() -> None:
        while not over.wait(2):
            write([*before, time.perf_counter() - begun], path)

    thread = threading.Thread(target=note, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def learned(cluster: Cluster, nodes: int) -> Row:
    """Seconds, messages and bytes of new nodes, each with a label and an edge."""
    rng = np.random.default_rng(0)
    before = cluster.shards.all("about")
    begun, messages = time.perf_counter(), cluster.shards.clock["messages"]
    for start in range(0, EVENTS, BATCH):
        batch: list[Row] = []
        for number in range(start, start + BATCH, 2):
            x = {"index": sorted(rng.choice(32, 6, replace=False).tolist()), "value": [1.0] * 6}
            new, label = nodes + number, f"topic {rng.integers(7)}"
            batch.append({"type": "node", "id": new, "x": x, "label": label})
            other = int(rng.integers(nodes))
            batch.append({"type": "edge", "source": new, "target": other})
        cluster.learn(batch)
    seconds = time.perf_counter() - begun
    cluster.digest()
    settled = time.perf_counter() - begun
    return {
        "count": EVENTS, "batch": BATCH, "seconds": seconds, "seconds_with_sums": settled,
        "message_seconds": cluster.shards.clock["messages"] - messages,
        "sent": sent(cluster.shards.all("about"), before),
    }  # fmt: skip


def sent(after: list[Row], before: list[Row] | None = None) -> dict[str, int]:
    """What all shards have received, by kind."""
    found: dict[str, int] = {}
    for parts, sign in ((after, 1), (before or [], -1)):
        for part in parts:
            for name, count in part["traffic"].items():
                found[name] = found.get(name, 0) + sign * count
    return found


def model(rows: list[Row]) -> Row:
    """What a node, a ghost and an edge cost a shard, how costs grow, and what is sent for an edge.

    Costs are the least squares, none negative, over all processes of all measurements, each by
    what it holds. Exponents are slopes of logarithms over the sizes of one kind of graph on two
    shards, without what a process costs that holds nothing. Measurements that are too much alike
    to tell nodes, ghosts and edges apart give neither.
    """
    each = [one for row in rows for one in row["processes"]]
    held = np.array([[1.0, *(one[name] for name in HELD)] for one in each])
    found: Row = {"by_size": [by_size(row) for row in rows]}
    if np.linalg.matrix_rank(held / np.maximum(held.max(0), 1), tol=0.01) < len(HELD) + 1:
        return found
    found["held"] = ["process", *HELD]
    for cost in COSTS:
        values = np.array([float(one[cost]) for one in each])
        weight = 1 / np.maximum(values, 1e-9)  # relative errors count alike
        found[cost] = nnls(held * weight[:, None], values * weight)[0].tolist()
    found["exponents"] = {}
    for citations in sorted({row["citations"] for row in rows}):
        mine = [row for row in rows if row["citations"] == citations and row["shards"] == 2]
        if len(mine) > 2:
            sizes = np.log([row["nodes"] for row in mine])
            found["exponents"][str(citations)] = {
                cost: float(
                    np.polyfit(sizes, np.log([total(row, cost, found) for row in mine]), 1)[0]
                )
                for cost in COSTS
            }
    return found


def total(row: Row, cost: str, found: Row) -> float:
    """The cost of all shards, without that of processes that hold nothing."""
    base = found[cost][0] * row["shards"]
    return float(max(sum(one[cost] for one in row["processes"]) - base, 1e-9))


def by_size(row: Row) -> Row:
    """What a measurement says of one node, edge and event."""
    traffic, each, events = sent(row["processes"]), row["processes"], row["events"]
    names, edges = ("rows", "ghosts", "means"), max(row["edges"], 1)
    nbytes = [f"{name}_bytes" for name in names]
    return {
        **{name: row[name] for name in ("nodes", "citations", "shards")},
        "seconds_per_million_nodes": 1e6 * (row["seconds"] - row["clock"]["start"]) / row["nodes"],
        "peak_bytes_of_a_shard": max(one["peak_bytes"] for one in each),
        "coordinator_peak_bytes": row["coordinator_peak_bytes"],
        "disk_bytes_per_node": sum(one["disk_bytes"] for one in each) / row["nodes"],
        "ghosts_per_node": sum(one["ghosts"] for one in each) / row["nodes"],
        "messages_per_edge": sum(traffic.get(name, 0) for name in names) / edges,
        "message_bytes_per_edge": sum(traffic.get(name, 0) for name in nbytes) / edges,
        "seconds_per_million_events": 1e6 * events["seconds_with_sums"] / events["count"],
        "bytes_per_event": sum(events["sent"].get(n, 0) for n in nbytes) / events["count"],
    }  # fmt: skip


def needed(found: Row, citations: float, machine_bytes: int, cores: int) -> list[Row]:
    """Machines, memory and hours for large graphs, one shard on each core.

    With many shards nearly all neighbors of a node are elsewhere, so that it has as many ghosts as
    neighbors, and each edge is held twice: that is assumed.
    """
    rows = []
    for nodes in LARGE:
        machines = 0
        memory = np.inf
        while memory > machine_bytes:
            machines = max(machines + 1, int(machines * 1.05))
            own = nodes / (machines * cores)
            held = np.array([1.0, own, 2 * citations * own, 2 * citations * own])
            memory = cores * float(np.array(found["peak_bytes"]) @ held)
        rows.append({
            "nodes": nodes,
            "edges": int(citations * nodes),
            "machines": machines,
            "memory_bytes": memory * machines,
            "disk_bytes": float(np.array(found["disk_bytes"]) @ held) * cores * machines,
            "hours": float(np.array(found["cpu_seconds"]) @ held) / 3600,
        })  # fmt: skip
    return rows


def as_text(value: Any) -> str:
    """A number with four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def main(
    nodes: Annotated[int, typer.Option(help="Of the generated graph.")] = 30_000,
    citations: Annotated[float, typer.Option(help="Edges of a node.")] = 4.0,
    shards: Annotated[int, typer.Option(help="Processes.")] = 2,
    landmarks: Annotated[int, typer.Option(help="Of the closed form.")] = 64,
    folder: Annotated[
        Path | None, typer.Option(help="Keep tables and cluster here, to be resumed.")
    ] = None,
    machine_gb: Annotated[int, typer.Option(help="Memory of a machine, for estimates.")] = 256,
    machine_cores: Annotated[int, typer.Option(help="Cores of a machine, for estimates.")] = 32,
    out: Annotated[Path, typer.Option(help="The file that a measurement is added to.")] = Path(
        "results/bench_scale.json"
    ),
    as_json: AsJson = False,
) -> None:
    """Measure one size of a graph on a cluster of Ray on this machine."""
    found: Row = json.loads(out.read_text()) if out.exists() else {"rows": []}
    row = {**provenance(), "citations": citations, "landmarks": landmarks, "cores": os.cpu_count()}
    with nullcontext(folder) if folder is not None else TemporaryDirectory() as place:
        row |= cost(Path(place), nodes, citations, shards, Settings(landmarks=landmarks))
    kind = ("citations", "shards", "nodes", "landmarks")
    rows = [old for old in found["rows"] if any(old[name] != row[name] for name in kind)]
    found["rows"] = sorted([*rows, row], key=lambda one: [one[name] for name in kind])
    found["model"] = made = model(found["rows"])
    made["machine"] = {"bytes": machine_gb << 30, "cores": machine_cores}
    if "held" in made:
        made["needed"] = needed(made, GROWTH.citations, machine_gb << 30, machine_cores)
    write(found, out)

    def table() -> Table:
        names = list(made["by_size"][0])
        shown = [[as_text(one[name]) for name in names] for one in made["by_size"]]
        return table_of("what shards cost", tuple(names), shown)

    publish(found, as_json, None, table)


if __name__ == "__main__":
    typer.run(main)

"""What a cluster costs as graphs grow, and what partitions of a power-law graph would cost.

`--part cost` measures one size and adds it to the file, `--part cut` simulates partitions. Each
size has a process of its own, so that its peak of memory is its own.
"""

from __future__ import annotations

import json
import os
import resource
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import typer
from numpy.typing import NDArray
from pyarrow import parquet
from rich.table import Table

from benchmarks.cluster import processes
from evergraph.checks import check_one_of
from evergraph.cli.console import AsJson, publish, table_of, write
from evergraph.cluster import Cluster
from evergraph.cluster.engine import connect
from evergraph.cluster.partition import homes, keys_of
from evergraph.datasets.generate import Growth, generate
from evergraph.datasets.objects import dataset_tables
from evergraph.evaluate.evidence import provenance
from evergraph.model import Settings

PARTS = ("cost", "cut")
BLOCK = 500_000  # nodes of a generated graph; larger ones are several side by side
EVENTS, BATCH = 2_000, 100
LARGE = (10**8, 10**9)
GROWTH = Growth(citations=4.0, features=32, words=6.0)
Ints = NDArray[np.int64]
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


def cost(nodes: int, citations: float, shards: int, settings: Settings) -> Row:
    """Train from files, then learn events: seconds, bytes and messages."""
    connect(None, shards, 200_000_000)
    with TemporaryDirectory() as folder:
        tables = write_tables(Path(folder) / "tables", nodes, citations)
        files = sorted(Path(folder).rglob("*.parquet"))
        read = sum(file.stat().st_size for file in files)
        begun = time.perf_counter()
        path = Path(folder) / "cluster"
        with Cluster.train(path, *tables, shards=shards, settings=settings) as cluster:
            seconds = time.perf_counter() - begun
            clock, each = dict(cluster.shards.clock), processes(cluster)
            row: Row = {
                "nodes": nodes, "edges": sum(one["edges"] for one in each), "shards": shards,
                "files": len(files), "file_bytes": read, "seconds": seconds, "clock": clock,
                "digest": cluster.digest(), "processes": each,
            }  # fmt: skip
            row["store_bytes"] = sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
            row["events"] = learned(cluster, nodes)
    row["coordinator_peak_bytes"] = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return row


def learned(cluster: Cluster, nodes: int) -> Row:
    """Seconds, messages and bytes of new nodes, each with a label and an edge."""
    rng = np.random.default_rng(0)
    before = processes(cluster)
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
        "sent": sent(processes(cluster), before),
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
    """Costs of a node by size, their exponents, and what larger graphs need."""
    found: Row = {"by_size": [], "exponents": {}}
    for row in rows:
        traffic, each, events = sent(row["processes"]), row["processes"], row["events"]
        work = row["seconds"] - row["clock"]["start"]
        found["by_size"].append({
            "nodes": row["nodes"],
            "seconds": work,
            "seconds_per_million_nodes": 1e6 * work / row["nodes"],
            "memory_per_node": sum(one["bytes"] for one in each) / row["nodes"],
            "peak_per_node": sum(one["peak_bytes"] for one in each) / row["nodes"],
            "disk_per_node": row["store_bytes"] / row["nodes"],
            "ghosts_per_node": sum(one["ghosts"] for one in each) / row["nodes"],
            "messages_per_edge": sum(
                traffic.get(name, 0) for name in ("rows", "ghosts", "means")
            ) / max(row["edges"], 1),
            "message_bytes_per_edge": sum(
                traffic.get(f"{name}_bytes", 0) for name in ("rows", "ghosts", "means")
            ) / max(row["edges"], 1),
            "seconds_per_million_events": 1e6 * events["seconds"] / events["count"],
        })  # fmt: skip
    sizes = np.log([row["nodes"] for row in found["by_size"]])
    if len(sizes) > 1:
        for name in ("seconds", "memory_per_node", "disk_per_node", "seconds_per_million_events"):
            values = np.log([row[name] for row in found["by_size"]])
            found["exponents"][name] = float(np.polyfit(sizes, values, 1)[0])
    return found


def needed(by_size: Row, machine_bytes: int, cores: int, shards: int) -> list[Row]:
    """Machines, memory and hours for large graphs, if a node costs there what it costs here."""
    found = []
    for nodes in LARGE:
        memory = by_size["peak_per_node"] * nodes
        machines = max(int(np.ceil(memory / machine_bytes)), 1)
        core_seconds = by_size["seconds_per_million_nodes"] * nodes / 1e6 * shards
        found.append({
            "nodes": nodes,
            "memory_bytes": memory,
            "disk_bytes": by_size["disk_per_node"] * nodes,
            "machines": machines,
            "cores_of_a_machine": cores,
            "hours": core_seconds / (machines * cores) / 3600,
        })  # fmt: skip
    return found


# -- partitions -------------------------------------------------------------------------------


def cut(nodes: int, citations: float, shards: list[int]) -> list[Row]:
    """How hash and a streaming partitioner share a power-law graph out."""
    growth = replace(GROWTH, nodes=nodes, citations=citations, skew=0.7)
    source, target = generate(growth).graph.edges.numpy()
    ends = np.concatenate([source, target]), np.concatenate([target, source])
    order = np.argsort(ends[0], kind="stable")
    indptr = np.r_[0, np.cumsum(np.bincount(ends[0], minlength=nodes))]
    rows = []
    for number in shards:
        hashed = homes(keys_of(range(nodes)), number)
        for name, owner in (
            ("hash", hashed), ("streaming", streamed(indptr, ends[1][order], number))
        ):  # fmt: skip
            rows.append({"partition": name, "shards": number, **loads(owner, source, target)})
    degrees = np.sort(np.diff(indptr))[::-1]
    for row in rows:
        row["nodes"], row["edges"] = nodes, len(source)
        row["largest_degree"], row["median_degree"] = int(degrees[0]), int(np.median(degrees))
    return rows


def streamed(indptr: Ints, neighbors: Ints, shards: int, gamma: float = 1.5) -> Ints:
    """Shards by one pass over the nodes in their order (Fennel, Tsourakakis et al. 2014).

    A node goes where most of its neighbors are that came before it, minus a price of large parts,
    `α γ |P|^(γ - 1)` with `α = m k^(γ - 1) / n^γ`. Parts may be a tenth larger than the mean.
    """
    nodes, edges = len(indptr) - 1, len(neighbors) / 2
    alpha = edges * shards ** (gamma - 1) / nodes**gamma
    owner = np.full(nodes, -1, dtype=np.int64)
    sizes, most = np.zeros(shards), 1.1 * nodes / shards
    for node in range(nodes):
        near = owner[neighbors[indptr[node] : indptr[node + 1]]]
        gain = np.bincount(near[near >= 0], minlength=shards) - alpha * gamma * np.sqrt(sizes)
        gain[sizes >= most] = -np.inf
        owner[node] = int(gain.argmax())
        sizes[owner[node]] += 1
    return owner


def loads(owner: Ints, source: Ints, target: Ints) -> Row:
    """Shares of cut edges, ghosts of a node, and the largest part over the mean."""
    shards = int(owner.max()) + 1
    one, other = owner[source], owner[target]
    crossing = one != other
    # a node is a ghost once in each foreign shard that it has a neighbor in
    pairs = np.concatenate([
        source[crossing] * shards + other[crossing], target[crossing] * shards + one[crossing]
    ])  # fmt: skip
    ghosts = np.unique(pairs)
    own = np.bincount(owner, minlength=shards)
    held = own + np.bincount(ghosts % shards, minlength=shards)
    edges = np.bincount(one, minlength=shards) + np.bincount(other[crossing], minlength=shards)
    return {
        "cut": float(crossing.mean()),
        "ghosts_per_node": len(ghosts) / len(owner),
        "nodes_skew": float(own.max() / own.mean()),
        "held_skew": float(held.max() / held.mean()),
        "edges_skew": float(edges.max() / edges.mean()),
    }


def as_text(value: Any) -> str:
    """A number with four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def main(
    part: Annotated[str, typer.Option(help="cost or cut.")] = "cost",
    nodes: Annotated[int, typer.Option(help="Of the generated graph.")] = 30_000,
    citations: Annotated[float, typer.Option(help="Edges of a node.")] = 4.0,
    shards: Annotated[str, typer.Option(help="Numbers of shards; `cost` takes one.")] = "2",
    landmarks: Annotated[int, typer.Option(help="Of the closed form.")] = 64,
    machine_gb: Annotated[int, typer.Option(help="Memory of a machine, for estimates.")] = 256,
    machine_cores: Annotated[int, typer.Option(help="Cores of a machine, for estimates.")] = 32,
    out: Annotated[Path, typer.Option(help="The file that a measurement is added to.")] = Path(
        "results/bench_scale.json"
    ),
    as_json: AsJson = False,
) -> None:
    """Measure one size of a graph on a cluster, or simulate partitions."""
    check_one_of("the part", part, PARTS)
    found: Row = json.loads(out.read_text()) if out.exists() else {"cost": [], "cut": []}
    numbers, evidence = [int(one) for one in shards.split(",")], provenance()
    if part == "cost":
        settings = Settings(landmarks=landmarks)
        row = {**evidence, "citations": citations, "landmarks": landmarks, "cores": os.cpu_count()}
        row |= cost(nodes, citations, numbers[0], settings)
        kind = ("nodes", "citations", "shards", "landmarks")
        rows = [old for old in found["cost"] if any(old[name] != row[name] for name in kind)]
        found["cost"] = sorted([*rows, row], key=lambda one: (one["citations"], one["nodes"]))
        found["model"] = {}
        for each in sorted({one["citations"] for one in found["cost"]}):
            mine = [one for one in found["cost"] if one["citations"] == each]
            made = model(mine)
            size = machine_gb << 30
            made["needed"] = needed(made["by_size"][-1], size, machine_cores, mine[-1]["shards"])
            found["model"][str(each)] = made
    else:
        found["cut"] = [{**evidence, **row} for row in cut(nodes, citations, numbers)]
    write(found, out)

    def table() -> Table:
        last = found["model"][str(citations)]["by_size"] if part == "cost" else found["cut"]
        names = [name for name in last[0] if name not in evidence]
        shown = [[as_text(row[name]) for name in names] for row in last]
        return table_of(f"{part} of shards", tuple(names), shown)

    publish(found, as_json, None, table)


if __name__ == "__main__":
    typer.run(main)

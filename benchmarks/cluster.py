"""A model in shards on Ray against one machine: equal bits, and what it costs."""

from __future__ import annotations

import hashlib
import json
import os
import random
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from benchmarks.measure import resident_mb
from evergraph.checks import check_one_of
from evergraph.cli.console import AsJson, DataRoot, Out, publish, table_of
from evergraph.cluster import Cluster
from evergraph.cluster.engine import connect
from evergraph.datasets import load
from evergraph.datasets.generate import Growth, generate
from evergraph.datasets.objects import dataset_tables
from evergraph.datasets.report import Report
from evergraph.evaluate.evidence import provenance
from evergraph.model import Model, Settings

BATCH = 100  # edits that are one transaction
PARTS = ("equal", "speed")
NAMES = (
    "nodes", "ghosts", "edges", "held_edges", "bytes", "peak_bytes", "cpu_seconds", "traffic"
)  # fmt: skip
Tables = tuple[Any, Any]
Row = dict[str, Any]


def tables_of(name: str, nodes: int, citations: float, data_root: Path | None) -> Tables:
    """A data set by its name, or a generated graph of some size."""
    if name != "generated":
        return dataset_tables(load(name, data_root))
    growth = Growth(nodes=nodes, citations=citations, features=32, words=6.0)
    return dataset_tables(generate(growth))


def edits(tables: Tables, count: int, seed: int = 0) -> Iterator[list[dict[str, Any]]]:
    """Random changes of features, labels and edges, and deletions, in batches."""
    rng, (nodes, edges) = random.Random(seed), tables
    rows = nodes.table.num_rows
    names = sorted({label for label in nodes.table["label"].to_pylist() if label is not None})
    batch: list[dict[str, Any]] = []
    for _ in range(count):
        kind = rng.choice(("node", "edge", "label", "delete_edge", "delete_node"))
        one, other = rng.randrange(rows), rng.randrange(rows)
        if kind == "node":
            cells = nodes.table.slice(other, 1).select(["x"]).to_pylist()[0]
            batch.append({"type": kind, "id": one, **cells})
        elif kind == "edge":
            batch.append({"type": kind, "source": one, "target": other})
        elif kind == "label":
            batch.append({"type": kind, "id": one, "label": rng.choice(names)})
        elif kind == "delete_edge":
            link = edges.table.slice(rng.randrange(edges.table.num_rows), 1).to_pylist()[0]
            batch.append({"type": kind, "source": link["source"], "target": link["target"]})
        else:
            batch.append({"type": kind, "id": one})
        if len(batch) == BATCH:
            yield batch
            batch = []


def follow(model: Any, tables: Tables, count: int) -> Row:
    """Digest and predictions of a model, before edits and after them."""
    found = {"digest": model.digest(), "predictions": _hash(model)}
    begun = time.perf_counter()
    taken = sum(model.learn(batch, Report()) for batch in edits(tables, count))
    seconds = time.perf_counter() - begun
    after = {"digest": model.digest(), "predictions": _hash(model)}
    return {"before": found, "after": after, "edits": taken, "edit_seconds": seconds}


def _hash(model: Any) -> str:
    """Predictions of all nodes and their probabilities, bit by bit."""
    found = hashlib.sha256(repr(model.predict()).encode())
    found.update(np.ascontiguousarray(model.predict_proba()).tobytes())
    return found.hexdigest()


def equal(
    tables: Tables, settings: Settings, shards: list[int], count: int, known: Sequence[Row] = ()
) -> Iterator[Row]:
    """One machine and several numbers of shards: digests and predictions.

    Args:
        tables: the graph.
        settings: of the models.
        shards: numbers of shards.
        count: of edits.
        known: rows of earlier calls, one machine first, which are not measured again.
    """
    yield from known
    same: Row = known[0] if known else {}
    there = {row["shards"] for row in known}
    for number in (n for n in (0, *shards) if n not in there):
        with TemporaryDirectory() as folder:
            begun = time.perf_counter()
            with trained(Path(folder) / "model", tables, settings, number) as model:
                seconds = time.perf_counter() - begun
                row = {"shards": number, "train_seconds": seconds, **follow(model, tables, count)}
                if number:
                    row["processes"] = processes(model)
        same = same or row
        row["equal"] = all(row[at] == same[at] for at in ("before", "after"))
        yield row


def trained(path: Path, tables: Tables, settings: Settings, shards: int) -> Any:
    """A model, or a cluster if there are shards."""
    if not shards:
        return Model.train(path, *tables, settings=settings)
    return Cluster.train(path, *tables, shards=shards, settings=settings)


def processes(cluster: Cluster) -> list[Row]:
    """What each shard holds, has received, and took of memory at the most and of CPU time."""
    return [{name: part[name] for name in NAMES} for part in cluster.inspect()["shards"]]


def speed(
    tables: Tables,
    settings: Settings,
    shards: list[int],
    rounds: int,
    known: Sequence[Row] = (),
) -> Iterator[Row]:
    """Seconds of training, by turns; Ray itself was started before, its actors were not."""
    connect(None, max(shards), 200_000_000)
    yield from known
    for at in range(rounds):
        for number in (0, *shards):
            if sum(row["shards"] == number for row in known) > at:
                continue
            with TemporaryDirectory() as folder:
                begun, cpu = time.perf_counter(), time.process_time()
                with trained(Path(folder) / "model", tables, settings, number) as model:
                    row: Row = {"shards": number, "seconds": time.perf_counter() - begun}
                    row["own_cpu_seconds"] = time.process_time() - cpu
                    row["digest"] = model.digest()
                    if number:
                        each = model.shards.all("about")
                        row["shard_cpu_seconds"] = [one["cpu_seconds"] for one in each]
                        row["traffic"] = [one["traffic"] for one in each]
                        row["clock"] = dict(model.shards.clock)
            yield row


def ratios(rows: list[Row]) -> Row:
    """Medians of seconds by the number of shards, and the ratios that matter."""
    medians = {}
    for number in sorted({row["shards"] for row in rows}):
        mine = [row for row in rows if row["shards"] == number]
        shards = [row.get("shard_cpu_seconds", [0.0]) for row in mine]
        medians[number] = {
            "seconds": float(np.median([row["seconds"] for row in mine])),
            "cpu_seconds": float(
                np.median([
                    row["own_cpu_seconds"] + sum(each)
                    for row, each in zip(mine, shards, strict=True)
                ])
            ),
            "longest_cpu_seconds": float(
                np.median([
                    row["own_cpu_seconds"] + max(each)
                    for row, each in zip(mine, shards, strict=True)
                ])
            ),
            "message_seconds": float(
                np.median([row.get("clock", {}).get("messages", 0.0) for row in mine])
            ),
        }  # fmt: skip
    found: Row = {"medians": {str(number): one for number, one in medians.items()}}
    pairs = {"overhead_of_one_shard": (1, 0), "one_shard_over_two": (1, 2)}
    for name, (one, other) in pairs.items():
        if one in medians and other in medians:
            found[name] = {
                k: medians[one][k] / medians[other][k]
                for k in medians[one]
                if k != "message_seconds"
            }
    return found


def measured(out: Path | None, wanted: Row) -> list[Row]:
    """The rows of an earlier call with the same program."""
    if out is None or not out.exists():
        return []
    found = json.loads(out.read_text())
    if any(found.get(name) != value for name, value in wanted.items()):
        raise ValueError(f"{out} is of another commit or configuration: move it")
    rows: list[Row] = found["rows"]
    return rows


def main(
    part: Annotated[str, typer.Option(help="equal or speed.")] = "equal",
    data: Annotated[str, typer.Option(help="A data set, or `generated`.")] = "generated",
    nodes: Annotated[int, typer.Option(help="Of a generated graph.")] = 20_000,
    citations: Annotated[float, typer.Option(help="Edges of a node of a generated graph.")] = 4.0,
    shards: Annotated[str, typer.Option(help="Numbers of shards, separated by commas.")] = "1,2",
    edits: Annotated[int, typer.Option(help="Random edits and deletions.")] = 1_000,
    rounds: Annotated[int, typer.Option(help="Of `speed`.")] = 3,
    limit: Annotated[int, typer.Option(help="Measurements of one call; others follow.")] = 10**6,
    landmarks: Annotated[int, typer.Option(help="Of the closed form.")] = 128,
    data_root: DataRoot = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Compare a model in shards with one machine."""
    check_one_of("the part", part, PARTS)
    settings, numbers = Settings(landmarks=landmarks), [int(one) for one in shards.split(",")]
    tables = tables_of(data, nodes, citations, data_root)
    config = {"part": part, "data": data, "nodes": tables[0].table.num_rows, "landmarks": landmarks}
    config |= {"edges": tables[1].table.num_rows, "cores": os.cpu_count()}
    found: Row = {**provenance(), "config": config}
    known = measured(out, found)
    if part == "equal":
        rows = list(islice(equal(tables, settings, numbers, edits, known), len(known) + limit))
        found["equal"] = all(row["equal"] for row in rows)
    else:
        rows = list(islice(speed(tables, settings, numbers, rounds, known), len(known) + limit))
        found |= ratios(rows)
    found |= {"rows": rows, "coordinator_mb": resident_mb()}

    def table() -> Table:
        names = [name for name in rows[0] if not isinstance(rows[0][name], dict | list)]
        text = [[str(row[name]) for name in names] for row in rows]
        return table_of(f"{part}, {data}", tuple(names), text)

    publish(found, as_json, out, table)


if __name__ == "__main__":
    typer.run(main)

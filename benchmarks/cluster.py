"""A model in shards on Ray against one machine: equal bits, kills, and what it costs."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
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
PARTS = ("equal", "kills", "speed")
Tables = tuple[Any, Any]


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


def follow(model: Any, tables: Tables, count: int) -> dict[str, Any]:
    """Digest and predictions of a model, before edits and after them."""
    found = {"digest": model.digest(), "predictions": _hash(model)}
    begun = time.perf_counter()
    taken = sum(model.learn(batch, Report()) for batch in edits(tables, count))
    seconds = time.perf_counter() - begun
    after = {"digest": model.digest(), "predictions": _hash(model)}
    return {"before": found, "after": after, "edits": taken, "edit_seconds": seconds}


def _hash(model: Any) -> str:
    """Predictions of all nodes and their probabilities, bit by bit."""
    import hashlib

    found = hashlib.sha256(repr(model.predict()).encode())
    found.update(np.ascontiguousarray(model.predict_proba()).tobytes())
    return found.hexdigest()


def equal(
    tables: Tables, settings: Settings, shards: list[int], count: int
) -> list[dict[str, Any]]:
    """Point 1: one machine and several numbers of shards."""
    rows: list[dict[str, Any]] = []
    for number in (0, *shards):
        with TemporaryDirectory() as folder:
            begun = time.perf_counter()
            with _trained(Path(folder) / "model", tables, settings, number) as model:
                seconds = time.perf_counter() - begun
                row = {"shards": number, "train_seconds": seconds, **follow(model, tables, count)}
                if number:
                    row["processes"] = _processes(model)
        same = rows[0] if rows else row
        row["equal"] = [row[at] == same[at] for at in ("before", "after")] == [True, True]
        rows.append(row)
    return rows


def _trained(path: Path, tables: Tables, settings: Settings, shards: int) -> Any:
    if not shards:
        return Model.train(path, *tables, settings=settings)
    return Cluster.train(path, *tables, shards=shards, settings=settings)


def _processes(cluster: Cluster) -> list[dict[str, Any]]:
    """What each shard holds, has received, and took of memory at the most."""
    names = ("nodes", "ghosts", "bytes", "peak_bytes", "traffic")
    return [{name: part[name] for name in names} for part in cluster.inspect()["shards"]]


def kills(tables: Tables, settings: Settings, shards: int, times: int) -> dict[str, Any]:
    """Point 2: the process of a random shard is killed again and again while they train."""
    with TemporaryDirectory() as folder:
        begun = time.perf_counter()
        with Model.train(Path(folder) / "model", *tables, settings=settings) as model:
            digest = model.digest()
        rest = time.perf_counter() - begun
        stop = threading.Event()
        killed: list[int] = []
        killer = threading.Thread(target=_kill, args=(stop, killed, times, rest / 3))
        killer.start()
        begun = time.perf_counter()
        with Cluster.train(Path(folder) / "c", *tables, shards=shards, settings=settings) as made:
            while len(killed) < times:  # the rest of them while it learns
                found = made.digest()
                made.learn([{"type": "delete_edge", "source": -1, "target": -2}], Report())
                time.sleep(0.2)
            stop.set()
            killer.join()
            found = made.digest()
        seconds = time.perf_counter() - begun
    return {"shards": shards, "kills": len(killed), "equal": found == digest, "seconds": seconds}


def _kill(stop: threading.Event, killed: list[int], times: int, pause: float) -> None:
    """SIGKILL actors of this program's own Ray."""
    rng = random.Random(0)
    while len(killed) < times and not stop.wait(max(pause * rng.random(), 1.0)):
        mine = [pid for pid in _actors() if pid not in killed]
        if mine:
            killed.append(rng.choice(mine))
            os.kill(killed[-1], signal.SIGKILL)


def _actors() -> list[int]:
    """The processes of actors that descend from this one's Ray."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            title = (place / "cmdline").read_bytes()
            parent = (place / "stat").read_text().rpartition(")")[2].split()[1]
            if title.startswith(b"ray::Actor") and _is_mine(int(parent)):
                found.append(int(place.name))
        except (OSError, ValueError):
            continue
    return found


def _is_mine(pid: int) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


def speed(tables: Tables, settings: Settings, shards: list[int]) -> list[dict[str, Any]]:
    """Point 3: seconds of training, Ray's start left out, one machine before and after."""
    connect(None, max(shards), 200_000_000)
    rows = []
    for number in (0, *shards, 0):
        with TemporaryDirectory() as folder:
            begun = time.perf_counter()
            with _trained(Path(folder) / "model", tables, settings, number) as model:
                row: dict[str, Any] = {"shards": number, "seconds": time.perf_counter() - begun}
                row["digest"] = model.digest()
                if number:
                    row["processes"], row["clock"] = _processes(model), dict(model.shards.clock)
        rows.append(row)
    return rows


def main(
    part: Annotated[str, typer.Option(help="equal, kills or speed.")] = "equal",
    data: Annotated[str, typer.Option(help="A data set, or `generated`.")] = "generated",
    nodes: Annotated[int, typer.Option(help="Of a generated graph.")] = 20_000,
    citations: Annotated[float, typer.Option(help="Edges of a node of a generated graph.")] = 4.0,
    shards: Annotated[str, typer.Option(help="Numbers of shards, separated by commas.")] = "1,2",
    edits: Annotated[int, typer.Option(help="Random edits and deletions.")] = 1_000,
    times: Annotated[int, typer.Option(help="Kills.")] = 10,
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
    if part == "equal":
        rows = equal(tables, settings, numbers, edits)
    elif part == "kills":
        rows = [kills(tables, settings, number, times) for number in numbers]
    else:
        rows = speed(tables, settings, numbers)
    found = {**provenance(), "config": config, "rows": rows, "coordinator_mb": resident_mb()}

    def table() -> Table:
        names = [name for name in rows[0] if not isinstance(rows[0][name], dict | list)]
        text = [[str(row[name]) for name in names] for row in rows]
        return table_of(f"{part}, {data}", tuple(names), text)

    publish(found, as_json, out, table)


if __name__ == "__main__":
    typer.run(main)

"""The service beside a bare handler: durable events, and predictions while it learns, on loopback.

Both servers get the same requests in turns, in one run. The bare handler (`benchmarks.bare`) only
parses and commits: the ratio tells what the graph, the learner and the checks cost.
"""

from __future__ import annotations

import http.client
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import typer
from rich.table import Table

from evergraph.cli.console import AsJson, Out, progress, publish, table_of, use_threads
from evergraph.datasets.schema import Schema
from evergraph.evaluate.evidence import provenance
from evergraph.model import Model

SHAPES = {"sparse": (1433, 18), "dense": (128, 128)}  # features and nonzeros; Cora's, and texts'
CLASSES, LINKS = 7, 2
BASE = 2000  # nodes with labels that are there before
WINDOW = 1000  # edges lead to one of so many nodes that came last
BULK = 1000  # events of a large request
RATE, STEP = 500, 10  # events per second while predictions are timed, and per request
CONNECTIONS = 8  # of clients that send single events

Event = dict[str, Any]


class Story:
    """Nodes whose features tell their class, with edges to earlier ones and late labels."""

    def __init__(self, shape: str, seed: int = 0) -> None:
        self.width, self.nonzeros = SHAPES[shape]
        self._rng = np.random.default_rng(seed)
        self._kinds: list[int] = []

    def node(self) -> Event:
        """The next node, without a label."""
        kind = int(self._rng.integers(CLASSES))
        self._kinds.append(kind)
        found: Event = {"type": "node", "id": len(self._kinds) - 1}
        if self.nonzeros == self.width:
            x = self._rng.normal(0, 1, self.width)
            x[kind] += 2.0
            return {**found, "x": np.round(x, 4).tolist()}
        index = self._rng.integers(0, self.width, 2 * self.nonzeros)
        index[: self.nonzeros] = index[: self.nonzeros] // CLASSES * CLASSES + kind
        index = np.unique(index[index < self.width])[: self.nonzeros]
        return {**found, "x": {"index": index.tolist(), "value": [1.0] * len(index)}}

    def label(self, node: int) -> str:
        """The class of a node."""
        return f"class {self._kinds[node]}"

    def events(self, count: int) -> list[Event]:
        """A node, its edges, its label; over and over."""
        found: list[Event] = []
        while len(found) < count:
            node = self.node()
            found.append(node)
            back = self._rng.integers(1, min(WINDOW, max(node["id"], 1)) + 1, LINKS)
            ends = np.maximum(node["id"] - back, 0).tolist()
            found += [{"type": "edge", "source": node["id"], "target": end} for end in ends]
            found.append({"type": "label", "id": node["id"], "label": self.label(node["id"])})
        return found[:count]


def body(events: list[Event]) -> bytes:
    """Lines of JSON."""
    return "".join(json.dumps(event) + "\n" for event in events).encode()


def make_model(folder: Path, story: Story) -> Path:
    """A model folder of labelled nodes."""
    nodes = [story.node() for _ in range(BASE)]
    table = {name: [node[name] for node in nodes] for name in ("id", "x")}
    table["label"] = [story.label(node["id"]) for node in nodes]
    ends = np.random.default_rng(1).integers(0, BASE, (LINKS * BASE, 2)).T.tolist()
    kinds = {"version": 1, "columns": [{"name": "x", "kind": "vector", "size": story.width}]}
    edges = {"source": ends[0], "target": ends[1]}
    schema = Schema.from_json(json.dumps(kinds))
    Model.train(folder / "model", table, edges, schema=schema).close()
    return folder / "model"


class Server(NamedTuple):
    """Where a server is, and its process."""

    url: str
    process: int

    def cpu(self) -> float:
        """Seconds of CPU that it has taken."""
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def running(*command: str) -> Iterator[Server]:
    """A server in a process of its own, at the address that it prints first."""
    child = subprocess.Popen(
        [sys.executable, "-m", *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip
    try:
        assert child.stdout is not None
        url = next(word for word in child.stdout.readline().split() if word.startswith("http"))
        _wait(url)
        yield Server(url, child.pid)
    finally:
        child.terminate()
        child.communicate()


def _wait(url: str) -> None:
    for _ in range(600):
        try:
            with closing(Connection(url)) as link:
                link.send("GET", "/health")
            return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(f"{url} does not answer")


class Connection:
    """A connection that stays open."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._http = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)

    def send(self, method: str, path: str, body: bytes | None = None) -> Any:
        """The JSON of the answer."""
        self._http.request(method, path, body, {"content-type": "application/x-ndjson"})
        return json.loads(self._http.getresponse().read())

    def close(self) -> None:
        """Close it."""
        self._http.close()


def events_per_second(url: str, bodies: list[bytes], connections: int) -> float:
    """Send bodies from some clients at once, each waiting for its answers.

    Each takes some in a row, since a label must not come before its node.
    """
    taken, run = [0] * connections, LINKS + 2

    def work(k: int) -> None:
        with closing(Connection(url)) as link:
            for at, text in enumerate(bodies):
                if at // run % connections == k:
                    taken[k] += link.send("POST", "/events", text)["accepted"]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(connections)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(taken) == sum(text.count(b"\n") for text in bodies), "events were refused"
    return sum(taken) / (time.perf_counter() - start)


def predictions(url: str, story: Story, seconds: float, rate: int) -> dict[str, float]:
    """One client asks for one node after the other, while another sends `rate` events a second."""
    parts = [story.events(STEP) for _ in range(int(rate * seconds / STEP) + 1)]
    stop, sent = threading.Event(), [0]

    def feed() -> None:
        begin = time.perf_counter()
        with closing(Connection(url)) as link:
            for number, part in enumerate(parts):
                stop.wait(max(0.0, begin + number * STEP / rate - time.perf_counter()))
                if stop.is_set():
                    return
                sent[0] += link.send("POST", "/events", body(part))["accepted"]

    feeder, times = threading.Thread(target=feed), list[float]()
    if rate:
        feeder.start()
    rng, begin = np.random.default_rng(3), time.perf_counter()
    with closing(Connection(url)) as link:
        while time.perf_counter() < begin + seconds:
            question = json.dumps({"ids": [int(rng.integers(BASE))]}).encode()
            start = time.perf_counter()
            link.send("POST", "/predict", question)
            times.append(time.perf_counter() - start)
    lasted = time.perf_counter() - begin
    stop.set()
    if rate:
        feeder.join()
    p50, p99 = np.quantile(times, (0.5, 0.99)).tolist()
    return {
        "per_second": len(times) / lasted, "p50_ms": 1e3 * p50, "p99_ms": 1e3 * p99,
        "max_ms": 1e3 * max(times), "events_per_second": sent[0] / lasted,
    }  # fmt: skip


def measure(shape: str, rounds: int, seconds: float) -> dict[str, Any]:
    """Both servers under the same load, with one kind of features."""
    with TemporaryDirectory() as name:
        folder, story = Path(name), Story(shape)
        model = make_model(folder, story)
        ours = ("evergraph", "serve", str(model), "--port", "0", "--quiet")
        rates: dict[str, dict[str, list[float]]] = {}
        costs: dict[str, dict[str, list[float]]] = {}
        with running(*ours) as own, running("benchmarks.bare", str(folder / "bare.db")) as bare:
            for turn in range(rounds + 1):  # the first warms up
                loads = {
                    "single": ([body([event]) for event in story.events(400)], CONNECTIONS),
                    "one_client": ([body([event]) for event in story.events(200)], 1),
                    "bulk": ([body(story.events(BULK)) for _ in range(24)], 2),
                }
                for load, (bodies, clients) in loads.items():
                    events = sum(text.count(b"\n") for text in bodies)
                    for kind, server in (("evergraph", own), ("bare", bare)):
                        before = server.cpu()
                        rate = events_per_second(server.url, bodies, clients)
                        cost = 1e6 * (server.cpu() - before) / events
                        for kept, value in ((rates, rate), (costs, cost)) if turn else ():
                            kept.setdefault(load, {}).setdefault(kind, []).append(value)
            time.sleep(1.0)
            alone = predictions(own.url, story, seconds / 2, 0)
            learning = predictions(own.url, story, seconds, RATE)
    return {
        "features": shape, "width": story.width, "nonzeros": story.nonzeros,
        "events_per_second": _medians(rates),
        "cpu_us_per_event": _medians(costs),
        "predictions": {"idle": alone, "learning": learning},
    }  # fmt: skip


def _medians(
    found: dict[str, dict[str, list[float]]],
) -> dict[str, dict[str, float | None]]:
    """Of each load and server, and the ratio of the two."""
    rows = {
        load: {kind: statistics.median(values) for kind, values in part.items()}
        for load, part in found.items()
    }
    return {load: {**row, "ratio": _ratio(**row)} for load, row in rows.items()}


def _ratio(evergraph: float, bare: float) -> float | None:
    """How many times as much; None if a clock was too coarse to see anything."""
    return evergraph / bare if bare else None


def command(
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each load.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.2, help="Of predictions while learning.")] = 20.0,
    as_json: AsJson = False,
    out: Out = None,
) -> None:
    """Durable events per second beside a bare handler, and predictions while learning."""
    evidence = provenance()
    use_threads(1)
    rows = []
    with progress(as_json) as shown:
        task = shown.add_task("serving", total=len(SHAPES))
        for shape in SHAPES:
            rows.append(measure(shape, rounds, seconds))
            shown.update(task, advance=1)
    result = {
        **evidence,
        "config": {
            "base_nodes": BASE, "classes": CLASSES, "window": WINDOW, "bulk": BULK,
            "rate": RATE, "step": STEP, "connections": CONNECTIONS,
            "rounds": rounds, "seconds": seconds,
        },
        "rows": rows,
    }  # fmt: skip
    publish(result, as_json, out, lambda: _table(rows))


def _table(rows: list[dict[str, Any]]) -> Table:
    columns = ("features", "single/s", "bare", "bulk/s", "bare", "ratio", "predict p50 / p99 ms")
    text = []
    for row in rows:
        single, bulk = (row["events_per_second"][load] for load in ("single", "bulk"))
        rates = [f"{part[kind]:,.0f}" for part in (single, bulk) for kind in ("evergraph", "bare")]
        asked = row["predictions"]["learning"]
        latency = f"{asked['p50_ms']:.1f} / {asked['p99_ms']:.1f}"
        text.append([row["features"], *rates, f"{bulk['ratio']:.2f}", latency])
    return table_of("A service beside a bare handler", columns, text)


if __name__ == "__main__":
    typer.run(command)

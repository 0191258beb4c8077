"""Kill shards and coordinators with SIGKILL at random moments; compare with one machine.

python -m tests.cluster.kill_cluster KILLS [OUT [NODES [ROUNDS]]]

Half of the coordinators are killed while they train, half while they learn edits. A call does at
most so many rounds; another one with the same file does the next ones.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.cluster import edits, tables_of
from evergraph.cluster import Cluster
from evergraph.cluster.folder import Plan
from evergraph.datasets.report import Report
from evergraph.evaluate.evidence import provenance
from evergraph.evaluate.run import SCHEMA
from evergraph.model import Model, Settings

SETTINGS = Settings(landmarks=64)
EDITS = 1_000


def processes():
    """The parent and the title of all processes."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            stat, title = (place / "stat").read_text(), (place / "cmdline").read_bytes()
        except OSError:
            continue
        yield int(place.name), int(stat.rpartition(")")[2].split()[1]), title


def actors(root):
    """The actors of Ray that descend from a process."""
    found = list(processes())
    parent = {pid: above for pid, above, _ in found}

    def descends(pid):
        while pid > 1 and pid != root:
            pid = parent.get(pid, 0)
        return pid == root

    return [pid for pid, _, title in found if title.startswith(b"ray::Actor") and descends(pid)]


def model_digests(tables):
    """The digest of one machine after training, and after edits."""
    with (
        TemporaryDirectory() as folder,
        Model.train(Path(folder) / "m", *tables, settings=SETTINGS) as model,
    ):
        first = model.digest()
        for batch in edits(tables, EDITS):
            model.learn(batch, Report())
        return first, model.digest()


def shard_round(tables, wanted, delay, rng):
    """Train with a SIGKILL of a random shard some seconds after there are all."""
    killed = []

    def kill():
        while len(found := actors(os.getpid())) < 2:
            time.sleep(0.02)
        time.sleep(delay)
        victim = rng.choice(found)
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:  # training was over
            return
        killed.append(time.perf_counter() - begun)

    with TemporaryDirectory() as folder:
        begun = time.perf_counter()
        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        with Cluster.train(Path(folder) / "c", *tables, settings=SETTINGS) as cluster:
            seconds = time.perf_counter() - begun
            killer.join(0.0 if killed else delay + 5.0)
            digest = cluster.digest()
            clock = dict(cluster.shards.clock)
    in_time = bool(killed) and killed[0] < seconds
    row = {"killed_after": killed[0] if killed else None, "seconds": seconds, "clock": clock}
    return {**row, "during_training": in_time, "equal": digest == wanted}


def coordinator(folder, nodes):
    """What is killed: train, then learn what of the edits was not yet taken."""
    tables = tables_of("generated", nodes, 4.0, None)
    path = folder / "c"
    begun = (path / "cluster.json").exists()
    if begun and Plan.read(path).ready:
        cluster = Cluster.open(path)
    else:
        cluster = Cluster.train(path, *tables, settings=SETTINGS)
    trained = folder / "trained.json"
    if not trained.exists():
        trained.write_text(
            json.dumps([cluster.digest(), max(cluster.shards.all("holding.progress"))])
        )
    digest, first = json.loads(trained.read_text())
    for number, batch in enumerate(edits(tables, EDITS), first + 1):
        if number > max(cluster.shards.all("holding.progress")):
            cluster.learn(batch, Report())
    (folder / "end.json").write_text(json.dumps([digest, cluster.digest()]))
    cluster.close()


def coordinator_round(nodes, wanted, share, rng):
    """Kill the coordinator at a moment of its way, and repeat its command until it ends.

    `share` is of the time that is left after Ray has started; later ones fall into edits.
    """
    command = [sys.executable, "-m", "tests.cluster.kill_cluster", "coordinator"]
    with TemporaryDirectory() as place:
        folder, kills, began = Path(place), 0, time.perf_counter()
        for attempt in range(20):
            child = subprocess.Popen([*command, place, str(nodes)])
            waits_for = folder / ("trained.json" if share > 0.5 else "c")
            while attempt == 0 and not waits_for.exists() and child.poll() is None:
                time.sleep(0.05)
            try:
                child.wait(10 * rng.random() * share if attempt == 0 else 500)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
                kills += 1
            if (folder / "end.json").exists():
                break
        found = json.loads((folder / "end.json").read_text())
    row = {"kills": kills, "attempts": attempt + 1, "seconds": time.perf_counter() - began}
    return {**row, "of": "edits" if share > 0.5 else "train", "equal": found == list(wanted)}


def main(kills, out, nodes, rounds):
    """As many rounds as are asked for of those that a file does not have yet."""
    tables = tables_of("generated", nodes, 4.0, None)
    found = {"schema": SCHEMA, **provenance()}
    found["config"] = {"nodes": nodes, "shards": 2, "edits": EDITS}
    if out is not None and out.exists():
        there = json.loads(out.read_text())
        assert all(there[name] == value for name, value in found.items()), f"{out} is of others"
        found = there
    if "wanted" not in found:
        found |= {"wanted": model_digests(tables), "cells": {"shards": [], "coordinators": []}}
    wanted = found["wanted"]
    for _ in range(rounds):
        number = len(found["cells"]["shards"]) + len(found["cells"]["coordinators"])
        rng = random.Random(number)
        if sum(row["during_training"] for row in found["cells"]["shards"]) < kills:
            row = shard_round(tables, wanted[0], found.get("usual", 3.0) * rng.random(), rng)
            found["cells"]["shards"].append(row)
            clock = row["clock"]
            found.setdefault("usual", clock["load"] + clock["follow"] + clock["sums"])
        elif len(found["cells"]["coordinators"]) < kills // 2:
            row = coordinator_round(nodes, wanted, (0.4, 0.8)[number % 2], rng)
            found["cells"]["coordinators"].append(row)
        else:
            break
        print(row, flush=True)
        write(found, out)
    return found["failures"]


def write(found, out):
    shards, others = found["cells"]["shards"], found["cells"]["coordinators"]
    found["kills"] = sum(row["during_training"] for row in shards)
    found["coordinator_kills"] = sum(row["kills"] for row in others)
    found["failures"] = sum(not row["equal"] for row in shards + others)
    if out is not None:
        out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "coordinator":
        coordinator(Path(sys.argv[2]), int(sys.argv[3]))
        sys.exit(0)
    place = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    size = int(sys.argv[3]) if len(sys.argv) > 3 else 20_000
    most = int(sys.argv[4]) if len(sys.argv) > 4 else 10**6
    sys.exit(min(main(int(sys.argv[1]), place, size, most), 1))

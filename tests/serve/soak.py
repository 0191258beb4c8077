"""A million events through HTTP: memory, descriptors and latency, tenth by tenth.

python tests/serve/soak.py 1000000 [results/soak.json]

Nodes come with edges and labels and go again after a while, so that the graph stays as large as it
is: what grows then is a leak. The file is written after every tenth.
"""

import json
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path

import numpy as np
import processes
from hostile import sizes_of

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
import kill_learn

WINDOW = 5_000  # nodes that are there at a time, beside those of the beginning
LATE = 250  # nodes that come before a label
BULK = 1_000
TENTHS = 10
MORE_MEMORY, LATER = 1.10, 1.5  # of the last tenth, as shares of the first after warming up
SLACK = 4  # descriptors


def bodies(count, window=WINDOW, seed=0):
    """Requests of events: a node, two edges, a late label, and the end of an old node."""
    rng, alive, kinds, number, found = np.random.default_rng(seed), deque(), deque(), 0, []
    while count > 0:
        kind = int(rng.integers(3))
        age, name = float(20 + 15 * kind + rng.normal(0, 5)), f"s{number}"
        found.append({"type": "node", "id": name, "age": round(age, 2), "country": "de"})
        places = rng.integers(0, len(alive), 2).tolist() if alive else []
        found += [{"type": "edge", "source": name, "target": alive[k]} for k in places]
        alive.append(name)
        kinds.append(kind)
        if len(kinds) > LATE:
            label = "abc"[kinds.popleft()]
            found.append({"type": "label", "id": f"s{number - LATE}", "label": label})
        number += 1
        if len(alive) > window:
            found.append({"type": "delete_node", "id": alive.popleft()})
        if len(found) >= BULK:
            part, found = found[: min(len(found), count)], []
            count -= len(part)
            yield len(part), "".join(json.dumps(event) + "\n" for event in part).encode()


class Asker(threading.Thread):
    """Predicts one node after the other; `take` gives the seconds since it was last called."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.stop, self.times, self.bad = port, threading.Event(), [], 0

    def run(self):
        rng = np.random.default_rng(1)
        while not self.stop.wait(0.02):
            question = json.dumps({"ids": [f"u{rng.integers(200)}"]}).encode()
            start = time.perf_counter()
            status, _ = processes.ask(self.port, "POST", "/predict", question)
            self.times.append(time.perf_counter() - start)
            self.bad += status != 200

    def take(self):
        found, self.times = self.times, []
        return found


def soak(folder, count, window=WINDOW, note=lambda rows: None):
    """The figures of each tenth, and what is wrong with them."""
    folder.mkdir()
    model, _ = kill_learn.prepare(folder, 1)
    nursery = processes.Nursery(model, folder / "said")
    rows, wrong = [], []
    try:
        nursery.start()
        asker = Asker(nursery.port)
        asker.start()
        sent, begin, since = 0, time.monotonic(), 0
        for size, body in bodies(count, window):
            status, answer = processes.ask(nursery.port, "POST", "/events", body, timeout=120)
            if status != 200 or answer["accepted"] != size:
                wrong.append(f"status {status}: {json.dumps(answer)[:300]}")
                break
            sent, since = sent + size, since + size
            if sent >= (len(rows) + 1) * count // TENTHS:
                rows.append(_row(nursery, asker, sent, since / (time.monotonic() - begin), folder))
                note(rows)
                begin, since = time.monotonic(), 0
        asker.stop.set()
        asker.join()
        wrong += [f"{asker.bad} predictions were not answered"] if asker.bad else []
        if (code := nursery.end(15)) != 0:
            wrong.append(f"exit code {code}")
    finally:
        nursery.close()
    return rows, wrong


def _row(nursery, asker, sent, rate, folder):
    stats = processes.ask(nursery.port, "GET", "/stats")[1]
    p50, p99 = (1e3 * np.quantile(asker.take(), (0.5, 0.99))).tolist()
    row = {
        "events": sent, "events_per_second": rate, "predict_p50_ms": p50, "predict_p99_ms": p99,
        **sizes_of(nursery.child), "nodes": stats["nodes"], "edges": stats["edges"],
        "accuracy": stats["prequential"]["recent"],
        "disk_mb": sum(f.stat().st_size for f in (folder / "model").iterdir()) / 2**20,
    }  # fmt: skip
    print(json.dumps(row), flush=True)
    return row


def verdict(rows):
    """The ratios of the last tenth to the first, and which bounds they break."""
    first, last = rows[0], rows[-1]
    ratios = {name: last[name] / first[name] for name in ("resident_mb", "predict_p99_ms")}
    wrong = []
    if ratios["resident_mb"] > MORE_MEMORY:
        wrong.append(f"memory grows: {ratios['resident_mb']:.2f} times the first tenth")
    if ratios["predict_p99_ms"] > LATER:
        wrong.append(f"p99 grows: {ratios['predict_p99_ms']:.2f} times the first tenth")
    if last["descriptors"] > first["descriptors"] + SLACK:
        wrong.append(f"descriptors grow: {first['descriptors']} to {last['descriptors']}")
    return ratios, wrong


def main(count, out):
    from evergraph.evaluate.evidence import provenance

    result = {
        "schema": 2,
        **provenance(),
        "config": {"events": count, "window": WINDOW, "bulk": BULK},
    }

    def note(rows, **more):
        if out is not None:
            out.write_text(json.dumps({**result, "cells": rows, **more}, indent=1) + "\n")

    with tempfile.TemporaryDirectory() as name:
        rows, wrong = soak(Path(name) / "soak", count, note=note)
    ratios, more = verdict(rows)
    note(rows, last_to_first=ratios, failures=wrong + more)
    print(ratios, wrong + more)
    return len(wrong + more)


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    sys.exit(min(main(number, Path(sys.argv[2]) if len(sys.argv) > 2 else None), 1))

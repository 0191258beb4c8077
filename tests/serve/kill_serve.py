"""Disturb a service under load: SIGKILL, a full disk, a clock that is set back; compare the end.

python tests/serve/kill_serve.py 100 [results/kill_serve.json]
"""

import contextlib
import json
import random
import shutil
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import processes

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
import kill_learn

SENDERS = 3
DAY = 86_400.0


def batches(sender, seed):
    """Lists of events without an end, about nodes that no other sender knows: any order will do."""
    chance, known, number = random.Random(f"{seed} {sender}"), [], 0
    while True:
        found = []
        for _ in range(chance.choice((1, 1, 2, 5, 20, 60))):
            kind, number = chance.random(), number + 1
            one = chance.choice(known) if known else None
            if one is None or kind < 0.35:
                known.append(f"{sender} {number}")
                event = {"type": "node", "id": known[-1], "age": chance.uniform(15, 60)}
                event["country"] = chance.choice(("de", "fr", "it"))
            elif kind < 0.7:
                event = {"type": "edge", "source": one, "target": chance.choice(known)}
            elif kind < 0.73:
                known.remove(one)
                event = {"type": "delete_node", "id": one}
            else:
                event = {"type": "label", "id": one, "label": chance.choice("abc")}
            found.append(event)
        yield found


class Trial:
    """A service under load, from the first start to the comparison.

    Args:
        folder: a new folder for it.
        seed: of the events.
    """

    def __init__(self, folder, seed=0):
        folder.mkdir()
        self.folder = folder
        self.model, _ = kill_learn.prepare(folder, 1)
        self.alone = shutil.copytree(self.model, folder / "alone")
        self.before = kill_learn.look(self.model)[1]
        self.nursery = processes.Nursery(self.model, folder / "said")
        self.stop, self.wrong = threading.Event(), []
        self.senders = [
            processes.Sender(self.nursery.port, batches(number, seed), self.stop)
            for number in range(SENDERS)
        ]
        self.asked = Counter()

    def start(self):
        for thread in (*self.senders, threading.Thread(target=self._ask, daemon=True)):
            thread.start()

    def _ask(self):
        """Predict beside the events; only statuses that a client can understand may come."""
        while not self.stop.is_set():
            question = json.dumps({"ids": ["u1", "u2"]}).encode()
            status, _ = processes.ask(self.nursery.port, "POST", "/predict", question)
            self.asked[status] += 1
            time.sleep(0.01)

    @property
    def acknowledged(self):
        return sum(sender.acknowledged for sender in self.senders)

    def check_kept(self, acknowledged):
        """Look into the file of a service that is dead: is there all that it acknowledged?"""
        with contextlib.closing(sqlite3.connect(self.model / "graph.sqlite")) as file:
            (kept,) = file.execute("SELECT value FROM meta WHERE key = 'position'").fetchone()
        if int(kept) - self.before < acknowledged:
            self.wrong.append(f"{acknowledged} were acknowledged, {kept - self.before} are there")

    def finish(self):
        """End the load, and compare with a model that has learned the same in peace."""
        self.stop.set()
        for sender in self.senders:
            sender.join()
            self.wrong += sender.wrong
        status, found = processes.ask(self.nursery.port, "GET", "/digest")
        code = self.nursery.end(15)
        if (status, code) != (200, 0):
            text = self.nursery.said.read_text()[-500:]
            self.wrong.append(f"status {status}, exit code {code}: {text}")
        self.nursery.close()
        from evergraph.model import Model

        events = [event for sender in self.senders for event in sender.sent]
        with Model.open(self.alone) as model:
            for start in range(0, len(events), 1000):
                model.learn(events[start : start + 1000])
            expected = {"digest": model.digest(), "position": model.store.position}
        if found != expected:
            self.wrong.append(f"another state: {found} and not {expected}")
        if self.acknowledged != len(events):
            self.wrong.append(f"{self.acknowledged} of {len(events)} events were accepted")
        return events


def cell(kind, count, trial, events, **more):
    """What a trial came to."""
    statuses = Counter(trial.asked)
    for sender in trial.senders:
        statuses.update(sender.statuses)
    answered = {str(status or "none"): n for status, n in sorted(statuses.items())}
    row = {"kind": kind, "disturbed": count, "events": len(events), "answers": answered, **more}
    print(f"{kind}: {row}, wrong: {trial.wrong}", flush=True)
    return {**row, "failures": trial.wrong}


def kills(folder, count, seed=0, set_back=False):
    """Kill a service at random moments, and start it again; with a clock that goes back or not."""
    trial, chance = Trial(folder, seed), random.Random(seed)
    trial.nursery.start()
    trial.start()
    for _ in range(count):
        time.sleep(chance.uniform(0, 0.8))
        trial.nursery.end()
        trial.check_kept(trial.acknowledged)
        trial.nursery.start(chance.uniform(0, DAY) if set_back else 0.0)
    time.sleep(0.5)
    events = trial.finish()
    if set_back:
        with contextlib.closing(sqlite3.connect(trial.model / "graph.sqlite")) as file:
            times = [at for (at,) in file.execute("SELECT at FROM moment ORDER BY position")]
        if times != sorted(times):
            trial.wrong.append("the times of the history go back")
    kind = "killed, and its clock set back" if set_back else "killed at a random moment"
    return cell(kind, count, trial, events)


def full_disk(folder, count, seed=0):
    """Let no file grow for a while, again and again: what is refused is sent again."""
    trial, chance = Trial(folder, seed), random.Random(seed)
    trial.nursery.start()
    trial.start()
    refused = 0
    for _ in range(count):
        time.sleep(chance.uniform(0, 0.3))
        files = [path.stat().st_size for path in trial.model.glob("graph.sqlite*")]
        before = sum(sender.statuses.get(507, 0) for sender in trial.senders)
        trial.nursery.limit_files(max(min(files), 4096) + chance.randrange(8192))
        end = time.monotonic() + 20
        while sum(s.statuses.get(507, 0) for s in trial.senders) == before:
            if time.monotonic() > end:
                break
            time.sleep(0.01)
        else:
            refused += 1
        trial.nursery.limit_files(None)
    events = trial.finish()
    if refused < count:
        trial.wrong.append(f"only {refused} of {count} times an event was refused with 507")
    return cell("the disk is full for a while", count, trial, events)


def main(count, out):
    from evergraph.evaluate.evidence import provenance
    from evergraph.evaluate.run import SCHEMA

    evidence = provenance()
    few = max(count // 5, 1)
    with tempfile.TemporaryDirectory() as name:
        cells = [
            kills(Path(name) / "kills", count),
            kills(Path(name) / "clock", few, 1, set_back=True),
            full_disk(Path(name) / "full", few, 2),
        ]
    result = {"schema": SCHEMA, **evidence, "config": {"senders": SENDERS}, "cells": cells}
    if out is not None:
        out.write_text(json.dumps(result, indent=1) + "\n")
    return sum(len(one["failures"]) for one in cells)


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    sys.exit(min(main(number, Path(sys.argv[2]) if len(sys.argv) > 2 else None), 1))

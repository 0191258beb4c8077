"""Kill `evergraph learn` with SIGKILL at random moments, resume it, compare with one left alone.

python tests/cli/kill_learn.py 50 [both]
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

FILES = [".graph.sqlite.lock", "graph.sqlite", "learner.safetensors", "model.json"]
OTHERS = [f"{name}.previous" for name in ("learner.safetensors", "network.safetensors")]


def prepare(folder: Path, events: int = 6000, learner: str = "exact") -> tuple[Path, Path]:
    """A model folder and a file of events: nodes, edges, late labels, corrections, deletions."""
    from evergraph.model import Model, Settings

    chance = random.Random(0)
    kinds = [chance.randrange(3) for _ in range(200)]
    nodes = {
        "id": [f"u{k}" for k in range(200)],
        "age": [20 + 15 * kind + chance.gauss(0, 5) for kind in kinds],
        "label": ["abc"[kind] for kind in kinds],
    }
    settings = Settings(landmarks=16, held_out=40, learner=learner, memory=50)
    Model.train(folder / "model", nodes, settings=settings).close()
    lines, known = [], list(nodes["id"])
    for number in range(events):
        kind, one = chance.random(), chance.choice(known)
        event: dict[str, object] = {"type": "label", "id": one, "label": chance.choice("abc")}
        if kind < 0.3:
            known.append(f"n{number}")
            event = {"type": "node", "id": known[-1], "age": chance.uniform(15, 60)}
        elif kind < 0.7:
            event = {"type": "edge", "source": one, "target": chance.choice(known)}
        elif kind < 0.72 and one.startswith("n"):
            known.remove(one)
            event = {"type": "delete_node", "id": one}
        lines.append(json.dumps(event))
    path = folder / "events.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return folder / "model", path


def start(model: Path, events: Path) -> BaseProcess:
    """Begin to learn in a copy of this process, which has imported everything already."""
    process = get_context("fork").Process(target=_learn, args=(model, events))
    process.start()
    return process


def _learn(model: Path, events: Path) -> None:
    from evergraph.cli import app

    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    app(["learn", str(model), str(events), "--resume", "--chunk", "100"])


def state(model: Path) -> tuple[str, int]:
    """Digest and position, as a process of its own sees them."""
    command = [sys.executable, "-m", "evergraph", "inspect", str(model), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    found = json.loads(done.stdout)
    return found["digest"], found["position"]


def trials(
    folder: Path, count: int, chance: random.Random, events: int = 6000, learner: str = "exact"
) -> int:
    """How many of the killed runs ended in another state, or left files behind."""
    model, path = prepare(folder, events, learner)
    alone = folder / "alone"
    shutil.copytree(model, alone)
    begin = time.monotonic()
    start(alone, path).join()
    length = time.monotonic() - begin
    expected = state(alone)
    print(f"left alone: {length:.1f} s, position {expected[1]:,}, digest {expected[0][:16]}")
    failures = 0
    for number in range(count):
        place = folder / str(number)
        shutil.copytree(model, place)
        process = start(place, path)
        process.join(moment := chance.uniform(0, length))
        process.kill()
        process.join()
        process = start(place, path)
        process.join()
        left = sorted(file.name for file in place.iterdir())
        wrong = [] if process.exitcode == 0 else [f"exit code {process.exitcode}"]
        wrong += [] if set(left) <= {*FILES, *OTHERS, "network.safetensors"} else [f"left {left}"]
        wrong += [] if state(place) == expected else ["another state"]
        print(f"{number + 1}: killed at {moment:.2f} s: {wrong or 'the same'}", flush=True)
        failures += bool(wrong)
        shutil.rmtree(place)
    return failures


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        total = int(sys.argv[1]) if len(sys.argv) > 1 else 20
        chosen = sys.argv[2] if len(sys.argv) > 2 else "exact"
        bad = trials(Path(name), total, random.Random(0), learner=chosen)
    print(f"{total - bad} of {total} ended the same")
    sys.exit(bad)

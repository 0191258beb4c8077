"""Kill `evergraph learn` with SIGKILL at random moments, resume it, compare with one left alone.

python tests/cli/kill_learn.py 50 [both]
python tests/cli/kill_learn.py 50 results/kill_learn.json   # and all of `aimed`, with the counts
"""

import json
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import traced

ALLOWED = {".graph.sqlite.lock", "graph.sqlite", "model.json"}
ALLOWED |= {
    f"{name}.safetensors{end}" for name in ("learner", "network") for end in ("", ".previous")
}


def prepare(folder: Path, events: int = 6000, learner: str = "exact") -> tuple[Path, Path]:
    """A model folder and a file of events: nodes, edges, late labels, corrections, deletions."""
    from evergraph.model import Model, Settings

    chance = random.Random(0)
    kinds = [chance.randrange(3) for _ in range(200)]
    nodes = {
        "id": [f"u{k}" for k in range(200)],
        "age": [20 + 15 * kind + chance.gauss(0, 5) for kind in kinds],
        "income": [chance.uniform(1, 9) for _ in kinds],
        "country": [chance.choice(("de", "fr", "it")) for _ in kinds],
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
            event["country"] = chance.choice(("de", "fr", "it"))
        elif kind < 0.7:
            event = {"type": "edge", "source": one, "target": chance.choice(known)}
        elif kind < 0.72 and one.startswith("n"):
            known.remove(one)
            event = {"type": "delete_node", "id": one}
        lines.append(json.dumps(event))
    path = folder / "events.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return folder / "model", path


def command(*arguments: str) -> None:
    """A command of the program, in this process."""
    from evergraph.cli import app

    app([*arguments, "--json"])


def learn(model: Path, events: Path, chunk: int = 100, acknowledged: Path | None = None) -> None:
    """`evergraph learn --resume`; positions are noted as soon as `Model.learn` has returned."""
    from evergraph.model import Model

    if acknowledged is not None:
        take = Model.learn

        def taken(self: Model, *values: object, **options: object) -> int:
            count: int = take(self, *values, **options)  # type: ignore[arg-type]
            with acknowledged.open("a") as file:
                file.write(f" {self.store.position}")
            return count

        Model.learn = taken  # type: ignore[method-assign,assignment]
    command("learn", str(model), str(events), "--resume", "--chunk", str(chunk))


def look(model: Path) -> tuple[str, int]:
    """Digest and position."""
    from evergraph.model import Model

    with Model.open(model, readonly=True) as found:
        return found.digest(), found.store.position


def open_and_close(model: Path) -> None:
    """Open for writing, which finishes what was under way."""
    from evergraph.model import Model

    Model.open(model).close()


def trials(
    folder: Path, count: int, chance: random.Random, events: int = 6000, learner: str = "exact"
) -> int:
    """How many of the killed runs ended in another state, lost something or left files behind."""
    model, path = prepare(folder, events, learner)
    alone, said, noted = (folder / name for name in ("alone", "said", "acknowledged"))
    shutil.copytree(model, alone)
    begin = time.monotonic()
    traced.end(traced.fork(lambda: learn(alone, path), said))
    length = time.monotonic() - begin
    expected = look(alone)
    print(f"left alone: {length:.1f} s, position {expected[1]:,}, digest {expected[0][:16]}")
    failures = 0
    for number in range(count):
        place = folder / str(number)
        shutil.copytree(model, place)
        noted.write_text("0")
        child = traced.fork(lambda place=place: learn(place, path, acknowledged=noted), said)
        time.sleep(moment := chance.uniform(0, length))
        os.kill(child, 9)
        traced.end(child)
        kept, told = look(place)[1], int(noted.read_text().split()[-1])
        wrong = [] if kept >= told else [f"{told} were acknowledged, {kept} are there"]
        wrong += [] if kept % 100 == 0 else [f"half of a transaction: {kept}"]
        code = traced.end(traced.fork(lambda place=place: learn(place, path), said))
        left = {file.name for file in place.iterdir()}
        wrong += [] if code == 0 else [f"exit code {code}: {said.read_text()}"]
        wrong += [f"left {left}"] if left - ALLOWED else []
        wrong += [] if look(place) == expected else ["another state"]
        print(f"{number + 1}: killed at {moment:.2f} s, {kept}: {wrong or 'the same'}", flush=True)
        failures += bool(wrong)
        shutil.rmtree(place)
    return failures


def two_writers(folder: Path, rounds: int) -> int:
    """Let two processes learn the same file at once: how often it was not learned exactly once."""
    model, path = prepare(folder, 600)
    alone = shutil.copytree(model, folder / "alone")
    traced.end(traced.fork(lambda: learn(alone, path, 50), folder / "said"))
    expected, failures = look(alone), 0
    for number in range(rounds):
        place = shutil.copytree(model, folder / str(number))
        said = [folder / f"said {k}" for k in range(2)]
        both = [traced.fork(lambda place=place: learn(place, path, 50), file) for file in said]
        for child, file in zip(both, said, strict=True):
            code, text = traced.end(child), file.read_text()
            held = text.startswith("Error: ") and "is being written by another process" in text
            if not (code == 0 or (code == 2 and held and text.count("\n") == 1)):
                print(f"two writers, {number + 1}: exit code {code}: {text}")
                failures += 1
        if look(place) != expected:
            print(f"two writers, {number + 1}: another state")
            failures += 1
        shutil.rmtree(place)
    return failures


def main(count: int, learner: str, out: Path | None) -> int:
    """Kill at random; with a file to write, do everything else that may happen too."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "random").mkdir()
        bad = trials(Path(name) / "random", count, random.Random(0), learner=learner)
        print(f"{count - bad} of {count} ended the same")
        if out is None:
            return bad
        import aimed

        from evergraph.evaluate.evidence import provenance
        from evergraph.evaluate.run import SCHEMA

        evidence = provenance()
        (Path(name) / "two").mkdir()
        twice = two_writers(Path(name) / "two", 10)
        kinds = (("killed at a random moment", count, bad), ("two writers at once", 10, twice))
        cells = [
            {"kind": f"learn: {kind}", "outcomes": {"the same": tried - failed},
             "failures": ["printed above"] * failed}
            for kind, tried, failed in kinds
        ]  # fmt: skip
        cells += [
            aimed.every_call(Path(name), job, how)
            for job in ("learn", "forget", "train", "refit")
            for how in aimed.HOW
        ]
    config = {"random": count, "calls": "every one that changes a file", "ways": aimed.HOW}
    result = {"schema": SCHEMA, **evidence, "config": config, "cells": cells}
    out.write_text(json.dumps(result, indent=1) + "\n")
    return sum(len(cell["failures"]) for cell in cells)


if __name__ == "__main__":
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    more = sys.argv[2:]
    out = Path(more[0]) if more and more[0].endswith(".json") else None
    sys.exit(min(main(kills, "both" if more == ["both"] else "exact", out), 1))

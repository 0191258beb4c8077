"""Kill `evergraph learn --from redis://…` while a real server feeds it: each event counts once.

python tests/cli/kill_redis.py 10 100000 [results/redis.json]
"""

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import kill_learn
import traced

SERVER = shutil.which("redis-server")
INSTALL = "redis-server is not here: apt-get install redis-server"
PATIENCE = 300  # seconds until an entry must have been read


@contextmanager
def server(folder: Path):
    """A server on loopback that keeps nothing; yields a client and the address."""
    import redis

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ("--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder))
    child = subprocess.Popen([SERVER, *options], stdout=subprocess.DEVNULL)
    client = redis.Redis(port=port)
    try:
        for _ in range(100):
            try:
                client.ping()
                break
            except redis.ConnectionError:
                time.sleep(0.05)
        yield client, f"redis://127.0.0.1:{port}"
    finally:
        client.close()
        child.terminate()
        child.wait()


def send(client, stream: str, lines: list[str]) -> None:
    """Add events to a stream."""
    for start in range(0, len(lines), 1000):
        with client.pipeline(transaction=False) as pipe:
            for line in lines[start : start + 1000]:
                pipe.xadd(stream, {"event": line})
            pipe.execute()


def follow(model: Path, url: str, chunk: int) -> None:
    kill_learn.command("learn", str(model), "--from", url, "--wait", "0.5", "--chunk", str(chunk))


def read(client, stream: str) -> int:
    """How many entries were given out, as an operator sees it."""
    groups = client.xinfo_groups(stream)
    return max((group["entries-read"] or 0 for group in groups), default=0)


def trials(
    folder: Path,
    kills: int,
    events: int,
    chunk: int,
    chance: random.Random,
    seen: dict[str, object] | None = None,
) -> list[str]:
    """What was wrong after so many kills of one reader; nothing if all is well.

    `seen` gets the counts: what was stored at each kill, and in the end.
    """
    at_kills: list[int] = []
    model, path = kill_learn.prepare(folder, events)
    alone, said = shutil.copytree(model, folder / "alone"), folder / "said"
    assert traced.end(traced.fork(lambda: kill_learn.learn(alone, path, chunk), said)) == 0
    lines, wrong = path.read_text().splitlines(), []
    with server(folder) as (client, address):
        send(client, "events", lines)
        url = f"{address}/events"
        for at in sorted(chance.sample(range(events), kills)):
            child = traced.fork(lambda: follow(model, url, chunk), said)
            end = time.monotonic() + PATIENCE
            while read(client, "events") < at and time.monotonic() < end:
                time.sleep(0.002)
            time.sleep(chance.uniform(0, 0.1))
            os.kill(child, 9)
            code = traced.end(child)
            position = kill_learn.look(model)[1]
            at_kills.append(position)
            print(f"killed when {at} were read: {position} are stored", flush=True)
            if code != -9:
                wrong.append(f"it ended before it was killed, {code}: {said.read_text()}")
        if code := traced.end(traced.fork(lambda: follow(model, url, chunk), said)):
            wrong.append(f"exit code {code} in the end: {said.read_text()}")
        (group,) = client.xinfo_groups("events")
        left = group["pending"], group["lag"], group["entries-read"]
        wrong += [] if left == (0, 0, events) else [f"pending, lag and entries read are {left}"]
    found, expected = kill_learn.look(model), kill_learn.look(alone)
    print(f"{found[1]} events, digest {found[0][:16]}; undisturbed {expected[0][:16]}")
    wrong += [] if found == expected else [f"another state: {found} and not {expected}"]
    if seen is not None:
        names = "digest", "position"
        seen |= {
            "stored_at_kills": at_kills,
            "stored": dict(zip(names, found, strict=True)),
            "undisturbed": dict(zip(names, expected, strict=True)),
        }
    return wrong


def main(kills: int, events: int, out: Path | None) -> int:
    """Kill so many times; the counts go to a file."""
    from evergraph.evaluate.evidence import provenance
    from evergraph.evaluate.run import SCHEMA

    evidence, chunk = provenance(), 1000
    version = subprocess.run([SERVER, "--version"], capture_output=True, text=True, check=True)
    seen: dict[str, object] = {"kind": "learn from a stream of Redis, killed"}
    with tempfile.TemporaryDirectory() as name:
        wrong = trials(Path(name), kills, events, chunk, random.Random(0), seen)
    config = {"events": events, "kills": kills, "chunk": chunk}
    config["server"] = version.stdout.split(" sha=")[0]
    if out is not None:
        cells = [{**seen, "failures": wrong}]
        result = {"schema": SCHEMA, **evidence, "config": config, "cells": cells}
        out.write_text(json.dumps(result, indent=1) + "\n")
    print("\n".join(wrong) or "each event counts once")
    return len(wrong)


if __name__ == "__main__":
    if SERVER is None:
        sys.exit(INSTALL)
    kills, events = (
        int(text) for text in (sys.argv[1:] + ["10", "100000"][len(sys.argv) - 1 :])[:2]
    )
    sys.exit(min(main(kills, events, Path(sys.argv[3]) if len(sys.argv) > 3 else None), 1))

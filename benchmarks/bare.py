"""A bare FastAPI handler that only parses events and commits them to SQLite, for comparison.

`python -m benchmarks.bare FILE` serves it on a free port of loopback and prints the address.
"""

from __future__ import annotations

import json
import socket
import sqlite3
import sys
import threading
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from fastapi.requests import Request
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

INSERT = "INSERT INTO event (type, id, source, target, label, text) VALUES (?, ?, ?, ?, ?, ?)"


def bare_app(path: Path) -> FastAPI:
    """One table, one transaction per request, as durable as the store: WAL, flushed."""
    file = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    for setting in ("journal_mode = WAL", "synchronous = FULL"):
        file.execute(f"PRAGMA {setting}")
    file.execute("CREATE TABLE event (type, id, source, target, label, text)")

    lock = threading.Lock()

    def commit(body: bytes) -> int:
        found = [(json.loads(line), line) for line in body.split(b"\n") if line]
        keys = ("type", "id", "source", "target", "label")
        rows = [(*(event.get(key) for key in keys), line) for event, line in found]
        with lock:  # SQLite has one writer
            file.execute("BEGIN")
            file.executemany(INSERT, rows)
            file.execute("COMMIT")
        return len(rows)

    app = FastAPI()

    @app.post("/events")
    async def events(request: Request) -> JSONResponse:
        body = await request.body()
        return JSONResponse({"accepted": await run_in_threadpool(commit, body)})

    return app


def main(path: Path) -> None:
    """Serve until the process is ended."""
    # With the protocol named, asyncio sends small answers at once, as in the service.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    sys.stdout.write(f"http://127.0.0.1:{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(bare_app(path), log_config=None, access_log=False, http="h11")
    uvicorn.Server(config).run([listening])


if __name__ == "__main__":
    main(Path(sys.argv[1]))

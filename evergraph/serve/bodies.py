"""Bodies of requests: one JSON object of limited size, or lines of events without an end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import ClientDisconnect, Request

from evergraph.datasets.jsonl_blocks import parse_object
from evergraph.datasets.report import Report
from evergraph.serve.jobs import reason_of
from evergraph.serve.limits import Limits, RefusedError

QUIET = 0.2  # seconds without bytes after which whole lines are taken as they are


async def chunks(request: Request, limits: Limits, quiet: bool) -> AsyncIterator[bytes]:
    """The bytes of a body as they come; with `quiet`, none when nothing has come for a while."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise RefusedError(415, "bodies must not be compressed: send them as they are")
    stream = request.stream()
    waited = 0.0
    task: asyncio.Future[bytes] = asyncio.ensure_future(anext(stream))
    try:
        while True:
            step = QUIET if quiet else limits.seconds
            done, _ = await asyncio.wait({task}, timeout=step)
            if not done:
                waited += step
                if waited >= limits.seconds:
                    raise RefusedError(
                        408, f"a client must send something every {limits.seconds:g} seconds"
                    )
                if quiet:
                    yield b""
                continue
            waited = 0.0
            try:
                part = task.result()
            except StopAsyncIteration:
                return
            task = asyncio.ensure_future(anext(stream))
            if part:
                yield part
    except ClientDisconnect:
        raise RefusedError(400, "the client has gone before the body ended") from None
    finally:
        task.cancel()


async def whole(request: Request, limits: Limits) -> bytes:
    """A body of limited size."""
    size = request.headers.get("content-length", "")
    if size.isdigit() and int(size[:20]) > limits.body:
        raise _too_large(limits)
    body = b""
    async for part in chunks(request, limits, quiet=False):
        body += part
        if len(body) > limits.body:
            raise _too_large(limits)
    return body


def _too_large(limits: Limits) -> RefusedError:
    return RefusedError(413, f"the body must have at most {limits.body:,} bytes: send less at once")


async def json_object(request: Request, limits: Limits) -> dict[str, Any]:
    """The JSON object that a body is."""
    body = await whole(request, limits)
    report = Report()
    found = parse_object(body, report, "body", 1)
    if found is None:
        raise RefusedError(422, reason_of(report.problems[0]))
    return found


async def blocks(request: Request, limits: Limits) -> AsyncIterator[bytes]:
    """Whole lines of a body, some at a time; one JSON object counts as a line."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        body = await whole(request, limits)
        yield body.replace(b"\r", b" ").replace(b"\n", b" ")  # JSON has them between values only
        return
    rest = b""
    async for part in chunks(request, limits, quiet=True):
        rest += part
        if part and len(rest) < limits.block:
            continue
        end = rest.rfind(b"\n") + 1
        if end:
            yield rest[:end]
            rest = rest[end:]
        if len(rest) > limits.line:
            raise RefusedError(413, f"a line must have at most {limits.line:,} bytes")
    if rest:
        yield rest

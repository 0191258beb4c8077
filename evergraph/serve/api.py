"""The routes of a service: what they take, and what they answer."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from fastapi.requests import Request
from fastapi.responses import JSONResponse, StreamingResponse

from evergraph import __version__
from evergraph.serve import answers
from evergraph.serve.bodies import blocks, json_object
from evergraph.serve.guard import LOG
from evergraph.serve.jobs import Job, Progress, Refusals, new_hash, read_block
from evergraph.serve.limits import RefusedError
from evergraph.serve.proof import Proof
from evergraph.serve.service import Service

T = TypeVar("T")
READERS = 2  # threads that answer questions
TICK = 1.0  # seconds between events of /stream
LONGEST_KEY = 200
OTHER_EVENTS = "the key was used for other events: take a new one"


class Api:
    """The routes."""

    def __init__(self, service: Service, stopping: Callable[[], bool]) -> None:
        self.service, self.limits, self._stopping = service, service.limits, stopping
        self.pool = ThreadPoolExecutor(READERS, "reader")
        self._proof = Proof(service)
        self._pending = self._streams = 0
        self._stats: dict[str, Any] | None = None
        self._retraining: asyncio.Future[dict[str, Any]] | None = None

    async def events(self, request: Request) -> JSONResponse:
        """Take events: one JSON object, or lines of them, of any length.

        Answered when all are stored durably. Lines that are refused are named with the reason; the
        others are taken. With the header `Idempotency-Key`, the same request can be sent again:
        what was stored is not stored twice.
        """
        progress, refusals = await self._take(request, blocks(request, self.limits))
        return self._taken(progress, refusals)

    async def label(self, request: Request) -> JSONResponse:
        """Take the label of a node, and score what was predicted for it."""
        given = await json_object(request, self.limits)
        line = json.dumps({**given, "type": "label"}).encode()

        async def lines() -> AsyncIterator[bytes]:
            yield line

        jobs: list[Job] = []
        progress, refusals = await self._take(request, lines(), jobs.append)
        scored = [one._asdict() for job in jobs for one in job.scored]
        return self._taken(progress, refusals, scored=scored)

    def _taken(self, progress: Progress, refusals: Refusals, **more: Any) -> JSONResponse:
        shown = self.service.shown
        answer = {
            "accepted": progress.accepted,
            "lines": progress.lines,
            "refused": [{"line": line, "reason": reason} for line, reason in refusals],
            "position": progress.position,
            "version": None if shown is None else shown.version,
            **more,
        }
        return JSONResponse(answer, 422 if refusals and not progress.accepted else 200)

    async def _take(
        self,
        request: Request,
        lines: AsyncIterator[bytes],
        note: Callable[[Job], None] = lambda job: None,
    ) -> tuple[Progress, Refusals]:
        """Store blocks of lines one after the other, behind what a key has stored before."""
        key = _key(request)
        progress, refusals = Progress(), list[tuple[int, str]]()
        if key is not None:
            progress, refusals = await self._wait(self.service.progress(key))
        hashed, skip = new_hash(), progress.lines
        async for block in lines:
            while skip and block:
                line, end, block = block.partition(b"\n")
                hashed.update(line + end)
                skip -= 1
                if not skip and hashed.hexdigest() != progress.digest:
                    raise RefusedError(422, OTHER_EVENTS)
            if not block:
                continue
            job = Job(block, progress, hashed.copy(), key)
            await self._read(lambda job=job: read_block(job))  # type: ignore[misc]
            if len(refusals) + len(job.refusals) > self.limits.refused:
                where, reason = (refusals + job.refusals)[0]
                raise RefusedError(
                    422,
                    f"more than {self.limits.refused:,} lines were refused, and reading ended "
                    f"behind line {progress.lines:,}; the first: line {where}, {reason}",
                )
            progress = await self._submit(job)
            refusals += job.refusals
            hashed.update(block)
            note(job)
        if skip:
            raise RefusedError(422, OTHER_EVENTS)
        if not progress.lines:
            raise RefusedError(422, "events must be lines of JSON, got none")
        return progress, sorted(refusals)

    async def _submit(self, job: Job) -> Progress:
        """Store a block; the first of a request is refused when the queue is full, others wait."""
        end = time.monotonic() + self.limits.seconds
        while True:
            try:
                return await self._wait(self.service.writer.submit(job))
            except RefusedError as error:
                first = job.before.lines == 0
                if error.status != 429 or first or time.monotonic() > end:
                    raise
                await asyncio.sleep(0.05)

    async def predict(self, request: Request) -> JSONResponse:
        """Tell what nodes are: `ids` of the graph, or `nodes` with features and `edges`."""
        question = await json_object(request, self.limits)
        start = time.monotonic()
        found = await self._read(lambda: answers.predict(self.service, question))
        self.service.monitor.lasted("predict", time.monotonic() - start)
        return JSONResponse(found)

    async def node(self, id: str) -> JSONResponse:
        """Show a node: features, label, neighbors."""
        wanted = answers.node_id(id)
        return JSONResponse(await self._read(lambda: answers.node(self.service, wanted)))

    async def forget(self, id: str) -> JSONResponse:
        """Unlearn a node, and leave no trace of it; the digests before and after."""
        return JSONResponse(await self._wait(self.service.forget(answers.node_id(id))))

    async def explain(self, id: str, label: str | None = None) -> JSONResponse:
        """Tell which neighbors and features spoke for a class, in parts that sum to the score."""
        wanted = answers.node_id(id)
        return JSONResponse(await self._read(lambda: answers.explain(self.service, wanted, label)))

    async def digest(self) -> JSONResponse:
        """Give a hash of all that decides a prediction."""
        return JSONResponse(await self._wait(self.service.digest()))

    async def health(self) -> JSONResponse:
        """Tell whether the process works."""
        alive = self.service.writer.alive
        return JSONResponse({"alive": alive, "version": __version__}, 200 if alive else 503)

    async def ready(self) -> JSONResponse:
        """Tell whether events are taken, and whether questions can be answered."""
        state = self.service.state()
        ready = self.service.writer.alive
        shown = {name: state[name] for name in ("model", "position", "version")}
        return JSONResponse({"ready": ready, **shown}, 200 if ready else 503)

    async def retrain(self) -> JSONResponse:
        """Train again from scratch, and compare: equal digests mean equal answers.

        Who asks while that is done gets the same answer.
        """
        if self._retraining is None or self._retraining.done():
            self._retraining = asyncio.ensure_future(asyncio.to_thread(self._proof.retrain))
        return JSONResponse(await self._in_time(self._retraining))

    async def stats(self) -> JSONResponse:
        """Give what /stream sends, once."""
        return JSONResponse(await self._read(self._state))

    def _state(self) -> dict[str, Any]:
        return self.service.monitor.stats(self.service.state())

    async def stream(self) -> StreamingResponse:
        """Send what a page shows: the curves so far, then the state every second."""
        if self._streams >= self.limits.streams:
            raise RefusedError(429, f"at most {self.limits.streams} may read the stream", retry=10)
        headers = {"cache-control": "no-store"}
        return StreamingResponse(self._sent(), media_type="text/event-stream", headers=headers)

    async def _sent(self) -> AsyncIterator[str]:
        self._streams += 1
        try:
            yield f"event: history\ndata: {json.dumps(self.service.monitor.curves())}\n\n"
            sent = None
            while not self._stopping():
                if self._stats is not sent:
                    sent = self._stats
                    yield f"event: stats\ndata: {json.dumps(sent)}\n\n"
                await asyncio.sleep(TICK / 4)
        finally:
            self._streams -= 1

    async def tick(self) -> None:
        """Work out what a page shows, every second."""
        while True:
            try:
                self._stats = await asyncio.to_thread(self._point)
            except Exception as error:  # such as curves that cannot be written: the page goes on
                LOG.error(json.dumps({"error": type(error).__name__, "in": "curves"}))
            await asyncio.sleep(TICK)

    def _point(self) -> dict[str, Any]:
        stats = self._state()
        self.service.monitor.point(stats)
        return stats

    async def _read(self, make: Callable[[], T]) -> T:
        """Run something beside the writer."""
        if self._pending >= self.limits.pending:
            raise RefusedError(
                429, f"at most {self.limits.pending} requests may wait: try later", retry=1.0
            )
        self._pending += 1
        made = asyncio.get_running_loop().run_in_executor(self.pool, make)
        made.add_done_callback(self._read_one)  # who has waited too long may still be read for
        return await self._in_time(made)

    def _read_one(self, made: asyncio.Future[Any]) -> None:
        self._pending -= 1
        if not made.cancelled():
            made.exception()  # nobody may be left to hear of it

    async def _wait(self, made: Future[T]) -> T:
        return await self._in_time(asyncio.wrap_future(made))

    async def _in_time(self, made: asyncio.Future[T]) -> T:
        done, _ = await asyncio.wait({made}, timeout=self.limits.seconds)
        if not done:
            raise RefusedError(
                503, f"no answer within {self.limits.seconds:g} seconds: ask again with the same "
                "key", retry=5.0
            )  # fmt: skip
        return made.result()


def _key(request: Request) -> str | None:
    """The key by which a request is known again."""
    key = request.headers.get("idempotency-key")
    if key is not None and not (0 < len(key) <= LONGEST_KEY and key.isascii()):
        raise RefusedError(422, f"a key must have 1 to {LONGEST_KEY} ASCII characters")
    return key

"""The application of a service: routes, who may come in, and how errors are told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.requests import Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException

from evergraph import __version__
from evergraph.graph.database import FileError
from evergraph.serve.api import Api
from evergraph.serve.guard import LOG, Guard
from evergraph.serve.limits import RefusedError
from evergraph.serve.metrics import Metrics
from evergraph.serve.pages import add_page
from evergraph.serve.reference import EVENTS, KEY, LABEL, QUESTION, body, page
from evergraph.serve.service import Service


class _AnyText(Convertor[str]):
    """A part of a path that may hold anything: ids have slashes and line breaks."""

    regex = "(?s:.+)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("any", _AnyText())


def create_app(
    service: Service,
    *,
    token: str | None = None,
    hosts: Collection[str] = (),
    stopping: Callable[[], bool] = lambda: False,
) -> FastAPI:
    """The application over a service that was started.

    Args:
        service: that learns and answers.
        token: that requests must bring.
        hosts: names that requests may use; empty allows all.
        stopping: whether the server is about to end, so that streams have to.
    """
    metrics = Metrics(service)
    api = Api(service, stopping)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        ticking = asyncio.create_task(api.tick())
        try:
            yield
        finally:
            ticking.cancel()
            api.pool.shutdown()

    app = FastAPI(
        title="evergraph", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None,
        description="Learns from the events of a graph and answers questions at the same time.",
    )  # fmt: skip
    app.add_middleware(Guard, token=token, hosts=hosts, observe=metrics.observe)
    app.add_exception_handler(RefusedError, _refused)
    app.add_exception_handler(HTTPException, _unknown)
    app.add_exception_handler(FileError, _broken)
    app.add_exception_handler(Exception, _failed)

    app.post("/events", openapi_extra=body(EVENTS, KEY, "application/x-ndjson"))(api.events)
    app.post("/label", openapi_extra=body(LABEL, KEY))(api.label)
    app.post("/predict", openapi_extra=body(QUESTION))(api.predict)
    app.get("/nodes/{id:any}")(api.node)
    app.delete("/nodes/{id:any}")(api.forget)
    app.get("/explain/{id:any}")(api.explain)
    app.get("/digest")(api.digest)
    app.get("/health")(api.health)
    app.get("/ready")(api.ready)
    app.get("/stats")(api.stats)
    app.get("/stream")(api.stream)
    app.post("/retrain")(api.retrain)
    add_page(app)

    @app.get("/metrics")
    async def metrics_page() -> Response:
        """Counts, latencies and sizes for Prometheus."""
        return Response(metrics.text(), media_type=metrics.media_type)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(page(app.openapi()))

    return app


async def _refused(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RefusedError)
    headers = {} if error.retry is None else {"retry-after": f"{error.retry:.0f}"}
    return JSONResponse({"error": error.reason}, error.status, headers)


async def _unknown(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)


async def _broken(_: Request, error: Exception) -> JSONResponse:
    """A file that cannot be written: nothing was taken, and it may be tried again."""
    LOG.error(json.dumps({"error": "file", "reason": type(error).__name__}))
    return JSONResponse({"error": str(error)}, 507, {"retry-after": "10"})


async def _failed(_: Request, error: Exception) -> JSONResponse:
    LOG.error(json.dumps({"error": type(error).__name__}))
    return JSONResponse({"error": "the service has failed; see its log"}, 500)

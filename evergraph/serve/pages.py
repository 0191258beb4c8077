"""The live page: its own files, and plotly's script as the package of that name ships it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, Response

from evergraph.serve.limits import RefusedError

FOLDER = Path(__file__).parent / "page"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
SCRIPT = "plotly.min.js"


def files() -> dict[str, Path]:
    """What a browser may load, by name."""
    found = {file.name: file for file in FOLDER.iterdir() if file.suffix in KINDS}
    spec = find_spec("plotly")
    if spec is not None and spec.origin is not None:
        found[SCRIPT] = Path(spec.origin).parent / "package_data" / SCRIPT
    return found


def add_page(app: FastAPI) -> None:
    """Answer `/` with the page, and `/static/NAME` with what it loads."""
    known = files()

    def send(name: str) -> Response:
        path = known.get(name)
        if path is None:
            raise RefusedError(404, "there is no such file")
        age = "max-age=86400" if name == SCRIPT else "no-cache"
        return FileResponse(path, headers={"cache-control": age}, media_type=KINDS[path.suffix])

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return send("index.html")

    @app.get("/static/{name}", include_in_schema=False)
    async def static(name: str) -> Response:
        return send(name)

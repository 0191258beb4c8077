"""Who may come in: tokens, hosts and origins; and one line of log for each request."""

from __future__ import annotations

import hmac
import ipaddress
import json
import logging
import time
from collections.abc import Callable, Collection
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOG = logging.getLogger("evergraph.serve")
OPEN = ("/", "/health", "/docs")  # need no token: they tell nothing about the graph
SHORTEST = 16  # characters of a token
LONGEST = 1 << 15  # bytes of all headers
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "content-security-policy": (
        "default-src 'self'; script-src 'self'; object-src 'none'; img-src 'self' data:; "
        "style-src 'self' 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
}


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def read_token(path: Path) -> str:
    """The token in a file; an error if it is too short or cannot be read."""
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"the token file {path} cannot be read ({error}); check it") from error
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable():
        raise ValueError(
            f"a token must have at least {SHORTEST} printable ASCII characters, got {len(token)} "
            f"in {path}; make one with: python -c 'import secrets; print(secrets.token_urlsafe())'"
        )
    return token


def check_exposure(host: str, token: str | None, tls: bool) -> None:
    """Refuse to be reached from elsewhere without a token and TLS."""
    if is_loopback(host):
        return
    missing = [name for name, there in (("--token-file", token), ("--tls-cert", tls)) if not there]
    if missing:
        raise ValueError(
            f"a host other than loopback needs a token and TLS, got --host {host} without "
            f"{' and '.join(missing)}; give them, or serve on 127.0.0.1 behind a proxy"
        )


class Guard:
    """Lets requests through that may come in, and writes a line of log for each.

    A browser must not be led here by another site: the host must be one that is served, and the
    origin, if there is one, the same. Logs hold no ids, names or values.

    Args:
        app: what answers.
        token: that requests must bring; None if none is needed.
        hosts: names that requests may use; empty allows all.
        observe: called with route, status and seconds of each request.
        static: paths below this one need no token.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str | None = None,
        hosts: Collection[str] = (),
        observe: Callable[[str, int, float], None] = lambda route, status, seconds: None,
        static: str = "/static/",
    ) -> None:
        self.app, self.hosts, self.static = app, frozenset(hosts), static
        self._observe = observe
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.monotonic(), 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *extra]
            await send(message)

        refusal = self._refusal(scope)
        try:
            if refusal is None:
                await self.app(scope, receive, noted)
            else:
                code, reason = refusal
                headers = {"www-authenticate": "Bearer"} if code == 401 else {}
                answer = JSONResponse({"error": reason}, code, headers)
                await answer(scope, receive, noted)
        finally:
            route = getattr(scope.get("route"), "path", None) or "other"
            seconds = time.monotonic() - start
            self._observe(route, status, seconds)
            line = {
                "time": round(time.time(), 3),
                "method": scope["method"] if len(scope["method"]) < 10 else "other",
                "route": route,
                "status": status,
                "ms": round(1000 * seconds, 1),
            }
            LOG.info(json.dumps(line))

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        if sum(len(name) + len(value) for name, value in scope["headers"]) > LONGEST:
            return 431, f"headers must have at most {LONGEST:,} bytes: send less of them"
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self.hosts and _name(host) not in self.hosts:
            return 421, "the host of the request is not served here; use the address it prints"
        origin = headers.get("origin")
        if origin is not None and _place(origin) != host:
            return 403, "requests from pages of other sites are refused"
        path = scope["path"]
        if self._token is None or path in OPEN or path.startswith(self.static):
            return None
        given = headers.get("authorization", "")
        kind, _, secret = given.partition(" ")
        same = hmac.compare_digest(secret.strip().encode("latin-1", "replace"), self._token)
        if kind.lower() != "bearer" or not same:
            return 401, "a token is needed: send the header Authorization: Bearer TOKEN"
        return None


def _place(origin: str) -> str:
    """Host and port of an origin; empty if it is none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _name(host: str) -> str:
    """A host without its port."""
    return host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host

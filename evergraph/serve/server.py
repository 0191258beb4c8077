"""A service on a socket: in this process until it is told to stop, or in a thread."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from evergraph.model import Settings
from evergraph.serve.app import create_app
from evergraph.serve.guard import LOG, check_exposure, is_loopback
from evergraph.serve.limits import Limits
from evergraph.serve.service import Service

__all__ = ["Address", "Server", "log_to_stderr"]

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
GRACE = 3  # seconds that open connections have at the end
COLLECT = 50_000, 20, 100  # objects before a collection: a block of events makes thousands
SWITCH = 0.0005  # seconds between threads: the default of 0.005 is what a prediction may wait


@dataclass(frozen=True)
class Address:
    """Where a service is.

    Attributes:
        host: name or address; anything but loopback needs a token and TLS.
        port: 0 takes a free one.
        token: that clients must bring.
        cert: file of the TLS certificate.
        key: file of its key.
    """

    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = None
    cert: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        """Reject what would be open to everybody."""
        if (self.cert is None) != (self.key is None):
            raise ValueError("TLS needs a certificate and its key: give --tls-cert and --tls-key")
        for file in (self.cert, self.key):
            if file is not None and not file.is_file():
                raise ValueError(f"a file of TLS must be there, got {file}; check its name")
        check_exposure(self.host, self.token, self.cert is not None)


class Patient(H11Protocol):
    """HTTP/1.1 that ends connections whose next request does not begin in time.

    A client must send all headers within so many seconds of connecting, or of the last answer, so
    that nobody keeps connections by a byte now and then.
    """

    seconds: ClassVar[float]
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to count."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Stop to count when the headers are there."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Count again, unless the next request is there already."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the time."""
        self._stop()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()
        elif self._timer is None and not self.transport.is_closing():
            self._timer = self.loop.call_later(self.seconds, self._late)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        """Say why, to whom has begun a request, and end the connection."""
        if self.conn.our_state is h11.IDLE and self.conn.trailing_data[0]:
            reason = f"the headers of a request must be there within {self.seconds:g} seconds"
            text = json.dumps({"error": reason}).encode()
            headers = [("content-type", "application/json"), ("connection", "close")]
            headers.append(("content-length", str(len(text))))
            for event in (
                h11.Response(status_code=408, headers=headers),
                h11.Data(data=text),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


class Server:
    """A service that listens.

    Args:
        path: the model folder; made by the first events if it is not there.
        address: where to listen.
        limits: bounds on what clients may do.
        settings: of a model that is made.

    Attributes:
        url: where it is, once it is made.
    """

    def __init__(
        self,
        path: Path | str,
        address: Address = Address(),  # noqa: B008
        limits: Limits = Limits(),  # noqa: B008
        settings: Settings = Settings(),  # noqa: B008
    ) -> None:
        self.service = Service(path, limits, settings, failed=_log_failure)
        local = is_loopback(address.host)
        hosts = (*LOOPBACK, address.host) if local else ()
        app = create_app(
            self.service, token=address.token, hosts=hosts,
            stopping=lambda: self._server.should_exit,
        )  # fmt: skip
        self._socket = _listen(address)
        port = self._socket.getsockname()[1]
        host = f"[{address.host}]" if ":" in address.host else address.host
        self.url = f"http{'s' if address.cert else ''}://{host}:{port}"
        protocol = type("Protocol", (Patient,), {"seconds": limits.seconds})
        config = uvicorn.Config(
            app, log_config=None, access_log=False, server_header=False, date_header=False,
            limit_concurrency=limits.connections, timeout_graceful_shutdown=GRACE, lifespan="on",
            ws="none", http=protocol, h11_max_incomplete_event_size=1 << 16,
            ssl_certfile=address.cert, ssl_keyfile=address.key,
        )  # fmt: skip
        self._server = uvicorn.Server(config)

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until SIGINT or SIGTERM; what waits is stored then.

        Args:
            ready: called when the model is open and connections are taken.
        """
        sys.setswitchinterval(SWITCH)
        # uvicorn raises the signal again at the end: SIGTERM must not come before all is saved
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with suppress(KeyboardInterrupt), self._opened():
            gc.freeze()  # a full collection takes .2 s, mostly for modules, and all wait for it
            gc.set_threshold(*COLLECT)
            ready()
            self._server.run([self._socket])

    @contextmanager
    def _opened(self) -> Iterator[None]:
        """The service, open; the socket is closed at the end."""
        try:
            self.service.start()
            try:
                yield
            finally:
                self.service.close()
        finally:
            self._socket.close()

    @contextmanager
    def background(self) -> Iterator[str]:
        """Serve in a thread while the block runs; yields the address."""
        thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="server", daemon=True
        )
        with self._opened():
            thread.start()
            try:
                while not self._server.started and thread.is_alive():
                    time.sleep(0.01)
                yield self.url
            finally:
                self._server.should_exit = True
                thread.join()


def _listen(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # With the protocol named, asyncio sends small answers at once (TCP_NODELAY).
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address.host, address.port))
        made.listen()
    except OSError as error:
        made.close()
        raise ValueError(
            f"cannot listen on {address.host}, port {address.port} ({error.strerror}); choose "
            "another --port"
        ) from error
    return made


def _log_failure(error: Exception) -> None:
    LOG.error('{"error": "%s"}', type(error).__name__)


def log_to_stderr() -> None:
    """Write a line of JSON for each request, and for what fails, to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Line())
    for name, level in ((LOG.name, logging.INFO), ("uvicorn", logging.WARNING)):
        log = logging.getLogger(name)
        log.addHandler(handler)
        log.setLevel(level)
        log.propagate = False


class _Line(logging.Formatter):
    """Our lines as they are; those of uvicorn without texts of errors, which may hold values."""

    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON."""
        if record.name == LOG.name:
            return record.getMessage()
        kind = record.exc_info[0] if record.exc_info else None
        line = {"time": round(record.created, 3), "level": record.levelname}
        text = record.getMessage()[:200] if kind is None else kind.__name__
        return json.dumps({**line, "message": text})

"""A service on loopback for tests, and requests as any client could send them."""

import http.client
import json
import socket
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from evergraph.serve.client import Client
from evergraph.serve.limits import Limits
from evergraph.serve.server import Address, Server

sys.path.insert(0, str(Path(__file__).parents[1] / "model"))
from small_models import SMALL, people

NODES, EDGES = people(160)
ROWS = [{name: column[k] for name, column in NODES.items()} for k in range(160)]
COLUMNS = [
    {"name": "age", "kind": "number"},
    {"name": "country", "kind": "category", "size": 64},
    {"name": "joined", "kind": "date"},
]
SCHEMA = {"type": "schema", "columns": COLUMNS}


def node(k, label=True):
    row = ROWS[k]
    return {"type": "node", **{n: v for n, v in row.items() if label or n != "label"}}


def edges():
    pairs = zip(*EDGES.values(), strict=True)
    return [{"type": "edge", "source": a, "target": b} for a, b in pairs]


def lines(events):
    return "".join(json.dumps(event) + "\n" for event in events).encode()


class Served:
    """A running service: `client` sends as users do, `send` anything at all."""

    def __init__(self, server, token=None):
        self.server, self.url, self.service = server, server.url, server.service
        self.client = Client(self.url, token, retries=3)
        parts = urlsplit(self.url)
        self.host, self.port = parts.hostname, parts.port

    def send(self, method, path, body=None, **headers):
        """Status, JSON (or bytes) and headers of an answer."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        try:
            return answer.status, json.loads(text), dict(answer.getheaders())
        except ValueError:
            return answer.status, text, dict(answer.getheaders())

    def raw(self, data, wait=True):
        """What comes back for bytes that need not be HTTP."""
        with socket.create_connection((self.host, self.port), timeout=10) as made:
            made.sendall(data)
            return made.recv(1 << 16) if wait else b""

    def until(self, test):
        """Wait until something is so."""
        for _ in range(500):
            if test():
                return
            time.sleep(0.02)
        raise AssertionError("it has not happened")

    def settle(self):
        """Wait until the classifier knows all events."""
        for _ in range(500):
            state = self.client.inspect()
            if state["version"] == state["position"]:
                return state
            time.sleep(0.02)
        raise AssertionError(f"the classifier does not follow: {state}")


@contextmanager
def serve(path, limits=None, token=None, settings=SMALL):
    server = Server(path, Address(token=token), limits or Limits(), settings)
    with server.background():
        made = Served(server, token)
        try:
            yield made
        finally:
            made.client.close()

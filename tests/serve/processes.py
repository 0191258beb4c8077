"""Services in processes of their own: started quickly, killed, without disk, with other clocks."""

import http.client
import json
import os
import resource
import socket
import sys
import threading
import time
import uuid
from pathlib import Path

sys.path += [str(Path(__file__).parents[1] / name) for name in ("cli", "model")]
import traced

PATIENCE = 120.0  # seconds until a request must have been answered
NO_LIMIT = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


class Nursery:
    """A process without threads that has imported everything, and makes services by forking.

    It must be made before this process has threads.

    Args:
        model: the model folder.
        said: the file for what services print.
        token: that clients must bring.
        limits: bounds on what clients may do, by their names.
    """

    def __init__(self, model, said, token=None, **limits):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.model, self.said, self.child = model, said, None
        self.token, self.limits = token, limits
        (own_read, their_write), (their_read, own_write) = os.pipe(), os.pipe()
        self._process = os.fork()
        if not self._process:
            os.close(own_read)
            os.close(own_write)
            self._nurse(their_read, their_write)
        os.close(their_read)
        os.close(their_write)
        self._orders, self._news = open(own_write, "w"), open(own_read)  # noqa: SIM115

    def _nurse(self, orders, news):
        """Start a service for each line that is read; the line is how far its clock is back."""
        with open(orders) as lines, open(news, "w") as told:
            for line in lines:
                child = traced.fork(lambda back=float(line): self._serve(back), self.said)
                told.write(f"{child}\n")
                told.flush()
                told.write(f"{traced.end(child)}\n")
                told.flush()
        os._exit(0)

    def _serve(self, back):
        from evergraph.serve.limits import Limits
        from evergraph.serve.server import Address, Server

        if back:
            now = time.time
            time.time = lambda: now() - back
        address = Address(port=self.port, token=self.token)
        Server(self.model, address, Limits(**self.limits)).run()

    def start(self, back=0.0):
        """Start a service, and wait until it answers."""
        self._orders.write(f"{back}\n")
        self._orders.flush()
        self.child = int(self._news.readline())
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
                return
            except OSError:
                time.sleep(0.01)
        raise AssertionError(f"the service does not start: {self.said.read_text()}")

    def end(self, signal=9):
        """Send a signal to the service; its exit code."""
        os.kill(self.child, signal)
        self.child = None
        return int(self._news.readline())

    def limit_files(self, size):
        """Let no file of the service grow beyond a size: as if the disk were full; None ends it."""
        limit = NO_LIMIT if size is None else (size, resource.RLIM_INFINITY)
        resource.prlimit(self.child, resource.RLIMIT_FSIZE, limit)

    def close(self):
        if self.child is not None:
            self.end()
        self._orders.close()
        os.waitpid(self._process, 0)
        self._news.close()


class Sender(threading.Thread):
    """Sends batches of events, each until it is acknowledged, with one key.

    Args:
        port: of the service.
        batches: lists of events.
        stop: ends it behind the batch that is under way.

    Attributes:
        sent: events that were acknowledged.
        statuses: how often each status was answered; 0 stands for no answer.
        wrong: answers that must not be.
    """

    def __init__(self, port, batches, stop):
        super().__init__(daemon=True)
        self.port, self.stop, self._batches = port, stop, batches
        self.sent, self.statuses, self.wrong = [], {}, []
        self.acknowledged = 0

    def run(self):
        for batch in self._batches:
            if self.stop.is_set():
                return
            body = "".join(json.dumps(event) + "\n" for event in batch).encode()
            answer = self._until_taken(body, uuid.uuid4().hex)
            if answer is None:
                self.wrong.append("a request was not answered in time")
                return
            self.sent += batch
            self.acknowledged += answer["accepted"]
            if answer["accepted"] != len(batch):
                self.wrong.append(f"refused: {json.dumps(answer)[:300]}")

    def _until_taken(self, body, key):
        headers = {"Idempotency-Key": key, "Content-Type": "application/x-ndjson"}
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            status, answer = ask(self.port, "POST", "/events", body, headers)
            self.statuses[status] = self.statuses.get(status, 0) + 1
            if status == 200:
                return answer
            if status not in (0, 429, 503, 507):
                self.wrong.append(f"status {status}: {answer}")
            time.sleep(0.02)
        return None


def ask(port, method, path, body=None, headers=None, timeout=30):
    """Status and JSON of an answer; 0 and None if there is none."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        link.request(method, path, body, headers or {})
        answer = link.getresponse()
        return answer.status, json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError):
        return 0, None
    finally:
        link.close()

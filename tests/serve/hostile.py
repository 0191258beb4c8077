"""A hostile client: malformed, huge, slow and cut-off requests, each refused with a reason.

python tests/serve/hostile.py 10000 [results/hostile.json]
"""

import gzip
import json
import os
import random
import select
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from urllib.parse import quote

import processes

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
import kill_learn

TOKEN = "a-token-of-enough-letters"
SECONDS = 1.0  # that a client may be silent
LIMITS = {"seconds": SECONDS, "body": 1 << 16, "line": 1 << 14, "block": 1 << 13, "nodes": 100}
CLIENTS = 8
NAMES = (
    "'; DROP TABLE node; --", "1 OR 1=1", "<script>alert(1)</script>", '"><img src=x onerror=y>',
    "../../etc/passwd", "..%2f..%2fetc%2fpasswd", "{{7*7}}", "${jndi:ldap://x}", "\u202eevil",
    "a\x00b", "%s%s%n", "__proto__", "=cmd|' /C calc'!A0", "\ud83d\ude00" * 3, "x" * 2000,
    "\ud800",
)  # fmt: skip
PATHS = (
    "/../../etc/passwd", "/nodes/../../etc/passwd", "/nodes/%2e%2e/%2e%2e/etc/passwd", "//etc",
    "/static/../model.json", "/static/%2e%2e/graph.sqlite", "/nodes/%00", "/explain/", "/nodes/",
    "/graph.sqlite", "/.git/config", "/nodes/..\\..\\x", "/metrics/../digest", "/nodes/%ff%fe",
    "/%2e%2e/%2e%2e/", "/events/../events", "/docs/../../x", "/;/admin", "/no?x=../../y",
)  # fmt: skip


def request(method, path, body=b"", token=TOKEN, host="127.0.0.1", length=None, **headers):
    """The bytes of a request."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close"]
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    named = {"content_length": str(len(body) if length is None else length), **headers}
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in named.items() if value]
    return "\r\n".join(lines).encode("utf-8", "surrogatepass") + b"\r\n\r\n" + body


def text(value):
    return json.dumps(value).encode()


def malformed(chance):
    """Lines that are no events."""
    good = text({"type": "node", "id": "new", "age": 3, "country": "de"})
    bad = (
        good[: chance.randrange(1, len(good))], b"[" * chance.randrange(1, 3000), b"null", b"7",
        good.replace(b"3", b"NaN"), good.replace(b'"new"', b"[1]"), good.replace(b"new", b"\xff"),
        good.replace(b"node", b"nodes"), good.replace(b"age", b"country"), b'{"type": "label"}',
        b'{"type": "node", "id": "n", "age": ' + b"[" * 900 + b"]" * 900 + b"}",
        text({"type": "node", "id": "n", "unknown": 1}), text({"type": "edge", "source": "u1"}),
        text({"type": "edge", "source": "u1", "target": "u2", "weight": -1}),
        text({"type": "node", "id": "n", "age": "old"}), text({"type": "node", "id": ""}),
        chance.randbytes(chance.randrange(1, 200)).replace(b"\n", b"") or b"x",
    )  # fmt: skip
    kind = chance.choice(("application/json", "application/x-ndjson", "text/plain", ""))
    return request("POST", "/events", chance.choice(bad), content_type=kind)


def huge(chance):
    """More than is allowed: of bytes, ids, nodes, and headers."""
    pick = chance.randrange(6)
    if pick == 0:
        return request("POST", "/predict", b" " * 70_000)
    if pick == 1:
        return request("POST", "/events", b"x" * 20_000)
    if pick == 2:
        return request("POST", "/predict", text({"ids": list(range(101))}))
    if pick == 3:
        return request("POST", "/predict", b"{", length=1 << 40)
    if pick == 4:
        return request("GET", "/health", x_long="y" * 100_000)
    return request("POST", "/label", text({"id": "x" * 5000, "label": "a"}))


def questions(chance):
    """Questions of the wrong form."""
    bad = (
        {}, {"ids": [], "nodes": []}, {"ids": "u1"}, {"ids": [None]}, {"ids": [["u1"]]},
        {"ids": ["u1"], "coverage": 7}, {"ids": ["u1"], "coverage": "x"}, {"ids": ["nobody"]},
        {"ids": ["u1"], "more": 1}, {"nodes": [7]}, {"nodes": [{"age": {"a": 1}}]},
        {"nodes": [{"age": "old"}]}, {"ids": ["u1"], "edges": [1]}, {"ids": {"a": 1}},
        {"ids": ["u1"], "edges": [{"source": "u1", "target": "nobody", "weight": "x"}]},
        {"nodes": [{"age": 1}], "edges": [{"source": 1}]},
    )  # fmt: skip
    return request("POST", "/predict", text(chance.choice(bad)))


def names(chance):
    """SQL, HTML and paths for ids and class names."""
    name = chance.choice(NAMES)
    short = quote(name.encode("utf-8", "surrogatepass"), safe="")[:3000]
    line = (
        {"type": "label", "id": name, "label": name}, {"type": "forget_node", "id": name},
        {"type": "delete_node", "id": name}, {"type": "node", "id": "n", name: name},
        {"type": name, "id": "u1"}, {"type": "forget_edge", "source": name, "target": name},
    )  # fmt: skip
    return chance.choice((
        request("GET", f"/nodes/{short}"), request("DELETE", f"/nodes/{short}"),
        request("GET", f"/explain/{short}"), request("GET", f"/explain/u1?label={short}"),
        request("POST", "/predict", text({"ids": [name]})),
        request("POST", "/events", text(chance.choice(line))),
        request("POST", "/label", text({"id": name, "label": name})),
    ))  # fmt: skip


def tokens(chance):
    """Tokens that are wrong, for anything."""
    wrong = chance.choice((None, "", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "é" * 20, "x" * 9000))
    method, path = chance.choice((("GET", "/digest"), ("POST", "/events"), ("GET", "/stats")))
    extra = {"authorization": f"Basic {TOKEN}"} if chance.random() < 0.2 else {}
    body = text({"type": "node", "id": "n"}) if method == "POST" else b""
    return request(method, path, body, None if extra else wrong, **extra)


def paths(chance):
    """Paths that lead nowhere, and methods that are not offered."""
    if chance.random() < 0.3:
        method = chance.choice(("PUT", "PATCH", "TRACE", "OPTIONS", "DELETE", "FOO", "CONNECT"))
        return request(method, chance.choice(("/events", "/predict", "/digest")))
    return request(chance.choice(("GET", "POST", "DELETE")), chance.choice(PATHS))


def headers(chance):
    """Compressed bodies, foreign hosts and origins, and keys that are none."""
    event = text({"type": "node", "id": "n", "age": 1})
    return chance.choice((
        request("POST", "/events", gzip.compress(bytes(1 << 20)), content_encoding="gzip"),
        request("POST", "/predict", gzip.compress(bytes(1 << 20)), content_encoding="gzip"),
        request("POST", "/events", event, content_encoding="br"),
        request("POST", "/events", event, host="evil.example"),
        request("POST", "/events", event, origin="http://evil.example"),
        request("POST", "/events", event, idempotency_key="k" * 300),
        request("POST", "/events", event, idempotency_key="\u00e9"),
        request("POST", "/events", event, idempotency_key="used before"),
    ))  # fmt: skip


def not_http(chance):
    """Bytes that are no request, and requests that say two things."""
    event = text({"type": "node", "id": "n", "age": 1})
    return chance.choice((
        chance.randbytes(chance.randrange(20, 500)) + b"\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\r\n\r\n", b"GET\r\n\r\n",
        request("POST", "/events", event, length="-1"), b"POST /events\r\n\r\n",
        request("POST", "/events", event, length="1, 2"), b"GET / HTTP/1.1\r\n: x\r\n\r\n",
        request("POST", "/events", event, transfer_encoding="gzip, chunked", content_length=None),
        request("POST", "/events", b"zz\r\nx\r\n", transfer_encoding="chunked",
                content_length=None),
    ))  # fmt: skip


def cut_off(chance):
    """The beginning of a request that would be good; there is nobody left to answer."""
    event = text({"type": "node", "id": "n", "age": 1})
    kind = chance.choice(("application/json", "application/x-ndjson"))
    whole = request("POST", "/events", event, length=len(event) + 50, content_type=kind)
    return whole[: chance.randrange(1, len(whole))]


def slow(chance):
    """A request whose body never ends."""
    path = chance.choice(("/events", "/predict", "/label"))
    return request("POST", path, text({"ids": ["u1"]})[: chance.randrange(1, 15)], length=5000)


def trickled(chance):
    """Headers that never end; more of them come while the client waits."""
    whole = request("GET", chance.choice(("/digest", "/health", "/stats")), x_more="y" * 50)
    return whole[: chance.randrange(1, len(whole) - 4)]


KINDS = {
    malformed: 25, huge: 10, questions: 12, names: 18, tokens: 10, paths: 10, headers: 5,
    not_http: 5, cut_off: 4, slow: 1, trickled: 1,
}  # fmt: skip


class Attack:
    """Requests from some clients at once, and what became of them."""

    def __init__(self, port, count, seed=0):
        self.port, self.count, self.seed = port, count, seed
        self.answers = {kind.__name__: Counter() for kind in KINDS}
        self.wrong, self._lock = [], threading.Lock()

    def run(self):
        threads = [threading.Thread(target=self._client, args=(k,)) for k in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _client(self, number):
        chance = random.Random(f"{self.seed} {number}")
        kinds, weights = list(KINDS), list(KINDS.values())
        for _ in range(number, self.count, CLIENTS):
            (kind,) = chance.choices(kinds, weights)
            data = kind(chance)
            status, wrong = self._send(data, kind is cut_off, kind is trickled)
            with self._lock:
                self.answers[kind.__name__][status] += 1
                if wrong and len(self.wrong) < 50:
                    self.wrong.append(f"{kind.__name__}: {wrong}; {data[:200]!r}")

    def _send(self, data, gone, trickles):
        """The status, and what is wrong with the answer."""
        answer = b""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as link:
            try:
                link.sendall(data)
                if gone:
                    return "gone", None
                if trickles:
                    _trickle(link)
                while part := link.recv(1 << 16):
                    answer += part
                    if len(answer) > 1 << 20:
                        return "endless", "an answer without an end"
            except ConnectionError:
                pass  # refused before all was sent: an answer may have been read
            except TimeoutError:
                return "none", "no answer in time"
        head, _, body = answer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 "):
            return "closed", None if len(data) > 1 << 16 else f"no answer: {answer[:80]!r}"
        status = int(head[9:12])
        return str(status), _fault(status, head.lower(), body)


def _trickle(link):
    """Send a letter now and then until there is an answer."""
    end = time.monotonic() + 20 * SECONDS
    while not select.select([link], [], [], SECONDS / 5)[0] and time.monotonic() < end:
        link.sendall(b"y")


def _fault(status, head, body):
    """What is wrong with an answer: it must be 4xx, with a reason, and no page."""
    if not 400 <= status < 500:
        return f"status {status}: {body[:200]!r}"
    if b"text/html" in head:
        return "an answer as a page"
    try:
        found = json.loads(body)
    except ValueError:
        return None if body and b"text/plain" in head else f"no reason: {body[:80]!r}"
    reasons = [found.get("error"), *(one["reason"] for one in found.get("refused", ()))]
    return None if any(reasons) else f"no reason: {found}"


def attack(folder, count, seed=0):
    """Attack a service with a token and small limits; what is wrong, and how all was answered."""
    folder.mkdir()
    model, path = kill_learn.prepare(folder, 300)
    nursery = processes.Nursery(model, folder / "said", TOKEN, **LIMITS)
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    try:
        nursery.start()
        key = {**bearer, "Idempotency-Key": "used before"}
        processes.ask(nursery.port, "POST", "/events", path.read_bytes(), key)
        before = _state(nursery, bearer)
        warm = Attack(nursery.port, max(count // 10, 20), seed + 1)
        warm.run()
        start, sizes = time.monotonic(), [sizes_of(nursery.child)]
        made = Attack(nursery.port, count - warm.count, seed)
        made.run()
        lasted = time.monotonic() - start
        time.sleep(2 * SECONDS)
        sizes.append(sizes_of(nursery.child))
        wrong = warm.wrong + made.wrong
        after = _state(nursery, bearer)
        if after != before:
            wrong.append(f"the state has changed: {before} and then {after}")
        if sizes[1]["descriptors"] > sizes[0]["descriptors"] + CLIENTS:
            wrong.append(f"descriptors are left: {sizes}")
        if nursery.end(15) != 0:
            wrong.append("the service did not end well")
        said = (folder / "said").read_text()
        if "Traceback" in said or '"RuntimeError"' in said:
            wrong.append(f"it has failed inside: {said[-1000:]}")
    finally:
        nursery.close()
    answers = {name: dict(sorted((part + warm.answers[name]).items()))
               for name, part in made.answers.items()}  # fmt: skip
    return {
        "requests": count, "seconds": lasted, "cells": answers, "before": sizes[0],
        "after": sizes[1], "failures": wrong,
    }  # fmt: skip


def _state(nursery, bearer):
    """Digest, position and counts, as a client with the token sees them."""
    found = processes.ask(nursery.port, "GET", "/digest", headers=bearer)
    stats = processes.ask(nursery.port, "GET", "/stats", headers=bearer)[1] or {}
    return found, {name: stats.get(name) for name in ("nodes", "edges", "classes", "position")}


def sizes_of(process):
    status = Path(f"/proc/{process}/status").read_text()
    (kilobytes,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
    descriptors = len(os.listdir(f"/proc/{process}/fd"))
    return {"resident_mb": int(kilobytes) / 1024, "descriptors": descriptors}


def main(count, out):
    from evergraph.evaluate.evidence import provenance

    evidence = {"schema": 2, **provenance()}
    with tempfile.TemporaryDirectory() as name:
        found = attack(Path(name) / "attack", count)
    config = {"clients": CLIENTS, "limits": LIMITS}
    result = {**evidence, "config": config, **found}
    print(json.dumps(found, indent=1))
    if out is not None:
        out.write_text(json.dumps(result, indent=1) + "\n")
    return len(found["failures"])


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    sys.exit(min(main(number, Path(sys.argv[2]) if len(sys.argv) > 2 else None), 1))

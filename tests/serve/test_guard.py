"""Who is let in, how much is taken, and what clients are told that ask for too much."""

import http.client
import json
import logging
import socket
import subprocess
import threading
import time
from contextlib import closing, suppress

import pytest
from served import SCHEMA, SMALL, lines, node, serve

from evergraph.serve.client import Client
from evergraph.serve.guard import is_loopback, read_token
from evergraph.serve.limits import Limits
from evergraph.serve.server import Address, Server

TOKEN = "a-token-of-enough-length"
FIRST = [SCHEMA, *(node(k) for k in range(64))]


def test_a_token_is_needed_where_there_is_one(tmp_path):
    with serve(tmp_path / "model", token=TOKEN) as made:
        for given in (
            None,
            "",
            "Bearer",
            f"Bearer {TOKEN}x",
            f"Basic {TOKEN}",
            f"Bearer {TOKEN[:-1]}",
        ):
            headers = {} if given is None else {"authorization": given}
            for method, path in (("GET", "/stats"), ("POST", "/events"), ("DELETE", "/nodes/p1")):
                status, found, told = made.send(method, path, **headers)
                assert (status, told["www-authenticate"]) == (401, "Bearer")
                assert TOKEN not in found["error"]
        assert made.send("GET", "/health")[0] == 200
        assert made.send("GET", "/stats", authorization=f"bearer {TOKEN}")[0] == 200
        assert made.client.learn(FIRST) == 64
        with pytest.raises(ValueError, match="a token is needed"), Client(made.url) as other:
            other.digest()


def test_other_sites_cannot_use_a_browser(tmp_path):
    with serve(tmp_path / "model") as made:
        made.client.learn(FIRST)
        own = f"{made.host}:{made.port}"
        assert made.send("GET", "/stats", origin=f"http://{own}")[0] == 200
        foreign = ("http://evil.example", "null", f"http://{own}.evil.example", "http://[")
        for origin in foreign:
            status, found, _ = made.send("POST", "/events", lines([node(70)]), origin=origin)
            assert (status, found["error"]) == (
                403,
                "requests from pages of other sites are refused",
            )
        assert made.send("GET", "/stats", host=f"localhost:{made.port}")[0] == 200
        assert made.send("GET", "/stats", host="evil.example")[0] == 421
        assert made.client.inspect()["position"] == 64
        headers = made.send("GET", "/stats")[2]
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'self'" in headers["content-security-policy"]


def test_the_world_needs_a_token_and_tls(tmp_path):
    for host in ("0.0.0.0", "192.168.1.7", "example.org", "::"):
        for token, words in ((None, "--token-file and --tls-cert"), (TOKEN, "without --tls-cert")):
            with pytest.raises(ValueError, match=words):
                Address(host, 0, token)
    with pytest.raises(ValueError, match="certificate and its key"):
        Address(cert=tmp_path / "c.pem")
    with pytest.raises(ValueError, match="must be there"):
        Address(cert=tmp_path / "c.pem", key=tmp_path / "k.pem")
    assert [is_loopback(host) for host in ("localhost", "127.0.0.9", "::1", "0.0.0.0", "a")] == [
        True, True, True, False, False
    ]  # fmt: skip
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    assert read_token(tmp_path / "token") == TOKEN
    (tmp_path / "token").write_text("short")
    with pytest.raises(ValueError, match="at least 16 printable ASCII characters, got 5"):
        read_token(tmp_path / "token")
    with pytest.raises(ValueError, match="cannot be read"):
        read_token(tmp_path / "nothing")


@pytest.fixture
def certificate(tmp_path):
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=tmp_path, capture_output=True, check=False,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("openssl cannot make a certificate here")
    return tmp_path / "cert.pem", tmp_path / "key.pem"


def test_tls_is_spoken(tmp_path, certificate):
    server = Server(tmp_path / "model", Address("0.0.0.0", 0, TOKEN, *certificate), settings=SMALL)
    with server.background() as url:
        port = url.rpartition(":")[2]
        local = f"https://localhost:{port}"
        with Client(local, TOKEN, cafile=str(certificate[0])) as client:
            assert client.learn(FIRST) == 64
        with pytest.raises(ConnectionError), Client(local, TOKEN, retries=0) as client:
            client.digest()  # the certificate is not trusted


def test_bodies_and_lines_have_limits(tmp_path):
    small = Limits(body=1000, line=500, block=400, refused=5, classes=2)
    with serve(tmp_path / "model", small) as made:
        made.client.learn(FIRST)
        digest = made.client.digest()
        long = json.dumps({"ids": ["x" * 1000]})
        for body in (long.encode(), iter([long.encode()])):  # with a length, and in chunks
            status, found, _ = made.send("POST", "/predict", body)
            assert (status, "at most 1,000 bytes" in found["error"]) == (413, True)
        wide = b'{"type": "node", "id": "' + b"x" * 2000
        status, found, _ = made.send("POST", "/events", wide)
        assert (status, found["error"]) == (413, "a line must have at most 500 bytes")
        status, found, _ = made.send("POST", "/events", b"{\n" * 1000)
        assert status == 422
        assert "more than 5 lines were refused" in found["error"]
        status, found, _ = made.send("POST", "/events", b"")
        assert (status, found["error"]) == (422, "events must be lines of JSON, got none")
        label = {"type": "label", "id": "p1", "label": "third"}
        status, found, _ = made.send("POST", "/events", lines([label]))
        assert status == 422
        assert "2 classes at the most" in found["refused"][0]["reason"]
        status, found, _ = made.send("POST", "/events", b"x", content_encoding="gzip")
        assert (status, "compressed" in found["error"]) == (415, True)
        assert made.client.digest() == digest
    for name in ("body", "queue", "seconds"):
        with pytest.raises(ValueError, match=f"the limit {name} must be positive, got 0"):
            Limits(**{name: 0})


def test_slow_clients_are_sent_away(tmp_path):
    with serve(tmp_path / "model", Limits(seconds=0.5)) as made:
        made.client.learn(FIRST)
        for path in ("/events", "/predict"):
            head = f"POST {path} HTTP/1.1\r\nHost: {made.host}\r\nContent-Length: 99\r\n\r\n{{"
            assert made.raw(head.encode()).startswith(b"HTTP/1.1 408 ")
        assert made.client.inspect()["position"] == 64


def test_a_full_queue_is_told_and_empties(tmp_path):
    with serve(tmp_path / "model", Limits(queue=3, commit=2)) as made:
        made.client.learn(FIRST)
        release = threading.Event()
        held = made.service.writer.call(lambda: release.wait(20))
        answers = []

        def send(k):
            answers.append(made.send("POST", "/events", lines([node(k)])))

        try:
            made.until(lambda: not made.service.writer._queue)
            threads = [threading.Thread(target=send, args=(k,)) for k in range(64, 67)]
            for thread in threads:
                thread.start()
            made.until(lambda: made.service.writer.waiting == 3)
            status, found, headers = made.send("POST", "/events", lines([node(80)]))
            assert (status, headers["retry-after"]) == (429, "1")
            assert "at most 3 events may wait, and 3 do" in found["error"]
            assert not answers  # nobody is told before it is stored
        finally:
            release.set()
        held.result(20)
        for thread in threads:
            thread.join()
        assert [status for status, *_ in answers] == [200] * 3
        assert made.client.learn([node(80)]) == 1  # the client waits and repeats by itself


def test_too_many_streams_are_refused(tmp_path):
    with serve(tmp_path / "model", Limits(streams=1)) as made:
        head = f"GET /stream HTTP/1.1\r\nHost: {made.host}\r\n\r\n".encode()
        with socket.create_connection((made.host, made.port), timeout=10) as one:
            one.sendall(head)
            assert b"event: history" in one.recv(4096) + one.recv(4096)
            assert made.send("GET", "/stream")[0] == 429
        made.until(lambda: b" 200 " in made.raw(head)[:20])


def test_names_are_never_trusted(tmp_path):
    nasty = [
        "'; DROP TABLE node; --", '<script>alert("x")</script>', "../../etc/passwd", "%2e%2e%2f",
        "a\nb", "\u202e", "{}", "null",
    ]  # fmt: skip
    with serve(tmp_path / "model") as made:
        made.client.learn(FIRST)
        made.client.learn(
            [{"type": "node", "id": name, "age": 3, "label": name} for name in nasty[:4]]
        )
        for name in nasty[4:]:
            made.client.learn([{"type": "node", "id": name, "age": 4, "label": "old"}])
        made.settle()
        for name in nasty:
            assert made.client.node(name)["id"] == name
            assert made.client.predict([name])[0].id == name
            assert made.client.explain(name).id == name
        page = made.send("GET", "/docs")[1] + made.send("GET", "/metrics")[1]
        assert b"<script" not in page
        assert made.client.inspect()["nodes"] == 64 + len(nasty)
        for path in ("/../etc/passwd", "/nodes/../../etc/shadow", "//", "/static/../x"):
            assert made.send("GET", path)[0] in (404, 421)


def test_logs_hold_no_values(tmp_path, caplog):
    with caplog.at_level(logging.INFO, "evergraph.serve"), serve(tmp_path / "model") as made:
        made.client.learn([SCHEMA, {"type": "node", "id": "zzidzz", "country": "zzlandzz"}])
        made.send("GET", "/nodes/zzidzz")
        made.send("POST", "/events", b'{"type": "node", "id": "zzidzz", "age": "zzagezz"}')
        made.send("GET", "/zzpathzz?zzqueryzz=1")
    lines = [json.loads(record.getMessage()) for record in caplog.records]
    assert len(lines) >= 4
    assert {line["route"] for line in lines} >= {"/events", "/nodes/{id:any}", "other"}
    assert "zz" not in caplog.text


@pytest.mark.parametrize(
    "data",
    [
        b"\x00" * 100,
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /events HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /events HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X: " + b"y" * 200_000,
    ],
    ids=["zeros", "version", "length", "chunk", "headers"],
)
def test_what_is_no_http_changes_nothing(tmp_path, data):
    with serve(tmp_path / "model") as made:
        made.client.learn(FIRST)
        with suppress(ConnectionError):
            assert b"HTTP/1.1 4" in made.raw(data)
        assert made.client.inspect()["position"] == 64


def test_headers_that_do_not_come_to_an_end_end_the_connection(tmp_path):
    with serve(tmp_path / "model", Limits(seconds=0.6)) as made:
        beginnings = (b"GET /health HTTP/1.1\r\nX: ", b"GET /health HTTP/1.1\r\nHost: x\r\n")
        for first in (b"", *beginnings):
            start = time.monotonic()
            assert _trickled(made, first, b"y" if first else b"") == (408 if first else None)
            assert 0.4 < time.monotonic() - start < 3
        whole = f"GET /health HTTP/1.1\r\nHost: {made.host}:{made.port}\r\n\r\n".encode()
        for _ in range(2):  # whoever has asked before gets no more time
            assert _trickled(made, whole + beginnings[0], b"y") == 408
        with closing(http.client.HTTPConnection(made.host, made.port, timeout=10)) as link:
            for _ in range(4):  # a connection that is used may last
                link.request("GET", "/health")
                assert json.loads(link.getresponse().read())["alive"]
                time.sleep(0.3)
            link.request("GET", "/stream")
            answer, end = link.getresponse(), time.monotonic() + 1.5  # as may an answer
            while time.monotonic() < end:
                assert answer.readline()


def _trickled(made, first, more):
    """The last status that a client gets who sends a byte now and then, until the end."""
    answer = b""
    address = made.host, made.port
    with socket.create_connection(address, timeout=0.1) as link, suppress(ConnectionError):
        link.sendall(first)
        for _ in range(100):
            try:
                part = link.recv(1 << 16)
            except TimeoutError:
                link.sendall(more)
                continue
            if not part:
                break
            answer += part
    found = [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]
    assert found[:-1] in ([], [200])
    return found[-1] if found else None

"""The client: the verbs of a model, and repeated requests that change nothing twice."""

import shutil
import socket
import subprocess
import sys
import threading
from contextlib import suppress

import pytest
from served import ROWS, SCHEMA, edges, node, serve

import evergraph
from evergraph.model import Model
from evergraph.serve.client import Client, RefusedEventsError


class Cutting:
    """A proxy that cuts connections: before the request, in the middle of it, or of the answer."""

    def __init__(self, port):
        self.target, self.count, self.open = port, 0, True
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while self.open:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.count += 1
            with client, socket.create_connection(("127.0.0.1", self.target)) as server:
                self.pass_on(client, server, self.count % 4)

    def pass_on(self, client, server, how):
        if how == 0:
            return
        request = b""
        client.settimeout(0.1)
        with suppress(TimeoutError):
            while part := client.recv(1 << 16):
                request += part
        server.sendall(request[: len(request) // 2] if how == 1 else request)
        if how == 1:
            return
        server.settimeout(5)
        answer = server.recv(1 << 16)
        server.settimeout(0.1)
        with suppress(TimeoutError):
            while part := server.recv(1 << 16):
                answer += part
        if how == 3:
            client.sendall(answer)

    def close(self):
        self.open = False
        self.listener.close()


def test_cut_connections_lose_nothing_and_repeat_nothing(tmp_path):
    with serve(tmp_path / "model") as made:
        proxy = Cutting(made.port)
        try:
            with Client(f"http://127.0.0.1:{proxy.port}", retries=8) as client:
                assert client.learn([SCHEMA, *(node(k) for k in range(64))]) == 64
                assert client.learn([node(k) for k in range(64, 100)]) == 36
                client.learn([node(100, label=False)])
                made.settle()
                assert client.predict(["p3"]) == made.client.predict(["p3"])
                client.label("p100", "old")
        finally:
            proxy.close()
        assert proxy.count > 10
        stats = made.client.inspect()
        assert (stats["position"], stats["nodes"]) == (102, 101)
        assert stats["prequential"]["scored"] == 1


def test_the_verbs_are_those_of_a_model(tmp_path):
    verbs = {
        name for name in vars(Model)
        if not name.startswith("_") and name not in {
            "train", "create", "at", "open", "store", "graph", "schema", "settings", "save",
            "refit", "merge", "unmerge", "compact",
        }
    }  # fmt: skip
    assert verbs <= set(dir(evergraph.Client))
    rows = [dict(row) for row in ROWS[:80]]
    links = [{key: edge[key] for key in ("source", "target")} for edge in edges()[:40]]
    model = Model.train(tmp_path / "one", rows, links, settings=evergraph.Settings(landmarks=16))
    model.close()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    with evergraph.open(tmp_path / "one") as model, serve(tmp_path / "two") as made:
        for each in (model, made.client):
            each.learn([node(k) for k in range(80, 90)])
            each.learn_one({"id": "ann", "age": 40}, "old")
            each.forget(nodes=["p2"], labels=["p5"])
        made.settle()
        assert made.client.digest() == model.digest()
        for ids in (["ann", "p5"], [{"age": 30, "country": "de"}]):
            assert made.client.predict(ids) == model.predict(ids)


def test_refused_events_are_named(tmp_path):
    with serve(tmp_path / "model") as made:
        made.client.learn([SCHEMA, *(node(k) for k in range(64))])
        many = [*({"type": "node", "id": k} for k in range(1500)), {"type": "soon"}]
        with pytest.raises(RefusedEventsError, match=r"event 1501: 'type'") as error:
            made.client.learn(many)
        assert error.value.accepted == 1500
        assert error.value.refused[0][0] == 1501
        with pytest.raises(RefusedEventsError, match="no node 'nobody'"):
            made.client.label("nobody", "old")
        with pytest.raises(ValueError, match=r"there is no node 'nobody'.*status 404"):
            made.client.predict(["nobody"])


def test_a_service_that_is_not_there_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ConnectionError, match=f"127.0.0.1:{port} does not answer"):
        Client(f"http://127.0.0.1:{port}", retries=1).digest()
    with pytest.raises(ValueError, match="the url must be like"):
        Client("127.0.0.1:8000")


def test_a_client_imports_nothing_heavy():
    code = (
        "import sys, evergraph\nevergraph.Client('http://127.0.0.1:1')\n"
        "print([n for n in ('torch', 'numpy', 'fastapi', 'scipy') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

"""Events through a service: durable, in any grouping, once; refused lines are named."""

import json
import random
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from served import COLUMNS, ROWS, SCHEMA, SMALL, edges, lines, node, serve

import evergraph
from evergraph.datasets.schema import Schema
from evergraph.model import Model
from evergraph.serve.limits import Limits

EVENTS = [*(node(k) for k in range(100)), *edges()[:80]]


@pytest.fixture
def service(tmp_path):
    with serve(tmp_path / "model") as made:
        yield made


def direct(path, events):
    """The model that takes the same events without a service."""
    text = json.dumps({"version": 1, "columns": COLUMNS})
    with Model.create(path, Schema.from_json(text), settings=SMALL) as model:
        seen = 0
        for event in events:
            model.learn([event])
            if len(model.graph) == 64 and not seen:
                seen = 1
                model.refit()
        return model.digest()


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return direct(tmp_path_factory.mktemp("direct") / "model", EVENTS)


def test_one_object_and_lines_are_taken(service):
    body = json.dumps(SCHEMA | {}, indent=2)
    status, found, _ = service.send("POST", "/events", body, content_type="application/json")
    assert (status, found["accepted"], found["lines"]) == (200, 0, 1)
    status, found, _ = service.send(
        "POST", "/events", json.dumps(node(0), indent=1), content_type="application/json"
    )
    assert (status, found["accepted"], found["position"]) == (200, 1, 1)
    status, found, _ = service.send("POST", "/events", lines([node(1), node(2)]))
    assert (status, found) == (
        200, {"accepted": 2, "lines": 2, "refused": [], "position": 3, "version": found["version"]}
    )  # fmt: skip


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_groups_of_any_size_give_one_digest(tmp_path, reference, size):
    with serve(tmp_path / "model") as made:
        for start in range(0, len(EVENTS), size):
            part = EVENTS[start : start + size]
            status, found, _ = made.send(
                "POST", "/events", lines([SCHEMA, *part] if not start else part)
            )
            assert (status, found["accepted"]) == (200, len(part))
        assert made.client.digest() == reference
    with evergraph.open(tmp_path / "model") as model:
        assert model.digest() == reference
        assert model.store.position == len(EVENTS)


def test_many_clients_at_once_lose_nothing(tmp_path, reference):
    rng = random.Random(0)
    first, rest = EVENTS[:64], EVENTS[64:]
    rng.shuffle(rest)  # edges wait for their nodes: any order gives one digest
    with serve(tmp_path / "model") as made:
        made.client.learn([SCHEMA, *first])
        answers = []

        def work(part):
            sent = (made.send("POST", "/events", lines([event])) for event in part)
            answers.extend(found["accepted"] for _, found, _ in sent)

        threads = [threading.Thread(target=work, args=(rest[k::4],)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == [1] * len(rest)
        assert made.client.digest() == reference
        assert made.client.inspect()["position"] == len(EVENTS)


def test_a_restart_reaches_the_same_digest_and_record(tmp_path):
    with serve(tmp_path / "model") as made:
        made.client.learn([SCHEMA, *EVENTS])
        made.client.learn([node(k, label=False) for k in range(100, 110)])
        made.settle()
        made.client.predict(["p100", "p101"])
        made.client.learn_one({"id": "p111", "age": 3})
        digest, before = made.client.digest(), made.client.inspect()
    with serve(tmp_path / "model") as made:
        assert made.client.digest() == digest
        again = made.client.inspect()
        for name in ("position", "nodes", "edges", "classes", "confusion"):
            assert again[name] == before[name]
        scored = [made.client.label(f"p{k}", ROWS[k]["label"]) for k in range(100, 110)]
        assert all(one["truth"] == ROWS[k]["label"] for k, one in enumerate(scored, 100))
        assert made.client.inspect()["prequential"]["scored"] == 10
        assert made.client.label("p100", "other") is None  # it has a label already


def test_every_refused_line_is_named(service):
    service.client.learn([SCHEMA, *EVENTS])
    digest = service.client.digest()
    bad = [
        b"{",
        b"[]",
        b'{"type": "soon"}',
        b'{"type": "node"}',
        b'{"type": "node", "id": 1.5}',
        b'{"type": "node", "id": "x", "age": "old"}',
        b'{"type": "node", "id": "x", "height": 3}',
        b'{"type": "edge", "source": "p1", "target": "p2", "weight": -1}',
        b'{"type": "label", "id": "nobody", "label": "old"}',
        b'{"type": "delete_node", "id": "nobody"}',
        b'{"type": "forget_edge", "source": "p1", "target": "nobody"}',
        b'{"type": "node", "id": "x", "age": ' + b"[" * 2000 + b"]" * 2000 + b"}",
        b'{"type": "node", "id": "' + b"x" * 1025 + b'"}',
        b'{"type": "node", "id": "x", "age": NaN}',
        b"\xff\xfe",
        json.dumps({"type": "schema", "columns": COLUMNS}).encode(),  # only the first line
    ]
    status, found, _ = service.send("POST", "/events", b"\n".join(bad))
    assert status == 422
    assert [one["line"] for one in found["refused"]] == list(range(1, len(bad) + 1))
    assert all(one["reason"] for one in found["refused"])
    assert service.client.digest() == digest
    good = b'{"type": "node", "id": "x", "age": 4}'
    status, found, _ = service.send("POST", "/events", b"\n".join([bad[0], good, bad[5]]))
    assert (status, found["accepted"]) == (200, 1)
    assert [one["line"] for one in found["refused"]] == [1, 3]
    assert service.client.inspect()["counts"]["refused"] == len(bad) + 2


def test_the_first_events_make_the_model(tmp_path):
    with serve(tmp_path / "model") as made:
        status, found, _ = made.send("POST", "/events", lines([{"type": "label", "id": 1}]))
        assert status == 409
        assert "begin with a line" in found["error"]
        status, found, _ = made.send("POST", "/events", lines([{**SCHEMA, "columns": [{}]}]))
        assert status == 422
        assert "a column of a schema must have" in found["error"]
        assert not (tmp_path / "model" / "model.json").exists()
        assert made.send("GET", "/ready")[1]["model"] is False
        assert made.send("POST", "/predict", '{"ids": ["p1"]}')[0] == 409
        made.client.learn([node(k) for k in range(70)])  # kinds are inferred
        assert (
            made.service.model.schema.columns
            == Schema.from_json(json.dumps({"version": 1, "columns": COLUMNS})).columns
        )
        other = {"type": "schema", "columns": COLUMNS[:1]}
        status, found, _ = made.send("POST", "/events", lines([other, node(71)]))
        assert found["refused"][0]["line"] == 1
        assert "another schema" in found["refused"][0]["reason"]


def test_a_key_makes_a_request_safe_to_repeat(service):
    service.client.learn([SCHEMA, *EVENTS])
    body = lines([node(k) for k in range(100, 105)]) + b"{\n"
    first = service.send("POST", "/events", body, idempotency_key="k1")
    assert first[1]["accepted"] == 5
    again = service.send("POST", "/events", body, idempotency_key="k1")
    assert again[:2] == (first[0], {**first[1], "version": again[1]["version"]})
    assert service.client.inspect()["position"] == len(EVENTS) + 5
    status, found, _ = service.send("POST", "/events", body.swapcase(), idempotency_key="k1")
    assert (status, found["error"]) == (422, "the key was used for other events: take a new one")
    more = service.send("POST", "/events", body + lines([node(106)]), idempotency_key="k1")
    assert more[1]["accepted"] == 6  # what was cut off is sent again, longer
    for key in ("", "x" * 201):
        assert service.send("POST", "/events", body, idempotency_key=key)[0] == 422


def test_a_request_that_was_cut_off_resumes_behind_what_is_stored(tmp_path):
    small = Limits(block=2000)
    body = lines(EVENTS)
    with serve(tmp_path / "model", small) as made:
        made.client.learn([SCHEMA, *EVENTS[:64]])
        head = (
            f"POST /events HTTP/1.1\r\nHost: {made.host}\r\nIdempotency-Key: cut\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode()
        with socket.create_connection((made.host, made.port)) as cut:
            cut.sendall(head + body[:9000])
            made.until(lambda: made.service.progress("cut").result()[0].lines > 20)
        done = made.service.progress("cut").result()[0]
        assert done.lines < len(EVENTS)
        status, found, _ = made.send("POST", "/events", body, idempotency_key="cut")
        assert (status, found["accepted"], found["lines"]) == (200, len(EVENTS), len(EVENTS))
        assert made.client.inspect()["position"] == 64 + len(EVENTS)


def test_slow_lines_are_learned_before_the_request_ends(service):
    service.client.learn([SCHEMA, *EVENTS])
    head = f"POST /events HTTP/1.1\r\nHost: {service.host}\r\nContent-Length: 100000\r\n\r\n"
    connection = socket.create_connection((service.host, service.port))
    try:
        connection.sendall(head.encode() + lines([node(120)]))
        service.until(lambda: service.client.inspect()["position"] == len(EVENTS) + 1)
        assert service.send("GET", "/nodes/p120")[0] == 200
    finally:
        connection.close()


def test_a_trained_model_is_served_as_it_is(tmp_path):
    rows = [dict(row) for row in ROWS[:100]]
    with Model.train(tmp_path / "model", rows, settings=SMALL) as model:
        digest, found = model.digest(), model.predict(["p3"])
    with serve(tmp_path / "model") as made:
        assert made.client.digest() == digest
        assert made.client.predict(["p3"]) == found
        made.client.learn([node(k) for k in range(100, 130)])
    with evergraph.open(tmp_path / "model") as model:
        assert model.store.history.first == 100
        with Model.at(tmp_path / "model", tmp_path / "then", offset=100) as then:
            assert then.digest() == digest


@pytest.mark.parametrize("learner", ["network", "both"])
def test_a_network_can_be_served(tmp_path, learner):
    settings = evergraph.Settings(landmarks=4, held_out=4, learner=learner, memory=20)
    rows = [dict(row) for row in ROWS[:60]]
    Model.train(tmp_path / "model", rows, settings=settings).close()
    with serve(tmp_path / "model") as made:
        made.client.learn([node(k) for k in range(60, 80)])
        made.settle()
        found, digest = made.client.predict(["p3"]), made.client.digest()
    with evergraph.open(tmp_path / "model") as model:
        assert model.digest() == digest
        assert model.predict(["p3"])[0].label == found[0].label


def test_two_requests_with_one_key_at_once_are_stored_once(service):
    service.client.learn([SCHEMA, *EVENTS])
    release = threading.Event()
    service.service.writer.call(lambda: release.wait(20))
    body = lines([node(k) for k in range(100, 120)])
    with ThreadPoolExecutor(4) as pool:
        sent = [
            pool.submit(service.send, "POST", "/events", body, idempotency_key="twice")
            for _ in range(4)
        ]
        time.sleep(0.5)  # all of them have asked how far the request is
        release.set()
        answers = [one.result() for one in sent]
    assert {status for status, *_ in answers} <= {200, 503}
    for status, found, headers in answers:
        assert found["accepted"] == 20 if status == 200 else headers["retry-after"] == "1"
    assert service.client.inspect()["position"] == len(EVENTS) + 20
    assert service.send("POST", "/events", body, idempotency_key="twice")[1]["accepted"] == 20


def test_what_could_not_be_stored_is_remembered_until_it_can(service):
    service.client.learn([SCHEMA, *EVENTS, node(120, label=False)])
    service.settle()
    service.client.predict(["p120"])

    def pages(most):
        file = service.service.model.store._file.connection
        return file.execute(f"PRAGMA max_page_count = {most}").fetchone()

    service.service.writer.call(lambda: pages(1)).result(20)  # not more than there are
    wide = [{"type": "node", "id": "x" * 1000 + str(k)} for k in range(200)]
    status, found, _ = service.send("POST", "/events", lines(wide))
    assert (status, "free some space" in found["error"]) == (507, True)
    service.service.writer.call(lambda: pages(2**30)).result(20)
    assert list(service.service.asked.take()) == ["p120"]

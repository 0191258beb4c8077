"""Questions to a service: the answers of the model, at any time, and of which version."""

import json
import shutil
import socket
import threading
import time

import pytest
from served import ROWS, SCHEMA, edges, node, serve

import evergraph

KNOWN = [*(node(k) for k in range(120)), *edges()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model folder that was made by a service."""
    place = tmp_path_factory.mktemp("served") / "model"
    with serve(place) as made:
        made.client.learn([SCHEMA, *KNOWN])
    return place


@pytest.fixture
def service(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "model")
    with serve(tmp_path / "model") as made:
        yield made


def test_answers_are_those_of_the_model(service, folder):
    with evergraph.open(folder) as model:
        ids = [f"p{k}" for k in range(20)]
        assert service.client.predict(ids) == model.predict(ids)
        new = [{"id": "new", "age": 44.0, "country": "fr"}, {"id": "p3", "age": 20.0}]
        links = [{"source": "new", "target": "p1"}, {"source": "new", "target": "p3"}]
        assert service.client.predict(new, links) == model.predict(new, links)
        assert service.client.predict(["p1"], coverage=0.5) == model.predict(["p1"], coverage=0.5)
        found = service.client.predict_proba(ids)
        assert [list(one.values()) for one in found] == model.predict_proba(ids).tolist()
        assert service.client.predict_one("p1") == model.predict_one("p1")
        assert service.client.predict_proba_one("p1") == model.predict_proba_one("p1")
        assert service.client.classes == model.classes
        one, two = service.client.explain("p1"), model.explain("p1")
        assert one == two
        assert service.client.explain("p1", "old") == model.explain("p1", "old")
        assert service.client.digest() == model.digest()


def test_an_answer_names_its_version(service):
    position = service.client.inspect()["position"]
    status, found, _ = service.send("POST", "/predict", '{"ids": ["p1", "p2"]}')
    assert (status, found["version"], found["position"]) == (200, position, position)
    assert [one["id"] for one in found["predictions"]] == ["p1", "p2"]
    for one in found["predictions"]:
        assert sum(one["probabilities"].values()) == pytest.approx(1)
        assert one["probabilities"][one["class"]] == one["probability"]
        assert one["class"] in one["label_set"]
    service.client.learn([node(k) for k in range(120, 140)])
    service.settle()
    assert service.send("POST", "/predict", '{"ids": ["p1"]}')[1]["version"] == position + 20


def test_what_was_acknowledged_is_known_at_once(service):
    for k in range(120, 130):
        service.client.learn([node(k, label=False)])
        assert service.client.predict([f"p{k}"])[0].id == f"p{k}"
        assert service.client.node(f"p{k}")["features"]["age"] == ROWS[k]["age"]


def test_questions_do_not_wait_for_the_writer(service):
    release = threading.Event()
    held = service.service.writer.call(lambda: release.wait(20))
    try:
        time.sleep(0.1)  # the writer is busy now, as with a long transaction
        assert service.client.predict(["p1"])[0].id == "p1"
        assert service.client.explain("p1").id == "p1"
        assert service.client.node("p1")["id"] == "p1"
        assert service.send("GET", "/ready")[0] == 200
        assert not held.done()
    finally:
        release.set()
    held.result(20)


def test_answers_while_events_come_are_of_one_version(service):
    stop = threading.Event()
    seen, failures = set(), []

    def ask():
        while not stop.is_set():
            status, found, _ = service.send("POST", "/predict", '{"ids": ["p1", "p50"]}')
            if status != 200 or found["version"] > found["position"]:
                failures.append(found)
            seen.add(found["version"])

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for k in range(120, 160):
        service.client.learn([node(k), {"type": "edge", "source": "p1", "target": f"p{k}"}])
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(seen) > 1


def test_a_label_scores_the_prediction_that_was_made(service):
    service.client.learn([node(k, label=False) for k in range(120, 124)])
    asked = {one.id: one.label for one in service.client.predict(["p120", "p121"])}
    wrong = {"old": "young", "young": "old"}
    assert service.client.label("p120", wrong[asked["p120"]]) == {
        "id": "p120", "predicted": asked["p120"], "truth": wrong[asked["p120"]]
    }  # fmt: skip
    # what was remembered counts, even if the model would say something else by now
    features = {"age": 99.0 if asked["p121"] == "young" else 1.0, "country": "it"}
    service.client.learn([{"type": "node", "id": "p121", **features}])
    assert service.client.label("p121", asked["p121"])["predicted"] == asked["p121"]
    assert service.client.label("p122", "old")["truth"] == "old"  # predicted on arrival
    stats = service.client.inspect()
    assert stats["prequential"]["scored"] == 3
    matrix = stats["confusion"]
    assert sum(map(sum, matrix["counts"])) == 3
    status, found, _ = service.send("POST", "/label", '{"id": "nobody", "label": "old"}')
    assert (status, found["accepted"]) == (422, 0)
    assert "no node 'nobody'" in found["refused"][0]["reason"]


def test_explanations_sum_to_the_score(service):
    for name in ("p1", "p77"):
        status, found, _ = service.send("GET", f"/explain/{name}")
        assert status == 200
        for parts, rest in (("neighbors", "other_neighbors"), ("features", "other_features")):
            total = found["bias"] + found[rest] + sum(one["part"] for one in found[parts])
            assert total == pytest.approx(found["score"], abs=1e-9)
    assert service.send("GET", "/explain/nobody")[0] == 404
    status, found, _ = service.send("GET", "/explain/p1?label=nothing")
    assert status == 422
    assert "one that was learned" in found["error"]


def test_forgetting_gives_the_model_that_never_saw_the_node(service, tmp_path, folder):
    before = service.client.digest()
    service.client.learn([{"type": "node", "id": "zzguestzz", "age": 3, "label": "zzclasszz"}])
    service.client.learn([{"type": "edge", "source": "zzguestzz", "target": "p1"}])
    service.settle()
    service.client.predict(["zzguestzz"])
    assert "zzclasszz" in service.client.classes
    status, found, _ = service.send("DELETE", "/nodes/zzguestzz")
    assert status == 200
    assert found["digest"]["after"] == before != found["digest"]["before"]
    assert service.send("GET", "/nodes/zzguestzz")[0] == 404
    assert service.send("POST", "/predict", '{"ids": ["zzguestzz"]}')[0] == 404
    assert service.send("DELETE", "/nodes/zzguestzz")[0] == 404
    service.client.forget(edges=[pairs()[0]])
    base = service.send("DELETE", "/nodes/p7")[1]  # statistics and landmarks change
    shutil.copytree(folder, tmp_path / "copy")
    with evergraph.open(tmp_path / "copy") as model:
        model.forget(nodes=["p7"], edges=[pairs()[0]])
        assert model.digest() == base["digest"]["after"]
    service.client.close()
    for file in (tmp_path / "model").iterdir():
        assert b"zz" not in file.read_bytes(), file


def pairs():
    return [(edge["source"], edge["target"]) for edge in edges()]


def test_a_node_is_shown_with_its_neighbors(service):
    found = service.client.node("p1")
    near = {b if a == "p1" else a for a, b in pairs() if "p1" in (a, b) and a != b}
    assert {one["id"] for one in found["neighbors"]} == {
        name for name in near if int(name[1:]) < 120
    }
    assert found["degree"] == len(found["neighbors"])
    assert found["label"] == ROWS[1]["label"]
    service.client.learn([{"type": "node", "id": "a/b?c=<d> \u00e4", "age": 1}])
    assert service.client.node("a/b?c=<d> \u00e4")["id"] == "a/b?c=<d> \u00e4"
    service.client.learn([{"type": "node", "id": "7", "age": 1}])
    assert service.client.node(7)["id"] == 7


@pytest.mark.parametrize(
    ("question", "status", "words"),
    [
        ("{}", 422, "needs ids, or nodes"),
        ('{"ids": [], "nodes": []}', 422, "needs ids, or nodes"),
        ('{"ids": "p1"}', 422, "ids must be a list"),
        ('{"ids": [1.5]}', 422, "an id must be"),
        ('{"ids": ["nobody"]}', 404, "no node 'nobody'"),
        ('{"ids": ["p1"], "color": 1}', 422, "has ids, nodes, edges, coverage, remember only"),
        ('{"ids": ["p1"], "coverage": 0}', 422, "coverage must be above 0"),
        ('{"ids": ["p1"], "coverage": "much"}', 422, "coverage must be a number"),
        ('{"nodes": [3]}', 422, "nodes must be objects"),
        ('{"nodes": [{"age": "old"}]}', 422, "a number"),
        ('{"nodes": [{"height": 3}]}', 422, "a column must be in the schema"),
        ('{"nodes": [{"age": 3}], "edges": [{"source": "p1"}]}', 422, "target"),
        (json.dumps({"ids": ["p1"] * 1001}), 422, "at most 1,000, got 1,001"),
        ('{"ids": ["p1"]', 422, "must be JSON"),
        ('{"ids": ["p1"], "ids": ["p2"]}', 422, "occurs twice"),
        ("[" * 100_000, 422, "nested too deeply"),
    ],
)
def test_bad_questions_are_refused(service, question, status, words):
    found = service.send("POST", "/predict", question)
    assert (found[0], words in found[1]["error"]) == (status, True), found


def test_the_state_is_told(service):
    assert service.send("GET", "/health")[1]["alive"] is True
    status, ready, _ = service.send("GET", "/ready")
    assert (status, ready["ready"], ready["model"]) == (200, True, True)
    service.client.predict(["p1", "p2"])
    status, text, headers = service.send("GET", "/metrics")
    assert headers["content-type"].startswith("text/plain")
    names = dict(line.rsplit(" ", 1) for line in text.decode().splitlines() if line[0] != "#")
    assert float(names["evergraph_predictions_total"]) == 2
    assert float(names["evergraph_nodes"]) == 120
    assert float(names['evergraph_requests_total{route="/predict",status="200"}']) == 1
    assert "p1" not in text.decode()
    status, text, headers = service.send("GET", "/docs")
    assert (status, b"POST /events" in text, b"<script" in text) == (200, True, False)
    assert service.send("GET", "/openapi.json")[1]["paths"].keys() >= {"/events", "/predict"}
    assert service.send("GET", "/nothing")[:2] == (404, {"error": "Not Found"})
    assert service.send("PUT", "/events")[0] == 405


def test_the_stream_sends_curves_and_states(service):
    names = [f"p{k}" for k in range(120, 130)]
    service.client.learn([node(k, label=False) for k in range(120, 130)])
    service.client.predict(names)
    service.client.learn([{"type": "label", "id": name, "label": "old"} for name in names])
    head = f"GET /stream HTTP/1.1\r\nHost: {service.host}\r\n\r\n".encode()
    events = {}
    made = socket.create_connection((service.host, service.port), timeout=10)
    with made, made.makefile("rb") as file:
        made.sendall(head)
        while events.get("stats", {}).get("counts", {}).get("scored") != 10:
            line = file.readline().decode()
            if line.startswith("event: "):
                events[line[7:].strip()] = json.loads(file.readline().decode()[6:])
    stats = events["stats"]
    assert isinstance(events["history"], list)
    assert stats["prequential"]["scored"] == 10
    assert set(stats["prequential"]["classes"]) == {"old"}
    assert stats["classes"]["old"] + stats["classes"]["young"] == 130
    assert stats["memory_bytes"] > 0
    assert stats["latency_ms"]["events"]["p50"] > 0
    assert 0 <= stats["novelty"]["mean"] <= 1
    assert stats["drift"]["alarms"] == 0


def test_a_change_that_is_found_again_is_one_alarm():
    from evergraph.model.record import Scored
    from evergraph.serve.monitor import Monitor

    monitor, right = Monitor(), Scored("a", "x", "x")
    for predicted in ("x", "y", "x"):
        monitor.took(1000, 0, [right._replace(predicted=predicted)] * 1000, 0)
    found = monitor.stats({})["drift"]
    assert [one["kind"] for one in found["last"]] == ["error", "error"]
    assert found["alarms"] == 2
    rose, fell = found["last"]
    assert rose["before"] < 0.1
    assert rose["after"] > 0.9 > fell["after"]
    assert fell["before"] > fell["after"]

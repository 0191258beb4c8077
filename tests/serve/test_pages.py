"""The files of the live page: who may load them, what they may do, and that the wheel has them."""

import re
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from zipfile import ZipFile

import pytest
from served import SCHEMA, edges, lines, node, serve

from evergraph.serve.pages import FOLDER, SCRIPT, files

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-of-enough-length"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("served") / "model", token=TOKEN) as made:
        made.client.learn([SCHEMA, *(node(k) for k in range(120)), *edges()[:80]])
        yield made


def test_the_page_needs_no_token_and_loads_nothing_from_elsewhere(service):
    status, text, headers = service.send("GET", "/")
    page = text.decode()
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "unsafe-eval" not in policy
    loaded = re.findall(r'(?:src|href)="([^"#]+)"', page)
    assert {name for name in loaded if not name.startswith("/static/")} == {"/docs"}
    assert "<script>" not in page
    for name in (*(name for name in loaded if name != "/docs"), "/static/node.js"):
        assert service.send("GET", name)[0] == 200, name
    for file in FOLDER.glob("*.js"):
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|https?://(?!www.w3)", file.read_text()
        )


def test_only_known_files_are_sent(service):
    for name in ("nothing.js", "..%2Fguard.py", "../guard.py", "%2e%2e/guard.py", "page", "a/b"):
        status, text, _ = service.send("GET", f"/static/{name}", authorization=f"Bearer {TOKEN}")
        assert (status, b"import" in str(text).encode()) == (404, False), name
    script = service.send("GET", f"/static/{SCRIPT}")
    assert len(script[1]) > 1_000_000
    assert script[2]["cache-control"] == "max-age=86400"


def test_a_retraining_agrees_with_what_is_served(service):
    status, found, _ = service.send("POST", "/retrain", authorization=f"Bearer {TOKEN}")
    assert (status, found["equal"], found["position"]) == (200, True, 200)
    assert found["served"] == found["retrained"]
    assert service.client.inspect()["proofs"] == [found]
    assert service.send("POST", "/retrain")[0] == 401


def test_a_retraining_finds_sums_that_are_wrong(tmp_path):
    with serve(tmp_path / "model") as made:
        assert made.send("POST", "/retrain")[0] == 409
        made.client.learn([SCHEMA, *(node(k) for k in range(120))])
        made.settle()
        made.service.model.state.learner.sums._half[0] += 1
        assert made.send("POST", "/retrain")[1]["equal"] is False


def test_who_asks_meanwhile_gets_the_same_retraining(tmp_path):
    with serve(tmp_path / "model") as made:
        made.client.learn([SCHEMA, *(node(k) for k in range(120))])
        made.settle()
        release = threading.Event()
        made.service.writer.call(lambda: release.wait(20))
        with ThreadPoolExecutor(3) as pool:
            asked = [pool.submit(made.send, "POST", "/retrain") for _ in range(3)]
            time.sleep(0.5)  # all of them wait for the writer now
            release.set()
            answers = [one.result()[:2] for one in asked]
        assert answers == [(200, answers[0][1])] * 3
        assert made.client.inspect()["proofs"] == [answers[0][1]]


def test_a_question_can_leave_no_trace(tmp_path):
    with serve(tmp_path / "model") as made:
        made.client.learn([SCHEMA, *(node(k) for k in range(80)), node(90, label=False)])
        made.settle()
        before = made.client.inspect()["counts"]["predictions"]
        body = '{"ids": ["p90"], "remember": false}'
        assert made.send("POST", "/predict", body)[1]["predictions"][0]["id"] == "p90"
        assert made.client.inspect()["counts"]["predictions"] == before
        assert made.service.asked.take() == {}
        made.send("POST", "/predict", '{"ids": ["p90"]}')
        assert list(made.service.asked.take()) == ["p90"]
        status, found, _ = made.send("POST", "/predict", '{"ids": ["p90"], "remember": 1}')
        assert (status, "true or false" in found["error"]) == (422, True)


def test_the_newest_nodes_are_told(tmp_path):
    with serve(tmp_path / "model") as made:
        assert made.client.inspect()["newest"] == []
        made.send("POST", "/events", lines([SCHEMA, *(node(k) for k in range(12))]))
        assert made.client.inspect()["newest"] == [f"p{k}" for k in range(11, 3, -1)]


def test_the_wheel_has_the_page(tmp_path):
    for name in ("evergraph", "pyproject.toml", "README.md", "LICENSE"):
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tmp_path / name)
    build = "from setuptools.build_meta import build_wheel; build_wheel('.')"
    subprocess.run([sys.executable, "-c", build], cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    packed = {name for name in ZipFile(wheel).namelist() if "/serve/page/" in name}
    own = files().keys() - {SCRIPT}
    assert packed == {f"evergraph/serve/page/{name}" for name in own}
    assert {"index.html", "style.css", "main.js", "icon.svg"} <= own

"""The live page in a real browser, over a real process of `evergraph serve`."""

import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from served import SCHEMA, SMALL, Served, edges, node, serve

from evergraph.datasets.schema import Schema
from evergraph.model import Model
from evergraph.serve.demo import story
from evergraph.serve.service import GROWTH

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[2]
FIGURES = os.environ.get("EVERGRAPH_FIGURES")  # where `make figures` wants the screenshots
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
TOKEN = "a-token-of-enough-length"
HOSTILE = "<img src=x onerror=alert(1)>\"'&lt;<script>alert(2)</script>"


@pytest.fixture(scope="module")
def chromium():
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium: install it with apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        yield browser
        browser.close()


@pytest.fixture
def start():
    """Starts services; they end after the pages that `visit` has opened."""
    with ExitStack() as stack:
        yield stack.enter_context


@pytest.fixture
def visit(chromium, start):
    """Opens pages; no script may fail, and nothing may be written to the console."""
    complaints, contexts = [], []

    def open_page(url, allowed="", **options):
        context = chromium.new_context(**{"viewport": DESKTOP, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)

        def hear(message):
            if not (allowed and re.search(allowed, message.text)):
                complaints.append(message.text)

        page.on("console", hear)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog {dialog.message}"))
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


@contextmanager
def demo(path, rate):
    """A real process that plays the demo; yields its address."""
    command = [sys.executable, "-m", "evergraph", "serve", str(path), "--demo", "--quiet"]
    command += ["--port", "0", "--rate", str(rate)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    env.pop("EVERGRAPH_DATA", None)
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield re.search(r"http://\S+", process.stdout.readline())[0]
        finally:
            process.terminate()


def until(page, expression, seconds=30):
    """Wait for an expression; playwright's own way needs eval, which the page forbids."""
    for _ in range(10 * seconds):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"it has not happened: {expression}")


def number(page, selector):
    return float(re.sub(r"[^\d.]", "", page.locator(selector).inner_text()) or "nan")


def never_saw(path, sent, forgotten):
    """The digest of a model that took the same events without those of a node."""
    schema, chapters = story()
    events = [event for chapter in chapters for event in chapter][:sent]
    text = f'{{"version": 1, "columns": {schema["columns"]}}}'.replace("'", '"')
    with Model.create(path, Schema.from_json(text)) as model:
        nodes, block = 0, []
        for event in events:
            ends = {event.get(name) for name in ("id", "source", "target")}
            if forgotten not in ends:
                block.append(event)
            nodes += event["type"] == "node"
            if event["type"] == "node" and nodes in GROWTH:
                model.learn(block)
                model.refit()
                block = []
        model.learn(block)
        return model.digest()


def test_the_demo_is_alive_and_a_node_is_searched_explained_and_forgotten(visit, start, tmp_path):
    url = start(demo(tmp_path / "model", rate=150))
    page = visit(url)
    page.wait_for_selector("#board:visible")
    until(page, "document.getElementById('accuracy').textContent.includes('%')")
    # the curve moves
    last = "document.querySelector('#curve').data[0].x.at(-1)"
    first = page.evaluate(last)
    until(page, f"{last} > {first}")
    assert number(page, "#nodes") > 0
    until(page, "document.querySelectorAll('#classes tbody tr').length === 7")
    until(page, "document.getElementById('proof').textContent.startsWith('Equal to a retraining')")
    # a node is searched
    page.get_by_label("Id of a node").fill("10")
    page.get_by_role("button", name="Show").click()
    until(page, "document.getElementById('name').textContent === '10'")
    assert "topic" in page.locator("#facts").inner_text()
    assert page.locator("#graph circle").count() > 1
    assert page.get_by_role("img", name="10 and its neighbors").count() == 1
    # and explained: the parts of nodes and the bias sum to the score
    assert page.locator("#why-title").inner_text().startswith("Why topic")
    for place in ("near", "features"):
        parts = [
            float(text.replace("−", "-"))
            for text in page.locator(f"#{place} .bar > span:last-child").all_inner_texts()
        ]
        score, bias = re.findall(r"-?\d+\.\d+", page.locator("#why-note").inner_text())
        assert sum(parts) + float(bias) == pytest.approx(float(score), abs=0.01)
    assert sticking_out(page) == []
    # and forgotten, if that is confirmed
    forget = page.get_by_role("button", name="Forget this node")
    forget.click()
    page.get_by_role("button", name="Keep it").click()
    assert page.locator("#name").inner_text() == "10"
    forget.click()
    with page.expect_response(lambda answer: answer.request.method == "DELETE") as told:
        page.get_by_role("button", name="Forget it").click()
    found = told.value.json()
    page.wait_for_selector("#digest-after")
    before, after = (
        page.locator(f"#digest-{name}").inner_text().split()[-1] for name in ("before", "after")
    )
    assert (before, after) == (found["digest"]["before"], found["digest"]["after"])
    assert before != after
    # the demo goes on
    nodes = number(page, "#nodes")
    until(page, f"Number(document.getElementById('nodes').textContent.replace(',', '')) > {nodes}")
    assert after == never_saw(tmp_path / "other", found["position"] - 1, 10)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("served") / "model") as made:
        fill(made)
        yield made


def fill(made: Served):
    """A graph of people: some are asked for before their labels come."""
    made.client.learn([SCHEMA, *(node(k) for k in range(100)), *edges()])
    made.client.learn([node(k, label=False) for k in range(100, 160)])
    made.settle()
    made.client.predict([f"p{k}" for k in range(100, 150)])
    made.client.learn(
        [{"type": "label", "id": f"p{k}", "label": node(k)["label"]} for k in range(100, 150)]
    )
    made.settle()


def ready(page):
    page.wait_for_selector("#board:visible")
    page.wait_for_selector("#node:visible")
    page.wait_for_selector("#curve .main-svg")


def sticking_out(page):
    """What ends right of the window, and bars that are longer than their places."""
    return page.evaluate(
        """() => {
          const right = (e) => e.getBoundingClientRect().right;
          const left = (e) => e.getBoundingClientRect().left;
          const parts = document.querySelectorAll('.card, .tile, .chart, button, input, #graph');
          const wide = [...parts].filter((e) => e.offsetParent && right(e) > innerWidth);
          const long = [...document.querySelectorAll('.bar b, .meter b')].filter((e) =>
            right(e) > right(e.parentNode) + 1 || left(e) < left(e.parentNode) - 1);
          return [...wide, ...long].map((e) => e.parentNode.outerHTML.slice(0, 120));
        }"""
    )


def numbers(color):
    """Red, green and blue from 0 to 1, whichever way the browser writes them."""
    whole = 1 if color.startswith("color(") else 255
    return [float(part) / whole for part in re.findall(r"\d+\.?\d*", color)[:3]]


def luminance(page, selector, which):
    color = page.locator(selector).first.evaluate(f"e => getComputedStyle(e).{which}")
    red, green, blue = numbers(color)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(*colors):
    """Of a text with what is behind it, as WCAG has it."""
    linear = (
        [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in found]
        for found in map(numbers, colors)
    )
    found = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05 for r, g, b in linear)
    return found[1] / found[0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_follow_the_system(visit, service, scheme):
    page = visit(service.url, color_scheme=scheme)
    ready(page)
    for place in ("body", ".card"):
        back, text = luminance(page, place, "backgroundColor"), luminance(page, place, "color")
        assert (back - text > 0.6) if scheme == "light" else (text - back > 0.6)
    pairs = page.evaluate(  # at once: the cells are made anew every second
        """() => [...document.querySelectorAll('#confusion td')].filter((e) => e.textContent)
          .map((e) => [getComputedStyle(e).color, getComputedStyle(e).backgroundColor])"""
    )
    assert len(pairs) >= 2
    assert min(contrast(*pair) for pair in pairs) > 4.4
    drawn = page.evaluate("document.getElementById('curve').layout.font.color")
    wanted = "getComputedStyle(document.documentElement).getPropertyValue('--soft').trim()"
    assert drawn == page.evaluate(wanted)
    other = "light" if scheme == "dark" else "dark"
    page.emulate_media(color_scheme=other)
    until(page, f"document.getElementById('curve').layout.font.color !== '{drawn}'")


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_nothing_sticks_out_at_any_width(visit, service, width):
    page = visit(service.url, viewport={"width": width, "height": 800})
    ready(page)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert sticking_out(page) == []


def test_everything_has_an_accessible_name(visit, service):
    page = visit(service.url)
    ready(page)
    unnamed = page.evaluate(
        """() => {
          const title = (e) => document.getElementById(e.getAttribute('aria-labelledby') ?? '-');
          const parts = document.querySelectorAll('[role=img], [role=region], dialog, section');
          return [...parts].filter((e) => !e.getAttribute('aria-label') && !title(e)?.textContent)
            .map((e) => e.id || e.className);
        }"""
    )
    assert unnamed == []
    buttons = page.get_by_role("button").all()
    assert all(one.inner_text() for one in buttons)
    assert page.get_by_label("Id of a node").count() == 1
    assert page.evaluate("document.documentElement.lang") == "en"


def test_the_keyboard_is_enough(visit, start, tmp_path):
    made = start(serve(tmp_path / "model"))
    fill(made)
    page = visit(made.url)
    ready(page)
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "id"
    page.keyboard.press("Control+A")
    page.keyboard.type("p7")
    page.keyboard.press("Enter")
    until(page, "document.getElementById('name').textContent === 'p7'")
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "forget":
            break
    assert page.evaluate("document.activeElement.matches(':focus-visible')")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.value") == "no"
    page.keyboard.press("Escape")
    assert made.send("GET", "/nodes/p7")[0] == 200
    assert page.evaluate("document.activeElement.id") == "forget"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#digest-after")
    assert made.send("GET", "/nodes/p7")[0] == 404
    assert page.evaluate("document.activeElement.id") == "id"


def test_an_empty_service_says_what_to_do(visit, start, tmp_path):
    made = start(serve(tmp_path / "model"))
    page = visit(made.url, allowed="409")
    page.wait_for_selector("#empty:visible")
    assert "Waiting for the first events" in page.locator("#empty").inner_text()
    assert made.url in page.locator("#first").inner_text()
    assert page.locator("#board").is_hidden()
    made.client.learn([SCHEMA, node(0, label=False), node(1, label=False)])
    page.wait_for_selector("#board:visible")  # without a reload
    page.wait_for_selector("#node:visible")
    assert page.locator("#accuracy").inner_text() == "–"
    assert "nothing was learned yet" in page.locator("#facts").inner_text()


def test_hostile_names_are_shown_as_text(visit, start, tmp_path):
    made = start(serve(tmp_path / "model"))
    fill(made)
    made.client.learn([
        {"type": "node", "id": HOSTILE, "age": 3, "label": HOSTILE},
        {"type": "edge", "source": HOSTILE, "target": "p1"},
        {"type": "node", "id": "a/b?c#d%2F", "age": 3},
        {"type": "edge", "source": HOSTILE, "target": "a/b?c#d%2F"},
        {"type": "node", "id": 2**60 + 1, "age": 3},
        {"type": "edge", "source": HOSTILE, "target": 2**60 + 1},
        {"type": "node", "id": "guest", "age": 3},
    ])  # fmt: skip
    made.settle()
    made.client.predict(["guest"])
    made.client.learn([{"type": "label", "id": "guest", "label": HOSTILE}])
    made.settle()
    page = visit(made.url)
    ready(page)
    for name in (HOSTILE, "a/b?c#d%2F", str(2**60 + 1)):
        page.get_by_label("Id of a node").fill(name)
        page.get_by_role("button", name="Show").click()
        page.locator("#name", has_text=name).wait_for()
    assert page.locator("#near button", has_text=HOSTILE).count() == 1
    page.locator("#near button", has_text=HOSTILE).click()
    page.locator("#name", has_text=HOSTILE).wait_for()
    for place in ("#classes th", "#confusion th", "#facts", "#near, #graph title"):
        assert page.locator(place, has_text=HOSTILE[:20]).count() >= 1, place
    page.get_by_role("button", name="Forget this node").click()
    assert page.locator("#confirm-name").inner_text() == HOSTILE
    page.get_by_role("button", name="Forget it").click()
    page.wait_for_selector("#digest-after")
    assert HOSTILE in page.locator("#message").inner_text()
    assert page.locator("main img, main script, body > script").count() == 0


def test_a_wrong_id_is_answered_with_the_reason(visit, service):
    page = visit(service.url, allowed="404")
    ready(page)
    for name, words in (("nobody", "there is no node"), ("..", "a browser cannot ask")):
        page.get_by_label("Id of a node").fill(name)
        page.get_by_role("button", name="Show").click()
        page.locator("#message", has_text=words).wait_for()
        assert page.locator("#node").is_hidden()


def test_a_token_is_asked_for_and_kept_in_the_tab(visit, start, tmp_path):
    made = start(serve(tmp_path / "model", token=TOKEN))
    fill(made)
    page = visit(made.url, allowed="401")
    for given in ("wrong", TOKEN):
        page.get_by_role("textbox", name="Token").fill(given)
        page.keyboard.press("Enter")
        if given == "wrong":
            page.locator("#ask-message", has_text="not the right one").wait_for()
    ready(page)
    assert page.evaluate("sessionStorage.length") == 1
    assert page.evaluate("localStorage.length + document.cookie.length") == 0
    page.reload()
    ready(page)
    page.get_by_role("button", name="Forget the token").click()
    page.wait_for_selector("#ask[open]")


def test_the_page_comes_back_after_a_restart(visit, start, tmp_path):
    from evergraph.serve.server import Address, Server

    server = Server(tmp_path / "model", Address(), settings=SMALL)
    port = int(server.url.rpartition(":")[2])
    with server.background() as url:
        made = Served(server)
        fill(made)
        made.client.close()
        page = visit(url, allowed="net::ERR_|503")  # while it is gone
        ready(page)
    page.locator("#status", has_text="trying again").wait_for()
    again = Server(tmp_path / "model", Address(port=port), settings=SMALL)
    start(again.background())
    page.locator("#status.live").wait_for()


def test_screenshots(visit, start, tmp_path):
    figures = Path(FIGURES or tmp_path)
    url = start(demo(tmp_path / "model", rate=250))
    page = visit(url)
    until(
        page,
        "Number(document.getElementById('nodes').textContent.replace(',', '')) > 1100",
        seconds=120,
    )
    page.get_by_label("Id of a node").fill("192")
    page.get_by_role("button", name="Show").click()
    until(page, "document.getElementById('name').textContent === '192'")
    page.screenshot(path=figures / "serve_desktop.png", full_page=True)
    phone = visit(url, viewport=PHONE, color_scheme="dark")
    ready(phone)
    phone.wait_for_timeout(3000)  # a few points of the curves
    phone.screenshot(path=figures / "serve_phone.png")
    for name, least in (("desktop", 1280 * 1500), ("phone", 390 * 844)):
        header = (figures / f"serve_{name}.png").read_bytes()[16:24]
        assert int.from_bytes(header[:4]) * int.from_bytes(header[4:]) >= least

"""What is public is documented with an example that runs, and the site is built without a warning.

Doctests, of docstrings and of the pages, run in this same suite.
"""

import ast
import html
import inspect
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import evergraph

ROOT = Path(__file__).parent.parent


def examples(name):
    """How many lines of examples the docstring of a public name has."""
    found = evergraph if name == "__version__" else getattr(evergraph, name)
    return (inspect.getdoc(found) or "").count(">>> ")


@pytest.mark.parametrize("name", evergraph.__all__)
def test_a_public_name_has_an_example(name):
    assert examples(name) > 0


def test_examples_are_counted_where_they_are(monkeypatch):
    monkeypatch.setattr(evergraph, "Learner", object, raising=False)
    assert examples("Learner") == 0


def test_the_reference_has_every_public_name_once():
    named = re.findall(r"^::: evergraph\.(\w+)$", (ROOT / "docs/api.md").read_text(), re.M)
    assert sorted(named) == sorted(set(evergraph.__all__) - {"__version__"})


class Found(HTMLParser):
    """The links of a page, what it loads by itself, and its anchors."""

    def __init__(self, page):
        super().__init__()
        self.links, self.loaded, self.anchors = [], [], set()
        self.feed(page.read_text())

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.anchors.add(named.get("id"))
        if tag == "a" and named.get("href"):
            self.links.append(named["href"])
        if tag in ("script", "img", "iframe", "source") and named.get("src"):
            self.loaded.append(named["src"])
        if tag == "link" and named.get("rel") != "canonical" and named.get("href"):
            self.loaded.append(named["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `make docs` builds it, and what was printed."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING -" not in done.stderr
    return out


def test_the_site_loads_nothing_from_elsewhere_and_its_links_lead_somewhere(site):
    pages = {page: Found(page) for page in site.rglob("*.html")}
    assert len(pages) > 30
    wrong = []
    for page, found in pages.items():
        wrong += [f"{page.name} loads {one}" for one in found.loaded if urlsplit(one).netloc]
        for address in (*found.links, *found.loaded):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc or page.name == "404.html":
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                wrong.append(f"{page.name}: no file {address}")
                continue
            anchors = pages[target].anchors if target in pages else {""}
            if parts.fragment and unquote(parts.fragment) not in anchors:
                wrong.append(f"{page.name}: no place {address}")
    for sheet in (*site.rglob("*.css"), *(site / "assets/javascripts").glob("bundle*.js")):
        wrong += re.findall(r"(?:@import|url\()\s*[\"']?https?://[^)\"']+", sheet.read_text())
    assert wrong == []


def test_the_site_shows_the_files_that_its_pages_include(site):
    for page in sorted((ROOT / "docs").glob("*.md")):
        shown = site / page.with_suffix(".html").name
        seen = re.sub(r"<[^>]+>|\s", "", html.unescape(shown.read_text()))
        assert "--8<--" not in seen, page.name
        for name in re.findall(r"^```python title=\"(.+)\"", page.read_text(), re.M):
            last = (ROOT / name).read_text().strip().splitlines()[-1]
            assert re.sub(r"\s", "", last) in seen, name


def test_the_navigation_names_a_page_once():
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    pages = re.findall(r": (\S+\.md)$", nav, re.M)
    assert len(pages) > 30
    assert sorted(pages) == sorted(set(pages))


def strings(root):
    """All texts of the package, those that are put together of parts as one."""
    texts = []
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [getattr(part, "value", "\0") for part in node.values]
                texts.append("".join(p if isinstance(p, str) else "\0" for p in parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return "\n".join(texts)


def test_the_errors_of_the_faq_are_those_of_the_code():
    faq = (ROOT / "docs/faq.md").read_text()
    messages = re.findall(r"^\*\*`(.+?)`\*\*", faq, re.M)
    assert len(messages) > 12
    known = strings(ROOT / "evergraph")
    for message in messages:
        parts = re.split(r"…|\(|'[^']*'|\S*\d\S*|my_model|,", message)
        longest = max((part.strip(" :()") for part in parts), key=len)
        assert len(longest) > 10, message
        assert longest in known, message

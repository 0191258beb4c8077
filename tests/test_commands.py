"""Every shell command in README and docs exists, with its options; the quick ones are run."""

import importlib.util
import re
import runpy
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from evergraph.cli import app

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
PROGRAMS = ("evergraph", "make", "python", "pip")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def blocks(text):
    """The shell blocks of a page."""
    return re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)


def commands(page):
    """What a reader of a page may type: lines of shell blocks, and short code in the text."""
    text = page.read_text()
    found = [
        line
        for block in blocks(text)
        for line in block.replace("\\\n", " ").splitlines()
        if line.strip()
    ]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    found += [
        code
        for code in re.findall(r"`([^`\n]+)`", prose)
        if code.split()[0] in PROGRAMS and len(code.split()) > 1 and not re.search("…|NAME", code)
    ]
    return [shlex.split(line, comments=True) for line in found]


def every():
    pairs = [(page, " ".join(words)) for page in PAGES for words in commands(page) if words]
    shown = sorted({(text, page.name) for page, text in pairs if text.split()[0] in PROGRAMS})
    return [pytest.param(text, id=f"{page}: {text}") for text, page in shown]


def complaint(words):
    """What is wrong with a call of evergraph; None if it parses, with all that it requires."""
    command, context = get_command(app), None
    words = [word for word in words if word not in ("...", "[...]")]
    while True:
        context = command.context_class(command, info_name=command.name, parent=context)
        subs = getattr(command, "commands", {})
        if not subs:
            break
        if not words or words[0] == "--help" or words[0] == "--version":
            return None
        if words[0] not in subs:
            return f"no command {words[0]!r}"
        command, words = subs[words[0]], words[1:]
    if command.context_settings.get("allow_extra_args") or "--help" in words:
        return None
    try:
        _, rest, _ = command.make_parser(context).parse_args(list(words))
    except Exception as error:
        return str(error) or type(error).__name__
    return f"too much: {rest}" if rest and command.name != "forget" else None


@pytest.mark.parametrize("text", every())
def test_a_command_of_the_documentation_exists(text):
    words = re.split(r"\s[|<>&]+\s|;", text)[0].split()
    program, *rest = words
    if program == "evergraph":
        assert complaint(rest) is None
    elif program == "make":
        targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M)
        assert {word for word in rest if "=" not in word} <= set(targets)
    elif program == "python" and rest[0] == "-m":
        if rest[1].split(".")[0] in ("experiments", "benchmarks", "tests"):
            module = importlib.util.find_spec(rest[1].rstrip(","))
            if module is not None and module.submodule_search_locations:  # a package runs this
                module = importlib.util.find_spec(f"{rest[1].rstrip(',')}.__main__")
            assert module is not None
            source = Path(module.origin).read_text()
            for option in (word for word in rest[2:] if word.startswith("--")):
                name = option.removeprefix("--").split("=")[0]
                assert name in source or name.replace("-", "_") in source, option
    elif program == "python":
        assert (ROOT / rest[0]).is_file()
    else:
        assert rest[0] == "install"
        for extra in re.findall(r"evergraph\[([^\]]+)\]", text):
            assert set(extra.split(",")) <= set(EXTRAS)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("run --dataset cora --sedes 1", "--sedes"),
        ("rum", "no command 'rum'"),
        ("inspect one two", "too much"),
        ("run --seeds", "--seeds"),
    ],
)
def test_a_wrong_command_is_found(text, wrong):
    assert wrong in complaint(text.split())


def test_every_page_is_shell_that_parses():
    for page in PAGES:
        for block in blocks(page.read_text()):
            done = subprocess.run(["bash", "-n"], input=block, text=True, capture_output=True)
            assert done.returncode == 0, f"{page.name}: {done.stderr}\n{block}"


def test_the_six_commands_of_the_readme_run(tmp_path, monkeypatch):
    part = runpy.run_path(str(ROOT / "examples/social.py"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_data").mkdir()
    part["write"](tmp_path / "my_data")
    (tmp_path / "events.jsonl").write_text('{"type": "node", "id": "ann", "age": 70}\n')
    (tmp_path / "new_nodes.csv").write_text("id,age,hobby\neve,20,games\n")
    block = next(b for b in blocks((ROOT / "README.md").read_text()) if "evergraph train" in b)
    lines = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert [words[1] for words in lines] == [
        "train", "learn", "predict", "forget", "refit", "inspect",
    ]  # fmt: skip
    for words in lines:
        done = CliRunner().invoke(app, words[1:])
        assert done.exit_code == 0, f"{words}: {done.output}"


@pytest.mark.slow
def test_the_first_command_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = blocks((ROOT / "README.md").read_text())[0].splitlines()
    done = CliRunner().invoke(app, shlex.split(lines[1], comments=True)[1:])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out/learning_curve.png").is_file()

"""What all commands share: places to write are checked first, texts are printed as they are."""

import errno
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from evergraph.cli import app, console

runner = CliRunner()
NAME = "[/oops]"  # a closing tag of rich's markup
RUN = ["run", "--dataset", "generated", "--method", "analytic", "--seeds", "1"]
COMPARE = ["compare", "--dataset", "generated", "--methods", "analytic"]
TUNE = ["tune", "--dataset", "generated", "--method", "analytic", "--seeds", "1"]


@pytest.fixture
def no_work(monkeypatch):
    """Fail if any data is looked for: what is refused must be refused before."""
    monkeypatch.setattr("evergraph.datasets.load", None)


def refused(*arguments):
    """The one line of a command that ends with an error."""
    shown = runner.invoke(app, list(map(str, arguments)))
    assert shown.exit_code == 2, shown.output
    lines = shown.output.splitlines()
    assert len(lines) == 1, shown.output
    assert isinstance(shown.exception, SystemExit)
    return lines[0]


@pytest.mark.usefixtures("no_work")
def test_results_never_replace_a_thing_of_another_kind(tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    for command in (RUN, ["match", "pair", "a", "b"], ["action", "train", "generated"]):
        line = refused(*command, "--out", file)
        assert f"--out must be a folder that can be written, but {file} is a file" in line
    for command in (COMPARE, TUNE, ["match", "train"]):
        line = refused(*command, "--out", tmp_path)
        assert f"--out must be a file that can be written, but {tmp_path} is a folder" in line
    line = refused(*RUN, "--checkpoint", tmp_path)
    assert "--checkpoint must be a file that can be written" in line
    assert file.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("command", [RUN, COMPARE, TUNE, ["match", "evaluate", "x"]])
def test_a_place_below_a_file_is_refused_before_the_work(tmp_path, command):
    (tmp_path / "file").write_text("")
    assert "Not a directory; choose another" in refused(*command, "--out", tmp_path / "file" / "a")


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("reason", [errno.EACCES, errno.EROFS, errno.ENOSPC])
@pytest.mark.parametrize("command", [RUN, COMPARE, TUNE])
def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    tmp_path, monkeypatch, command, reason
):
    """As root sees no permissions, the system's answer is planted."""
    failure = OSError(reason, "the reason")
    monkeypatch.setattr("tempfile.TemporaryFile", lambda dir: throw(failure))
    line = refused(*command, "--out", tmp_path / "new" / "result")
    assert "cannot: the reason; choose another place" in line
    assert list(tmp_path.iterdir()) == []


def throw(error):
    raise error


def limited(size, *arguments, **options):
    """Run the program where no file may grow beyond a size: a disk that is nearly full."""
    code = (
        "import resource, sys\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))\n"
        "from evergraph.cli import main\nmain()"
    )
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def test_a_full_disk_is_noticed_before_the_work(tmp_path):
    done = limited(1000, *RUN, "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "--out must be a folder that can be written" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_meanwhile_costs_the_file_only(tmp_path, monkeypatch):
    """The result is printed, and the error follows in one line."""
    real = Path.write_text

    def full(path, text):
        real(path, text[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    shown = runner.invoke(app, [*COMPARE, "--json", "--out", str(tmp_path / "numbers.json")])
    assert shown.exit_code == 2
    assert json.loads(shown.stdout)["results"]
    (line,) = shown.stderr.splitlines()
    assert "numbers.json cannot be written: No space left on device" in line
    assert list(tmp_path.iterdir()) == []  # no half of a file


@pytest.fixture
def odd_folder(tmp_path, monkeypatch):
    """A graph whose folder and classes look like markup of terminals and of pictures."""
    folder = tmp_path / NAME / "$x^$"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    rows = [
        f"{node},{(NAME, '$_{$')[node % 2]},{rng.normal():.2f},{rng.normal():.2f}"
        for node in range(30)
    ]
    (folder / "nodes.csv").write_text("\n".join(["id,label,x0,x1", *rows]))
    (folder / "edges.csv").write_text("source,target\n0,1\n2,3\n")
    monkeypatch.chdir(tmp_path)
    return f"{NAME}/$x^$"


@pytest.mark.parametrize(
    "command",
    [
        ["run", "--seeds", "1", "--checkpoint", f"{NAME}/state", "--out", NAME],
        ["compare", "--methods", "finetune,analytic", "--out", f"{NAME}/compare.json"],
        ["tune", "--method", "analytic", "--seeds", "1", "--out", f"{NAME}/tune.json"],
    ],
    ids=lambda command: command[0],
)
def test_names_that_look_like_markup_are_printed_as_they_are(odd_folder, command):
    shown = runner.invoke(app, [*command, "--dataset", odd_folder])
    assert shown.exit_code == 0, shown.output
    assert NAME in shown.output
    assert "\\[" not in shown.output
    if command[0] == "run":
        shown = runner.invoke(app, [*command, "--resume", "--dataset", odd_folder])
        assert shown.exit_code == 0, shown.output
        assert f"resuming {NAME}/state" in shown.output


def test_progress_on_a_terminal_prints_names_as_they_are(monkeypatch):
    text = io.StringIO()
    monkeypatch.setattr(
        console, "Console", lambda stderr: Console(file=text, force_terminal=True, width=200)
    )
    with console.progress(quiet=False) as shown:
        shown.add_task(f"looking for {NAME}", total=3)
        shown.refresh()
    assert f"looking for {NAME}" in text.getvalue()


def test_errors_and_tables_print_names_as_they_are(capsys):
    with pytest.raises(typer.Exit), console.complaints():
        raise ValueError(f"no {NAME} here \\")
    assert capsys.readouterr().err == f"Error: no {NAME} here \\\n"
    Console().print(console.table_of(NAME, ("a[/b]",), [["[red]x"]], caption=NAME))
    shown = capsys.readouterr().out
    assert shown.count(NAME) == 2
    assert "a[/b]" in shown
    assert "[red]x" in shown

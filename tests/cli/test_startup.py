"""The command line starts quickly, fails in one line, and can be interrupted."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from evergraph.cli import app

HEAVY = ("torch", "numba", "torch_geometric", "scipy", "matplotlib", "torch._dynamo", "fastapi")


def python(code, *arguments):
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["run", "--help"],
        ["action", "--help"],
        ["match", "pair", "--help"],
        ["serve", "--help"],
    ],
    ids=" ".join,
)
def test_help_and_version_import_nothing_heavy(arguments):
    code = (
        "import sys\nfrom evergraph.cli import app\n"
        f"try:\n    app({arguments!r})\nexcept SystemExit as end:\n    assert not end.code\n"
        f"print('heavy:', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert "heavy: []" in done.stdout


def test_importing_the_package_imports_nothing_heavy():
    code = f"import sys, evergraph; print([n for n in {HEAVY!r} if n in sys.modules])"
    assert python(code).stdout.strip() == "[]"


def test_learning_never_imports_dynamo_or_pyg():
    code = (
        "import sys\nfrom evergraph import FGN, Learner, Replay, Reservoir, Training\n"
        "from evergraph import node_continuum\n"
        "from evergraph.datasets import load\ndata = load('generated')\n"
        "learner = Learner(FGN(data.graph.num_features), Replay(), Reservoir(50),\n"
        "                  Training(optimizer='adam', averaging=0.9))\n"
        "for batch in list(node_continuum(data))[:2]:\n    learner.observe(batch)\n"
        "learner.predict(batch)\n"
        "print([n for n in ('torch._dynamo', 'torch_geometric') if n in sys.modules])"
    )
    done = python(code)
    assert done.stdout.strip() == "[]", done.stderr


def test_progress_off_a_terminal_is_plain_lines():
    code = (
        "import time\nfrom evergraph.cli import console\nconsole.LINE_SECONDS = 0.05\n"
        "with console.progress(False) as shown:\n"
        "    shown._next = 0\n    task = shown.add_task('learning', total=3)\n"
        "    for i in range(3):\n        shown.update(task, completed=i + 1)\n"
        "        time.sleep(0.06)\n"
    )
    done = python(code)
    assert done.stdout == ""
    assert done.stderr.splitlines() == ["learning: 1 of 3", "learning: 2 of 3", "learning: 3 of 3"]


def test_a_closed_pipe_is_no_error(tmp_path):
    command = f"{sys.executable} -m evergraph datasets --json | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "["
    assert done.stderr == ""


def test_an_unknown_benchmark_names_those_that_exist():
    done = CliRunner().invoke(app, ["bench", "nothing"])
    assert done.exit_code == 2
    assert "speed" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("kind", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_save_and_end_in_one_line(tmp_path, kind, code):
    checkpoint = tmp_path / "state.safetensors"
    command = [
        sys.executable, "-m", "evergraph", "run", "--dataset", "generated", "--seeds", "20",
        "--checkpoint", str(checkpoint), "--every", "1", "--out", str(tmp_path / "out"),
    ]  # fmt: skip
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        deadline = time.monotonic() + 120
        while not checkpoint.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        before = checkpoint.read_bytes()
        time.sleep(0.5)
        os.kill(process.pid, kind)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in errors
    last = errors.strip().splitlines()[-1]
    assert last.startswith("Interrupted.")
    assert "--resume" in last
    assert checkpoint.read_bytes() != before  # what came after the last save is saved too
    left = {path.name for path in tmp_path.iterdir()}
    assert left <= {"state.safetensors", "state.safetensors.previous", "out"}


def test_a_checkpoint_is_not_overwritten_by_another_run(tmp_path, monkeypatch):
    checkpoint = tmp_path / "state.safetensors"
    monkeypatch.chdir(tmp_path)
    options = ["--dataset", "generated", "--method", "analytic", "--seeds", "1", "--json"]

    def run(*more):
        return CliRunner().invoke(app, ["run", *options, "--checkpoint", str(checkpoint), *more])

    first = run()
    assert first.exit_code == 0, first.stderr
    before = checkpoint.read_bytes()  # short runs leave a checkpoint too
    again = run()
    assert again.exit_code == 2
    assert "is there already: resume it" in " ".join(again.stderr.split())
    assert checkpoint.read_bytes() == before
    resumed = run("--resume")
    assert json.loads(resumed.stdout)["accuracy_mean"] == json.loads(first.stdout)["accuracy_mean"]
    foreign = tmp_path / "letter.txt"
    foreign.write_text("dear all")
    refused = run("--checkpoint", str(foreign), "--resume")
    assert refused.exit_code == 2
    assert foreign.read_text() == "dear all"
    assert "Traceback" not in refused.stderr


def test_out_is_checked_before_the_run(tmp_path, monkeypatch):
    (tmp_path / "taken").write_text("a file")
    monkeypatch.chdir(tmp_path)
    command = ["run", "--dataset", "generated", "--out", "taken"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2
    assert "--out must be a folder" in " ".join(done.stderr.split())

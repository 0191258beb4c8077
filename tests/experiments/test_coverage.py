"""The experiment of coverage and novelty on a generated graph."""

import json

from typer import Typer
from typer.testing import CliRunner

from experiments import coverage


def test_a_split_is_reproducible_and_covers():
    one, same = (coverage.coverage(coverage.Split("generated", 3, None)) for _ in range(2))
    assert one == same
    assert one["coverage"]["0.8"] <= one["coverage"]["0.95"]
    assert one["coverage"]["0.95"] > 0.85
    assert one["accuracy"] > 0.4


def test_scores_of_novelty_are_of_the_stream():
    found = coverage.novelty(coverage.Split("generated", 0, None), 0)
    assert set(found) == {
        "strangeness", "class distance", "1 - probability", "landmark distance"
    }  # fmt: skip
    assert all(0 <= value <= 1 for value in found.values())


def test_the_table_is_written(tmp_path):
    app = Typer()
    app.command()(coverage.command)
    made = CliRunner().invoke(
        app,
        ["--datasets", "generated", "--seeds", "2", "--validation", "1", "--results",
         str(tmp_path), "--json"],
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    (cell,) = json.loads((tmp_path / "coverage.json").read_text())["cells"]
    assert cell["seeds"] == [0, 1]
    assert cell["config"]["dataset"] == "generated"
    assert cell["coverage"]["0.9"]["se"] is not None
    assert "covered, 0.9" in (tmp_path / "coverage.md").read_text()

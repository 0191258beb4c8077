"""Tutorials run from the first to the last cell, and their notebooks hold the same cells."""

import json
import runpy
from pathlib import Path

import pytest

TUTORIALS = Path(__file__).parent.parent / "tutorials"
AT_LEAST = {  # chance is a seventh, next to nothing, a third to a half, a quarter
    "cora_equations": 0.6,
    "photographs": 0.6,
    "social_graph": 0.75,
    "watch": 0.85,
}
notebooks = runpy.run_path(str(TUTORIALS / "notebooks.py"))


def test_every_tutorial_is_here():
    assert {path.stem for path in TUTORIALS.glob("*.py")} == {*AT_LEAST, "notebooks"}


@pytest.mark.parametrize("name", AT_LEAST)
def test_the_notebook_is_that_of_the_file(name):
    held = (TUTORIALS / f"{name}.ipynb").read_text()
    assert held == notebooks["write"](TUTORIALS / f"{name}.py"), "run python tutorials/notebooks.py"
    cells = json.loads(held)["cells"]
    assert [cell["cell_type"] for cell in cells].count("code") > 3
    assert all("".join(cell["source"]).strip() for cell in cells)


@pytest.mark.slow
@pytest.mark.parametrize("name", AT_LEAST)
def test_the_tutorial_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = runpy.run_path(str(TUTORIALS / f"{name}.py"), run_name="__main__")
    assert AT_LEAST[name] < found["score"] <= 1

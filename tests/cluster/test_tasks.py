"""Runs of experiments over Ray are those of one process."""

import json
import os

import pytest
from typer.testing import CliRunner

from evergraph.cli import app
from evergraph.cluster.engine import connect
from evergraph.cluster.tasks import on_ray
from evergraph.datasets.generate import Growth, generate
from evergraph.evaluate.config import Config
from evergraph.evaluate.search import search

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'evergraph[ray]'")
pytestmark = pytest.mark.filterwarnings("ignore")  # those of Ray, about itself


@pytest.fixture(scope="module", autouse=True)
def machine():
    os.environ["RAY_AUTH_MODE"] = "disabled"
    _, began = connect(None, 2, 100_000_000)
    yield
    if began:
        ray.shutdown()


def untimed(value):
    """Results without what a clock has measured."""
    if isinstance(value, dict):
        return {k: untimed(v) for k, v in value.items() if "second" not in k}
    return [untimed(v) for v in value] if isinstance(value, list) else value


def test_each_item_gets_its_result_and_errors_are_raised():
    found = dict(on_ray(lambda x: x * x, [3, 5, 7]))
    assert found == {0: 9, 1: 25, 2: 49}
    with pytest.raises(ZeroDivisionError):
        list(on_ray(lambda x: 1 // x, [1, 0]))


def test_a_search_over_ray_finds_the_rows_of_a_serial_one():
    data = generate(Growth(nodes=200, features=40))
    config = Config(dataset="generated", method="analytic", memory=0)
    serial = search(config, data, seeds=(0,))
    assert search(config, data, seeds=(0,), run=on_ray) == serial


def test_a_comparison_over_ray_is_the_serial_one_and_is_resumed(tmp_path):
    parts = ["compare", "--dataset", "generated", "--methods", "analytic", "--models", "fgn,gcn"]
    parts += ["--memory", "20", "--json"]

    def results(*more):
        run = CliRunner().invoke(app, [*parts, *map(str, more)])
        assert run.exit_code == 0, run.output
        return json.loads(run.stdout)["results"]

    serial = results()
    out = tmp_path / "out.json"
    assert untimed(results("--engine", "ray", "--out", out)) == untimed(serial)
    first = json.loads(out.read_text())
    first["results"] = first["results"][:1]
    first["results"][0]["mark"] = "taken from the file"
    out.write_text(json.dumps(first))
    again = results("--engine", "ray", "--out", out)
    assert again[0].pop("mark") == "taken from the file"
    assert untimed(again) == untimed(serial)

"""The trials of the parts of the feature-graph kernel on a generated graph."""

import json

import numpy as np
import typer
from typer.testing import CliRunner

from evergraph.datasets import load
from experiments import kernel_trials


def small(monkeypatch):
    monkeypatch.setattr(kernel_trials, "MOST_TRAINED", 60)
    monkeypatch.setattr(kernel_trials, "TESTED", 80)
    return kernel_trials.split(load("generated"), 0)


def test_rows_with_a_prior_are_those_times_the_remembered_graph(monkeypatch):
    """The remembered graph, formed here as F × F: e (I + C), of unit length."""
    train, _ = kernel_trials.items(small(monkeypatch), 0, "train")
    x, mean = train.x.toarray(), sum(part.toarray() for part in train.means) / len(train.means)
    graph = x.T @ mean + mean.T @ x
    graph /= (abs(x).T @ abs(mean) + abs(mean).T @ abs(x)).sum(1).max()
    expected = x @ (np.eye(x.shape[1]) + graph)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    found = kernel_trials.remembered(train, train).x.toarray() / 2**20
    assert np.abs(found - expected).max() < 1e-5


def test_trials_are_resumed_and_reported(monkeypatch, tmp_path):
    small(monkeypatch)
    app = typer.Typer()
    app.command()(kernel_trials.command)
    options = ["--datasets", "generated", "--seeds", "2", "--results", str(tmp_path), "--json"]
    first, again = (CliRunner().invoke(app, options) for _ in range(2))
    assert first.exit_code == again.exit_code == 0, first.output
    (cell,) = json.loads((tmp_path / "kernel_trials.json").read_text())["cells"]
    assert json.loads(again.output)[0]["accuracy"] == cell["accuracy"]
    assert all(0.4 < value <= 1 for values in cell["accuracy"].values() for value in values)
    assert {"whole", "no products", "no roots", "with prior"} <= cell["accuracy"].keys()
    assert "product" in (tmp_path / "kernel_trials.md").read_text()
    assert "product=0," in cell["chosen"]["no products"][0]

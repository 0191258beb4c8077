"""The experiment behind the defaults of a model folder's network, on a generated graph."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer import Typer
from typer.testing import CliRunner

from evergraph.datasets import generate
from evergraph.datasets.generate import PRESETS
from evergraph.learn.network import LAYERS, TRAINING
from experiments import network_defaults as module

FIRST, LAST = (0.001, 0.003), ("none", "column")


@pytest.fixture(scope="module")
def data():
    growth = replace(PRESETS["citation"], nodes=300, classes=3, features=60)
    return generate(growth, name="small")


@pytest.fixture
def small(data, monkeypatch):
    """Four settings of forty labels on a small graph."""
    monkeypatch.setattr(module, "load", lambda name, root: data)
    monkeypatch.setattr(module, "LABELS", 40)
    monkeypatch.setattr(module, "RATES", FIRST)
    monkeypatch.setattr(module, "NORMALIZATIONS", LAST)


def run(folder, *arguments):
    app = Typer()
    app.command()(module.command)
    command = ["--datasets", "small", "--results", str(folder), "--json", *arguments]
    made = CliRunner().invoke(app, command)
    assert made.exit_code == 0, made.output
    return json.loads(made.stdout)


def test_held_out_nodes_are_training_nodes_that_nobody_learns(data, small):
    split = module.Split(data, 1)
    train, order, held = set(data.train.tolist()), set(split.order), set(split.held)
    assert len(split.order) == len(order) == 40
    assert len(held) == pytest.approx(len(train) / 5, abs=2)
    assert order | held < train
    assert not order & held
    assert not (order | held) & set(data.test.tolist())
    named = split.graph.labels(split.graph.slots(range(data.graph.num_nodes)))
    assert {node for node, name in enumerate(named) if name is not None} == order
    network = module.learn(split, 0.003, "column")
    assert network.counts() == {"learned": 40, "diverged": 0, "waiting": 0, "remembered": 40}
    keys = split.graph.keys(split.graph.slots(split.order)).view(np.int64)
    assert set(network.memory.node.tolist()) == set(keys.tolist())


def test_orders_and_held_out_nodes_differ_between_seeds(data, small):
    one, same, other = (module.Split(data, seed) for seed in (0, 0, 1))
    assert (one.order, one.held) == (same.order, same.held)
    assert one.order != sorted(one.order)
    assert set(one.held) != set(other.held)


def test_labels_of_test_nodes_change_nothing(data, small):
    wrong = data.graph.labels.clone()
    wrong[data.test] = (wrong[data.test] + 1) % 3
    twin = replace(data, graph=replace(data.graph, labels=wrong))
    one, other = (module.Split(each, 0) for each in (data, twin))
    networks = [module.learn(split, 0.01, "row") for split in (one, other)]
    assert networks[0].digest() == networks[1].digest()
    found = module.accuracy(networks[0], one)
    assert found == module.accuracy(networks[1], other)
    assert 0.4 < found <= 1


def test_accuracy_counts_right_classes(data, small):
    split = module.Split(data, 0)
    network = module.learn(split, 0.01, "column")
    names = ["0", "1", "2"]
    slots = split.graph.slots(split.held)
    likely, _ = network.probabilities(split.graph, slots, names)
    split.truth = np.array(names)[likely.argmax(1)]
    assert module.accuracy(network, split) == 1
    split.truth = np.array(["never learned"] * len(split.held))
    assert module.accuracy(network, split) == 0


def test_settings_reach_the_network(data, small):
    for lr, normalization in ((0.01, "row"), (0.5, "none")):
        learner = module.learn(module.Split(data, 0), lr, normalization).learner
        assert learner.training == replace(TRAINING, lr=lr)
        assert learner.model.normalization == normalization
        assert learner.model.dropout == LAYERS["dropout"]


def cell(dataset, lr, normalization, *accuracies):
    config = {"dataset": dataset, "lr": lr, "normalization": normalization}
    return {"config": config, "accuracy_per_seed": list(accuracies)}


def test_differences_are_paired_by_seed(monkeypatch):
    monkeypatch.setattr(module, "DEFAULT", "0.003, column")
    made = [
        cell("a", 0.003, "column", 0.5, 0.7, 0.9), cell("b", 0.003, "column", 0.2, 0.2, 0.9),
        cell("a", 0.01, "row", 0.6, 0.7, 0.0), cell("b", 0.01, "row", 0.3, 0.4, 0.0),
    ]  # fmt: skip
    found = module.summarize(made, seeds=2)  # the third is not asked for
    assert found["0.003, column"]["mean"] == {
        "accuracy": pytest.approx(0.4),
        "difference": 0,
        "se": 0,
    }
    assert found["0.01, row"]["a"] == pytest.approx(
        {"accuracy": 0.65, "difference": 0.05, "se": 0.05}
    )
    mean = {"accuracy": 0.5, "difference": 0.1, "se": 0.0}
    assert found["0.01, row"]["mean"] == pytest.approx(mean)


@pytest.mark.parametrize(
    ("difference", "se", "chosen"),
    [(0.02, 0.01, "other"), (0.02, 0.02, "default"), (-0.02, 0.01, "default")],
)
def test_the_default_stays_within_one_standard_error(monkeypatch, difference, se, chosen):
    monkeypatch.setattr(module, "DEFAULT", "default")
    settings = {
        "default": {"mean": {"difference": 0.0, "se": 0.0}},
        "other": {"mean": {"difference": difference, "se": se}},
    }
    assert module.choose(settings) == chosen


def test_the_table_is_written_and_resumed(small, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "DEFAULT", "0.003, column")
    told = run(tmp_path, "--seeds", "2")
    path = tmp_path / "network_defaults.json"
    made = json.loads(path.read_text())["cells"]
    pairs = [(one["config"]["lr"], one["config"]["normalization"]) for one in made]
    assert pairs == [(lr, how) for lr in FIRST for how in LAST]
    assert all(one["seeds"] == [0, 1] and len(one["accuracy_per_seed"]) == 2 for one in made)
    assert told["settings"]["0.003, column"]["small"]["difference"] == 0
    page = (tmp_path / "network_defaults.md").read_text()
    assert f"Chosen: {told['chosen']}" in page
    assert "| rate, normalization | small | mean |" in page
    other = {**made[0], "config": {**made[0]["config"], "dataset": "other"}}
    path.write_text(json.dumps({"cells": [other, *made[:3]]}))  # as if it had been stopped
    calls = []
    monkeypatch.setattr(
        module, "learn", lambda *how, inner=module.learn: calls.append(how[1:]) or inner(*how)
    )
    assert run(tmp_path, "--seeds", "2") == told
    assert calls == [(0.003, "column")] * 2
    assert [one["config"] for one in json.loads(path.read_text())["cells"]] == [
        one["config"] for one in (other, *made)
    ]
    run(tmp_path, "--seeds", "2")
    assert len(calls) == 2  # nothing was missing


def test_the_defaults_are_those_that_were_chosen():
    path = Path(__file__).parents[2] / "results/network_defaults.json"
    made = json.loads(path.read_text())["cells"]
    assert {one["config"]["dataset"] for one in made} == {"cora", "citeseer", "pubmed"}
    assert len(made) == 3 * 12
    seeds = min(len(one["seeds"]) for one in made)
    assert module.choose(module.summarize(made, seeds)) == module.DEFAULT

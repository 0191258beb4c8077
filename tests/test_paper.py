"""The paper's tables: cells, what is kept of them, what stands beside them."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from evergraph.cli import app
from evergraph.datasets import generate
from evergraph.datasets.generate import PRESETS
from evergraph.evaluate.config import Config
from evergraph.evaluate.protocols import recut
from evergraph.evaluate.run import run
from evergraph.stream.continuum import Continuum, Settings
from experiments import paper as tables

runner = CliRunner()


@pytest.fixture(scope="module")
def data():
    growth = replace(PRESETS["citation"], nodes=240, classes=4, features=80)
    return generate(growth, name="small")


def config(**changes):
    settings = {"replay_batches": 1}
    return Config(**{"dataset": "small", "memory": 30, "settings": settings, **changes})


def test_published_values_are_the_paper_s():
    given = {(r["dataset"], r["scenario"], r["model"]): r for r in tables.published()["overall"]}
    assert len(given) == 4 * 3 * 6
    assert given["cora", "class", "fgn"] == {
        "dataset": "cora", "scenario": "class", "model": "fgn", "mean": 0.853, "sd": 0.014,
    }  # fmt: skip
    assert given["ogbn-arxiv", "regular", "mlp"]["mean"] == 0.462


def test_a_cell_has_its_evidence_and_is_found_again(data, tmp_path):
    ledger = tables.Ledger(tmp_path / "overall.json")
    cell = tables.compute(config(), 2, data, {"commit": "abc"})
    ledger.add(cell)
    keys = {
        "dataset", "scenario", "model", "method", "mean", "sd", "runs", "published", "seconds",
        "memory_bytes", "commit",
    }  # fmt: skip
    assert cell.keys() >= keys
    assert ledger.find(config(), 2) == cell
    assert ledger.find(config(), 3) is None
    assert ledger.find(config(memory=31), 2) is None
    for name, known in (("nobody reads this", True), ("lr", False)):
        settings = {**cell["config"]["settings"], name: 7.0}
        ledger.add({**cell, "config": {**cell["config"], "settings": settings}})
        assert (ledger.find(config(), 2) is not None) == known
    ledger.add({**cell, "mean": 0.5})
    assert [one["mean"] for one in ledger.cells()] == [0.5]


def test_cells_stand_in_the_order_of_the_table(data, tmp_path):
    ledger = tables.Ledger(tmp_path / "overall.json")
    cell = tables.compute(config(), 1, data, {})
    table = [
        {"dataset": dataset, "scenario": scenario, "model": model, "method": method}
        for dataset in ("cora", "citeseer", "amazon-computers", "generated-arxiv")
        for scenario in ("data", "class")
        for model in ("mlp", "fgn")
        for method in ("replay", "analytic")
    ]
    for i in np.random.default_rng(0).permutation(len(table)):
        ledger.add({**cell, **table[i]})
    assert [{key: one[key] for key in table[0]} for one in ledger.cells()] == table


def test_forgetting_is_the_mean_drop_per_class():
    def cell(scenario, method, accuracy):
        return {
            "dataset": "cora", "model": "fgn", "scenario": scenario, "method": method, "runs": 1,
            "commit": "abc", "class_accuracy": accuracy,
        }  # fmt: skip

    cells = [cell("regular", "finetune", [0.9, 0.8]), cell("class", "replay", [0.7, 0.9])]
    (row,) = tables.forgetting(cells)
    assert row["percent"] == pytest.approx(5.0)
    assert row["published"] == 1.35


def test_parameters_stand_beside_the_published_ones():
    rows = {row["model"]: row for row in tables.parameters()}
    assert rows["fgn"]["parameters"] == rows["fgn"]["published"] == 21872


def test_the_field_s_cut_keeps_tasks_apart(data):
    cut, _ = recut(data)
    labels = cut.graph.labels
    assert (labels[cut.graph.edges[0]] // 2 == labels[cut.graph.edges[1]] // 2).all()
    for label in labels[labels >= 0].unique():
        size = int((labels == label).sum())
        assert abs(int((labels[cut.train] == label).sum()) - 0.6 * size) <= 1
        assert abs(int((labels[cut.test] == label).sum()) - 0.2 * size) <= 1


@pytest.mark.parametrize("order", [(3, 0, 2, 1), (3, 0, 1, 2)])
def test_the_field_s_cut_follows_the_class_order(data, order):
    cut, kept = recut(data, class_order=order)
    assert kept == order
    stream = Continuum(cut, Settings(classes_per_task=2, class_order=kept))
    task = {label: place // 2 for place, label in enumerate(order)}
    ends = [[task[label] for label in end] for end in cut.graph.labels[cut.graph.edges].tolist()]
    assert ends[0] == ends[1]
    assert [sorted(cut.graph.labels[t].unique().tolist()) for t in stream.tasks] == [
        sorted(order[:2]), sorted(order[2:]),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="class_order must name each class"):
        recut(data, class_order=order[:3])


def test_the_field_s_measures_are_means_over_classes(data):
    cut, _ = recut(data)
    chosen = config(protocol="online", classes_per_task=2)
    result = run(chosen, (0,), cut)
    (accuracy,) = result["class_accuracy"]
    matrix = np.array(result["accuracy_matrix"])
    assert matrix.shape == (2, 2)
    assert matrix[-1, 0] == pytest.approx((accuracy["0"] + accuracy["1"]) / 2)
    assert result["average_accuracy_mean"] == pytest.approx(matrix[-1].mean())
    assert result["average_forgetting_mean"] == pytest.approx(matrix[1, 0] - matrix[0, 0])


def test_offline_tasks_come_in_several_passes(data):
    chosen = config(protocol="cglb", classes_per_task=2, epochs=3, method="finetune")
    assert chosen.passes == 3
    cut, _ = recut(data)
    assert run(chosen, (0,), cut)["curve"][0][-1][0] == 3 * len(cut.train)


def test_a_table_can_be_stopped_and_resumed(tmp_path):
    command = [
        "paper", "overall", "--dataset", "generated", "--models", "mlp", "--scenarios", "class",
        "--quick", "--results", str(tmp_path),
    ]  # fmt: skip
    first = runner.invoke(app, [*command, "--json"])
    assert first.exit_code == 0, first.output
    cells = json.loads(first.stdout)
    alone = runner.invoke(app, [*command[:-1], str(tmp_path / "alone"), "--jobs", "1", "--json"])
    assert [cell["mean"] for cell in json.loads(alone.stdout)] == [cell["mean"] for cell in cells]
    assert {cell["method"] for cell in cells} == {"replay", "analytic"}
    again = runner.invoke(app, [*command, "--json"])
    assert json.loads(again.stdout) == cells  # nothing was computed again, seconds included
    page = (tmp_path / "overall_quick.md").read_text()
    assert f"{cells[0]['mean']:.3f}" in page
    (tmp_path / "overall_quick.json").rename(tmp_path / "overall.json")
    drawn = runner.invoke(app, ["paper", "pictures", "--results", str(tmp_path)])
    assert drawn.exit_code == 0, drawn.output
    assert (tmp_path / "stream_generated.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_missing_is_said(tmp_path):
    shown = runner.invoke(app, ["paper", "forgetting", "--results", str(tmp_path)])
    assert shown.exit_code == 2
    assert "paper overall" in shown.output

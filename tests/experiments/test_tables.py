"""The paper's tables: cells, what is kept of them, what stands beside them."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer import Typer
from typer.testing import CliRunner

from evergraph.datasets import generate
from evergraph.datasets.generate import PRESETS
from evergraph.evaluate.config import Config, run_config
from evergraph.evaluate.protocols import recut
from evergraph.stream import node_continuum
from experiments import cells as tables
from experiments import small_tables
from experiments.overall import WAYS, overall, plans

runner = CliRunner()


def invoke(command, *arguments):
    app = Typer()
    app.command()(command)
    return runner.invoke(app, [str(part) for part in arguments])


@pytest.fixture(scope="module")
def data():
    growth = replace(PRESETS["citation"], nodes=240, classes=4, features=80)
    return generate(growth, name="small")


def config(**changes):
    settings = {"replay_batches": 1}
    return Config(**{"dataset": "small", "memory": 30, "settings": settings, **changes})


@pytest.fixture
def cell(data, monkeypatch):
    monkeypatch.setattr(tables, "load", lambda name, root: data)
    return lambda seeds: tables.cell(config(), seeds, None)


def test_published_values_are_the_paper_s():
    given = {(r["dataset"], r["scenario"], r["model"]): r for r in tables.published()["overall"]}
    assert len(given) == 4 * 3 * 6
    assert given["cora", "class", "fgn"] == {
        "dataset": "cora", "scenario": "class", "model": "fgn", "mean": 0.853, "sd": 0.014,
    }  # fmt: skip
    assert given["ogbn-arxiv", "regular", "mlp"]["mean"] == 0.462


def test_a_cell_has_its_evidence_and_is_found_again(cell, tmp_path):
    ledger, cell = tables.Ledger(tmp_path / "overall.json"), cell(2)
    ledger.add(cell)
    keys = {
        "schema", "config", "seeds", "accuracy_mean", "accuracy_sd", "runs", "published",
        "seconds", "memory_bytes", "commit", "versions", "generated",
    }  # fmt: skip
    assert cell.keys() >= keys
    assert [run["seed"] for run in cell["runs"]] == cell["seeds"] == [0, 1]
    assert ledger.find(config(), 2) == cell
    assert ledger.find(config(), 3) is None
    assert ledger.find(config(memory=31), 2) is None
    settings = {**cell["config"]["settings"], "lr": 7.0}
    ledger.add({**cell, "config": {**cell["config"], "settings": settings}})
    assert ledger.find(config(), 2) is None
    ledger.add({**cell, "accuracy_mean": 0.5})
    assert [one["accuracy_mean"] for one in ledger.cells()] == [0.5]


def test_cells_stand_in_the_order_of_the_table(cell, tmp_path):
    ledger, cell = tables.Ledger(tmp_path / "overall.json"), cell(1)
    table = [
        {"dataset": dataset, "scenario": scenario, "model": model, "method": method}
        for dataset in ("cora", "citeseer", "amazon-computers", "generated-arxiv")
        for scenario in ("data", "class")
        for model in ("mlp", "fgn")
        for method in ("replay", "analytic")
    ]
    for i in np.random.default_rng(0).permutation(len(table)):
        ledger.add({**cell, "config": {**cell["config"], **table[i]}})
    assert [{k: one["config"][k] for k in table[0]} for one in ledger.cells()] == table


def test_forgetting_is_the_mean_drop_per_class():
    def cell(scenario, method, accuracy):
        chosen = {"dataset": "cora", "model": "fgn", "scenario": scenario, "method": method}
        return {"config": chosen, "seeds": [0], "class_accuracy": [accuracy]}

    cells = [
        cell("regular", "finetune", {"0": 0.9, "1": 0.8}),
        cell("class", "replay", {"0": 0.7, "1": 0.9}),
    ]
    _, _, _, (row,) = small_tables.forgetting(cells)
    assert row["percent"] == pytest.approx(5.0)
    assert row["published"] == 1.35


def test_parameters_stand_beside_the_published_ones():
    rows = {row["model"]: row for row in small_tables.parameters()[3]}
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
    stream = node_continuum(cut, classes_per_task=2, class_order=kept)
    task = {label: place // 2 for place, label in enumerate(order)}
    ends = [[task[label] for label in end] for end in cut.graph.labels[cut.graph.edges].tolist()]
    assert ends[0] == ends[1]
    assert [
        sorted(cut.graph.labels[stream.schedule.members(t)].unique().tolist()) for t in (0, 1)
    ] == [
        sorted(order[:2]), sorted(order[2:]),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="class_order must name each class"):
        recut(data, class_order=order[:3])


def test_the_field_s_measures_are_means_over_classes(data):
    cut, _ = recut(data)
    chosen = config(protocol="online", classes_per_task=2)
    result = run_config(chosen, (0,), cut)
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
    assert run_config(chosen, (0,), cut)["curve"][0][-1][0] == 3 * len(cut.train)


def test_a_table_can_be_stopped_and_resumed(tmp_path):
    options = [
        "--dataset", "generated", "--models", "mlp", "--scenarios", "class", "--quick",
        "--figures", tmp_path, "--results", tmp_path,
    ]  # fmt: skip
    first = invoke(overall, *options, "--json")
    assert first.exit_code == 0, first.output
    cells = json.loads(first.stdout)
    alone = invoke(overall, *options[:-1], tmp_path / "alone", "--jobs", "1", "--json")
    means = [cell["accuracy_mean"] for cell in cells]
    assert [cell["accuracy_mean"] for cell in json.loads(alone.stdout)] == means
    assert {cell["config"]["method"] for cell in cells} == {"replay", "analytic"}
    again = invoke(overall, *options, "--json")
    assert json.loads(again.stdout) == cells  # nothing was computed again, seconds included
    assert f"{means[0]:.3f}" in (tmp_path / "overall_quick.md").read_text()
    assert (tmp_path / "stream_generated.png").read_bytes().startswith(b"\x89PNG")


def test_settings_of_a_table_are_presets_defaults_or_the_papers():
    found = {way: next(plans(("cora",), ("fgn",), ("class",), way)).settings for way in WAYS}
    assert (found["preset"]["gain"], found["preset"]["hops"]) == (0.1, 2)  # as chosen for Cora
    unknown = Config("somewhere else", "class").sized(generate()).settings
    assert unknown.items() <= found["default"].items()
    changed = dict(found["paper"].items() - found["default"].items())
    assert changed == {
        "concatenate": False,
        "attention": "softmax",
        "normalization": "symmetric",
    }


def test_what_is_missing_is_said(tmp_path):
    shown = invoke(small_tables.small_tables, "--only", "forgetting", "--results", tmp_path)
    assert shown.exit_code == 2
    assert "experiments.overall" in shown.output


def test_published_results_follow_the_schema():
    for path in sorted((Path(__file__).parents[2] / "results").glob("*.json")):
        if path.stem.startswith("bench_"):
            continue
        content = json.loads(path.read_text())
        assert content["schema"] == 2, path.name
        assert content.keys() & {"cells", "searches"}, path.name

"""Domains one after the other, and streams without task boundaries."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from typer import Typer
from typer.testing import CliRunner

from evergraph.datasets import generate
from evergraph.datasets.generate import PRESETS
from experiments.league import domains, task_free, time_streams
from experiments.league.graphs import split
from experiments.league.lines import Lines, complete

runner = CliRunner()


@pytest.fixture(scope="module")
def data():
    growth = replace(PRESETS["citation"], nodes=300, classes=4, features=60)
    found = generate(growth, name="small")
    return replace(found, graph=replace(found.graph, domain=torch.arange(300) % 3))


@pytest.fixture(scope="module")
def small(data):
    growth = replace(PRESETS["citation"], nodes=300, classes=4, features=60)
    return split(generate(growth, name="small"), 0)


def call(command, *arguments):
    app = Typer()
    app.command()(command)
    result = runner.invoke(app, [str(part) for part in arguments])
    assert result.exit_code == 0, result.output


def test_every_domain_has_its_own_parts(data):
    drawn = domains.draw(data, 0)
    parts = drawn.data.train, drawn.validation, drawn.test
    assert len(torch.cat(parts).unique()) == sum(map(len, parts))
    for part in parts:
        assert (data.graph.domain[part].bincount() > 9).all()


def test_sets_of_domains_give_the_matrix_of_each_order():
    tests = {(0,): [0.9, 0.1, 0.2], (0, 1): [0.8, 0.7, 0.3], (0, 1, 2): [0.7, 0.6, 0.5]}
    tests |= {(1,): [0.2, 0.9, 0.3], (2,): [0.0] * 3, (0, 2): [0.5] * 3, (1, 2): [0.4, 0.4, 0.9]}
    cells = [
        {"model": "ridge on m", "split": 0, "domains": list(some), "test": found, "bytes": 1}
        for some, found in tests.items()
    ]
    found = domains.matrices(cells)["ridge on m"]
    assert len(found) == 6
    # ACM, then Citation, then DBLP, as rows after each and columns in that order
    assert found[0, 1, 2][0].tolist() == [[0.9, 0.1, 0.2], [0.8, 0.7, 0.3], [0.7, 0.6, 0.5]]
    assert found[1, 2, 0][0].tolist() == [[0.9, 0.3, 0.2], [0.4, 0.9, 0.4], [0.6, 0.5, 0.7]]
    row = domains.summarize(cells)[0]
    assert row["accuracy"] == pytest.approx(0.6)
    assert row["splits"] == [0]
    # ACM, Citation, DBLP forgets .2 and .1; DBLP is last: the mean over two is .15
    assert found[0, 1, 2][0][:2].max(0)[:2] - found[0, 1, 2][0][2][:2] == pytest.approx([0.2, 0.1])


def test_domains_are_learned_in_all_orders(data, tmp_path, monkeypatch):
    monkeypatch.setattr(domains, "read", lambda name, root: data)
    path = tmp_path / "cells.jsonl"
    options = ["--models", "ridge on m;GCN + replay", "--cells", path, "--results", tmp_path]
    call(domains.domains, "--splits", 1, *options)
    assert len(Lines(path).cells()) == 7 + 6
    rows = json.loads((tmp_path / "league_domains.json").read_text())["cells"]
    assert {row["model"] for row in rows} == {"ridge on m", "GCN + replay"}
    assert all(len(row["by_order"]) == 6 and row["accuracy"] > 0.4 for row in rows)
    assert "GCN + replay" in (tmp_path / "league_domains.md").read_text()


@pytest.mark.parametrize("kind", task_free.STREAMS)
def test_each_stream_shows_every_training_node_once(data, kind):
    drawn = split(data, 0)
    plan, tests = task_free.schedule(drawn, kind)
    assert torch.equal(torch.cat(plan.batches).sort().values, drawn.data.train.sort().values)
    assert len(tests) == 2  # four classes, two in a group
    assert torch.equal(torch.cat(tests).sort().values, drawn.test.sort().values)
    again, _ = task_free.schedule(drawn, kind)
    assert all(map(torch.equal, plan.batches, again.batches))


@pytest.mark.parametrize("name", task_free.METHODS)
def test_each_method_is_measured_along_a_stream(small, name):
    cell = task_free.measured(small, "gaussian", name)
    matrix = np.array(cell["matrix"])
    assert matrix.shape[1] == 2
    assert 4 <= len(matrix) <= task_free.POINTS
    assert cell["a_auc"] > 0.25  # four classes
    assert cell["fm"] <= 0
    limited = name not in ("bare", "feature-graph kernel", "closed form, x + m + Âx")
    assert cell["bytes"] > 0 or not limited


def test_streams_are_published(data, tmp_path, monkeypatch):
    monkeypatch.setattr(task_free, "read", lambda name, root: data)
    path = tmp_path / "cells.jsonl"
    options = ["--methods", "bare;ER", "--streams", "class", "--graphs", "cora,uai"]
    options += ["--cells", path, "--results", tmp_path, "--splits", "1"]
    call(task_free.task_free, *options)
    found = json.loads((tmp_path / "league_task_free.json").read_text())["cells"]
    assert len(found) == 4
    by_method = {row["method"]: row["a_auc"][0] for row in found if row["graph"] == "cora"}
    assert by_method["ER"] > by_method["bare"]
    assert "class: ER" in (tmp_path / "league_task_free.md").read_text()


def test_finished_cells_are_not_computed_again(tmp_path):
    lines, made = Lines(tmp_path / "a" / "cells.jsonl"), []

    def compute(key):
        made.append(key["a"])
        return {"value": key["a"] ** 2}

    wanted = [{"a": number} for number in range(3)]
    assert [cell["value"] for cell in complete(lines, wanted[:2], compute, 1)] == [0, 1]
    lines.path.write_text(lines.path.read_text()[:-4])  # killed while it wrote
    assert [cell["value"] for cell in complete(lines, wanted, compute, 1)] == [1, 4]
    assert made == [0, 1, 1, 2]
    assert not [*complete(lines, [{"a": 9}], compute, -1)]
    assert [cell["a"] for cell in lines.cells()] == [0, 1, 2]


@pytest.fixture(scope="module")
def growing():
    growth = replace(PRESETS["citation"], nodes=300, classes=4, features=60)
    found = generate(growth, name="small")
    time = found.graph.time[found.graph.edges].max(0).values
    return replace(found, graph=replace(found.graph, edge_time=time))


@pytest.mark.parametrize("name", ["ridge on m", "GCN + replay", time_streams.MAJORITY])
def test_steps_are_predicted_before_they_are_learned(growing, name):
    data = time_streams.draw(growing, 0)
    cell = time_streams.prequential(data, name, 0)
    steps = np.array(cell["steps"])
    assert (np.diff(steps[:, 0]) > 0).all()
    assert steps[0, 0] > int(data.graph.time[data.train].min())  # the first step is not predicted
    assert (steps[:, 1] <= steps[:, 2]).all()
    assert 150 < steps[:, 2].sum() < len(data.train)
    assert cell["accuracy"] == pytest.approx(steps[:, 1].sum() / steps[:, 2].sum())


def test_time_streams_are_published(growing, tmp_path, monkeypatch):
    monkeypatch.setattr(time_streams, "read", lambda name, root: growing)
    path = tmp_path / "cells.jsonl"
    names = f"ridge on m;{time_streams.MAJORITY}"
    options = ["--models", names, "--splits", 2, "--cells", path, "--results", tmp_path]
    call(time_streams.time_streams, *options)
    found = json.loads((tmp_path / "league_time.json").read_text())
    assert set(found["draws"].values()) == {2}
    by_name = {cell["model"]: cell["accuracy"] for cell in found["cells"]}
    assert by_name["ridge on m"] > by_name[time_streams.MAJORITY]
    assert "ridge on m" in (tmp_path / "league_time.md").read_text()

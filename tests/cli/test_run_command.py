"""The main job: its numbers, its files, its errors, and what a kill does to it."""

import json
import random
from dataclasses import replace
from pathlib import Path

import kill_and_resume
import numpy as np
import pytest
from typer.testing import CliRunner

from evergraph.cli import app
from evergraph.datasets import generate
from evergraph.datasets.generate import PRESETS

runner = CliRunner()
KEYS = {
    "config", "seeds", "versions", "commit", "accuracy_mean", "accuracy_sd", "accuracy_per_seed",
    "forgetting_mean", "accuracy_matrix", "seconds", "items_per_second", "memory_bytes",
}  # fmt: skip
SMALL = ["run", "--dataset", "generated", "--memory", "50", "--method", "analytic"]


def invoke(*arguments):
    return runner.invoke(app, list(arguments))


def test_the_table_shows_the_numbers_of_the_file(tmp_path):
    shown = invoke(*SMALL, "--seeds", "2", "--out", str(tmp_path))
    assert shown.exit_code == 0, shown.output
    result = json.loads((tmp_path / "result.json").read_text())
    assert result.keys() >= KEYS
    assert f"{result['accuracy_mean']:.3f} ± {result['accuracy_sd']:.3f}" in shown.output
    assert f"{result['seconds']:.1f}" in shown.output
    assert len(result["accuracy_per_seed"]) == 2
    assert result["accuracy_mean"] == pytest.approx(np.mean(result["accuracy_per_seed"]))
    assert np.shape(result["accuracy_matrix"]) == (7, 7)
    for name in ("learning_curve.png", "accuracy_matrix.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_json_and_nothing_else(tmp_path):
    shown = invoke(*SMALL, "--seeds", "1", "--json", "--out", str(tmp_path))
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout).keys() >= KEYS


def test_any_class_order_gives_the_same_closed_form(tmp_path):
    results = [
        json.loads(invoke(*SMALL, "--seeds", "1", "--json", "--out", str(tmp_path), *more).stdout)
        for more in ([], ["--class-order", "6,5,4,3,2,1,0"], ["--scenario", "data"])
    ]
    assert len({result["accuracy_mean"] for result in results}) == 1


def test_a_run_killed_at_random_moments_ends_the_same(tmp_path):
    expected = kill_and_resume.finish(kill_and_resume.command(tmp_path))
    chance = random.Random(1)
    for number in range(2):
        folder = Path(tmp_path) / str(number)
        moment, same = kill_and_resume.trial(folder, expected, 6, chance)
        assert same, f"killed after {moment} s"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dataset", "coar"], "cora"),
        (["--method", "replya"], "method must be one of"),
        (["--scenario", "classes"], "scenario must be one of"),
        (["--memory", "0", "--method", "replay"], "capacity must be at least 1, got 0"),
        (["--class-order", "a,b"], "labels separated by commas, as numbers such as 2,0,1"),
        (["--class-order", "0,1"], "name each class"),
        (["--resume"], "--resume needs --checkpoint"),
        (["--model", "gpt"], "model must be one of fgn"),
        (["--method", "finetune", "--lr", "1e30"], "training diverged; start again with a lower"),
        (["--dataset", "{empty}"], "nodes.csv, nodes.tsv, nodes.jsonl"),
    ],
)
def test_wrong_options_are_told_what_is_right(arguments, message, tmp_path):
    (tmp_path / "empty").mkdir()
    given = [part.format(empty=tmp_path / "empty") for part in arguments]
    shown = invoke(*SMALL, "--out", str(tmp_path), *given)
    assert shown.exit_code == 2, shown.output
    assert message in " ".join(shown.output.split())


def test_a_damaged_checkpoint_is_told_and_kept(tmp_path):
    path = tmp_path / "checkpoint"
    path.write_bytes(b"not a checkpoint")
    shown = invoke(*SMALL, "--out", str(tmp_path), "--checkpoint", str(path), "--resume")
    assert shown.exit_code == 2
    assert "truncated or damaged" in " ".join(shown.output.split())
    assert path.read_bytes() == b"not a checkpoint"


def test_the_first_try_works_without_any_data(tmp_path, monkeypatch):
    def nothing(name, *arguments, **options):
        from evergraph.datasets import DatasetNotFound

        if name == "cora":
            raise DatasetNotFound("tried everywhere")
        return generate(replace(PRESETS["citation"], nodes=300, classes=3, features=90))

    monkeypatch.setattr("evergraph.datasets.load", nothing)
    shown = invoke("run", "--method", "analytic", "--seeds", "1", "--out", str(tmp_path))
    assert shown.exit_code == 0, shown.output
    assert "generated" in shown.output


def test_compare_prints_one_table():
    shown = invoke("compare", "--dataset", "generated", "--methods", "finetune,analytic", "--json")
    assert shown.exit_code == 0, shown.output
    methods = [row["config"]["method"] for row in json.loads(shown.stdout)["results"]]
    assert methods == ["finetune", "analytic"]


def test_compare_shows_pairs_and_the_bound_in_one_picture(tmp_path):
    given = ["--dataset", "generated", "--epochs", "1", "--memory", "50", "--json"]
    picture, file = tmp_path / "curves.png", tmp_path / "curves.json"
    pairs = "fgn/finetune,fgn/analytic,mlp/regular"
    shown = invoke("compare", "--runs", pairs, *given, "--figure", str(picture), "--out", str(file))
    assert shown.exit_code == 0, shown.output
    results = json.loads(file.read_text())["results"]
    assert results == json.loads(shown.stdout)["results"]
    found = [(r["config"]["model"], r["config"]["scenario"]) for r in results]
    assert found == [("fgn", "class"), ("fgn", "class"), ("mlp", "regular")]
    assert len(results[2]["curve"][0]) > 0
    assert results[0]["accuracy_mean"] < results[1]["accuracy_mean"]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_compare_refuses_what_is_no_pair():
    shown = invoke("compare", "--runs", "fgn-replay")
    assert shown.exit_code == 2
    assert "--runs must be pairs such as fgn/replay, got 'fgn-replay'" in shown.output


def test_datasets_lists_what_is_there():
    rows = json.loads(invoke("datasets", "--json").stdout)
    assert {"cora", "citeseer", "pubmed", "generated"} <= {row["name"] for row in rows}
    assert "pubmed" in invoke("datasets").output


def own_graph(folder, labels, edges, splits=None):
    """A graph of the user's own: two numbers and a label per node."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    lines = ["id,label,x0,x1" + ("" if splits is None else ",split")]
    for node, label in enumerate(labels):
        values = rng.normal(size=2).round(2).tolist()
        split = [] if splits is None else [splits[node]]
        lines.append(",".join(map(str, [node, label, *values, *split])))
    (folder / "nodes.csv").write_text("\n".join(lines))
    (folder / "edges.csv").write_text("\n".join(edges))
    return folder


RING = [f"{i},{(i + 1) % 20}" for i in range(20)]


@pytest.mark.parametrize(
    ("labels", "edges"),
    [
        ([0, 1] * 9 + [0, 2], ["source,target", *RING]),  # one node of a class: nothing to test
        ([0, 1] * 10, ["source,target"]),  # nobody knows anybody
        ([0, 1] * 10, ["source,target,weight0,weight1", *(f"{e},1,0.5" for e in RING)]),
    ],
    ids=["rare class", "no edges", "vector weights"],
)
@pytest.mark.parametrize("model", ["fgn", "gcn"])
def test_odd_graphs_run(tmp_path, labels, edges, model):
    folder = own_graph(tmp_path / "odd", labels, edges)
    shown = invoke("run", "--dataset", str(folder), "--model", model, "--seeds", "1", "--json")
    assert shown.exit_code == 0, shown.output
    result = json.loads(shown.stdout, parse_constant=pytest.fail)
    assert 0 <= result["accuracy_mean"] <= 1
    assert 0 <= result["average_accuracy_mean"] <= 1
    untested = [row[-1] is None for row in result["accuracy_matrix"]]
    assert untested == [2 in labels] * len(untested)
    assert invoke(
        "run", "--dataset", str(folder), "--seeds", "1", "--out", str(tmp_path / "o")
    ).exit_code == 0  # fmt: skip


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_graph_with_nothing_to_learn_or_to_test_says_so(tmp_path, part):
    other = "test" if part == "train" else "train"
    folder = own_graph(tmp_path / "odd", [0, 1] * 10, ["source,target", *RING], [other] * 20)
    shown = invoke("run", "--dataset", str(folder), "--seeds", "1")
    assert shown.exit_code == 2
    assert f"must have {part} nodes with labels, got none" in " ".join(shown.output.split())


def test_a_search_keeps_to_its_own_file(tmp_path):
    folder, out = own_graph(tmp_path / "own", [0, 1] * 10, ["source,target"]), tmp_path / "t.json"
    command = ["tune", "--dataset", str(folder), "--method", "analytic", "--out", str(out)]
    assert invoke(*command, "--seeds", "1").exit_code == 0
    before = out.read_text()
    shown = invoke(*command, "--seeds", "2")
    assert shown.exit_code == 2
    assert "belongs to another search: seeds is 1 there, 2 here" in " ".join(shown.output.split())
    assert out.read_text() == before
    out.write_text(before[:100])
    shown = invoke(*command, "--seeds", "1")
    assert shown.exit_code == 2
    assert "is no search" in " ".join(shown.output.split())
    assert out.read_text() == before[:100]

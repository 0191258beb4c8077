"""Settings by name: pairs, files of settings, of a search, of a result, and their errors."""

import json

import pytest
from typer.testing import CliRunner

from evergraph.cli import app
from evergraph.cli.settings import given_settings

runner = CliRunner()
RUN = ["run", "--dataset", "generated", "--seeds", "1", "--method", "analytic", "--json"]


def invoke(*arguments):
    return runner.invoke(app, list(arguments))


def test_pairs_go_before_the_file(tmp_path):
    path = tmp_path / "settings.json"
    path.write_text('{"lr": 0.1, "dropout": 0.5}')
    assert given_settings(["lr=0.2"], path) == {"lr": 0.2, "dropout": 0.5}


def test_run_takes_what_tune_and_run_wrote(tmp_path):
    search, out = tmp_path / "search.json", tmp_path / "out"
    names = ["--dataset", "generated", "--method", "analytic"]
    tuned = invoke("tune", *names, "--seeds", "1", "--json", "--out", str(search))
    assert tuned.exit_code == 0, tuned.output
    best = json.loads(tuned.stdout)["trials"][0]["settings"]
    ran = json.loads(invoke(*RUN, "--settings", str(search), "--out", str(out)).stdout)
    read = ran["config"]["settings"]
    assert {name: read[name] for name in best} == best
    again = invoke(*RUN, "--settings", str(out / "result.json"), "--out", str(tmp_path / "2"))
    assert json.loads(again.stdout)["accuracy_mean"] == ran["accuracy_mean"]


def test_the_order_of_the_stream_chooses_among_trials(tmp_path):
    path = tmp_path / "search.json"
    trials = [
        {"settings": {"lr": rate}, "validation_accuracy": {"data": data, "class": 1 - data}}
        for rate, data in ((0.1, 0.9), (0.3, 0.2))
    ]
    path.write_text(json.dumps({"trials": trials}))
    assert given_settings(None, path, "data") == {"lr": 0.1}
    assert given_settings(None, path, "class") == {"lr": 0.3}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "lr"], "--set must be NAME=VALUE, such as lr=0.05, got 'lr'"),
        (["--set", "rate=1"], "settings must be among"),
        (["--settings", "{missing}"], "--settings must be a file with JSON"),
        (["--settings", "{list}"], "--settings must be an object of settings"),
    ],
)
def test_errors(arguments, message, tmp_path):
    (tmp_path / "list.json").write_text("[1]")
    named = {"{missing}": tmp_path / "none.json", "{list}": tmp_path / "list.json"}
    shown = invoke(*RUN, *(str(named.get(one, one)) for one in arguments))
    assert shown.exit_code == 2
    assert message in " ".join(shown.output.split())


def test_train_takes_settings_of_the_model(tmp_path):
    (tmp_path / "nodes.csv").write_text("id,age,label\n1,20,a\n2,50,b\n3,21,a\n4,49,b\n")
    (tmp_path / "edges.csv").write_text("source,target\n1,3\n")
    data, out = str(tmp_path), tmp_path / "model"
    made = invoke("train", data, "--out", str(out), "--set", "hops=1", "--set", 'linear=["x"]')
    assert made.exit_code == 0, made.output
    stored = json.loads((out / "model.json").read_text())["settings"]
    assert (stored["hops"], stored["linear"]) == (1, ["x"])
    wrong = invoke("train", data, "--out", str(tmp_path / "2"), "--set", "hop=1")
    assert wrong.exit_code == 2
    assert "settings must be among hops, cap" in " ".join(wrong.output.split())


def test_classes_are_ordered_by_name(tmp_path):
    rows = [f"{n},{n % 7},{'ab'[n % 2]},{'train' if n < 30 else 'test'}" for n in range(40)]
    (tmp_path / "nodes.csv").write_text("\n".join(["id,x,label,split", *rows]))
    (tmp_path / "edges.csv").write_text("source,target\n1,3\n2,4\n")
    run = ["run", "--dataset", str(tmp_path), "--seeds", "1", "--method", "analytic", "--json"]
    run += ["--out", str(tmp_path / "out")]
    found = invoke(*run, "--class-order", "b,a")
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["groups"] == ["b", "a"]
    wrong = invoke(*run, "--class-order", "b,c")
    assert "names among a, b" in " ".join(wrong.output.split())

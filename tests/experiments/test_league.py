"""The league: splits, the dual of the closed form, peers, and what is made of finished cells."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from typer import Typer
from typer.testing import CliRunner

from evergraph.datasets import generate
from evergraph.datasets.generate import PRESETS
from evergraph.evaluate.config import Config, build
from experiments.league import __main__ as command
from experiments.league.graphs import GRAPHS, only_domain, split
from experiments.league.lines import Lines
from experiments.league.models import MODELS, cell
from experiments.league.parts import HALVES, ablation, defaults
from experiments.league.peers import closed, random_layers
from experiments.league.ranking import chosen, table
from experiments.league.report import views
from experiments.league.solvers import Kernel, discriminant, ridge
from experiments.league.views import Seen, Views

runner = CliRunner()


@pytest.fixture(scope="module")
def data():
    growth = replace(PRESETS["citation"], nodes=400, classes=4, features=60)
    return generate(growth, name="small")


@pytest.fixture(scope="module")
def seen(data):
    return Seen(Views(data.graph), split(data, 0))


def test_parts_of_a_split_share_no_node(data):
    for number in range(3):
        drawn = split(data, number)
        parts = drawn.data.train, drawn.validation, drawn.test
        assert len(torch.cat(parts).unique()) == sum(map(len, parts))
        assert torch.equal(drawn.data.test, torch.cat(parts[:0:-1]))
    assert not torch.equal(split(data, 0).data.train, split(data, 1).data.train)
    assert torch.equal(split(data, 2).data.train, split(data, 2).data.train)


def test_a_domain_keeps_its_own_edges(data):
    domain = torch.arange(400) % 2
    graph = replace(data.graph, domain=domain)
    part = only_domain(replace(data, graph=graph), 1).graph
    assert torch.equal(part.labels, graph.labels[domain == 1])
    inside = (domain[graph.edges] == 1).all(0)
    assert torch.equal(part.edges * 2 + 1, graph.edges[:, inside])


def test_means_are_those_of_the_smoothed_graph(data, seen):
    """One and two steps of D^-1/2 (A + I) D^-1/2, and the plain mean with the node itself."""
    edges, size = data.graph.edges, data.graph.num_nodes
    near = torch.eye(size, dtype=torch.float64)
    near[edges[0], edges[1]] = 1  # a node sees where its edges end
    scale = near.sum(1).rsqrt()
    smooth = (scale[:, None] * near * scale).numpy()
    assert np.allclose(seen.views.smooth.toarray(), smooth, atol=1e-6)
    x, index = seen.views.x.toarray(), seen.nodes.numpy()
    found = seen.views.means(seen.nodes)
    mean = (near / near.sum(1, keepdim=True)).numpy() @ x
    assert np.allclose(found["mean"].toarray(), mean[index])
    for step, name in enumerate(("step 1", "step 2"), start=1):
        expected = (np.linalg.matrix_power(smooth, step) @ x)[index]
        assert np.allclose(found[name].toarray(), expected, atol=1e-5)
        assert np.allclose(seen.views.walks(seen.nodes, 2)[step - 1].toarray(), expected, atol=1e-5)


@pytest.mark.parametrize("solver", ["ridge", "lda"])
@pytest.mark.parametrize("model", ["fgn", "gcn", "mlp"])
def test_the_dual_predicts_what_the_closed_form_of_one_pass_does(seen, model, solver):
    settings = {"solver": solver, "strength": 0.7, "hops": 1}
    config = Config("small", "data", model, "analytic", settings=settings)
    stream, learner = build(config, seen.split.data, 0)
    for batch in stream:
        learner.observe(batch)
    expected = torch.cat([learner.predict(batch) for batch in stream.test()]).numpy()
    blocks = {"fgn": ("x", "mean", "propagated"), "gcn": ("mean",), "mlp": ("x",)}[model]
    dual = {"ridge": ridge, "lda": discriminant}[solver]
    found = closed(seen, [{"hops": 1, "strength": 0.7}], blocks=blocks, solver=dual)[0]
    assert (found == expected).mean() > 0.995  # rows of the learner are rounded to 20 bits
    assert len(np.unique(expected)) == 4


def test_the_kernel_on_shared_matrices_predicts_what_the_learner_does(seen):
    config = Config("small", "data", "fgn", "kernel", batch_size=50)
    stream, learner = build(config, seen.split.data, 0)
    for batch in stream:
        learner.observe(batch)
    expected = torch.cat([learner.predict(batch) for batch in stream.test()]).numpy()
    (found,), kept = MODELS["feature-graph kernel"].predict(seen, "any", ({},))
    assert (found == expected).mean() > 0.99  # rows of the learner come from single precision
    assert kept == pytest.approx(learner.method.nbytes, rel=1e-3)


def test_many_penalties_are_those_of_one_each(seen):
    kernel = seen.kernel(("x", "mean"), 2)
    for solver in (ridge, discriminant):
        both = solver(kernel, seen.labels, [0.01, 10.0])
        alone = [solver(kernel, seen.labels, [one])[0] for one in (0.01, 10.0)]
        assert all((a == b).all() for a, b in zip(both, alone, strict=True))
        assert (both[0] != both[1]).any()


def test_sparse_and_dense_rows_have_the_same_products(seen):
    rows = seen.summed(("x", "mean"), 1)
    sparse, dense = (Kernel.of(part, seen.count) for part in (rows, rows.toarray()))
    assert np.allclose(sparse.inner, dense.inner, atol=1e-5)
    assert np.allclose(sparse.across, dense.across, atol=1e-5)


def test_random_layers_are_those_of_their_equation(seen):
    found = random_layers(seen.views, 2, 8, seed=3)
    rng = np.random.default_rng(3)
    x = seen.views.x.toarray()
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    smooth = seen.views.smooth.toarray()
    first = np.tanh(smooth @ x @ (4 * rng.standard_normal((60, 8), np.float32)))
    second = np.tanh(smooth @ first @ (rng.standard_normal((8, 8), np.float32) / np.sqrt(8)))
    assert np.allclose(found, np.concatenate([first, second], 1), atol=1e-4)


@pytest.mark.parametrize("name", [n for n, m in MODELS.items() if m.kind != "replay"])
def test_each_model_learns_more_than_the_largest_class(seen, name):
    order = MODELS[name].orders[0]
    made = cell(name, seen, order)
    truth = seen.split.labels[seen.split.test]
    largest = float(truth.bincount().max()) / len(truth)
    assert chosen(made)["test"] > largest + 0.1
    assert len(made["trials"]) == len(MODELS[name].candidates)


def made_up(model, order, number, validation, test, graph="cora"):
    trials = [
        {"settings": {}, "validation": v, "test": t, "balanced": t}
        for v, t in zip(validation, test, strict=True)
    ]
    return {
        "graph": graph, "model": model, "order": order, "split": number, "trials": trials,
        "cpu_seconds": 1.0, "seconds": 1.0, "bytes": 1, "commit": "c", "versions": {},
    }  # fmt: skip


def test_tables_hold_the_splits_that_all_models_have():
    cells = [made_up("ridge on x", "any", n, [0.5, 0.6], [0.9, 0.1 * n]) for n in (1, 2, 3)]
    cells += [made_up("GCN + replay", "class", n, [0.5, 0.4], [0.3, 0.8]) for n in (2, 3, 4)]
    cells += [made_up("GCN + replay", "random", 1, [0.5, 0.4], [0.3, 0.8])]
    found = table(cells, list(MODELS), "class")
    assert found.models == ("ridge on x", "GCN + replay")
    assert found.splits == {"cora": [2, 3]}
    assert np.allclose(found.tuned["cora"], [[0.2, 0.3], [0.3, 0.3]])  # chosen by validation
    assert np.allclose(found.default["cora"], [[0.9, 0.3], [0.9, 0.3]])
    assert table(cells, list(MODELS), "any").models == ("ridge on x",)


def test_a_part_is_compared_with_its_whole_on_the_same_splits():
    cells = [made_up("ridge on m", "any", n, [0.5], [0.6], g) for n in (1, 2) for g in GRAPHS[:3]]
    whole = "closed form, x + m + Âx"
    cells += [made_up(whole, "any", n, [0.5], [0.61], g) for n in (1, 2) for g in GRAPHS[:2]]
    (row,) = ablation(cells)
    assert (row["part"], row["whole"], row["graphs"], row["splits"]) == ("ridge on m", whole, 2, 4)
    assert row["mean"] == pytest.approx(-0.01)
    assert row["wins_ties_losses"] == (0, 0, 2)


def test_a_rule_comes_from_the_other_half_of_the_graphs():
    """On even graphs the second candidate is best, on odd ones the first, which ships."""
    name, cells = "SGD on x‖m", []
    for half, validation, test in ((0, [0.5, 0.7], [0.6, 0.8]), (1, [0.7, 0.5], [0.9, 0.8])):
        for graph in HALVES[half][:3]:
            cell = made_up(name, "class", 0, validation, test, graph)
            cell["trials"][1]["settings"] = {"hidden": (3,)}
            cells.append(cell)
    (row,) = defaults(json.loads(json.dumps(cells)))
    assert row["rules"] == [{"hidden": [3]}, {}]
    assert row["shipped"]["mean"] == pytest.approx((-0.2 + 0.0) / 2)
    assert row["rule"]["mean"] == pytest.approx((-0.2 - 0.1) / 2)


def test_the_command_resumes_and_publishes(data, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "read", lambda name, root: data)
    names = "ridge on x;ridge on m;closed form, x + m"
    app = Typer()
    app.command()(command.league)
    path = tmp_path / "cells.jsonl"
    options = [
        "--graphs", "cora,acm", "--splits", "2", "--models", names, "--cells", str(path),
        "--results", str(tmp_path), "--figures", str(tmp_path),
    ]  # fmt: skip
    result = runner.invoke(app, options)
    assert result.exit_code == 0, result.output
    lines = path.read_text().splitlines(keepends=True)
    assert len(lines) == 12
    path.write_text("".join(lines[:-1]) + lines[-1][:40])  # killed while it wrote
    assert runner.invoke(app, options).exit_code == 0
    cells = Lines(path).cells()
    assert len(cells) == 12
    published = json.loads((tmp_path / "league.json").read_text())
    found = published["tables"]["any order"]
    assert found["splits"] == {"cora": [0, 1], "acm": [0, 1]}
    assert len(published["cells"]) == 12
    best = found["models"][0]
    means = views(cells)["any order"].means()
    assert best["mean"] == pytest.approx(means[:, found["columns"].index(best["model"])].mean())
    assert (tmp_path / "league_any.png").exists()
    assert "ridge on m" in (tmp_path / "league.md").read_text()


def test_a_wrong_model_is_named(tmp_path):
    app = Typer()
    app.command()(command.league)
    result = runner.invoke(app, ["--models", "GCM", "--cells", str(tmp_path / "cells.jsonl")])
    assert result.exit_code != 0


def test_every_graph_of_the_league_has_a_place():
    assert len(GRAPHS) == len(set(GRAPHS)) == 17

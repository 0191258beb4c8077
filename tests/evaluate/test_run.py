"""The one loop: its numbers, every stream, odd graphs, and where it resumes."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from evergraph.datasets import generate
from evergraph.datasets.catalog import SOURCES
from evergraph.datasets.generate import PRESETS
from evergraph.evaluate.config import Config, build, run_config
from evergraph.evaluate.run import run
from evergraph.graph import Dataset, Graph, SparseRows
from evergraph.graph.dataset import split_by_class
from evergraph.learn import Learner, LinkPrediction, Regression, Training
from evergraph.learn.methods import Finetune
from evergraph.nn import FGN
from evergraph.stream import link_continuum, node_continuum

TIMINGS = ("seconds", "items_per_second")
RUN_TIMINGS = ("learn_seconds", "test_seconds", "learn_cpu_seconds")


@pytest.fixture(scope="module")
def data():
    return generate(replace(PRESETS["citation"], nodes=300, classes=3, features=90))


def untimed(result):
    """The same result without what a clock says."""
    runs = [{k: v for k, v in one.items() if k not in RUN_TIMINGS} for one in result["runs"]]
    return {k: v for k, v in result.items() if k not in TIMINGS} | {"runs": runs}


def test_presets_fit_the_visibility():
    assert Config(dataset="cora").settings["diffusion"]
    assert not Config(dataset="cora", visibility="arrived").settings["diffusion"]
    asked = Config(dataset="cora", visibility="arrived", settings={"diffusion": True})
    assert asked.settings["diffusion"]  # and the stream will say why that cannot be


def test_walks_and_caps_do_not_meet_in_presets():
    long = stream_of(items=2**16, width=10)
    settings = {"diffusion": True, "hops": 2}
    config = Config(dataset="some", method="analytic", settings=settings)
    assert "cap" not in config.sized(long).settings
    assert Config(dataset="some", method="analytic").sized(long).settings["cap"] == 20


def stream_of(items, width, nonzeros=None):
    """A data set without edges that has as many training nodes, and one to test on."""
    items += 1
    if nonzeros is None:
        x = torch.ones(items, width)
    else:
        index = torch.arange(nonzeros).repeat(items)
        bounds = torch.arange(items + 1) * nonzeros
        x = SparseRows(bounds, index, torch.ones(len(index)), width)
    graph = Graph(x, torch.empty(2, 0, dtype=torch.int64), torch.zeros(items, dtype=torch.int64))
    return Dataset(graph, torch.arange(1, items), torch.arange(1), "some", "made")


@pytest.mark.parametrize(
    ("items", "width", "nonzeros", "batches", "size"),
    [
        (1_140, 1_433, 18, None, 50),  # Cora
        (1_838, 4_973, 685, None, 50),  # many numbers, few items
        (13_810, 6_775, 33, None, 50),  # many items, few numbers
        (4_590, 745, 259, 2, 20),  # Amazon Photo
        (20_696, 8_415, 33, 2, 20),  # Coauthor Physics
        (90_941, 128, None, 4, 64),  # ogbn-arxiv
    ],
)
def test_the_schedule_follows_from_sizes(items, width, nonzeros, batches, size):
    found = Config(dataset="some").sized(stream_of(items, width, nonzeros)).settings
    assert (found.get("replay_batches"), found["replay_batch_size"]) == (batches, size)
    assert ("channels" in found) == (items == 90_941)
    given = Config(dataset="some", settings={"replay_batches": 7, "lr": 0.5})
    kept = given.sized(stream_of(items, width, nonzeros)).settings
    assert (kept["replay_batches"], kept["lr"], kept["replay_batch_size"]) == (7, 0.5, size)


def test_names_of_data_sets_decide_no_schedule():
    named = {
        name: Config(dataset=name).settings.keys() & {"replay_batches", "replay_batch_size", "cap"}
        for name in (*SOURCES, "generated", "generated-arxiv")
    }
    assert not any(named.values())


@pytest.mark.parametrize("scenario", ["regular", "data", "class", "time"])
@pytest.mark.parametrize("visibility", ["all", "arrived"])
def test_every_stream_runs(data, scenario, visibility):
    config = Config(
        dataset="generated", scenario=scenario, visibility=visibility, memory=20, epochs=2
    )
    result = run_config(config, (0,), data)
    assert 0.3 < result["accuracy_mean"] <= 1
    assert result["memory_bytes"] > 0
    if scenario == "regular":  # items come again, which is no test
        assert result["prequential_mean"] is None
    else:
        assert 0 <= result["prequential_mean"] <= 1


def test_prequential_accuracy_counts_predictions_made_before_learning(data):
    config = Config(dataset="generated", scenario="data", memory=20)
    stream, learner = build(config, data, 0)
    correct = count = 0
    for batch in stream:
        if learner.position:
            correct += sum(map(int.__eq__, learner.predict(batch).tolist(), batch.target.tolist()))
            count += len(batch)
        learner.observe(batch)
    assert run_config(config, (0,), data)["runs"][0]["prequential"] == [correct, count]


def test_any_class_order_gives_the_same_closed_form(data):
    results = [
        run_config(Config(dataset="generated", method="analytic", **settings), (0,), data)
        for settings in ({}, {"class_order": (2, 1, 0)}, {"scenario": "data"})
    ]
    assert len({result["accuracy_mean"] for result in results}) == 1


def test_the_summary_is_that_of_the_runs(data):
    config = Config(dataset="generated", memory=20)
    result = run_config(config, (3, 4), data)
    assert result["seeds"] == [3, 4]
    assert result["config"] == json.loads(json.dumps(config.sized(data).plain()))
    assert result["accuracy_mean"] == pytest.approx(np.mean(result["accuracy_per_seed"]))
    assert result["accuracy_sd"] == pytest.approx(np.std(result["accuracy_per_seed"], ddof=1))
    assert np.shape(result["accuracy_matrix"]) == (3, 3)
    matrices = np.array([one["matrix"] for one in result["runs"]])
    assert np.array(result["accuracy_matrix"]) == pytest.approx(matrices.mean(0))
    assert [one["curve"][-1][1] for one in result["runs"]] == result["accuracy_per_seed"]


def test_the_stream_position_survives_in_process(data, tmp_path):
    """A run that raises in the middle resumes from its checkpoint to the same numbers."""
    config = Config(dataset="generated", memory=30, settings={"dropout": 0.3})
    expected = run_config(config, (0, 1), data)
    path = tmp_path / "checkpoint"

    class StopError(Exception):
        pass

    def stop(number, seen, accuracy):
        if (number, seen) >= (1, 100):
            raise StopError

    with pytest.raises(StopError):
        run_config(config, (0, 1), data, stop, checkpoint=path, every=0)
    resumed = run_config(config, (0, 1), data, checkpoint=path, resume=True, every=0)
    assert untimed(resumed) == untimed(expected)
    other = replace(config, memory=31)
    with pytest.raises(ValueError, match="another configuration: memory is 30 there, 31 here"):
        run_config(other, (0, 1), data, checkpoint=path, resume=True)


def odd(labels, edges, weight=None):
    """Twenty nodes of two numbers each."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(20, 2, generator=generator)
    labels = torch.tensor(labels)
    graph = Graph(features, edges, labels, weight)
    return Dataset(graph, *split_by_class(labels), "odd", "test")


RING = torch.stack([torch.arange(20), (torch.arange(20) + 1) % 20])
ODD = {
    "rare class": odd([0, 1] * 9 + [0, 2], RING),  # one node of a class: nothing to test
    "no edges": odd([0, 1] * 10, RING[:, :0]),
    "vector weights": odd([0, 1] * 10, RING, torch.tensor([1.0, 0.5]).repeat(20, 1)),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("model", ["fgn", "gcn", "gat", "appnp"])
def test_odd_graphs_run(name, model):
    data = ODD[name]
    result = run_config(Config(dataset="odd", model=model, memory=10), (0,), data)
    json.dumps(result["accuracy_matrix"], allow_nan=False)
    assert 0 <= result["accuracy_mean"] <= 1
    assert 0 <= result["average_accuracy_mean"] <= 1
    untested = [row[-1] is None for row in result["accuracy_matrix"]]
    assert untested == [name == "rare class"] * len(untested)


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_graph_with_nothing_to_learn_or_to_test_says_so(part):
    data = ODD["no edges"]
    empty = replace(data, **{part: data.train[:0]})
    with pytest.raises(ValueError, match=f"must have {part} nodes with labels, got none"):
        run_config(Config(dataset="odd"), (0,), empty)


def test_tasks_without_classes_are_measured_their_own_way(data):
    """One loop: R² of a regression and the area under ROC of links, in the same record."""
    targets = torch.rand(data.graph.num_nodes, 1)

    def regression(seed):
        torch.manual_seed(seed)
        stream = node_continuum(data, scenario="data", targets=targets, seed=seed)
        return stream, Learner(FGN(90), Finetune(), training=Training(steps=1), task=Regression())

    def links(seed):
        torch.manual_seed(seed)
        stream = link_continuum(data.graph, tasks=2, seed=seed)
        model = FGN(90, head="pairs", channels=(4,))
        return stream, Learner(model, Finetune(), training=Training(steps=1), task=LinkPrediction())

    for make, tasks in ((regression, 1), (links, 2)):
        result = run(make, (0,), {})
        stream, learner = make(0)
        for batch in stream:
            learner.observe(batch)
        assert result["accuracy_mean"] == pytest.approx(learner.evaluate(stream.test()))
        assert np.shape(result["accuracy_matrix"]) == (tasks, 1)


@pytest.mark.parametrize("outliers", ["clip", "refuse", "pass"])
def test_absurd_features_are_treated_as_asked_and_told(data, outliers):
    values = data.graph.features.values.clone()
    first = int(data.graph.features.indptr[data.train[50]])
    values[first] = 1e6
    graph = replace(data.graph, features=replace(data.graph.features, values=values))
    spoiled = replace(data, graph=graph)
    config = Config(dataset="generated", memory=20, outliers=outliers)
    if outliers == "refuse":
        with pytest.raises(ValueError, match="must be at most"):
            run_config(config, (0,), spoiled)
        return
    result = run_config(config, (0,), spoiled)
    assert (result["clipped"] > 0) == (outliers == "clip")
    assert result["runs"][0]["clipped"] == result["clipped"]

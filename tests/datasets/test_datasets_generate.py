"""Generated graphs: sizes, order, structure, repeatability."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import torch

from evergraph.datasets.generate import PRESETS, Growth, generate
from evergraph.graph.rows import SparseRows

SMALL = Growth(nodes=600, citations=5.0, classes=4, features=80)
DENSE = replace(SMALL, words=0.0, features=16)


@pytest.mark.parametrize("growth", [SMALL, DENSE])
def test_counts_are_exact(growth: Growth) -> None:
    dataset = generate(growth, seed=3)
    graph = dataset.graph
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (600, growth.features, 4)
    assert graph.edges.shape == (2, 3000)
    assert graph.num_edges == 3000  # all distinct
    assert dataset.generated
    assert graph.directed
    assert isinstance(graph.features, SparseRows) == (growth.words > 0)


@pytest.mark.parametrize("growth", [SMALL, DENSE])
def test_the_seed_decides_everything(growth: Growth) -> None:
    first, again, other = (generate(growth, seed=seed).graph for seed in (1, 1, 2))
    for name in ("edges", "labels", "time"):
        assert torch.equal(getattr(first, name), getattr(again, name))
    assert not torch.equal(first.edges, other.edges)
    dense = [
        graph.features.to_dense() if isinstance(graph.features, SparseRows) else graph.features
        for graph in (first, again, other)
    ]
    assert torch.equal(dense[0], dense[1])
    assert not torch.equal(dense[0], dense[2])


def test_nodes_cite_only_earlier_ones_and_years_never_fall() -> None:
    graph = generate(SMALL).graph
    assert bool((graph.edges[1] < graph.edges[0]).all())
    assert graph.time is not None
    assert bool((graph.time.diff() >= 0).all())
    assert (int(graph.time[0]), int(graph.time[-1])) == SMALL.years
    counts = torch.bincount(graph.time - SMALL.years[0])
    assert counts[-1] > 3 * counts[0]  # more arrive every year


def test_citations_stay_within_topics_as_asked() -> None:
    growth = replace(SMALL, nodes=4000)
    within = {}
    for homophily in (0.0, 0.9):
        graph = generate(replace(growth, homophily=homophily)).graph
        assert graph.labels is not None
        source, target = graph.labels[graph.edges]
        within[homophily] = float((source == target).float().mean())
    assert within[0.9] > 0.88
    assert within[0.0] < 0.6


def test_skew_makes_some_nodes_famous_and_recency_the_new_ones() -> None:
    growth = replace(SMALL, nodes=4000)
    even, uneven = (generate(replace(growth, skew=skew)).graph for skew in (0.0, 0.7))
    received = [torch.bincount(graph.edges[1], minlength=4000) for graph in (even, uneven)]
    assert received[1].max() > 3 * received[0].max()
    old, new = (generate(replace(growth, recency=value)).graph for value in (0.0, 3.0))
    ages = [(graph.edges[0] - graph.edges[1]).float().mean() for graph in (old, new)]
    assert ages[1] < 0.6 * ages[0]


@pytest.mark.parametrize("growth", [SMALL, DENSE])
def test_features_tell_topics_apart_but_not_fully(growth: Growth) -> None:
    dataset = generate(replace(growth, nodes=2000))
    graph = dataset.graph
    x = graph.features
    x = x.to_dense() if isinstance(x, SparseRows) else x
    assert graph.labels is not None
    train, labels = dataset.train, graph.labels
    centers = torch.stack([x[train][labels[train] == topic].mean(0) for topic in range(4)])
    accuracy = float((torch.cdist(x, centers).argmin(1) == labels)[dataset.test].float().mean())
    assert 0.4 < accuracy < 0.99


def test_no_topic_is_empty_however_small_the_graph() -> None:
    graph = generate(Growth(nodes=9, citations=1, classes=9, features=5)).graph
    assert graph.labels is not None
    assert sorted(graph.labels.tolist()) == list(range(9))


def test_split_by_time_tests_on_the_newest() -> None:
    dataset = generate(replace(SMALL, by_time=True))
    assert dataset.train.tolist() == list(range(360))
    assert dataset.test.tolist() == list(range(480, 600))


def test_the_arxiv_preset_has_the_published_size() -> None:
    growth = PRESETS["arxiv"]
    assert round(growth.nodes * growth.citations) == 1_166_243
    assert round(growth.nodes * growth.train) == 90_941
    assert round(growth.nodes * growth.test) == 48_603


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": 0}, "nodes must be at least 1, got 0"),
        ({"classes": 601}, "classes must be at most nodes, got 601 > 600"),
        ({"features": 0}, "features must be at least 1"),
        ({"citations": 100.0}, r"an eighth of the other nodes, 74\.875, got 100"),
        ({"homophily": 1.5}, r"homophily must be from 0 to 1, got 1\.5"),
        ({"skew": 1.0}, r"skew must be from 0 to below 1, got 1\.0"),
        ({"train": 0.9}, r"train \+ test must be at most 1"),
        ({"words": -1.0}, "words and recency must be at least 0"),
        ({"years": (2020, 1990)}, "years must be in order"),
    ],
)
def test_impossible_growth_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **change)  # type: ignore[arg-type]


def test_unknown_presets_are_refused() -> None:
    with pytest.raises(ValueError, match="one of citation, arxiv, got 'cora'"):
        generate("cora")


@pytest.mark.slow
@pytest.mark.parametrize("words", [18.0, 0.0])
def test_a_million_nodes_take_less_than_two_minutes(words: float) -> None:
    growth = Growth(nodes=1_000_000, citations=7.0, words=words, features=500 if words else 128)
    start = time.monotonic()
    assert generate(growth).graph.num_edges == 7_000_000
    assert time.monotonic() - start < 120

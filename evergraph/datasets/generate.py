"""A seeded generator of growing, citation-like graphs.

Nodes arrive one after the other, each in a year, each on one topic, and cite earlier nodes,
mostly of their own topic. Some nodes attract far more citations than others (a degree-corrected
stochastic block model), topics gain and lose popularity over the years, and features are topic
words or dense embeddings. All sampling is vectorized: a million nodes take seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from evergraph.checks import check_one_of, check_positive
from evergraph.graph.dataset import Dataset, sparse_rows, split_by_class
from evergraph.graph.graph import Graph
from evergraph.graph.rows import SparseRows

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_CHUNK = 1 << 16  # nodes whose features are drawn at a time, so that memory stays bounded


@dataclass(frozen=True)
class Growth:
    """How a generated graph grows: `nodes` on `classes` topics, in a range of `years`.

    Attributes:
        citations: made by a node, on average.
        features: the size of the vocabulary or of an embedding.
        words: of a node, on average; 0 makes dense embeddings instead.
        signal: the share of words that come from the topic; of an embedding, the deviation
            between topics, where the noise has deviation 1.
        homophily: the share of citations that stay within the topic.
        recency: 0 cites all earlier nodes alike; larger values prefer recent ones.
        skew: how unevenly citations are distributed, from 0 (evenly) to below 1.
        yearly: by which factor the number of arrivals grows from year to year.
        by_time: whether the shares `train` and `test` are the oldest and the newest nodes,
            instead of drawn class by class.
    """

    nodes: int = 2_000
    citations: float = 4.0
    classes: int = 7
    features: int = 500
    words: float = 18.0
    signal: float = 0.25
    homophily: float = 0.7
    recency: float = 1.0
    skew: float = 0.5
    years: tuple[int, int] = (1991, 2020)
    yearly: float = 1.08
    train: float = 0.6
    test: float = 0.2
    by_time: bool = False

    def __post_init__(self) -> None:
        """Reject sizes and shares that no graph can have."""
        check_positive(nodes=self.nodes, classes=self.classes, features=self.features)
        if self.classes > self.nodes:
            raise ValueError(f"classes must be at most nodes, got {self.classes} > {self.nodes}")
        if not 0 <= self.citations <= (most := (self.nodes - 1) / 8):
            raise ValueError(
                f"citations must be from 0 to an eighth of the other nodes, {most:g}, got "
                f"{self.citations}"
            )
        for name in ("homophily", "signal", "train", "test"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be from 0 to 1, got {getattr(self, name)}")
        if not 0 <= self.skew < 1:
            raise ValueError(f"skew must be from 0 to below 1, got {self.skew}")
        if self.train + self.test > 1:
            raise ValueError(f"train + test must be at most 1, got {self.train + self.test:g}")
        if self.words < 0 or self.recency < 0 or self.yearly <= 0:
            raise ValueError(
                "words and recency must be at least 0 and yearly above 0, got "
                f"{self.words}, {self.recency} and {self.yearly}"
            )
        if self.years[0] > self.years[1]:
            raise ValueError(f"years must be in order, got {self.years}")


_ARXIV = Growth(
    nodes=169_343, citations=1_166_243 / 169_343, classes=40, features=128, words=0, yearly=1.12,
    train=90_941 / 169_343, test=48_603 / 169_343, by_time=True,
)  # fmt: skip
PRESETS: Mapping[str, Growth] = {"citation": Growth(), "arxiv": _ARXIV}


def generate(growth: Growth | str = "citation", seed: int = 0, name: str = "generated") -> Dataset:
    """Grow a graph; the same growth and seed give the same graph.

    Nodes are numbered in the order of arrival, an edge goes from a node to an earlier one that it
    cites, and the time of a node is its year.

    Args:
        growth: the settings, or the name of a preset: `citation` (small, topic words) or `arxiv`
            (the size of ogbn-arxiv, dense).
        seed: of all randomness.
        name: of the data set.

    Example:
        >>> dataset = generate(Growth(nodes=200, citations=3))
        >>> dataset.graph.num_nodes, dataset.graph.num_edges, dataset.generated
        (200, 600, True)
        >>> bool((dataset.graph.edges[1] < dataset.graph.edges[0]).all())
        True
    """
    if isinstance(growth, str):
        check_one_of("growth", growth, PRESETS)
        growth = PRESETS[growth]
    rng = np.random.default_rng(seed)
    years = _years(growth)
    topics = _topics(rng, growth, years)
    labels = torch.from_numpy(topics)
    graph = Graph(
        features=_bags(rng, growth, topics) if growth.words else _embeddings(rng, growth, topics),
        edges=torch.from_numpy(_citations(rng, growth, topics)),
        labels=labels,
        time=torch.from_numpy(years),
        directed=True,
        class_names=tuple(f"topic {topic}" for topic in range(growth.classes)),
        name=name,
    )
    if growth.by_time:
        train = torch.arange(round(growth.train * growth.nodes))
        test = torch.arange(growth.nodes - round(growth.test * growth.nodes), growth.nodes)
    else:
        train, test = split_by_class(labels, train=growth.train, test=growth.test, seed=seed)
    return Dataset(graph, train, test, name, f"generated with seed {seed}", generated=True)


def _years(growth: Growth) -> Ints:
    """The year of each node, never decreasing."""
    first, last = growth.years
    share = np.cumsum(growth.yearly ** np.arange(last - first + 1, dtype=np.float64))
    when = (np.arange(growth.nodes) + 0.5) / growth.nodes
    return first + np.searchsorted(share / share[-1], when)


def _topics(rng: np.random.Generator, growth: Growth, years: Ints) -> Ints:
    """The topic of each node; each topic has a trend of its own over the years."""
    level, trend = rng.normal(0, 0.5, growth.classes), rng.normal(0, 1.5, growth.classes)
    topics = np.empty(growth.nodes, dtype=np.int64)
    first, last = growth.years
    for year in range(first, last + 1):
        mine = slice(*np.searchsorted(years, [year, year + 1]))
        popularity = np.exp(level + trend * (year - first) / max(last - first, 1))
        count = mine.stop - mine.start
        topics[mine] = rng.choice(growth.classes, count, p=popularity / popularity.sum())
    # However small the graph, no topic is empty.
    topics[rng.permutation(growth.nodes)[: growth.classes]] = np.arange(growth.classes)
    return topics


def _citations(rng: np.random.Generator, growth: Growth, topics: Ints) -> Ints:
    """Exactly `nodes * citations` distinct edges (rounded), `(2, E)`."""
    wanted = round(growth.nodes * growth.citations)
    attraction = (1 - rng.random(growth.nodes)) ** -growth.skew  # a power law, never infinite
    # The first node cites none.
    activity = np.cumsum(np.r_[0.0, rng.lognormal(0, 0.7, growth.nodes - 1)])
    draw = _draw_earlier(rng, growth, topics, attraction)
    keys = np.empty(0, dtype=np.int64)
    for _ in range(100):
        if (missing := wanted - len(keys)) <= 0:
            break
        # More than are missing, as some repeat; in order, as sorted points are found faster.
        points = np.sort(rng.random(missing + missing // 8 + 16)) * activity[-1]
        source = np.searchsorted(activity, points, side="right").clip(max=growth.nodes - 1)
        keys = _distinct(np.concatenate([keys, source * growth.nodes + draw(source)]))
    if len(keys) < wanted:
        raise ValueError(
            f"{wanted} distinct citations do not fit among {growth.nodes} nodes with skew "
            f"{growth.skew} and recency {growth.recency}; ask for fewer citations"
        )
    keys = np.sort(rng.choice(keys, wanted, replace=False))
    return np.stack(np.divmod(keys, growth.nodes))


def _distinct(keys: Ints) -> Ints:
    """Sorted and without repeats; for arrays like these far faster than np.unique."""
    keys = np.sort(keys)
    return keys[np.diff(keys, prepend=-1) > 0]


def _draw_earlier(
    rng: np.random.Generator, growth: Growth, topics: Ints, attraction: Floats
) -> Callable[[Ints], Ints]:
    """A function that draws an earlier node for each source, in proportion to its attraction."""
    order = np.argsort(topics, kind="stable")  # by topic, then by arrival
    place_of = np.empty_like(order)
    place_of[order] = np.arange(len(order))
    counts = np.bincount(topics)
    start_of = (np.cumsum(counts) - counts)[topics]  # where each node's topic begins in `order`
    # The sums make a line on which each node owns a stretch as long as its attraction.
    by_topic, by_arrival = (
        np.concatenate([[0.0], np.cumsum(part)]) for part in (attraction[order], attraction)
    )

    def draw(source: Ints) -> Ints:
        point = rng.random(len(source)) ** (1 / (1 + growth.recency))
        place, start = place_of[source], start_of[source]
        within = (rng.random(len(source)) < growth.homophily) & (place > start)
        low = np.where(within, by_topic[start], 0.0)
        high = np.where(within, by_topic[place], by_arrival[source])
        value = low + point * (high - low)
        in_topic = np.searchsorted(by_topic, value, side="right") - 1
        in_topic = order[np.clip(in_topic, start, np.maximum(place - 1, start))]
        in_all = np.searchsorted(by_arrival, value, side="right") - 1
        target: Ints = np.where(within, in_topic, np.clip(in_all, 0, source - 1))
        return target

    return draw


def _bags(rng: np.random.Generator, growth: Growth, topics: Ints) -> SparseRows:
    """Sets of words. All topics have the same word frequencies, but for different words."""
    frequency = 1 / (np.arange(growth.features) + 3.0)  # Zipf's law, flattened at the top
    line = np.cumsum(frequency / frequency.sum())
    dialect = np.stack([rng.permutation(growth.features) for _ in range(growth.classes)])
    rows, words = [], []
    for first in range(0, growth.nodes, _CHUNK):
        chunk = topics[first : first + _CHUNK]
        row = np.repeat(np.arange(len(chunk)), rng.poisson(growth.words, len(chunk)))
        word = np.minimum(np.searchsorted(line, rng.random(len(row))), growth.features - 1)
        topical = rng.random(len(row)) < growth.signal
        word = np.where(topical, dialect[chunk[row], word], word)
        key = _distinct(row * growth.features + word)
        rows.append(first + key // growth.features)
        words.append(key % growth.features)
    shape = growth.nodes, growth.features
    return sparse_rows(np.concatenate(rows), np.concatenate(words), 1.0, shape)


def _embeddings(rng: np.random.Generator, growth: Growth, topics: Ints) -> torch.Tensor:
    """Normal noise around a center per topic."""
    shape = growth.classes, growth.features
    centers = rng.standard_normal(shape, dtype=np.float32) * np.float32(growth.signal)
    features = np.empty((growth.nodes, growth.features), dtype=np.float32)
    for first in range(0, growth.nodes, _CHUNK):
        part = features[first : first + _CHUNK]
        rng.standard_normal(dtype=np.float32, out=part)
        part += centers[topics[first : first + _CHUNK]]
    return torch.from_numpy(features)

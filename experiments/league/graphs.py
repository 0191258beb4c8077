"""The graphs of the league and their splits, which are the same for every model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from evergraph.graph.dataset import Dataset, split_by_class
from evergraph.stream.schedule import shuffled
from experiments.cells import load

DOMAINS = ("ACM", "Citation", "DBLP")  # the parts of citation-domains, by their number
WHOLE = (
    "cora", "cora-planetoid", "citeseer", "pubmed", "amazon-computers", "coauthor-physics",
    "acm", "cora_ml", "uai", "flickr", "squirrel-filtered", "tolokers", "minesweeper",
    "citation-domains",
)  # fmt: skip
GRAPHS = (*WHOLE, *(f"citation-domains:{name}" for name in DOMAINS))
STREAMS = ("arxiv-stream", "dblp-stream", "paper100M-stream")

PER_CLASS, MOST_TRAINED = 80, 1000  # training nodes: so many per class on average, at most
VALIDATED, TESTED = 300, 1000


@dataclass(frozen=True)
class Split:
    """One draw of training, validation and test nodes.

    Attributes:
        data: the graph with its training nodes; its test nodes are `test`, then `validation`, so
            that one pass over the stream serves both.
        validation: nodes on which settings are chosen.
        test: nodes on which the result is reported.
        number: of the draw, the seed of everything random in it.
    """

    data: Dataset
    validation: Tensor
    test: Tensor
    number: int

    @property
    def labels(self) -> Tensor:
        """Of all nodes."""
        labels = self.data.graph.labels
        assert labels is not None
        return labels


def read(name: str, root: Path | None = None) -> Dataset:
    """A graph of the league; `citation-domains:ACM` is the part of one domain."""
    whole, _, domain = name.partition(":")
    data = load(whole, root)
    return only_domain(data, DOMAINS.index(domain)) if domain else data


def only_domain(data: Dataset, domain: int) -> Dataset:
    """The nodes of one domain and the edges among them, numbered anew."""
    graph = data.graph
    assert graph.domain is not None
    nodes = (graph.domain == domain).nonzero().squeeze(1)
    place = torch.full((graph.num_nodes,), -1)
    place[nodes] = torch.arange(len(nodes))
    inside = (place[graph.edges] >= 0).all(0)
    part = replace(
        graph.with_edges(inside),
        features=graph.features[nodes],
        edges=place[graph.edges[:, inside]],
        labels=None if graph.labels is None else graph.labels[nodes],
        time=None if graph.time is None else graph.time[nodes],
        domain=None,
    )
    none = torch.zeros(0, dtype=torch.int64)
    return replace(data, graph=part, train=none, test=none, name=f"{data.name}:{DOMAINS[domain]}")


def split(data: Dataset, number: int) -> Split:
    """Draw number `number`: classes in training and test nodes as they are in the graph.

    There are 80 training nodes per class on average, at most 1,000, then at most 1,000 test nodes
    and 300 validation nodes, as far as there are nodes left; never more than 40 % of the nodes
    with a label are for training, nor for testing.

    Example:
        >>> from evergraph.datasets import generate
        >>> drawn = split(generate(), 0)
        >>> len(drawn.data.train), len(drawn.test), len(drawn.validation)
        (561, 799, 300)
    """
    labels = data.graph.labels
    assert labels is not None
    known = int((labels >= 0).sum())
    classes = len(labels[labels >= 0].unique())
    share = min(min(PER_CLASS * classes, MOST_TRAINED) / known, 0.4)
    tested = min(TESTED / known, 0.4)
    train, test = split_by_class(labels, train=share, test=tested, seed=number)
    rest = torch.ones(len(labels), dtype=torch.bool)
    rest[labels < 0] = False
    rest[train] = rest[test] = False
    left = shuffled(rest.nonzero().squeeze(1), np.random.default_rng([number, 1]))
    validation = left[:VALIDATED].sort().values
    fresh = replace(data, train=train, test=torch.cat([test, validation]))
    return Split(fresh, validation, test, number)

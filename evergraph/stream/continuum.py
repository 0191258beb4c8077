"""The data continuum of Section 3: a stream of self-contained items, each of which passes once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.checks import check_one_of, check_positive
from evergraph.graph.dataset import Dataset
from evergraph.graph.graph import Graph
from evergraph.stream.batch import Batch
from evergraph.stream.schedule import SCENARIOS, Scenario, Schedule, by_class, in_parts, shuffled
from evergraph.stream.source import NeighborConfig, NodeSource, Pack, PairSource, Source, gathered

TEST_BATCH = 100  # items that are tested together at first
TEST_BYTES = 32 * 2**20  # of items that are tested together, then
MOST_TESTED = 512  # items at a time: dense feature graphs take F x F numbers for each
KEPT_BYTES = 96 * 2**20  # of test items that are made once


@dataclass(frozen=True, eq=False)
class Continuum:
    """Items of a source in the order of a schedule, and those to test on.

    An item carries all that is known of it, so that a stream is never read backwards. The same
    arguments give the same stream, from any position.

    Attributes:
        source: the items.
        schedule: which of them come when.
        test_index: the items to test on.
        test_groups: the test items of each task; one group if tasks share their classes.
        group_names: what the groups are called.
        steady: whether test items are the same at every position; they are kept then, if they are
            few.

    Example:
        >>> from evergraph.datasets import generate
        >>> stream = node_continuum(generate(), scenario="class")
        >>> batch = next(iter(stream))
        >>> len(batch), batch.target.unique().tolist(), len(stream.test_groups)
        (10, [0], 7)
    """

    source: Source
    schedule: Schedule
    test_index: Tensor
    test_groups: Sequence[Tensor] = field(default=())
    group_names: tuple[str, ...] = ()
    steady: bool = False
    _kept: dict[int, list[Batch]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Take all test items as one group if no groups are given."""
        if not self.test_groups:
            object.__setattr__(self, "test_groups", [self.test_index])

    def __len__(self) -> int:
        return len(self.schedule)

    def __iter__(self) -> Iterator[Batch]:
        return self.batches()

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """The stream from a position on, counted in batches."""
        for position in range(start, len(self)):
            index, task = self.schedule.batches[position], self.schedule.tasks[position]
            yield self.source.batch(index, task)

    def test(self, index: Tensor | None = None, position: int | None = None) -> Iterator[Batch]:
        """Test items, with no task of their own; by default all of them.

        With `arrived` visibility they see what has arrived after `position` batches.
        """
        index = self.test_index if index is None else index
        if id(index) in self._kept:
            yield from self._kept[id(index)]
            return
        made, start, size, total = [], 0, TEST_BATCH, 0
        while start < len(index):  # none if there are no items
            batch = self.source.batch(index[start : start + size], -1, position)
            start += size
            size = min(max(TEST_BATCH, TEST_BYTES * len(batch) // batch.nbytes), MOST_TESTED)
            total += batch.nbytes
            if total <= KEPT_BYTES:
                made.append(batch)
            yield batch
        own = any(index is mine for mine in (self.test_index, *self.test_groups))
        held = sum(batch.nbytes for kept in self._kept.values() for batch in kept)
        if self.steady and own and held + total <= KEPT_BYTES:
            self._kept[id(index)] = made


@dataclass(frozen=True)
class OrderConfig:
    """In which order items come.

    Attributes:
        scenario: `regular` shuffles all items, `epochs` times; `data` streams them once, in
            random order; `class` streams one class after the other; `time` by arrival time.
        batch_size: items that arrive together; the last batch of a task may be smaller.
        classes_per_task: of the class-incremental stream.
        class_order: the classes in the order in which they come; by label if None.
        tasks: into how many parts the other streams are cut for evaluation.
        epochs: passes over a regular stream, or over each task of a class-incremental one.
        seed: of the order.
    """

    scenario: Scenario = "class"
    batch_size: int = 10
    classes_per_task: int = 1
    class_order: tuple[int, ...] | None = None
    tasks: int = 1
    epochs: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        """Reject settings that make no stream."""
        check_one_of("scenario", self.scenario, SCENARIOS)
        check_positive(batch_size=self.batch_size, classes_per_task=self.classes_per_task)
        check_positive(tasks=self.tasks, epochs=self.epochs)

    def schedule(
        self, index: Tensor, labels: Tensor, time: Tensor | None, rng: np.random.Generator
    ) -> Schedule:
        """Order the items at `index`, whose labels and times (of all items) are known."""
        if self.scenario == "class":
            settings = self.class_order, self.classes_per_task, self.epochs
            groups = by_class(index, labels, rng, *settings)
            return Schedule.from_groups(groups, self.batch_size, self.epochs)
        if self.scenario == "regular":
            groups = {"0": shuffled(index, rng, self.epochs)}
            return Schedule.from_groups(groups, self.batch_size, self.epochs)
        index = shuffled(index, rng)
        if self.scenario == "time":
            if time is None:
                raise ValueError("these items have no arrival times; use scenario 'data'")
            index = index[torch.argsort(time[index], stable=True)]
        return Schedule.from_groups(in_parts(index, self.tasks), self.batch_size)


def node_continuum(
    dataset: Dataset,
    order: OrderConfig | None = None,
    neighbors: NeighborConfig | None = None,
    *,
    targets: Tensor | None = None,
    pack: Pack = gathered,
    **settings: Any,
) -> Continuum:
    """The training nodes of a data set as a stream, and its test nodes.

    Args:
        dataset: a graph and its split.
        order: which nodes come when.
        neighbors: which neighbors they carry.
        targets: `(N, D)` numbers to predict; the labels by default.
        pack: how the neighbors of an item are stored; see `NodeSource`.
        settings: of `OrderConfig` and `NeighborConfig`, in place of both.

    Example:
        >>> from evergraph.datasets import Growth, generate
        >>> data = generate(Growth(nodes=60, classes=3, features=20))
        >>> stream = node_continuum(data, scenario="data", batch_size=12)
        >>> [len(batch) for batch in stream], sum(map(len, stream.test()))
        ([12, 12, 12], 12)
    """
    order, neighbors = _configs(order, neighbors, settings)
    graph = dataset.graph
    if targets is None:
        if graph.labels is None:
            raise ValueError(f"data set {dataset.name!r} has no labels to learn from")
        targets = graph.labels
    elif order.scenario == "class":
        raise ValueError("scenario 'class' needs labels, got numbers to predict; use 'data'")
    if order.scenario == "time" and graph.time is None:
        raise ValueError(f"data set {dataset.name!r} has no arrival times; use scenario 'data'")
    rng = np.random.default_rng(order.seed)
    schedule = order.schedule(dataset.train, targets, graph.time, rng)
    arrival = None
    if neighbors.visibility == "arrived":
        arrival = _arrivals(graph, schedule, order.scenario == "time", rng)
    source = NodeSource(graph, targets, neighbors, arrival, len(schedule), pack)
    stream = _with_groups(source, schedule, dataset, order, targets)
    return replace(stream, steady=arrival is None)


def _with_groups(
    source: NodeSource, schedule: Schedule, dataset: Dataset, order: OrderConfig, labels: Tensor
) -> Continuum:
    test, names = dataset.test, dataset.graph.class_names
    if order.scenario != "class":
        return Continuum(source, schedule, test)
    found = [labels[schedule.members(task)].unique() for task in range(len(schedule.names))]
    groups = [test[torch.isin(labels[test], known)] for known in found]
    titles = tuple(
        ", ".join(names[label] if names else str(label) for label in known.tolist())
        for known in found
    )
    return Continuum(source, schedule, test, groups, titles)


def _configs(
    order: OrderConfig | None, neighbors: NeighborConfig | None, settings: dict[str, Any]
) -> tuple[OrderConfig, NeighborConfig]:
    order, neighbors = order or OrderConfig(), neighbors or NeighborConfig()
    known = {*vars(order), *vars(neighbors)}
    unknown = [name for name in settings if name not in known]
    if unknown:
        raise TypeError(f"unknown setting {unknown[0]!r}; known are {', '.join(sorted(known))}")
    mine = {name: value for name, value in settings.items() if name in vars(order)}
    others = {name: value for name, value in settings.items() if name in vars(neighbors)}
    return replace(order, **mine), replace(neighbors, **others)


def _arrivals(graph: Graph, schedule: Schedule, by_time: bool, rng: np.random.Generator) -> Tensor:
    """When each node arrives, in batches; nodes outside of training spread evenly."""
    rank = torch.from_numpy(rng.uniform(0, len(schedule), graph.num_nodes))
    if by_time and graph.time is not None:
        first = torch.stack([graph.time[nodes].min() for nodes in schedule.batches])
        rank = torch.searchsorted(first, graph.time, right=True).double() - 1
    for position in reversed(range(len(schedule))):  # of several epochs the first counts
        rank[schedule.batches[position]] = float(position)
    return rank


def link_continuum(
    graph: Graph,
    neighbors: NeighborConfig | None = None,
    *,
    batch_size: int = 50,
    tasks: int = 1,
    test_share: float = 0.1,
    seed: int = 0,
    **settings: Any,
) -> Continuum:
    """Link prediction: edges as they come, each beside a random pair that is no edge.

    With `edge_time` the edges come by time and see only what came before, their random pairs are
    of nodes that have come by then, and the test pairs are the last ones. Without, they come in
    random order, and the test pairs are drawn.

    Args:
        graph: whose edges are predicted.
        neighbors: which neighbors the ends carry.
        batch_size: pairs that arrive together, half of them edges.
        tasks: into how many parts the stream is cut for evaluation.
        test_share: of the edges that are held back.
        seed: of the pairs that are no edges, and of the order.
        settings: of `NeighborConfig`, in place of it.

    Example:
        >>> from evergraph.datasets import Growth, generate
        >>> data = generate(Growth(nodes=60, classes=3, features=20))
        >>> stream = link_continuum(data.graph, batch_size=20)
        >>> batch = next(iter(stream))
        >>> batch.nodes_per_item, batch.target.unique()
        (2, tensor([0, 1]))
    """
    neighbors = replace(neighbors or NeighborConfig(), **settings)
    if not 0 < test_share < 1:
        raise ValueError(f"test_share must lie between 0 and 1, got {test_share}")
    rng = np.random.default_rng(seed)
    if graph.edge_time is not None:
        order = torch.argsort(graph.edge_time, stable=True)
    else:
        order = torch.from_numpy(rng.permutation(graph.edges.shape[1]))
    order = _distinct(graph, order)
    count = len(order)
    positive = graph.edges[:, order]
    negative = torch.stack([positive[0], _others(graph, order, rng)])
    known = set(map(tuple, graph.edges.T.tolist()))
    known |= {(b, a) for a, b in known}
    free = torch.tensor([p[0] != p[1] and p not in known for p in map(tuple, negative.T.tolist())])
    pairs = torch.stack([positive, negative], dim=2).flatten(1)
    targets = torch.tensor([1, 0]).repeat(count)
    kept = torch.stack([torch.ones(count, dtype=torch.bool), free], dim=1).flatten()
    times = None
    if graph.edge_time is not None:
        times = graph.edge_time[order].repeat_interleave(2)[kept]
    source = PairSource(graph, pairs[:, kept], targets[kept], neighbors, times)
    cut = round((1 - test_share) * len(source))
    schedule = Schedule.from_groups(in_parts(torch.arange(cut), tasks), batch_size)
    return Continuum(source, schedule, torch.arange(cut, len(source)), steady=True)


def _distinct(graph: Graph, order: Tensor) -> Tensor:
    """The same edges without repeats, whatever their direction, and without self loops."""
    low, high = (found.values[order] for found in (graph.edges.min(0), graph.edges.max(0)))
    _, first = np.unique((low * graph.num_nodes + high).numpy(), return_index=True)
    kept = torch.from_numpy(np.sort(first))
    return order[kept[(low != high)[kept]]]


def _others(graph: Graph, order: Tensor, rng: np.random.Generator) -> Tensor:
    """A random node for each edge; with times, one that has an edge by then."""
    time = graph.edge_time
    if time is None:
        return torch.from_numpy(rng.integers(0, graph.num_nodes, len(order)))
    first = torch.full((graph.num_nodes,), torch.inf, dtype=torch.float64)
    first = first.scatter_reduce(0, graph.edges.flatten(), time.double().repeat(2), "amin")
    arrival, node = first.sort(stable=True)
    arrived = torch.searchsorted(arrival, time[order].double(), right=True)
    return node[torch.from_numpy(rng.integers(0, arrived.numpy()))]


def validation_split(dataset: Dataset, share: float = 0.2, seed: int = 0) -> Dataset:
    """The same data set with a part of its training nodes as the test nodes.

    Settings are chosen on this one: the real test nodes are not in it.
    """
    labels = dataset.graph.labels
    assert labels is not None
    rng = np.random.default_rng(seed)
    held: list[Tensor] = []
    kept: list[Tensor] = []
    for label in labels[dataset.train].unique():
        mine = shuffled(dataset.train[labels[dataset.train] == label], rng)
        cut = round(share * len(mine))
        held.append(mine[:cut])
        kept.append(mine[cut:])
    train, test = (torch.cat(parts).sort().values for parts in (kept, held))
    return replace(dataset, train=train, test=test, name=f"{dataset.name} (validation)")

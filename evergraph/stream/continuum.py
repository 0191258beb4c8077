"""From a graph to a stream of self-contained items, Section 3 and Eq. (1)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from evergraph.stream.batch import Batch
from evergraph.graph.dataset import Dataset
from evergraph.feature_graph import Features, Neighbors, sgnroot
from evergraph.graph.hops import Neighborhood
from evergraph.graph.rows import SparseRows

Scenario = Literal["regular", "data", "class", "time"]
Visibility = Literal["all", "arrived"]
SCENARIOS: tuple[str, ...] = get_args(Scenario)
VISIBILITIES: tuple[str, ...] = get_args(Visibility)


@dataclass(frozen=True)
class Settings:
    """How a graph becomes a stream.

    Attributes:
        scenario: `regular` shuffles all nodes, `epochs` times; `data` streams them once, in
            random order; `class` streams one class after the other; `time` by arrival time.
        batch_size: items that arrive together; the last batch of a task may be smaller.
        classes_per_task: of the class-incremental stream.
        class_order: the classes in the order in which they come; by label if None.
        tasks: into how many parts the other streams are cut for evaluation.
        epochs: passes over a regular stream, or over each task of a class-incremental one.
        hops: K, the hops of neighbors that an item carries.
        diffusion: take walks of k steps for the neighbors at hop k, weighed by degree, in place
            of the nodes at distance k; see `Graph.diffusion`.
        cap: at most so many neighbors per hop, drawn once per item.
        self_loops: whether an item is among its own neighbors.
        root: take the sgnroot of all features first, so that a few large ones do not drown the
            others; binary features stay what they are.
        visibility: `all` knows the features of neighbors that have not been streamed (never
            their labels), as the paper does; `arrived` only of those that came before.
        seed: of the order and of the draws.
    """

    scenario: Scenario = "class"
    batch_size: int = 10
    classes_per_task: int = 1
    class_order: tuple[int, ...] | None = None
    tasks: int = 1
    epochs: int = 1
    hops: int = 1
    diffusion: bool = False
    cap: int | None = None
    self_loops: bool = True
    root: bool = False
    visibility: Visibility = "all"
    seed: int = 0

    def __post_init__(self) -> None:
        """Reject settings that make no stream."""
        if self.scenario not in SCENARIOS:
            raise ValueError(
                f"scenario must be one of {', '.join(SCENARIOS)}, got {self.scenario!r}"
            )
        if self.visibility not in VISIBILITIES:
            raise ValueError(
                f"visibility must be one of {', '.join(VISIBILITIES)}, got {self.visibility!r}"
            )
        if self.diffusion and (self.visibility != "all" or self.cap is not None):
            raise ValueError(
                "diffusion walks over the whole graph: it goes with visibility 'all' and no cap, "
                f"got {self.visibility!r} and {self.cap}"
            )
        for name in ("batch_size", "classes_per_task", "tasks", "epochs", "hops"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


class Continuum:
    """A stream of batches from the training nodes of a data set; each node passes once.

    An item carries its features, its neighbors' features, its label and its task: after it has
    passed, nobody looks back into the graph. The same settings give the same stream, from any
    position.

    Example:
        >>> from evergraph.datasets import generate
        >>> stream = Continuum(generate(), Settings(scenario="class"))
        >>> batch = next(iter(stream))
        >>> len(batch), batch.target.unique().tolist(), len(stream.tasks)
        (10, [0], 7)
    """

    def __init__(self, dataset: Dataset, settings: Settings = Settings()) -> None:  # noqa: B008
        if dataset.graph.labels is None:
            raise ValueError(f"data set {dataset.name!r} has no labels to learn from")
        self.dataset, self.settings = dataset, settings
        self.graph, self.labels = dataset.graph, dataset.graph.labels
        self._rng = np.random.default_rng(settings.seed)
        self.tasks = self._tasks()
        self.schedule = [
            (task, nodes)
            for task, members in enumerate(self.tasks)
            for nodes in members.split(settings.batch_size)
        ]
        self._arrival = self._arrivals() if settings.visibility == "arrived" else None

    def __len__(self) -> int:
        return len(self.schedule)

    def __iter__(self) -> Iterator[Batch]:
        return self.batches()

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """The stream from a position on, counted in batches."""
        for position in range(start, len(self)):
            task, nodes = self.schedule[position]
            yield self._batch(nodes, task, draw=position)

    @property
    def num_items(self) -> int:
        """How many items the whole stream has."""
        return sum(len(nodes) for _, nodes in self.schedule)

    def ends_task(self, position: int) -> bool:
        """Whether the batch at this position is the last of its task."""
        last = position + 1 == len(self)
        return last or self.schedule[position + 1][0] != self.schedule[position][0]

    def test_groups(self) -> list[Tensor]:
        """The test nodes by the task that taught their class; one group if tasks share classes."""
        test = self.dataset.test
        if self.settings.scenario != "class":
            return [test]
        groups = []
        for members in self.tasks:
            mine = torch.isin(self.labels[test], self.labels[members].unique())
            groups.append(test[mine])
        return groups

    def test(
        self, nodes: Tensor | None = None, position: int | None = None, batch_size: int = 100
    ) -> Iterator[Batch]:
        """Test items, with no task of their own; by default all of them.

        With `arrived` visibility they see what has arrived after `position` batches.
        """
        nodes = self.dataset.test if nodes is None else nodes
        for draw, part in enumerate(nodes.split(batch_size)):
            yield self._batch(part, -1, draw=-1 - draw, position=position)

    def _tasks(self) -> list[Tensor]:
        settings, train = self.settings, self.dataset.train
        shuffled = train[torch.from_numpy(self._rng.permutation(len(train)))]
        if settings.scenario == "class":
            return self._class_tasks(shuffled)
        if settings.scenario == "regular":
            return [self._passes(shuffled)]
        if settings.scenario == "time":
            if self.graph.time is None:
                raise ValueError(
                    f"data set {self.dataset.name!r} has no arrival times; use scenario 'data'"
                )
            order = torch.argsort(self.graph.time[shuffled], stable=True)
            shuffled = shuffled[order]
        return [part for part in shuffled.tensor_split(settings.tasks) if len(part)]

    def _class_tasks(self, shuffled: Tensor) -> list[Tensor]:
        present = self.labels[shuffled].unique().tolist()
        order = self.settings.class_order
        if order is None:
            order = tuple(present)
        elif sorted(order) != present:
            raise ValueError(
                f"class_order must name each class of the training nodes once, {present}, "
                f"got {list(order)}"
            )
        size = self.settings.classes_per_task
        groups = [order[i : i + size] for i in range(0, len(order), size)]
        members = [
            shuffled[torch.isin(self.labels[shuffled], torch.tensor(group))] for group in groups
        ]
        return [self._passes(nodes) for nodes in members]

    def _passes(self, nodes: Tensor) -> Tensor:
        """The nodes as they come, then again in other orders, `epochs` times in all."""
        more = [self._rng.permutation(len(nodes)) for _ in range(self.settings.epochs - 1)]
        return torch.cat([nodes, *(nodes[torch.from_numpy(order)] for order in more)])

    def _arrivals(self) -> Tensor:
        """When each node arrives, in batches; nodes outside of training spread evenly."""
        rank = torch.from_numpy(self._rng.uniform(0, len(self), self.graph.num_nodes))
        if self.settings.scenario == "time" and self.graph.time is not None:
            rank = self._by_time()
        for position in reversed(range(len(self))):  # of several epochs the first counts
            rank[self.schedule[position][1]] = float(position)
        return rank

    def _by_time(self) -> Tensor:
        """The position of the stream at the time of each node, streamed or not."""
        time = self.graph.time
        assert time is not None
        first = torch.stack([time[nodes].min() for _, nodes in self.schedule])
        return torch.searchsorted(first, time, right=True).double() - 1

    def _batch(self, nodes: Tensor, task: int, draw: int, position: int | None = None) -> Batch:
        found = self._neighborhood(nodes, task, draw, position)
        return Batch(
            x=self._features(nodes),
            neighbors=Neighbors(self._features(found.nodes), found.owner, found.hop, found.weight),
            target=self.labels[nodes],
            task=torch.full((len(nodes),), task),
            node=nodes,
        )

    def _neighborhood(
        self, nodes: Tensor, task: int, draw: int, position: int | None
    ) -> Neighborhood:
        settings = self.settings
        if settings.diffusion:
            return self.graph.diffusion(nodes, settings.hops)
        generator = None
        if settings.cap is not None:  # one draw per item, the same whenever it is made
            seed = np.random.SeedSequence([settings.seed, draw % 2**32]).generate_state(1)[0]
            generator = torch.Generator().manual_seed(int(seed))
        now = None
        if self._arrival is not None and task < 0:
            reached = len(self) if position is None else position
            before = math.nextafter(float(reached), -1.0)  # batch `position` is yet to come
            now = torch.full((len(nodes),), before, dtype=torch.float64)
        return self.graph.neighborhood(
            nodes,
            settings.hops,
            cap=settings.cap,
            self_loops=settings.self_loops,
            arrival=self._arrival,
            now=now,
            generator=generator,
        )

    def _features(self, nodes: Tensor) -> Features:
        rows = self.graph.features[nodes]
        if isinstance(rows, SparseRows):
            return replace(rows, values=sgnroot(rows.values)) if self.settings.root else rows
        rows = sgnroot(rows) if self.settings.root else rows
        return rows if rows.dim() == 3 else rows.unsqueeze(1)


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
        mine = dataset.train[labels[dataset.train] == label]
        mine = mine[torch.from_numpy(rng.permutation(len(mine)))]
        cut = round(share * len(mine))
        held.append(mine[:cut])
        kept.append(mine[cut:])
    train, test = (torch.cat(parts).sort().values for parts in (kept, held))
    return replace(dataset, train=train, test=test, name=f"{dataset.name} (validation)")


def class_orders(num_classes: int, count: int, seed: int = 0) -> Sequence[tuple[int, ...]]:
    """Random orders of the classes, for streams that should not depend on one."""
    rng = np.random.default_rng(seed)
    return [tuple(rng.permutation(num_classes).tolist()) for _ in range(count)]

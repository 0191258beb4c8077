"""Asks the shards, and goes on when one of them has died."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from evergraph.cluster.engine import Engine, ShardLost
from evergraph.cluster.partition import home, homes, keys_of
from evergraph.graph.ids import Id, order_of

PATIENCE = 20  # times in a row that something is repeated because a shard died

T = TypeVar("T")


class Shards:
    """The shards of a cluster, as the one sees them who asks.

    Args:
        engine: where they live.

    Attributes:
        count: how many there are.
        clock: wall-clock seconds by step.
        lost: called when one has died, and all that is known of their state is to be asked again.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.lost: Callable[[], None] = lambda: None
        self.count = engine.shards
        self.clock: dict[str, float] = defaultdict(float)

    def steady(self, work: Callable[[], T]) -> T:
        """Do something that may be repeated, again and again while shards die and come back."""
        for attempt in range(PATIENCE):
            try:
                return work()
            except ShardLost as error:
                self.lost()
                self.engine.revive()
                if attempt == PATIENCE - 1:
                    raise ConnectionError(
                        f"a shard has died {PATIENCE} times in a row: {error}; look at its logs, "
                        "usually it lacks memory"
                    ) from error
        raise AssertionError

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Count the seconds of a step."""
        begun = time.perf_counter()
        yield
        self.clock[step] += time.perf_counter() - begun

    def all(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of every shard with the same arguments."""
        return self.engine.each(method, [arguments] * self.count)

    def exchange(self, give: str, take: str, waves: Sequence[int] | None = None) -> None:
        """Let shards send parcels to each other, in as many waves as one of them has."""
        with self.timed("messages"):
            for wave in [()] if waves is None else [(wave,) for wave in range(max(waves))]:
                self.engine.exchange(give, take, *wave)

    def owners(self, method: str, ids: Sequence[Id]) -> list[tuple[list[int], Any]]:
        """Ask the owners of nodes: the places of their nodes in `ids`, and what they answer."""
        owner = homes(keys_of(ids), self.count)
        places = [np.flatnonzero(owner == shard).tolist() for shard in range(self.count)]
        wanted = [([ids[at] for at in place],) for place in places]
        found = self.engine.each(method, wanted)
        return [(place, one) for place, one in zip(places, found, strict=True) if place]

    def everything(self) -> list[Id]:
        """All nodes in the order of their keys."""
        ids, keys = zip(*self.all("ids"), strict=True)
        listed = list(chain.from_iterable(ids))
        return [listed[at] for at in order_of(np.concatenate(keys)).tolist()]

    def present(self, ids: Sequence[Id]) -> list[Id]:
        """Those of some nodes that are there."""
        found = self.owners("known", ids)
        return [ids[k] for at, there in found for k, is_there in zip(at, there) if is_there]  # noqa: B905

    def linked(self, pairs: Sequence[tuple[Id, Id]]) -> list[tuple[Id, Id]]:
        """Those of some edges that are there, waiting or not."""
        parts: list[list[tuple[Id, Id]]] = [[] for _ in range(self.count)]
        for pair in pairs:
            parts[home(pair[0], self.count)].append(pair)
        there = self.engine.each("holding.linked", [(part,) for part in parts])
        return [
            pair
            for part, found in zip(parts, there, strict=True)
            for pair, is_there in zip(part, found, strict=True)
            if is_there
        ]

"""Which shard owns a node, and what of tables and events each shard gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from evergraph.datasets.columns import Chunk
from evergraph.datasets.events import Event
from evergraph.datasets.graph_tables import Edges, Nodes
from evergraph.graph.ids import Coded, Id, check_ids, key
from evergraph.model.events import REMOVED

Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]
Rows = TypeVar("Rows", Nodes, Edges)
Order = tuple[int, int]
"""The number of a piece of tables, and of a chunk in it: the order in which one machine reads."""


def home(node: Id, shards: int) -> int:
    """The shard that owns a node: a hash of its id, the same everywhere and always.

    Example:
        >>> [home(node, 4) for node in ("ann", 7, "7")]
        [0, 1, 1]
    """
    return key(node) % shards


def keys_of(ids: Sequence[Id]) -> Keys:
    """The keys of ids, see `evergraph.graph.ids.key`."""
    if isinstance(ids, Coded):
        distinct: Keys = keys_of(ids.distinct)[ids.codes]
        return distinct
    return check_ids(ids)[1] if len(ids) else np.zeros(0, dtype=np.uint64)


def homes(keys: Keys, shards: int) -> Ints:
    """The shards that own the nodes with these keys."""
    found: Ints = (keys % np.uint64(shards)).astype(np.int64)
    return found


@dataclass(frozen=True, eq=False)
class Parcel(Generic[Rows]):
    """Some rows on their way to a shard, and the keys of their ids (of edges: of both ends)."""

    order: Order
    rows: Rows
    keys: tuple[Keys, ...]

    @property
    def nbytes(self) -> int:
        """The bytes of the columns, and eight for each id."""
        rows = self.rows
        table = rows.features.table if isinstance(rows, Nodes) else rows.chunk.table
        return int(table.nbytes) + sum(keys.nbytes for keys in self.keys)


def take_nodes(part: Nodes, rows: Ints) -> Nodes:
    """Some rows of a table of nodes, without anything else of it."""

    def pick(values: Sequence[str | None] | None) -> list[str | None] | None:
        return None if values is None else [values[row] for row in rows.tolist()]

    ids = [part.ids[row] for row in rows.tolist()]
    times = None if part.times is None else part.times[rows]
    return Nodes(ids, pick(part.labels), times, pick(part.splits), _bare(part.features, rows))


def take_edges(part: Edges, rows: Ints) -> Edges:
    """Some rows of a table of edges, without anything else of it."""
    sources, targets = ([v[row] for row in rows.tolist()] for v in (part.sources, part.targets))
    weights, times = (None if v is None else v[rows] for v in (part.weights, part.times))
    bare = _bare(part.chunk.without(part.chunk.table.column_names), rows)
    return Edges(sources, targets, weights, times, bare)


def _bare(chunk: Chunk, rows: Ints) -> Chunk:
    """Rows of a chunk that hold no reference to the others, so that they can be sent."""
    table = chunk.take(rows).table if chunk.table.num_columns else chunk.table.slice(0, 0)
    return Chunk(table, chunk.file, chunk.unit, partial(range, len(rows)))


def route(events: Sequence[Event], shards: int) -> list[list[Event]]:
    """What each shard gets of some events, in their order."""
    found: list[list[Event]] = [[] for _ in range(shards)]
    for event in events:
        if event.type in REMOVED["node"]:
            owners = set(range(shards))  # who holds a ghost of it is not known here
        else:
            ends = (event.source, event.target) if event.id is None else (event.id,)
            owners = {home(end, shards) for end in ends if end is not None}
        for owner in owners:
            found[owner].append(event)
    return found

"""Which shard owns a node, and what of tables and events each shard gets.

A shard holds its own nodes with all their edges. The foreign ends of these edges are ghosts: rows
with features, which count in the means of neighbors and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from evergraph.datasets.columns import Chunk
from evergraph.datasets.events import Event
from evergraph.datasets.graph_tables import Edges, Nodes
from evergraph.graph.ids import Coded, Id, check_ids, key
from evergraph.model.events import REMOVED
from evergraph.model.tables import Tables

ROWS = 20_000  # of tables that are sent at a time

Ints = NDArray[np.int64]


def home(node: Id, shards: int) -> int:
    """The shard that owns a node: a hash of its id, the same everywhere and always.

    Example:
        >>> [home(node, 4) for node in ("ann", 7, "7")]
        [0, 1, 1]
    """
    return key(node) % shards


def homes(ids: Sequence[Id], shards: int) -> Ints:
    """The shards that own nodes."""
    if isinstance(ids, Coded):
        distinct: Ints = homes(ids.distinct, shards)[ids.codes]
        return distinct
    if not len(ids):
        return np.zeros(0, dtype=np.int64)
    found: Ints = (check_ids(ids)[1] % np.uint64(shards)).astype(np.int64)
    return found


@dataclass(frozen=True)
class Load:
    """What one shard gets of some rows of tables."""

    nodes: Nodes | None = None
    ghosts: Nodes | None = None
    edges: Edges | None = None


def loads(tables: Tables, shards: int, size: int = ROWS) -> Iterator[list[Load]]:
    """Tables in parts, each with a load for every shard: all nodes before all edges."""
    ends = [(homes(e.sources, shards), homes(e.targets, shards)) for e in tables.edges]
    wanted = _wanted(tables, ends, shards)
    yield [Load() for _ in range(shards)]  # tables may be empty
    first = 0
    for part in tables.nodes:
        own = homes(part.ids, shards)
        for start in range(0, len(part.ids), size):
            rows = np.arange(start, min(start + size, len(part.ids)))
            yield [
                Load(
                    nodes=take_nodes(part, rows[own[rows] == shard]),
                    ghosts=take_nodes(part, rows[wanted[first + rows, shard]]),
                )
                for shard in range(shards)
            ]
        first += len(part.ids)
    for link, (source, target) in zip(tables.edges, ends, strict=True):
        for start in range(0, len(source), size):
            rows = np.arange(start, min(start + size, len(source)))
            mine = [(source[rows] == shard) | (target[rows] == shard) for shard in range(shards)]
            yield [Load(edges=take_edges(link, rows[kept])) for kept in mine]


def _wanted(tables: Tables, ends: Sequence[tuple[Ints, Ints]], shards: int) -> NDArray[np.bool_]:
    """Which shards need a ghost of each node, `(N, shards)`."""
    ids = [node for part in tables.nodes for node in part.ids]
    wanted = np.zeros((len(ids) + 1, shards), dtype=np.bool_)  # the last row: unknown ends
    if shards == 1:
        return wanted
    row_of = dict(zip(ids, range(len(ids)), strict=True))
    for link, (source, target) in zip(tables.edges, ends, strict=True):
        wanted[_rows(link.sources, row_of), target] = True
        wanted[_rows(link.targets, row_of), source] = True
    wanted[np.arange(len(ids)), homes(ids, shards)] = False
    return wanted


def _rows(ids: Sequence[Id], row_of: dict[Id, int]) -> Ints:
    if isinstance(ids, Coded):
        distinct: Ints = _rows(ids.distinct, row_of)[ids.codes]
        return distinct
    return np.fromiter((row_of.get(node, -1) for node in ids), np.int64, len(ids))


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

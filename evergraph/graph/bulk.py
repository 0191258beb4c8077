"""Many edges at once, sorted into the rows of a growing graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.graph.arena import Arena
from evergraph.graph.hops import Ints
from evergraph.graph.ids import order_of
from evergraph.graph.links import ONE, TIME, WEIGHT, Links

Int32s = NDArray[np.int32]


def put_links(links: Links, source: Ints, target: Ints, weight: Any, time: Any) -> None:
    """Put many edges (at least one) in their order, by sorting them into the others.

    None for all weights or times, and NaN for a single time, leave what is there.
    """
    for place, given in ((WEIGHT, weight), (TIME, time)):
        if given is not None:
            links.begin(place)
    owner, entry = links.out.expand(np.arange(links.num_nodes))
    other = links.targets(entry)
    mirror = not links.directed
    if links.out.columns[WEIGHT] is None and links.out.columns[TIME] is None:
        owners = [owner, source, *([target] if mirror else [])]
        counts, other = _plain_rows(links, owners, [other, target, *([source] if mirror else [])])
        weights = times = None
    else:
        if mirror:  # each edge beside its mirror, so that the order stays
            source, target = _interleave(source, target), _interleave(target, source)
            weight, time = (v if v is None else np.repeat(v, 2, axis=0) for v in (weight, time))
        owner, other = np.concatenate([owner, source]), np.concatenate([other, target])
        counts, other, weights, times = _rows(links, owner, other, entry, weight, time)
    _refill(links.out, counts, other, weights, times)
    if links.directed:
        owner = np.repeat(np.arange(len(counts)), counts)
        _refill(links.into, *_plain_rows(links, [other], [owner]), None, None)
    sides = 1 if links.directed else 2
    links.count = len(other) // sides
    if weights is not None:
        differs = (weights.reshape(-1, links.components or 1) != ONE).any(1)
        links.weighted = int(differs.sum()) // sides


def _interleave(one: Ints, other: Ints) -> Ints:
    both = np.empty(2 * len(one), dtype=np.int64)
    both[::2], both[1::2] = one, other
    return both


def _ranks(links: Links) -> tuple[Int32s, Int32s]:
    """The slots in the order of their keys, and the place of each slot in it."""
    slots = order_of(links.keys.array[: links.num_nodes]).astype(np.int32)
    rank = np.empty(len(slots), dtype=np.int32)
    rank[slots] = np.arange(len(slots))
    return slots, rank


def _plain_rows(links: Links, owners: list[Ints], others: list[Ints]) -> tuple[Ints, NDArray[Any]]:
    """The lengths of the rows of edges that are nothing but there, and where they lead."""
    slots, rank = _ranks(links)
    owner, other = (
        np.concatenate(part, dtype=np.int32, casting="same_kind") for part in (owners, others)
    )
    there = np.ones(len(owner), dtype=np.int8)
    matrix = sparse.coo_array((there, (rank[other], owner)), shape=(len(slots), len(slots)))
    matrix.has_canonical_format = True  # leaves repeated entries for later, and unsorted
    rows = matrix.tocsr().tocsc()  # in the order of ranks, since these were the rows
    rows.sum_duplicates()
    return np.diff(rows.indptr), slots[rows.indices]


def _rows(
    links: Links, owner: Ints, other: Ints, entry: Ints, weight: Any, time: Any
) -> tuple[Ints, Ints, NDArray[Any] | None, NDArray[Any] | None]:
    """The same of edges that may be given several times, and their weights and times."""
    rank = _ranks(links)[1]
    order = _counting_sort(rank[other], len(rank))
    order = order[_counting_sort(owner[order], len(rank))]
    owner, other = owner[order], other[order]
    new = np.r_[True, (owner[1:] != owner[:-1]) | (other[1:] != other[:-1])]
    first = np.flatnonzero(new)
    counts = np.bincount(owner[first], minlength=len(rank))
    weights = _latest(links, WEIGHT, entry, weight, order, first)
    times = _latest(links, TIME, entry, time, order, first)
    return counts, other[first], weights, times


def _counting_sort(numbers: NDArray[np.integer], size: int) -> Int32s:
    """How to sort numbers below `size`, equal ones in their order; it takes linear time.

    It is the transposition of a sparse matrix with one entry per row.
    """
    count = len(numbers)
    matrix = (np.zeros(count, dtype=np.int8), numbers, np.arange(count + 1))
    order: Int32s = sparse.csr_array(matrix, shape=(count, size)).tocsc().indices
    return order


def _latest(
    links: Links, place: int, entry: Ints, new: NDArray[Any] | None, order: Int32s, first: Ints
) -> NDArray[Any] | None:
    """The last known value of each group of equal edges in a column."""
    column = links.out.columns[place]
    if column is None:
        return None
    shape = (len(order) - len(entry), *column.array.shape[1:])
    if new is None:
        known = np.zeros(shape[0], dtype=np.bool_)
        new = np.full(shape, column.fill, column.array.dtype)
    else:
        known = ~np.isnan(new) if place == TIME else np.ones(shape[0], dtype=np.bool_)
    known = np.concatenate([np.ones(len(entry), dtype=np.bool_), known])[order]
    last = np.maximum.reduceat(np.where(known, np.arange(len(order)), -1), first)
    values: NDArray[Any] = np.concatenate([column.array[entry], new])[order]
    return values[np.where(last < 0, first, last)]


def _refill(arena: Arena, counts: Ints, *values: NDArray[Any] | None) -> None:
    """Put entries, row by row, in the place of everything in an arena."""
    for column in arena.columns:
        if column is not None:
            column.replace(column.array[:0].copy())
    arena.used = arena.dead = 0
    arena.append(np.arange(len(counts)), counts, *values)

"""Tables of nodes and of edges, with their ids, labels, weights and times apart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.datasets.columns import Chunk
from evergraph.datasets.fields import (
    USUAL,
    KnownIds,
    Limits,
    column_of_floats,
    column_of_ids,
    columns_of_ends,
    each,
    id_of,
    label_of,
    split_of,
    time_of,
    weight_of,
)
from evergraph.datasets.report import Report
from evergraph.datasets.tables import name_of, read_tables
from evergraph.graph.ids import Id

Floats = NDArray[np.float64]
_OWN = ("label", "time", "split")
EMPTY = "a table of nodes must have a row", "add nodes"
REPEATED = "an id must be unique in the table", "remove the row, or rename the node"
_WEIGHT = re.compile(r"weight(0|[1-9][0-9]*)")


@dataclass(frozen=True, eq=False)
class Nodes:
    """Some rows of a table of nodes.

    Attributes:
        ids: of the rows.
        labels: class names, None where unknown; None if there is no such column.
        times: NaN where unknown; None if there is no such column.
        splits: train, test, valid or None; None if there is no such column.
        features: the other columns.
    """

    ids: Sequence[Id]
    labels: Sequence[str | None] | None
    times: Floats | None
    splits: Sequence[str | None] | None
    features: Chunk

    def records(self) -> Iterator[tuple[Id, dict[str, Any], str | None, float | None]]:
        """Id, cells, label and time of each node."""
        table, size = self.features.table, len(self.ids)
        cells = table.to_pylist() if table.num_columns else [{} for _ in self.ids]
        labels = [None] * size if self.labels is None else self.labels
        return zip(self.ids, cells, labels, _known(self.times, size), strict=True)


@dataclass(frozen=True, eq=False)
class Edges:
    """Some rows of a table of edges.

    Attributes:
        sources: ids.
        targets: ids.
        weights: `(R,)`, or `(R, W)` for vectors; 1 where unknown; None if there is no such column.
        times: NaN where unknown; None if there is no such column.
        chunk: the rows as they were read, for their lines.
    """

    sources: Sequence[Id]
    targets: Sequence[Id]
    weights: Floats | None
    times: Floats | None
    chunk: Chunk

    def records(self) -> Iterator[tuple[Id, Id, Any, float | None]]:
        """Source, target, weight and time of each edge."""
        size = len(self.sources)
        weights = [None] * size if self.weights is None else self.weights.tolist()
        times = _known(self.times, size)
        return zip(self.sources, self.targets, weights, times, strict=True)

    def without(self, rows: Sequence[int]) -> Edges:
        """The same without some of the rows."""
        kept = np.delete(np.arange(len(self.sources)), list(rows))
        return Edges(
            [self.sources[row] for row in kept.tolist()],
            [self.targets[row] for row in kept.tolist()],
            None if self.weights is None else self.weights[kept],
            None if self.times is None else self.times[kept],
            self.chunk.take(kept),
        )


def _known(times: Floats | None, size: int) -> list[float | None]:
    """Times, None where there is none."""
    return [None] * size if times is None else [None if t != t else t for t in times.tolist()]


def read_nodes(
    source: Any,
    report: Report | None = None,
    *,
    id: str = "id",
    format: str | None = None,
    limits: Limits = USUAL,
    may_be_empty: bool = False,
) -> Iterator[Nodes]:
    """The nodes of a table, chunk by chunk; rows that are complained about are left out.

    Args:
        source: as in `read_tables`.
        report: collects complaints; without it, all are raised after the last chunk.
        id: the column of ids, which must be there and be unique.
        format: as in `read_tables`.
        limits: how large labels and times may be.
        may_be_empty: whether a table without rows is no problem.
    """
    own = Report() if report is None else report
    seen: set[Any] = set()
    empty, before = not may_be_empty, own.count
    for chunk in read_tables(source, own, format=format):
        if not _has(chunk, (id,), own):
            break
        bad: set[int] = set()
        ids = _ids(chunk, id, own, bad)
        _find_repeated(chunk, id, ids, seen, own, bad)
        labels = _labels(chunk, own, bad, limits)
        times = _times(chunk, own, bad, limits)
        present = "split" in chunk.table.column_names
        splits = each(chunk, "split", split_of, own, bad) if present else None
        kept = _kept(chunk, bad)
        empty = empty and not chunk.num_rows
        yield Nodes(
            _pick(ids, kept),
            None if labels is None else _pick(labels, kept),
            None if times is None else times[kept],
            None if splits is None else _pick(splits, kept),
            (chunk if isinstance(kept, slice) else chunk.take(kept)).without((id, *_OWN)),
        )
    if empty and own.count == before:
        own.add(name_of(source), None, None, "none", *EMPTY)
    if report is None:
        own.check()


def read_edges(
    source: Any,
    report: Report | None = None,
    *,
    ends: tuple[str, str] = ("source", "target"),
    format: str | None = None,
    limits: Limits = USUAL,
    among: Sequence[Id] | None = None,
) -> Iterator[Edges]:
    """The edges of a table, chunk by chunk; rows that are complained about are left out.

    Columns other than the two ends, `weight` (a number or a list) or `weight0`, `weight1`, ...,
    and `time` are reported.

    Args:
        source: as in `read_tables`.
        report: collects complaints; without it, all are raised after the last chunk.
        ends: the columns of ids.
        format: as in `read_tables`.
        limits: how large weights and times may be.
        among: distinct ids that most ends are, which saves time; others are read all the same.
    """
    own = Report() if report is None else report
    known = None if among is None else KnownIds(among)
    usual: set[str] = {*ends, "weight", "time"}
    for chunk in read_tables(source, own, format=format):
        if not _has(chunk, ends, own):
            break
        bad: set[int] = set()
        sources, targets = _ends(chunk, ends, known, own, bad)
        names = [name for name in chunk.table.column_names if _WEIGHT.fullmatch(name)]
        for name in chunk.table.column_names:
            if name not in usual and name not in names:
                rule = f"a table of edges has {', '.join(ends)}, weight and time"
                own.add(chunk.file, None, name, name, rule, "leave the column out")
                usual.add(name)  # one complaint is enough
        weights = _weights(chunk, names, own, bad, limits)
        times = _times(chunk, own, bad, limits)
        kept = _kept(chunk, bad)
        yield Edges(
            _pick(sources, kept),
            _pick(targets, kept),
            None if weights is None else weights[kept],
            None if times is None else times[kept],
            chunk if isinstance(kept, slice) else chunk.take(kept),
        )
    if report is None:
        own.check()


def _has(chunk: Chunk, names: tuple[str, ...], report: Report) -> bool:
    gone = [name for name in names if name not in chunk.table.column_names]
    for name in gone:
        found = ", ".join(chunk.table.column_names) or "no columns"
        named = "" if name in ("source", "target") else ", or name it where there is --id"
        way_out = f"rename the column that holds it{named}; or separate the columns by commas"
        report.add(chunk.file, None, name, found, f"there must be a column {name!r}", way_out)
    return not gone


def _ids(chunk: Chunk, name: str, report: Report, bad: set[int]) -> list[Any]:
    ids = column_of_ids(chunk.table.column(name))
    return each(chunk, name, id_of, report, bad) if ids is None else ids


def _ends(
    chunk: Chunk, names: tuple[str, str], known: KnownIds | None, report: Report, bad: set[int]
) -> tuple[Sequence[Any], Sequence[Any]]:
    source, target = map(chunk.table.column, names)
    found = columns_of_ends(source, target, known)
    if found is not None:
        return found
    return _ids(chunk, names[0], report, bad), _ids(chunk, names[1], report, bad)


def _find_repeated(
    chunk: Chunk, name: str, ids: Sequence[Any], seen: set[Any], report: Report, bad: set[int]
) -> None:
    before = len(seen)
    repeated = seen.intersection(ids) if before else set()
    seen.update(ids)
    seen.discard(None)
    if len(seen) - before == len(ids) - len(bad):
        return
    for row, node in enumerate(ids):
        if node in repeated and row not in bad:
            chunk.complain(report, row, name, node, *REPEATED)
            bad.add(row)
        repeated.add(node)


def _labels(chunk: Chunk, report: Report, bad: set[int], limits: Limits) -> list[str | None] | None:
    if "label" not in chunk.table.column_names:
        return None
    return each(chunk, "label", partial(label_of, limits=limits), report, bad)


def _times(chunk: Chunk, report: Report, bad: set[int], limits: Limits) -> Floats | None:
    if "time" not in chunk.table.column_names:
        return None
    times = column_of_floats(chunk.table.column("time"), limits.time)
    if times is None:
        found = each(chunk, "time", partial(time_of, limits=limits), report, bad)
        times = np.array([np.nan if time is None else time for time in found], dtype=np.float64)
    return times


def _weights(
    chunk: Chunk, parts: list[str], report: Report, bad: set[int], limits: Limits
) -> Floats | None:
    names = chunk.table.column_names
    if not parts:
        return _weight(chunk, "weight", report, bad, limits) if "weight" in names else None
    expected = [f"weight{part}" for part in range(len(parts))]
    if "weight" in names or set(parts) != set(expected):
        rule = "weights are one column weight, or weight0, weight1, ... without gaps"
        report.add(chunk.file, None, "weight", ", ".join(parts), rule, "rename the columns")
        return None
    columns = [_weight(chunk, name, report, bad, limits) for name in expected]
    first = [column if column.ndim == 1 else column[:, 0] for column in columns]
    return np.stack(first, axis=1)


def _weight(chunk: Chunk, name: str, report: Report, bad: set[int], limits: Limits) -> Floats:
    weights = column_of_floats(chunk.table.column(name), limits.weight)
    if weights is not None:
        return weights
    found = each(chunk, name, partial(weight_of, limits=limits), report, bad)
    widths = {len(weight) for weight in found if isinstance(weight, list)}
    if not widths:
        return np.array([1.0 if weight is None else weight for weight in found], dtype=np.float64)
    width = min(widths)
    made = np.ones((len(found), width))
    for row, weight in enumerate(found):
        if isinstance(weight, list) and len(weight) == width:
            made[row] = weight
        elif weight is not None:
            rule = f"weights must all be lists of {width} numbers"
            chunk.complain(report, row, name, weight, rule, "make them alike")
            bad.add(row)
    return made


def _kept(chunk: Chunk, bad: set[int]) -> NDArray[np.int64] | slice:
    if not bad:
        return slice(None)
    kept = np.ones(chunk.num_rows, dtype=np.bool_)
    kept[list(bad)] = False
    return np.flatnonzero(kept)


def _pick(values: Sequence[Any], kept: NDArray[np.int64] | slice) -> Sequence[Any]:
    return values if isinstance(kept, slice) else [values[row] for row in kept.tolist()]

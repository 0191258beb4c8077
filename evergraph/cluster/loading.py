"""Lets shards read tables: what each reads, and what is wrong with all of them together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from evergraph.cluster.asking import Shards
from evergraph.cluster.reader import Piece, Survey
from evergraph.datasets.columns import Chunk
from evergraph.datasets.graph_tables import EMPTY
from evergraph.datasets.infer import Evidence
from evergraph.datasets.report import Report
from evergraph.datasets.schema import Schema
from evergraph.datasets.tables import files_of, read_tables
from evergraph.graph.ids import Id
from evergraph.model.folder import UnknownEnds
from evergraph.model.schemas import kinds

Reports = Mapping[int, Report]
"""Complaints by the number of the piece that they are about."""


def pieces_of(nodes: Any, edges: Any, id: str) -> list[Piece]:
    """Tables in parts: files, which shards open, and others by rows; nodes before edges."""
    parts = [{"nodes": part, "id": id} for part in _parts(nodes)]
    parts += [{"edges": part} for part in (() if edges is None else _parts(edges))]
    return [Piece(number, **part) for number, part in enumerate(parts)]


def _parts(source: Any) -> Iterable[Any]:
    report = Report()
    files = files_of(source, report)
    report.check()
    if all(isinstance(file, str | Path) and str(file) != "-" for file in files):
        return [Path(file).expanduser().resolve() for file in files]
    return map(_alone, read_tables(source))


def _alone(chunk: Chunk) -> Chunk:
    """A chunk that holds no reference to other rows, so that it can be sent."""
    lines, table = chunk.lines, chunk.table
    if table.num_columns:
        table = chunk.take(np.arange(chunk.num_rows)).table
    return Chunk(table, chunk.file, chunk.unit, lambda: lines)


def load(
    shards: Shards,
    pieces: Sequence[Piece],
    schema: Schema | None,
    unknown: UnknownEnds,
    name: str = "nodes",
) -> None:
    """Let shards read tables, check them as one machine does, and store them.

    Args:
        shards: who read.
        pieces: what they read, dealt to them in turn.
        schema: kinds of columns; None infers them.
        unknown: what becomes of edges to nodes that are not there.
        name: of the table of nodes, for complaints.

    Raises:
        TableError: with all complaints; nothing is stored then.
    """
    shards.all("reader.begin")
    shards.engine.stream("reader.read", _dealt(pieces, shards.count))
    found = _surveyed(shards, pieces)
    if found is None:
        nothing = Report()
        nothing.add(name, None, None, "none", *EMPTY)
        _check([{0: nothing}])
    columns = kinds(schema, found or {})
    if unknown != "wait":
        shards.exchange("reader.give_ends", "reader.take_ends")
        shards.exchange("reader.give_answers", "reader.take_answers")
        _check(shards.all("reader.keep_known", unknown))
    if sum(shards.all("reader.fit", columns)):
        _check(shards.all("reader.misfits", columns))
    _send(shards, "edges")
    if shards.count > 1:
        _send(shards, "ghosts")
    shards.all("load")


def _send(shards: Shards, what: str) -> None:
    shards.exchange(f"reader.give_{what}", f"reader.take_{what}", shards.all("reader.waves", what))


def _dealt(pieces: Sequence[Piece], shards: int) -> Iterator[list[tuple[Piece, ...]]]:
    """Pieces in turn to each shard."""
    for start in range(0, len(pieces), shards):
        part = pieces[start : start + shards]
        yield [(piece,) for piece in part] + [()] * (shards - len(part))


def _surveyed(shards: Shards, pieces: Sequence[Piece]) -> dict[str, Evidence] | None:
    """Deal nodes to their owners, and check ids.

    Returns:
        What the cells of each column allow; None without any node.
    """
    surveys: list[Survey] = shards.all("reader.survey")
    _send(shards, "nodes")
    again = list(chain.from_iterable(shards.all("reader.repeated")))
    reports: list[Reports] = [survey.complaints for survey in surveys]
    if again:
        reports.append(_repeats(shards, again, pieces[0].id))
    _check(reports)
    if not any(survey.rows for survey in surveys):
        return None
    found: dict[str, Evidence] = {}
    for survey in surveys:
        for name, evidence in survey.evidence.items():
            found.setdefault(name, Evidence()).merge(evidence)
    return found


def _repeats(shards: Shards, again: Sequence[Id], column: str) -> Reports:
    """Complaints about all places of some ids but the first."""
    places = chain.from_iterable(shards.all("reader.repeats", again, column))
    seen, found = set[Id](), dict[int, Report]()
    for (number, _), _, node, problem in sorted(places, key=itemgetter(0, 1)):
        if node in seen:
            found.setdefault(number, Report()).note(problem)
        seen.add(node)
    return found


def _check(reports: Iterable[Reports]) -> None:
    """Raise complaints, if there are any, in the order of one machine."""
    whole = Report()
    for _, report in sorted(chain.from_iterable(r.items() for r in reports), key=itemgetter(0)):
        for problem in report.problems:
            whole.note(problem)
        whole.count += report.count - len(report.problems)
    whole.check()

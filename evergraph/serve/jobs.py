"""What waits for the writer: blocks of events of requests, and calls."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from typing import Any

from evergraph.datasets.blocks import BOM
from evergraph.datasets.columns import from_rows
from evergraph.datasets.events import Event, event_of
from evergraph.datasets.jsonl_blocks import parse_lines, parse_object
from evergraph.datasets.report import Problem, Report
from evergraph.datasets.schema import VERSION, Schema
from evergraph.model.record import Scored
from evergraph.serve.limits import RefusedError

Refusals = list[tuple[int, str]]
"""Lines that were refused, with the reasons."""


@dataclass(frozen=True)
class Progress:
    """How far a request was stored.

    Attributes:
        lines: that were read.
        digest: of their bytes.
        accepted: events among them.
        refused: lines that were refused.
        position: of the store behind them.
    """

    lines: int = 0
    digest: str = ""
    accepted: int = 0
    refused: int = 0
    position: int = 0

    def to_json(self) -> str:
        """As text."""
        return json.dumps(asdict(self))


@dataclass
class Job:
    """A block of events of a request.

    Attributes:
        block: whole lines, as they came.
        before: how far the request was stored.
        hashed: of all that came before the block.
        key: of the request, if it has one.
        schema: kinds of columns, if the block begins with them.
        events: that were read, with their lines in the request.
        scored: what was predicted for the labels among the events.
        refusals: lines that could not be read, and later those that were refused.
        done: gets the progress behind the block.
    """

    block: bytes
    before: Progress
    hashed: Any
    key: str | None = None
    schema: Schema | None = None
    events: list[Event] = field(default_factory=list)
    refusals: Refusals = field(default_factory=list)
    scored: list[Scored] = field(default_factory=list)
    done: Future[Progress] = field(default_factory=Future)

    @property
    def lines(self) -> int:
        """How many lines the block has."""
        return self.block.count(b"\n") + (not self.block.endswith(b"\n"))

    def digest(self, lines: int) -> str:
        """Of the request up to so many lines of the block."""
        end = -1
        for _ in range(lines):
            end = self.block.find(b"\n", end + 1)
            if end < 0:
                end = len(self.block) - 1
        hashed = self.hashed.copy()
        hashed.update(self.block[: end + 1])
        return str(hashed.hexdigest())


@dataclass
class Call:
    """Something that only the writer may do."""

    make: Callable[[], Any]
    done: Future[Any] = field(default_factory=Future)


def read_block(job: Job) -> Job:
    """Parse the events of a block; lines that cannot be read are refused."""
    first, block = job.before.lines + 1, job.block
    if first == 1:
        block = block.removeprefix(BOM)
        line, _, rest = block.partition(b"\n")
        job.schema = schema_of(line)
        if job.schema is not None:
            block, first = rest, 2

    def note(problem: Problem) -> None:
        job.refusals.append((problem.line or first, reason_of(problem)))

    def complain(value: object, *rest: str) -> None:
        rule, way_out, column = rest
        report.add("stream", at, column, value, rule, way_out)

    report = Report(note)
    for at, row in parse_lines(block, report, "stream", first):
        event = event_of(row, at, complain)
        if event is not None:
            job.events.append(event)
    return job


def schema_of(line: bytes) -> Schema | None:
    """The kinds of columns that a line of type `schema` names; None if it is another line."""
    if b'"schema"' not in line:
        return None
    row = parse_object(line, Report(), "stream", 1)
    if row is None or row.get("type") != "schema":
        return None
    try:
        if row.keys() != {"type", "columns"} or not isinstance(row["columns"], list):
            raise ValueError(f"a schema has type and columns only, got {', '.join(row)[:80]}")
        return Schema.from_json(json.dumps({"version": VERSION, "columns": row["columns"]}))
    except ValueError as error:
        raise RefusedError(422, f"line 1: {error}; see the schema file in docs/tables.md") from None


def inferred(events: list[Event]) -> Schema:
    """The kinds of columns that the nodes among the first events have."""
    cells = [event.cells for event in events if event.type == "node" and event.cells]
    if not cells:
        raise RefusedError(
            409,
            "there is no model yet, and these events do not tell its columns: begin with a line "
            '{"type": "schema", "columns": [{"name": "age", "kind": "number"}]}, or with nodes',
        )
    try:
        return Schema.infer(from_rows(cells, Report(), file="events"))
    except ValueError as error:
        raise RefusedError(422, f"the columns of the first nodes cannot be read: {error}") from None


def reason_of(problem: Problem) -> str:
    """A complaint without the place."""
    column = "" if problem.column is None else f"{problem.column[:60]!r}: "
    return f"{column}{problem.rule}, got {problem.value}; {problem.way_out}"


def new_hash() -> Any:
    """Of the bytes of a request: tells whether a key is used for the same events again."""
    return hashlib.blake2b(digest_size=16)

"""The places that each kind of column has in an encoded row, and how its cells fill them.

| kind | places | a missing cell |
|---|---|---|
| number | standardized value, missing flag | the mean (0) and the flag |
| date | days, standardized; flag; sine and cosine of the day in the year | the mean and the flag |
| vector | one standardized value per entry, missing flag | zeros and the flag |
| boolean | false, true | neither |
| category | `size` buckets, one of them 1 | no bucket |
| text, words | `size` buckets, counts of words, scaled to unit length | no bucket |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from evergraph.checks import check_one_of
from evergraph.datasets import cells
from evergraph.datasets.cells import Codes
from evergraph.datasets.columns import Chunk
from evergraph.datasets.report import Report
from evergraph.datasets.sums import LIMIT, STEPS
from evergraph.datasets.vectors import Vectors, as_vectors, stack, vectors_of
from evergraph.graph.nodes import FRACTION

"""An encoded value v stands for v / 2**16."""
CLIP = 1 << (8 + FRACTION)
ONE = 1 << FRACTION
BUCKETS = {"category": 64, "text": 512, "words": 512}
MEASURED = ("number", "date", "vector")
KINDS = (*MEASURED, "boolean", *BUCKETS, "drop")
WIDEST = 1 << 20
_SEASON = [
    [round(ONE * wave(2 * math.pi * day / 366)) for day in range(366)]
    for wave in (math.sin, math.cos)
]
_RULES = {
    "number": f"a number within ±{LIMIT:.2g} is needed",
    "date": "an ISO date or time is needed, such as 2024-05-31 or 2024-05-31T12:00:00Z",
    "boolean": "true or false is needed (or yes, no, 1, 0)",
    "category": "one text, number or boolean is needed",
    "text": "one text, number or boolean is needed",
    "words": "a list of words, or text with blanks between them, is needed",
}

Ints = NDArray[np.int64]
Parsed = Codes | tuple[Vectors, Ints]
"""Codes, or vectors with the day in the year of each row (none unless the kind is date)."""


@dataclass(frozen=True)
class Column:
    """What a column holds.

    Attributes:
        name: of the column, or what its parts have before their numbers.
        kind: one of `KINDS`; `drop` leaves it out.
        size: entries of a vector; buckets of a category, text or words.
        parts: a vector that is stored as the columns `name0`, `name1`, ...
    """

    name: str
    kind: str
    size: int = 0
    parts: bool = False

    def __post_init__(self) -> None:
        """Reject kinds and sizes that do not exist."""
        check_one_of(f"the kind of column {self.name!r}", self.kind, KINDS)
        sized = self.kind == "vector" or self.kind in BUCKETS
        if sized and not 1 <= self.size <= WIDEST:
            raise ValueError(
                f"the size of column {self.name!r} must be from 1 to {WIDEST:,}, got {self.size}"
            )
        if self.parts and self.kind not in ("vector", "drop"):
            raise ValueError(f"only a vector has parts, but column {self.name!r} is {self.kind}")

    @property
    def entries(self) -> int:
        """How many numbers of a row are standardized."""
        return self.size if self.kind == "vector" else int(self.kind in MEASURED)

    @property
    def width(self) -> int:
        """How many places of an encoded row it has."""
        extra = {"number": 1, "vector": 1, "date": 3, "boolean": 2, "drop": 0}
        return self.entries + extra.get(self.kind, self.size)

    @property
    def sources(self) -> list[str]:
        """The columns of a table that it reads."""
        return [f"{self.name}{part}" for part in range(self.size)] if self.parts else [self.name]

    def read(self, chunk: Chunk, report: Report) -> Parsed:
        """The cells of a chunk; bad ones are reported and taken as missing."""
        if self.parts:
            return self._stack(chunk, report), _NO_DAYS
        column = _find(chunk, self.name)
        day_in_year = _NO_DAYS
        match self.kind:
            case "number":
                values, bad = cells.numbers(column)
            case "date":
                values, day_in_year, bad = cells.days(column)
            case "boolean":
                values, bad = cells.booleans(column)
            case "vector":
                vectors = vectors_of(column, self.size)
                self._complain(chunk, report, column, vectors.bad)
                return vectors, day_in_year
            case "category":
                codes, bad = cells.categories(column)
            case _:
                codes, bad = cells.tokens(column, text=self.kind == "text")
        self._complain(chunk, report, column, bad)
        if self.kind == "boolean":
            row = np.flatnonzero(~np.isnan(values))
            return Codes(row, values[row].astype(np.int64), ["false", "true"])
        if self.kind in MEASURED:
            return as_vectors(values), day_in_year
        return codes

    def _stack(self, chunk: Chunk, report: Report) -> Vectors:
        columns = [_find(chunk, name) for name in self.sources]
        vectors, wrong = stack(columns)
        for row, part in wrong:
            value = columns[part][row].as_py()
            way_out = _way_out("number")
            chunk.complain(report, row, self.sources[part], value, _RULES["number"], way_out)
        return vectors

    def _complain(self, chunk: Chunk, report: Report, column: Any, bad: Ints) -> None:
        rule = _RULES.get(self.kind, f"a list of {self.size} finite numbers is needed")
        for row in bad.tolist():
            value = column[row].as_py()
            chunk.complain(report, row, self.name, value, rule, _way_out(self.kind))

    def encode(self, parsed: Parsed, rows: int, start: int, mean: Ints, scale: Ints) -> list[Part]:
        """The filled places, from place `start` on."""
        if isinstance(parsed, Codes):
            if self.kind == "boolean":
                return [_place(parsed.row, start + parsed.code, ONE)]
            of_code = self._hash(parsed.distinct)[parsed.code]
            if self.kind == "category":
                return [_place(parsed.row, start + of_code, ONE)]
            return [_bag(rows, parsed.row, of_code, self.size, start)]
        vectors, day_in_year = parsed
        missing = np.flatnonzero(vectors.missing)
        parts = [_standardize(vectors, rows, start, mean, scale)]
        parts.append(_place(missing, start + self.entries, ONE))
        if self.kind == "date":
            known = np.flatnonzero(~vectors.missing)
            for place, wave in enumerate(_SEASON, start + self.entries + 1):
                value = np.array(wave)[day_in_year[known]]
                parts.append(_place(known, place, value))
        return parts

    def _hash(self, distinct: Sequence[str]) -> Ints:
        """The bucket of each text, by a hash of the column's name and the text."""
        name = self.name.encode()
        base = blake2b(len(name).to_bytes(8, "little") + name, digest_size=8)
        buckets = np.zeros(len(distinct), dtype=np.int64)
        for code, text in enumerate(distinct):
            state = base.copy()
            state.update(text.encode())
            buckets[code] = int.from_bytes(state.digest(), "little") % self.size
        return buckets


_NO_DAYS = np.zeros(0, dtype=np.int64)


def _find(chunk: Chunk, name: str) -> Any:
    place = chunk.table.schema.get_field_index(name)
    if place >= 0:
        return chunk.table.column(place)
    return pa.nulls(chunk.table.num_rows, pa.string())


def _way_out(kind: str) -> str:
    other = "drop" if kind == "category" else "category or drop"
    return f"correct it, leave it empty, or make the column's kind {other} in the schema"


@dataclass(frozen=True, eq=False)
class Part:
    """Some places of the rows, row by row.

    Attributes:
        row: of each entry, ascending.
        index: its place.
        value: what it holds.
        single: whether no row has two entries.
    """

    row: Ints
    index: Ints
    value: Ints
    single: bool = True


def _place(row: Ints, index: Ints | int, value: int | Ints) -> Part:
    """At most one place per row; zeros are left out."""
    indices = np.broadcast_to(np.asarray(index, dtype=np.int64), row.shape)
    values = np.broadcast_to(np.asarray(value, dtype=np.int64), row.shape)
    kept = slice(None) if isinstance(value, int) else np.flatnonzero(values)
    return Part(row[kept], indices[kept], values[kept])


def _bag(rows: int, row: Ints, bucket: Ints, buckets: int, start: int) -> Part:
    """Counts of buckets, divided by the length of the row's vector of counts."""
    keys = row * buckets + bucket
    if rows * buckets < 1 << 31:
        keys = keys.astype(np.int32)  # sorted faster
    key, count = np.unique(keys, return_counts=True)
    row, bucket = np.divmod(key.astype(np.int64), buckets)
    length = np.sqrt(np.bincount(row, weights=count * count, minlength=rows))
    value = np.rint(count / length[row] * ONE).astype(np.int64)
    return Part(row, start + bucket, value, single=False)


def _standardize(vectors: Vectors, rows: int, start: int, mean: Ints, scale: Ints) -> Part:
    """(value - mean) / scale, clipped at ±2**8; `mean` counts in sixteenths of the scale."""
    row, place = vectors.row, vectors.place
    inverse = 2.0 ** -scale.astype(np.float64)  # powers of two, so that products are exact
    if mean.any():
        dense = np.zeros((rows, len(mean)))
        dense[row, place] = vectors.value
        shifted = dense * inverse - mean / STEPS
        shifted[vectors.missing] = 0
        fixed = _fix(shifted).reshape(-1)
        kept = np.flatnonzero(fixed)
        row, place = np.divmod(kept, len(mean)) if len(mean) > 1 else (kept, np.zeros_like(kept))
    else:
        fixed = _fix(vectors.value * inverse[place])
        kept = np.flatnonzero(fixed)
        row, place = row[kept], place[kept]
    return Part(row, start + place, fixed[kept], single=len(mean) == 1)


def _fix(values: NDArray[np.float64]) -> Ints:
    return np.rint(np.clip(values * ONE, -CLIP, CLIP)).astype(np.int64)


def assemble(rows: int, parts: Sequence[Part]) -> tuple[Ints, NDArray[np.int32], NDArray[np.int32]]:
    """Rows of all parts side by side, as `(indptr, index, value)`."""
    counts = [np.bincount(part.row, minlength=rows) for part in parts]
    indptr = np.zeros(rows + 1, dtype=np.int64)
    np.cumsum(sum(counts, np.zeros(rows, dtype=np.int64)), out=indptr[1:])
    index, value = np.empty(indptr[-1], dtype=np.int32), np.empty(indptr[-1], dtype=np.int32)
    free = indptr[:-1].copy()
    for part, count in zip(parts, counts, strict=True):
        place = free[part.row]
        if not part.single:
            before = np.cumsum(count) - count
            place += np.arange(len(place)) - before[part.row]
        index[place], value[place] = part.index, part.value
        free += count
    return indptr, index, value

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

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.checks import check_one_of
from evergraph.datasets import cells
from evergraph.datasets.cells import Codes
from evergraph.datasets.columns import NO_NAME, Chunk, Read, is_name
from evergraph.datasets.report import Report
from evergraph.datasets.sums import LIMIT, STEPS
from evergraph.datasets.vectors import Dense, Vectors, stack, vectors_of
from evergraph.graph.nodes import FRACTION

"""An encoded value v stands for v / 2**16."""
CLIP = 1 << (8 + FRACTION)
ONE = 1 << FRACTION
BUCKETS = {"category": 64, "text": 512, "words": 512}
MEASURED = ("number", "date", "vector")
KINDS = (*MEASURED, "boolean", *BUCKETS, "drop")
WIDEST = 1 << 20
_SEASON = [
    np.array([round(ONE * wave(2 * math.pi * day / 366)) for day in range(366)], np.int32)
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

_READ: dict[str, Read] = {
    "number": cells.numbers,
    "vector": cells.numbers,
    "date": cells.days,
    "boolean": cells.booleans,
}

Ints = NDArray[np.int64]
Parsed = Codes | Vectors | Dense


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
        if not is_name(self.name):
            raise ValueError(f"{NO_NAME[0]}, got {self.name!r}; {NO_NAME[1]}")
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

    def places(self) -> list[str]:
        """The names of these places; buckets by their number."""
        inside = {
            "number": ["", "missing"],
            "date": ["", "missing", "season sine", "season cosine"],
            "boolean": ["false", "true"],
            "vector": [*map(str, range(self.size)), "missing"],
            "drop": [],
        }.get(self.kind, [*map(str, range(self.size))])
        return [f"{self.name}[{place}]" if place else self.name for place in inside]

    @property
    def sources(self) -> list[str]:
        """The columns of a table that it reads."""
        return [f"{self.name}{part}" for part in range(self.size)] if self.parts else [self.name]

    def read(self, chunk: Chunk, report: Report) -> Parsed:
        """The cells of a chunk; bad ones are reported and taken as missing."""
        match self.kind:
            case "vector" if not self.parts:
                found = vectors_of(chunk.column(self.name), self.size)
                self._complain(chunk, report, self.name, found.bad)
                return found
            case "number" | "vector" | "date" | "boolean":
                columns = [self._numbers(chunk, name, report) for name in self.sources]
            case "category":
                codes, bad = cells.categories(chunk.column(self.name))
            case _:
                codes, bad = cells.tokens(chunk.column(self.name), text=self.kind == "text")
        if self.kind in BUCKETS:
            self._complain(chunk, report, self.name, bad)
            return codes
        return stack(columns)

    def _numbers(self, chunk: Chunk, name: str, report: Report) -> cells.Floats:
        values, bad = chunk.parse(name, _READ[self.kind])
        self._complain(chunk, report, name, bad)
        return values

    def _complain(self, chunk: Chunk, report: Report, name: str, bad: Ints) -> None:
        kind = "number" if self.parts else self.kind
        rule = _RULES.get(kind, f"a list of {self.size} finite numbers is needed")
        for row in bad.tolist():
            value = chunk.column(name)[row].as_py()
            chunk.complain(report, row, name, value, rule, _way_out(kind))

    def encode(self, parsed: Parsed, rows: int, start: int, mean: Ints, scale: Ints) -> list[Part]:
        """The filled places, from place `start` on."""
        if isinstance(parsed, Codes):
            bucket = self._hash(parsed.distinct)[parsed.code]
            if self.kind == "category":
                return [Part(start + bucket, ONE, row=parsed.row)]
            return [_bag(rows, parsed.row, bucket, self.size, start)]
        if self.kind == "boolean":
            assert isinstance(parsed, Dense)
            known = np.flatnonzero(~parsed.missing)
            return [Part(start + parsed.values[0, known].astype(np.int32), ONE, row=known)]
        flag = start + self.entries
        if isinstance(parsed, Vectors):
            if not mean.any():
                found = _scale_sparse(parsed, rows, start, scale)
                return [found, Part(flag, ONE, row=np.flatnonzero(parsed.missing))]
            parsed = parsed.dense(rows, self.size)
        fixed = _standardize(parsed, mean, scale)
        if self.entries > 1:
            return [_block(fixed, start), Part(flag, ONE, row=np.flatnonzero(parsed.missing))]
        parts = [_single(start + parsed.missing, np.where(parsed.missing, ONE, fixed[0]))]
        if self.kind == "date":
            known = np.flatnonzero(~parsed.missing)
            day = _day_in_year(parsed.values[0, known])
            waves = enumerate(_SEASON, flag + 1)
            parts += [_single(place, wave[day], known) for place, wave in waves]
        return parts

    def _hash(self, distinct: Sequence[str]) -> NDArray[np.int32]:
        """The bucket of each text, by a hash of the column's name and the text."""
        name = self.name.encode()
        base = blake2b(len(name).to_bytes(8, "little") + name, digest_size=8)
        buckets = np.zeros(len(distinct), dtype=np.int32)
        for code, text in enumerate(distinct):
            state = base.copy()
            state.update(text.encode())
            buckets[code] = int.from_bytes(state.digest(), "little") % self.size
        return buckets


def _way_out(kind: str) -> str:
    other = "drop" if kind == "category" else "category or drop"
    return f"correct it, leave it empty, or make the column's kind {other} in the schema"


@dataclass(frozen=True, eq=False)
class Part:
    """Some places of the rows, row by row.

    Attributes:
        index: the place of each entry.
        value: what it holds, not 0.
        row: of each entry, ascending and distinct; None if each row has one.
        counts: how many entries each row has; None if at most one, see `row`.
    """

    index: NDArray[np.integer] | int
    value: NDArray[np.integer] | int
    row: NDArray[np.integer] | None = None
    counts: Ints | None = None


def _single(
    index: NDArray[np.integer] | int, value: NDArray[np.integer], row: Ints | None = None
) -> Part:
    """At most one place per row, those of `row` or all; zeros are left out."""
    if value.all():
        return Part(index, value, row)
    kept = np.flatnonzero(value)
    index = index if isinstance(index, int) else index[kept]
    return Part(index, value[kept], kept if row is None else row[kept])


def _block(fixed: NDArray[np.int32], start: int) -> Part:
    """Columns of places from `start` on; zeros are left out."""
    width, rows = fixed.shape
    flat = fixed.T.reshape(-1)
    kept = flat != 0
    index = np.tile(np.arange(start, start + width, dtype=np.int32), rows)
    return Part(index[kept], flat[kept], counts=np.count_nonzero(fixed, axis=0))


def _bag(
    rows: int, row: NDArray[np.integer], bucket: NDArray[np.int32], buckets: int, start: int
) -> Part:
    """Counts of buckets, divided by the length of the row's vector of counts."""
    indptr = np.zeros(rows + 1, dtype=np.int32)
    np.cumsum(np.bincount(row, minlength=rows), out=indptr[1:])
    ones = np.ones(len(bucket), dtype=np.int32)
    bags = sparse.csr_array((ones, bucket, indptr), shape=(rows, buckets))
    bags = bags.tocsc().tocsr()  # sorts the buckets of a row
    bags.sum_duplicates()
    counts = np.diff(bags.indptr)
    again = np.flatnonzero(bags.data > 1)  # few: most buckets of a row are met once
    number = bags.data[again].astype(np.float64)
    owner = np.searchsorted(bags.indptr, again, side="right") - 1
    length = np.sqrt(counts + np.bincount(owner, number * number - 1, minlength=rows))
    once = np.rint(1 / np.maximum(length, 1) * ONE).astype(np.int32)
    value = np.repeat(once, counts)
    value[again] = np.rint(number / length[owner] * ONE)
    return Part(bags.indices + np.int32(start), value, counts=counts)


def _standardize(dense: Dense, mean: Ints, scale: Ints) -> NDArray[np.int32]:
    """(value - mean) / scale, clipped at ±2**8; `mean` counts in sixteenths of the scale."""
    inverse = 2.0 ** -scale.astype(np.float64)  # powers of two, so that products are exact
    shifted = dense.values * inverse[:, None]
    shifted -= (mean / STEPS)[:, None]
    shifted[:, dense.missing] = 0
    return _fix(shifted)


def _scale_sparse(vectors: Vectors, rows: int, start: int, scale: Ints) -> Part:
    """The same without means: zeros stay zeros."""
    fixed = _fix(vectors.value * 2.0 ** -scale.astype(np.float64)[vectors.place])
    kept = np.flatnonzero(fixed)
    counts = np.bincount(vectors.row[kept], minlength=rows)
    return Part(start + vectors.place[kept], fixed[kept], counts=counts)


def _fix(values: NDArray[np.float64]) -> NDArray[np.int32]:
    """Fixed point; `values` is overwritten."""
    values *= ONE
    np.clip(values, -CLIP, CLIP, out=values)
    return np.rint(values, out=values).astype(np.int32)


def _day_in_year(days: NDArray[np.float64]) -> Ints:
    """The day in the year, from 0, of days since 1970."""
    whole = np.floor(days).astype(np.int64)
    first, last = whole.min(initial=0), whole.max(initial=0)
    if last - first > len(whole):
        distinct, code = np.unique(whole, return_inverse=True)
    else:
        distinct, code = np.arange(first, last + 1), whole - first
    dates = distinct.astype("M8[D]")
    in_year: Ints = (dates - dates.astype("M8[Y]").astype("M8[D]")).astype(np.int64)
    return in_year[code]


def assemble(rows: int, parts: Sequence[Part]) -> tuple[Ints, NDArray[np.int32], NDArray[np.int32]]:
    """Rows of all parts side by side, as `(indptr, index, value)`."""
    counts = [_counts(part, rows) for part in parts]
    indptr = np.zeros(rows + 1, dtype=np.int64)
    np.cumsum(sum(counts, np.zeros(rows, dtype=np.int64)), out=indptr[1:])
    index, value = np.empty(indptr[-1], dtype=np.int32), np.empty(indptr[-1], dtype=np.int32)
    free = indptr[:-1].copy()
    for part, count in zip(parts, counts, strict=True):
        if part.counts is not None:
            place = np.repeat(free - (np.cumsum(count) - count), count)
            place += np.arange(len(place))
        else:
            place = free if part.row is None else free[part.row]
        index[place], value[place] = part.index, part.value
        free += count
    return indptr, index, value


def _counts(part: Part, rows: int) -> Ints:
    if part.counts is not None:
        return part.counts
    counts = np.zeros(rows, dtype=np.int64)
    counts[slice(None) if part.row is None else part.row] = 1
    return counts

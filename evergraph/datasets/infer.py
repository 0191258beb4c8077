"""Which kind each column of a table is, from all its chunks in any order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evergraph.datasets import cells
from evergraph.datasets.columns import Chunk, Read
from evergraph.datasets.encoding import BUCKETS, WIDEST, Column

TEXT_WORDS = 3
"""A column of texts with so many words on average is of kind text, with fewer category."""
_CODE = "^[+-]?0[0-9]"  # 007: digits, but a code and no number
_FEW = 10
_PART = re.compile(r"(.*?)(0|[1-9][0-9]*)")

Parsed = tuple[cells.Floats, cells.Ints]


@dataclass(eq=False)
class Evidence:
    """What the cells of one column allow; the same for every order of the chunks.

    Attributes:
        values: cells that are not empty.
        words: words in them.
        known: for each possible kind, how many cells are such values and not missing.
        lists: whether a cell is a list.
        width: entries of the longest vector.
        lengths: the lengths of lists.
    """

    values: int = 0
    words: int = 0
    lists: bool = False
    width: int = 0
    lengths: set[int] = field(default_factory=set)
    known: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("vector", "number", "boolean", "date"), 0)
    )

    def add(self, chunk: Chunk, name: str) -> None:
        """Look at the cells of one more chunk."""
        array = cells.flat(chunk.column(name))
        kind = array.type
        if pa.types.is_struct(kind):
            self._add_sparse(array)
        elif pa.types.is_list(kind):
            found = len(array) - array.null_count
            self.lists |= found > 0
            self._add_typed(found)
            if pa.types.is_string(kind.value_type):
                self._keep("vector", found == 0, 0)
            else:
                self._add_lists(array)
        else:
            self._add_scalars(array, lambda read: chunk.parse(name, read))

    def _add_scalars(self, array: pa.Array, parse: Callable[[Read], Parsed]) -> None:
        texts, _ = cells.texts(array)
        found = len(texts) - texts.null_count
        if not found:
            return
        self.values += found
        is_text = pa.types.is_string(array.type)
        self.words += found
        _, letters = cells.letters(texts)
        self.words += int(np.count_nonzero(letters == ord(" ")))
        vectors = is_text and all(
            pc.all(pc.starts_with(some, "[")).as_py() for some in (texts[:_FEW], texts)
        )
        if vectors:
            self._add_lists(pc.split_pattern_regex(pc.utf8_trim(texts, "[] \t"), r"[\s,]+"))
        self._keep("vector", vectors and "vector" in self.known, 0)
        self._try("number", array, cells.numbers, parse)
        if "number" in self.known and is_text:
            first = cells.first_letters(texts)
            signs = (first == ord("0")) | (first == ord("-")) | (first == ord("+"))
            leading = texts.take(pa.array(np.flatnonzero(signs)))
            codes = pc.any(pc.match_substring_regex(leading, _CODE)).as_py()
            self._keep("number", not codes, 0)
        self._try("boolean", array, cells.booleans, parse)
        self._try("date", array, cells.days, parse)

    def _try(self, kind: str, array: pa.Array, read: Read, parse: Callable[[Read], Parsed]) -> None:
        """Look whether all cells are of a kind: a few first, since most columns fail there."""
        if kind in self.known:
            possible = self.known[kind] > 0 or len(read(array[:_FEW])[1]) == 0
            values, bad = parse(read) if possible else (np.zeros(0), cells.NOTHING)
            found = len(values) - int(np.count_nonzero(np.isnan(values)))
            self._keep(kind, possible and len(bad) == 0, found)

    def _add_lists(self, lists: pa.Array) -> None:
        known = ~cells.is_null(lists)
        self.lengths |= set(np.unique(cells.list_lengths(lists)[known]).tolist())
        self.width = max(self.lengths | {self.width})
        values, bad = cells.numbers(pc.list_flatten(lists))
        fits = len(self.lengths) <= 1 and len(bad) == 0 and not np.isnan(values).any()
        self._keep("vector", fits and self.width > 0, int(known.sum()))

    def _add_typed(self, found: int) -> None:
        self.values += found
        for kind in ("number", "boolean", "date"):
            self._keep(kind, found == 0, 0)

    def _add_sparse(self, array: pa.Array) -> None:
        index = pc.list_flatten(cells.flat(pc.struct_field(array, "index")))
        highest = pc.max(index).as_py()
        self.width = max(self.width, 0 if highest is None else highest + 1)
        found = len(array) - pc.struct_field(array, "index").null_count
        self._add_typed(found)
        self._keep("vector", True, found)

    def merge(self, other: Evidence) -> None:
        """Add what the cells of another part of the column allow."""
        self.values += other.values
        self.words += other.words
        self.lists |= other.lists
        self.width = max(self.width, other.width)
        self.lengths |= other.lengths
        shared = self.known.keys() & other.known.keys()
        if len(self.lengths) > 1:
            shared -= {"vector"}
        self.known = {k: n + other.known[k] for k, n in self.known.items() if k in shared}

    def _keep(self, kind: str, possible: bool, count: int) -> None:
        if not possible:
            self.known.pop(kind, None)
        elif kind in self.known:
            self.known[kind] += count

    def decide(self, name: str) -> Column:
        """The kind that says most; a column without any value is dropped."""
        if not self.values:
            return Column(name, "drop")
        for kind in ("vector", "number", "boolean", "date"):
            if self.known.get(kind):
                width = min(max(self.width, 1), WIDEST)  # what lies outside is reported later
                return Column(name, kind, width if kind == "vector" else 0)
        kind = "text" if self.words >= TEXT_WORDS * self.values else "category"
        if self.lists or name == "words":
            kind = "words"
        return Column(name, kind, BUCKETS[kind])


def evidence_of(chunks: Iterable[Chunk]) -> dict[str, Evidence]:
    """What the cells of each column of some chunks allow."""
    found: dict[str, Evidence] = {}
    for chunk in chunks:
        for name in chunk.table.column_names:
            found.setdefault(name, Evidence()).add(chunk, name)
    return found


def decide(found: Mapping[str, Evidence]) -> tuple[Column, ...]:
    """The columns in order of their names; x0, x1, ... of numbers become one vector x."""
    columns = {name: evidence.decide(name) for name, evidence in sorted(found.items())}
    groups: dict[str, set[int]] = {}
    for name, column in columns.items():
        match = _PART.fullmatch(name)
        if match and column.kind == "number":
            groups.setdefault(match[1], set()).add(int(match[2]))
    for prefix, parts in groups.items():
        size = len(parts)
        if size > 1 and parts == set(range(size)) and prefix not in columns:
            for part in parts:
                del columns[f"{prefix}{part}"]
            columns[prefix] = Column(prefix, "vector", size, parts=True)
    return tuple(column for _, column in sorted(columns.items()))

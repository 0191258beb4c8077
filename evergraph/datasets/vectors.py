"""The cells of a column, read as vectors of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evergraph.datasets.cells import (
    Floats,
    Ints,
    Mask,
    flat,
    is_null,
    list_lengths,
    no_empty,
    numbers,
)


@dataclass(frozen=True, eq=False)
class Vectors:
    """The nonzeros of a column of vectors; rows ascend, and places ascend within a row."""

    row: Ints
    place: Ints
    value: Floats
    missing: Mask
    bad: Ints

    def dense(self, rows: int, width: int) -> Dense:
        """All numbers by columns."""
        values = np.zeros((width, rows))
        values[self.place, self.row] = self.value
        return Dense(values, self.missing)


@dataclass(frozen=True, eq=False)
class Dense:
    """Vectors by columns, as those that are stored as columns of numbers.

    Attributes:
        values: `(width, rows)`, 0 where missing.
        missing: `(rows,)`.
    """

    values: Floats
    missing: Mask


def vectors_of(column: Any, width: int) -> Vectors:
    """Vectors of one width: lists, texts such as "[1, 2.5]", or sparse vectors."""
    array = flat(column)
    if pa.types.is_string(array.type):
        trimmed = no_empty(pc.utf8_trim(array, "[] \t"))
        array = pc.split_pattern_regex(trimmed, r"[\s,]+")
    missing = is_null(array)
    if pa.types.is_struct(array.type):
        return _sparse(array, width)
    if not pa.types.is_list(array.type):
        return _dense(np.zeros((len(array), width)), missing, np.flatnonzero(~missing))
    lengths = list_lengths(array)
    value, wrong = numbers(pc.list_flatten(array))
    row = np.repeat(np.arange(len(array)), lengths)
    wrong = np.union1d(row[wrong], row[np.isnan(value)])
    bad = np.union1d(wrong, np.flatnonzero((lengths != width) & ~missing))
    good = ~missing
    good[bad] = False
    dense = np.zeros((len(array), width))
    dense[good] = value[good[row]].reshape(-1, width)
    return _dense(dense, ~good, bad)


def stack(columns: Sequence[Floats]) -> Dense:
    """Columns of numbers as one vector per row, missing where a part is NaN."""
    values = np.array(columns)
    missing: Mask = np.asarray(np.isnan(values).any(axis=0))
    values[:, missing] = 0
    return Dense(values, missing)


def _dense(values: Floats, missing: Mask, bad: Ints) -> Vectors:
    row, place = np.nonzero(values)
    return Vectors(row, place, values[row, place], missing, bad)


def _sparse(array: pa.Array, width: int) -> Vectors:
    index, value = flat(pc.struct_field(array, "index")), flat(pc.struct_field(array, "value"))
    missing = is_null(index) & is_null(value)
    lengths = list_lengths(index)
    row = np.repeat(np.arange(len(array)), lengths)
    place, unplaced = numbers(pc.list_flatten(index))
    bad = [row[unplaced], np.flatnonzero((lengths != list_lengths(value)) & ~missing)]
    bad.append(row[~((place >= 0) & (place < width))])
    number, wrong = numbers(pc.list_flatten(value))
    of_value = np.repeat(np.arange(len(array)), list_lengths(value))
    bad += [of_value[wrong], of_value[np.isnan(number)]]
    good = ~missing
    good[np.concatenate(bad)] = False
    row, place, number = row[good[row]], place[good[row]], number[good[of_value]]
    order = np.lexsort((place, row))
    row, place, number = row[order], place[order].astype(np.int64), number[order]
    repeated = (row[1:] == row[:-1]) & (place[1:] == place[:-1])
    bad.append(row[1:][repeated])
    good[row[1:][repeated]] = False
    kept = good[row] & (number != 0)
    return Vectors(row[kept], place[kept], number[kept], ~good, np.unique(np.concatenate(bad)))

"""Ids, labels, weights and times: the cells that are not features, one by one or by columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from evergraph.datasets.cells import (
    DAY,
    first_letters,
    flat,
    is_null,
    is_plain,
    letters,
    parse_moment,
    parse_number,
    texts,
)
from evergraph.datasets.columns import Chunk, text_of_float
from evergraph.datasets.report import Report
from evergraph.datasets.sums import LIMIT
from evergraph.graph.ids import MAX_BYTES, Coded, Id
from evergraph.graph.links import MAX_WEIGHT

MAX_LABEL = 10**6
_SURROGATE = re.compile("[\ud800-\udfff]")
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_SMALL = "^(0|-?[1-9][0-9]{0,17})$"  # integers that fit into 64 bits for sure
_SPLITS = {"train": "train", "test": "test", "val": "valid", "valid": "valid"}


@dataclass(frozen=True)
class Limits:
    """How large labels that are numbers, times and weights may be."""

    label: float = MAX_LABEL
    time: float = LIMIT
    weight: float = MAX_WEIGHT


USUAL = Limits()


class FieldError(ValueError):
    """A value that breaks a rule: `rule` and `way_out`."""

    def __init__(self, rule: str, way_out: str) -> None:
        super().__init__(f"{rule}; {way_out}")
        self.rule = rule
        self.way_out = way_out


def id_of(value: object) -> Id:
    """An id; a text that is written as a 64-bit integer is that integer, in every format.

    Example:
        >>> id_of("7"), id_of(7), id_of("007"), id_of(" ann ")
        (7, 7, '007', 'ann')
    """
    if isinstance(value, float) and value == value // 1 and abs(value) < 2**53:
        value = int(value)  # a column of integers with gaps is often stored so
    if type(value) is int:
        if not -(2**63) <= value < 2**63:
            raise FieldError("an integer id must fit into 64 bits", "write it as text")
        return value
    if not isinstance(value, str):
        raise FieldError("an id must be text or an integer", "write it in quotes, or as an integer")
    text = _name(value, "an id")
    if _INTEGER.fullmatch(text) and -(2**63) <= int(text) < 2**63:
        return int(text)
    return text


def label_of(value: object, limits: Limits = USUAL) -> str | None:
    """The name of a class; None, and an empty text, for unknown.

    Example:
        >>> label_of("theory"), label_of(3.0), label_of(True), label_of(" ")
        ('theory', '3', 'true', None)
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or value != value or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, int | float):
        if not abs(value) < limits.label:
            rule = f"a label that is a number must be below {limits.label:,}"
            raise FieldError(rule, "number the classes from 0, or give their names as text")
        value = text_of_float(value) if isinstance(value, float) else str(value)
    if not isinstance(value, str):
        raise FieldError("a label must be the name of a class", "write text or a number")
    return _name(value, "a label")


def time_of(value: object, limits: Limits = USUAL) -> float | None:
    """A time as a number; ISO dates count in days since 1970.

    Example:
        >>> time_of(3), time_of("1970-01-02T12:00"), time_of("")
        (3.0, 1.5, None)
    """
    number = _number_of(value, limits.time)
    if number is None and isinstance(value, str) and value.strip():
        moment = parse_moment(value.strip())
        if moment is None:
            raise FieldError("a time must be a number or an ISO date", "write it as 2024-05-31")
        return moment / DAY
    if number is not None and not abs(number) <= limits.time:
        raise FieldError(f"a time must lie within ±{limits.time:.2g}", "count it in a larger unit")
    return number


def weight_of(value: object, limits: Limits = USUAL) -> float | list[float] | None:
    """The weight of an edge, a number or a list of numbers; None if there is none."""
    if isinstance(value, list | tuple):
        return [_one_weight(part, limits.weight) for part in value]
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    return _one_weight(value, limits.weight)


def _one_weight(value: object, limit: float) -> float:
    number = _number_of(value, limit)
    if number is None or not abs(number) <= limit:
        rule = f"a weight must be a number from -{limit:.5g} to {limit:.5g}"
        raise FieldError(rule, "scale the weights")
    return number


def split_of(value: object) -> str | None:
    """The part of a split: train, test, valid or None."""
    text = value.strip().lower() if isinstance(value, str) else value
    if text is None or text == "":
        return None
    if not isinstance(text, str) or text not in _SPLITS:
        raise FieldError(
            "a split must be train, test, val or empty", "correct it or leave it empty"
        )
    return _SPLITS[text]


def _number_of(value: object, limit: float) -> float | None:
    """A number, None for what is missing or no number at all."""
    if isinstance(value, str):
        return parse_number(value.strip(), max(limit, LIMIT))
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return None if value != value else float(value)
        except OverflowError:
            return float("inf")
    if value is None:
        return None
    raise FieldError("a number is needed", "write a number or leave it empty")


def _name(value: str, what: str) -> str:
    text = value.strip()
    plain = text.isascii()
    size = len(text) if plain else len(text.encode("utf-8", "surrogatepass"))
    if not 0 < size <= MAX_BYTES:
        rule = f"{what} must have 1 to {MAX_BYTES:,} bytes, not {size:,}"
        raise FieldError(rule, "shorten it" if size else "give one")
    if "\0" in text or not (plain or _SURROGATE.search(text) is None):
        raise FieldError(f"{what} must be valid text without NUL", "remove the character")
    return text


def column_of_ids(column: Any) -> list[Id] | None:
    """All ids of a column at once, or None if they must be looked at one by one."""
    array = flat(column)
    if pa.types.is_integer(array.type) and array.null_count == 0:
        values: list[Id] = array.to_numpy().tolist()
        return values
    if not pa.types.is_string(array.type):
        return None
    if not is_plain(array):
        array, _ = texts(array)
    if _are_names(array):
        names: list[Id] = array.to_pylist()
        return names
    if array.null_count or not pc.all(pc.match_substring_regex(array, _SMALL)).as_py():
        return None
    integers: list[Id] = pc.cast(array, pa.int64()).to_numpy().tolist()
    return integers if integers else None


def _are_names(array: pa.Array) -> bool:
    """Whether trimmed texts are ids without doubt, and none of them may be an integer."""
    if array.null_count or not len(array):
        return False
    shortest, longest = pc.min_max(pc.binary_length(array)).values()
    if shortest.as_py() == 0 or longest.as_py() > MAX_BYTES or not letters(array)[1].all():
        return False  # empty, too long, or with NUL
    first = first_letters(array)
    numerals = array.take(pa.array(np.flatnonzero((first == ord("-")) | (first - ord("0") < 10))))
    return not pc.any(pc.match_substring_regex(numerals, "^-?[0-9]+$")).as_py()


def columns_of_ends(source: Any, target: Any, known: KnownIds | None) -> tuple[Coded, Coded] | None:
    """The ids of two columns, in which most occur several times, or None as in `column_of_ids`."""
    ends = [flat(column) for column in (source, target)]
    if ends[0].type != ends[1].type:
        return None
    codes = None if known is None else known.find(ends)
    ids: Sequence[Id] | None = None if known is None or codes is None else known.ids
    if codes is None:
        both = pc.dictionary_encode(pa.chunked_array(ends))
        if both.null_count or not len(both):
            return None
        ids = column_of_ids(both.chunk(0).dictionary)
        codes = [part.indices.to_numpy() for part in both.chunks]
    return None if ids is None else (Coded(ids, codes[0]), Coded(ids, codes[1]))


class KnownIds:
    """Texts that are ids as they are, among which others are found without a look at each."""

    def __init__(self, ids: Sequence[Id]) -> None:
        self.ids = ids
        array = pa.array(ids, pa.string()) if set(map(type, ids)) == {str} else None
        sure = array is not None and is_plain(array) and _are_names(array)
        self._set = array if sure else None

    def find(self, columns: Sequence[pa.Array]) -> list[NDArray[np.int32]] | None:
        """The numbers of the ids in each column of texts, or None if one is not among them."""
        if self._set is None or not len(columns[0]) or not pa.types.is_string(columns[0].type):
            return None
        codes = flat(pc.index_in(pa.chunked_array(columns), value_set=self._set))
        return None if codes.null_count else np.split(codes.to_numpy(), [len(columns[0])])


def column_of_floats(column: Any, limit: float) -> NDArray[np.float64] | None:
    """All numbers of a column of numbers or plain numerals at once, or None."""
    array = flat(column)
    if pa.types.is_string(array.type):
        if is_null(array).any():
            return None
        try:
            array = pc.cast(array, pa.float64())
        except pa.ArrowInvalid:
            return None
    if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        return None
    values = np.array(array.to_numpy(zero_copy_only=False), dtype=np.float64)
    return values if (np.abs(values) <= limit).all() else None


def each(
    chunk: Chunk, name: str, convert: Callable[[object], Any], report: Report, bad: set[int]
) -> list[Any]:
    """A column cell by cell; refused cells are reported and their rows added to `bad`."""
    column = flat(chunk.table.column(name))
    if pa.types.is_string(column.type):
        known = pc.dictionary_encode(column)
        try:
            distinct = [*map(convert, known.dictionary.to_pylist()), convert(None)]
            codes = pc.fill_null(known.indices, len(distinct) - 1).to_numpy()
            objects = np.empty(len(distinct), dtype=object)
            objects[:] = distinct
            return objects[codes].tolist()  # type: ignore[no-any-return]
        except FieldError:
            pass  # the loop below says where
    values: list[Any] = []
    for row, value in enumerate(column.to_pylist()):
        try:
            values.append(convert(value))
        except FieldError as error:
            chunk.complain(report, row, name, value, error.rule, error.way_out)
            bad.add(row)
            values.append(None)
    return values

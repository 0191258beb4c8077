"""The cells of a column, read as one kind: numbers, booleans, days, texts or tokens.

Every function takes a column of one of the types of `columns.py` and returns numpy arrays and the
rows whose cells are not of that kind. Nothing depends on which other rows are in the chunk.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from evergraph.datasets.columns import text_of_float
from evergraph.datasets.sums import LIMIT

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none"})
"""Texts that mean a missing number, boolean or date, in any case; for other kinds, only ""."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_LETTERS = re.compile(r"[^\W_]+")
_BETWEEN = re.compile(r"[^,\[\]]+")
_BOOLEANS = {"true": 1.0, "yes": 1.0, "1": 1.0, "false": 0.0, "no": 0.0, "0": 0.0}
_EPOCH = datetime(1970, 1, 1)
_FIRST = -62135596800_000_000  # the year 1, where Python's dates begin, in microseconds
_LAST = 253402300800_000_000  # the year 10,000
NOTHING = np.zeros(0, dtype=np.int64)
DAY = 86_400_000_000


def flat(column: Any) -> pa.Array:
    """One array in place of several chunks."""
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks == 1:
            return column.chunk(0)
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column


def is_plain(array: pa.Array, lowest: int = 33) -> bool:
    """Whether the bytes of texts are ASCII letters from `lowest` on: 33 excludes blanks."""
    _, offsets, data = array.buffers()
    if not len(array) or data is None:
        return True
    start, end = np.frombuffer(offsets, dtype=np.int32)[[array.offset, array.offset + len(array)]]
    letters = np.frombuffer(data, dtype=np.uint8)[start:end]
    return start == end or (int(letters.min()) >= lowest and int(letters.max()) < 127)


def is_null(array: pa.Array) -> Mask:
    """Where there is no value."""
    if array.null_count == 0:
        return np.zeros(len(array), dtype=np.bool_)
    return _numpy(pc.is_null(array))


def numbers(column: Any) -> tuple[Floats, Ints]:
    """Finite numbers up to `LIMIT`, NaN where missing or bad, and the bad rows."""
    array = flat(column)
    if pa.types.is_string(array.type):
        return _parsed(array, _fast_numbers, parse_number)
    if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        return _all_bad(array)
    values = np.array(_numpy(array), dtype=np.float64)
    bad = np.flatnonzero(np.abs(values) > LIMIT)
    values[bad] = np.nan
    return values, bad


def booleans(column: Any) -> tuple[Floats, Ints]:
    """1 for true, 0 for false, NaN where missing or bad, and the bad rows."""
    array = flat(column)
    if pa.types.is_string(array.type):
        return _parsed(array, lambda _: None, lambda text: _BOOLEANS.get(text.lower()))
    if pa.types.is_boolean(array.type):
        array = pc.cast(array, pa.int64())
    values, bad = numbers(array)
    odd = np.flatnonzero((values != 0) & (values != 1) & ~np.isnan(values))
    values[odd] = np.nan
    return values, np.union1d(bad, odd)


def moments(column: Any) -> tuple[Floats, Ints]:
    """ISO dates and times as microseconds since 1970 (UTC), NaN where missing, the bad rows."""
    array = flat(column)
    if not pa.types.is_string(array.type):
        return _all_bad(array)
    return _parsed(array, _fast_moments, parse_moment)


def days(column: Any) -> tuple[Floats, Ints, Ints]:
    """ISO dates and times as days since 1970 (UTC), the day in the year from 0, the bad rows."""
    values, bad = moments(column)
    whole = np.where(np.isnan(values), 0, np.floor(values / DAY)).astype("M8[D]")
    day_in_year = (whole - whole.astype("M8[Y]").astype("M8[D]")).astype(np.int64)
    return values / DAY, day_in_year, bad


def texts(column: Any) -> tuple[pa.Array, Ints]:
    """Texts without blanks around them, null where empty or bad, and the bad rows."""
    array = flat(column)
    kind = array.type
    if pa.types.is_nested(kind):
        bad = np.flatnonzero(~is_null(array))
        return pa.nulls(len(array), pa.string()), bad
    if pa.types.is_floating(kind):
        known = pc.dictionary_encode(array)
        names = [_float_text(value) for value in known.dictionary.to_pylist()]
        array = pc.take(pa.array(names, pa.string()), known.indices)
    elif not pa.types.is_string(kind):
        array = pc.cast(array, pa.string())
    if not is_plain(array):
        array = pc.utf8_trim_whitespace(array)
    return pc.if_else(pc.equal(array, ""), pa.scalar(None, pa.string()), array), NOTHING


def _float_text(value: float | None) -> str | None:
    return None if value is None or math.isnan(value) else text_of_float(value)


@dataclass(frozen=True, eq=False)
class Codes:
    """Distinct texts and, for each entry of a column, the number of its text."""

    row: Ints
    code: Ints
    distinct: list[str]


def categories(column: Any) -> tuple[Codes, Ints]:
    """The text of each row that has one, and the bad rows."""
    array, bad = texts(column)
    known = pc.dictionary_encode(array)
    row = np.flatnonzero(~is_null(array))
    return Codes(row, _indices(known)[row], known.dictionary.to_pylist()), bad


def tokens(column: Any, *, text: bool) -> tuple[Codes, Ints]:
    """The words of each row, and the bad rows.

    Args:
        column: texts or, for `text=False`, also lists.
        text: words are runs of letters and digits in lower case; else what stands between blanks,
            commas and brackets.
    """
    array = flat(column)
    if pa.types.is_list(array.type) and not text:
        row = np.repeat(np.arange(len(array)), list_lengths(array))
        words, bad = categories(pc.list_flatten(array))
        return Codes(row[words.row], words.code, words.distinct), row[bad]
    array, bad = texts(array)
    only_spaces = is_plain(array, 32)  # no other blank is there, so that splitting is simple
    pieces = pc.split_pattern(array, " ") if only_spaces else pc.utf8_split_whitespace(array)
    row = np.repeat(np.arange(len(array)), list_lengths(pieces))
    known = pc.dictionary_encode(pc.list_flatten(pieces))
    # Only distinct pieces are looked at; each is one word, or a few, or none.
    pattern, number = (_LETTERS if text else _BETWEEN), dict[str, int]()
    codes = [
        [number.setdefault(word, len(number)) for word in pattern.findall(piece)]
        for piece in (one.lower() if text else one for one in known.dictionary.to_pylist())
    ]
    counts = np.array([len(some) for some in codes], dtype=np.int64)
    every = np.array([code for some in codes for code in some], dtype=np.int64)
    starts = np.cumsum(counts) - counts
    piece = _indices(known)
    of_piece = counts[piece]
    first = np.repeat(starts[piece] - (np.cumsum(of_piece) - of_piece), of_piece)
    code = every[first + np.arange(len(first))]
    return Codes(np.repeat(row, of_piece), code, list(number)), bad


def _parsed(
    array: pa.Array,
    fast: Callable[[pa.Array], Floats | None],
    slow: Callable[[str], float | None],
) -> tuple[Floats, Ints]:
    """Texts as numbers, by pyarrow for all if it can read them all, else text by text."""
    values = fast(array)
    if values is not None:
        return values, NOTHING
    known = pc.dictionary_encode(array)
    parsed = np.full(len(known.dictionary) + 1, np.nan)
    odd = np.zeros(len(parsed), dtype=np.bool_)
    for code, text in enumerate(known.dictionary.to_pylist()):
        stripped = text.strip()
        if stripped.lower() not in MISSING:
            number = slow(stripped)
            odd[code] = number is None
            parsed[code] = np.nan if number is None else number
    codes = _indices(known)
    return parsed[codes], np.flatnonzero(odd[codes])


def _fast_numbers(array: pa.Array) -> Floats | None:
    try:
        values = _numpy(pc.cast(_no_empty(array), pa.float64()))
    except pa.ArrowInvalid:
        return None
    known = ~is_null(array)
    known &= ~_numpy(pc.equal(pc.fill_null(array, ""), ""))
    within = np.abs(values[known]) <= LIMIT  # False for NaN: what it stands for is decided there
    return np.array(values, dtype=np.float64) if within.all() else None


def parse_number(text: str, limit: float = LIMIT) -> float | None:
    """The number that a text stands for, or None."""
    value = float(text) if _NUMBER.fullmatch(text) else math.inf
    return value if abs(value) <= limit else None


def _fast_moments(array: pa.Array) -> Floats | None:
    array = _no_empty(array)
    for zone in (None, "UTC"):
        try:
            moments = pc.cast(pc.cast(array, pa.timestamp("us", zone)), pa.int64())
        except pa.ArrowInvalid:
            continue
        values = np.array(_numpy(moments), dtype=np.float64)
        outside = (values < _FIRST) | (values >= _LAST)
        return None if outside.any() else values
    return None


def parse_moment(text: str) -> float | None:
    """Microseconds from 1970 to an ISO date or time (UTC if it names no zone), or None."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None
    return float((moment - _EPOCH) // timedelta(microseconds=1))


def _no_empty(array: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(array, ""), pa.scalar(None, pa.string()), array)


def _all_bad(array: pa.Array) -> tuple[Floats, Ints]:
    return np.full(len(array), np.nan), np.flatnonzero(~is_null(array))


def _indices(known: pa.DictionaryArray) -> Ints:
    """The code of each entry, -1 where there is none."""
    return _numpy(pc.fill_null(known.indices, -1)).astype(np.int64)


def list_lengths(lists: pa.Array) -> Ints:
    """The length of each list, 0 where there is none."""
    return _numpy(pc.fill_null(pc.list_value_length(lists), 0)).astype(np.int64)


def _numpy(array: pa.Array) -> NDArray[Any]:
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values

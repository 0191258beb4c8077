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
from typing import Any, NamedTuple

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
_BETWEEN = re.compile(r"[^,\[\] ]+")
_BOOLEANS = {"true": 1.0, "yes": 1.0, "1": 1.0, "false": 0.0, "no": 0.0, "0": 0.0}
_EPOCH = datetime(1970, 1, 1)
_FIRST = -62135596800_000_000  # the year 1, where Python's dates begin, in microseconds
_LAST = 253402300800_000_000  # the year 10,000
_FEW = 16  # texts that are read faster one by one
NOTHING = np.zeros(0, dtype=np.int64)
DAY = 86_400_000_000


def flat(column: Any) -> pa.Array:
    """One array in place of several chunks."""
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks == 1:
            return column.chunk(0)
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column


def letters(array: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """The bytes of texts, and where each begins and the last ends in them."""
    _, offsets, data = array.buffers()
    if not len(array) or data is None:
        return np.zeros(len(array) + 1, dtype=np.int32), np.zeros(0, dtype=np.uint8)
    bounds = np.frombuffer(offsets, dtype=np.int32)[array.offset : array.offset + len(array) + 1]
    every = np.frombuffer(data, dtype=np.uint8)[bounds[0] : bounds[-1]]
    return bounds - bounds[0] if bounds[0] else bounds, every


def is_plain(array: pa.Array, lowest: int = 33) -> bool:
    """Whether the bytes of texts are ASCII letters from `lowest` on: 33 excludes blanks."""
    _, every = letters(array)
    return not len(every) or (int(every.min()) >= lowest and int(every.max()) < 127)


def first_letters(array: pa.Array) -> NDArray[np.uint8]:
    """The byte that each text begins with; some other byte where a text is empty."""
    bounds, every = letters(array)
    return every[np.minimum(bounds[:-1], len(every) - 1)] if len(every) else every


def _has_border(array: pa.Array) -> bool:
    """Whether a text may begin or end with a space."""
    bounds, every = letters(array)
    if b" " in first_letters(array).tobytes():
        return True
    return b" " in every[np.maximum(bounds[1:] - 1, 0)].tobytes() if len(every) else False


def no_empty(array: pa.Array) -> pa.Array:
    """Texts in the same memory, null where one is empty."""
    bounds, every = letters(array)
    filled = bounds[1:] > bounds[:-1]
    if filled.all():
        return array
    known = pa.py_buffer(np.packbits(filled & ~is_null(array), bitorder="little"))
    buffers = pa.py_buffer(bounds), pa.py_buffer(every), known
    return pa.StringArray.from_buffers(len(array), *buffers)


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


def days(column: Any) -> tuple[Floats, Ints]:
    """ISO dates and times as days since 1970 (UTC), NaN where missing, and the bad rows."""
    values, bad = moments(column)
    return values / DAY, bad


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
    if not is_plain(array) and (not is_plain(array, 32) or _has_border(array)):
        array = pc.utf8_trim_whitespace(array)
    return no_empty(array), NOTHING


def _float_text(value: float | None) -> str | None:
    return None if value is None or math.isnan(value) else text_of_float(value)


@dataclass(frozen=True, eq=False)
class Codes:
    """Distinct texts and, for each entry of a column, the number of its text."""

    row: NDArray[np.integer]
    code: NDArray[np.int32]
    distinct: list[str]


def categories(column: Any) -> tuple[Codes, Ints]:
    """The text of each row that has one, and the bad rows."""
    array, bad = texts(column)
    known = pc.dictionary_encode(array)
    code = _indices(known)
    row = np.flatnonzero(code >= 0)
    return Codes(row, code[row], known.dictionary.to_pylist()), bad


def tokens(column: Any, *, text: bool) -> tuple[Codes, Ints]:
    """The words of each row, and the bad rows.

    Args:
        column: texts or, for `text=False`, also lists.
        text: words are runs of letters and digits in lower case; else what stands between blanks,
            commas and brackets.
    """
    array = flat(column)
    if pa.types.is_list(array.type) and not text:
        owner = np.repeat(np.arange(len(array)), list_lengths(array))
        listed, bad = categories(pc.list_flatten(array))
        return Codes(owner[listed.row], listed.code, listed.distinct), owner[bad]
    array, bad = texts(array)
    row, words = _pieces(array)
    known = pc.dictionary_encode(words)
    words_of, distinct = _words(known.dictionary, text)  # of distinct pieces only
    pieces = _indices(known)
    counts = words_of.counts
    if (counts == 1).all():
        return Codes(row, words_of.codes[pieces], distinct), bad
    starts = np.cumsum(counts) - counts
    of_piece = counts[pieces]
    first = np.repeat(starts[pieces] - (np.cumsum(of_piece) - of_piece), of_piece)
    code = words_of.codes[first + np.arange(len(first))]
    return Codes(np.repeat(row, of_piece), code, distinct), bad


class _Words(NamedTuple):
    counts: Ints
    codes: NDArray[np.int32]


def _words(pieces: pa.Array, text: bool) -> tuple[_Words, list[str]]:
    """How many words each piece has, and their numbers; and the distinct words."""
    if is_plain(pieces, 32):
        words = pc.ascii_trim(pc.ascii_lower(pieces) if text else pieces, " ")
        if pc.all(pc.ascii_is_alnum(words)).as_py():  # each is one word
            known = pc.dictionary_encode(words)
            counts = np.ones(len(pieces), dtype=np.int64)
            return _Words(counts, _indices(known)), known.dictionary.to_pylist()
    pattern, number = (_LETTERS if text else _BETWEEN), dict[str, int]()
    found = [
        [number.setdefault(word, len(number)) for word in pattern.findall(piece)]
        for piece in (one.lower() if text else one for one in pieces.to_pylist())
    ]
    counts = np.array([len(some) for some in found], dtype=np.int64)
    return _Words(counts, np.array([c for some in found for c in some], np.int32)), list(number)


def _pieces(array: pa.Array) -> tuple[NDArray[np.integer], pa.Array]:
    """Texts cut at blanks: the row of each piece, and the piece, perhaps with a blank behind it."""
    if not is_plain(array, 32) or not len(array):
        pieces = pc.utf8_split_whitespace(array)
        return np.repeat(np.arange(len(array)), list_lengths(pieces)), pc.list_flatten(pieces)
    bounds, every = letters(array)  # no other blank than a space is there
    begins = np.zeros(len(every) + 1, dtype=np.bool_)
    begins[1:] = every == ord(" ")
    begins[bounds] = True
    starts = np.flatnonzero(begins).astype(np.int32)
    counts = np.diff(np.searchsorted(starts, bounds))
    words = pa.StringArray.from_buffers(len(starts) - 1, pa.py_buffer(starts), pa.py_buffer(every))
    return np.repeat(np.arange(len(array), dtype=np.int32), counts), words


def _parsed(
    array: pa.Array,
    fast: Callable[[pa.Array], Floats | None],
    slow: Callable[[str], float | None],
) -> tuple[Floats, Ints]:
    """Texts as numbers, by pyarrow for all if it can read them all, else text by text."""
    values = fast(array) if len(array) > _FEW else None
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
    return parsed[codes], np.flatnonzero(odd[codes]) if odd.any() else NOTHING


def _fast_numbers(array: pa.Array) -> Floats | None:
    array = no_empty(array)
    try:
        values = np.array(_numpy(pc.cast(array, pa.float64())), dtype=np.float64)
    except pa.ArrowInvalid:
        return None
    inside = np.count_nonzero(np.abs(values) <= LIMIT)  # NaN is not: the slow way looks at its text
    return values if inside == len(array) - array.null_count else None


def parse_number(text: str, limit: float = LIMIT) -> float | None:
    """The number that a text stands for, or None."""
    value = float(text) if _NUMBER.fullmatch(text) else math.inf
    return value if abs(value) <= limit else None


def _fast_moments(array: pa.Array) -> Floats | None:
    array = no_empty(array)
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


def _all_bad(array: pa.Array) -> tuple[Floats, Ints]:
    return np.full(len(array), np.nan), np.flatnonzero(~is_null(array))


def _indices(known: pa.DictionaryArray) -> NDArray[np.int32]:
    """The code of each entry, -1 where there is none."""
    codes = pc.fill_null(known.indices, -1) if known.indices.null_count else known.indices
    return _numpy(codes)


def list_lengths(lists: pa.Array) -> Ints:
    """The length of each list, 0 where there is none."""
    return _numpy(pc.fill_null(pc.list_value_length(lists), 0)).astype(np.int64)


def _numpy(array: pa.Array) -> NDArray[Any]:
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values

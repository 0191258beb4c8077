"""Cuts CSV and JSONL streams into blocks of whole records, with their line numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

BLOCK = 1 << 24
LONGEST = 1 << 26
_PART = 1 << 17  # bytes that are looked at together, so that they stay in the cache
BOM = b"\xef\xbb\xbf"
_BLANK, _END = re.compile(rb"[\r\n]+"), re.compile(rb"\n")
NOT_UTF8 = ("text must be UTF-8", "save the file with the encoding UTF-8")

Ints = NDArray[np.int64]
Text = bytes | memoryview


class Readable(Protocol):
    """A binary stream."""

    def readinto(self, place: memoryview, /) -> int | None:
        """Fill a place as far as there are bytes; returns how many, 0 at the end."""
        ...


class RecordError(Exception):
    """Text that has no records that can be found; says the rule and the way out."""


def count(text: Text, byte: bytes) -> int:
    """How often a byte occurs; faster than `bytes.count` where it is frequent."""
    data = np.frombuffer(text, dtype=np.uint8)
    parts = (data[start : start + _PART] for start in range(0, len(data), _PART))
    return sum(int(np.count_nonzero(part == byte[0])) for part in parts)


def is_ascii(text: Text) -> bool:
    """Whether all bytes are ASCII, so that the text is UTF-8 for sure."""
    return int(np.frombuffer(text, dtype=np.uint8).max(initial=0)) < 128


def record_ends(block: bytes, delimiter: bytes | None) -> Ints:
    """The places behind each line end that is not in quotes; `delimiter` None: JSONL, no quotes.

    A quote counts if it stands at an end of a field or beside another one, so that a quote within
    a word, as in 5" x 7", opens nothing.
    """
    data = np.frombuffer(block, dtype=np.uint8)
    ends = np.flatnonzero(data == 10) + 1
    if delimiter is None or b'"' not in block:
        return ends
    quotes = np.flatnonzero(data == 34)
    before = np.where(quotes > 0, data[quotes - 1], 10)
    behind = np.where(quotes + 1 < len(data), data[np.minimum(quotes + 1, len(data) - 1)], 10)
    border = np.zeros(256, dtype=np.bool_)
    border[list(b'\n\r"' + delimiter)] = True
    quotes = quotes[border[before] | border[behind]]
    outside: Ints = ends[np.searchsorted(quotes, ends) % 2 == 0]
    return outside


def is_closed(text: Text, delimiter: bytes) -> bool:
    """Whether no quoted cell is open at the end."""
    if count(text, b'"') % 2 == 0:
        return True
    ended = bytes(text).rstrip(b"\r\n") + b"\n"
    ends = record_ends(ended, delimiter)
    return len(ends) > 0 and int(ends[-1]) == len(ended)


def _last_end(block: memoryview, delimiter: bytes | None) -> int:
    """Where the last whole record ends, 0 if there is none."""
    end, size = 0, _PART
    while not end and size < 2 * len(block) + _PART:  # mostly it is near the end
        start = max(len(block) - size, 0)
        end = bytes(block[start:]).rfind(b"\n") + 1
        end, size = start + end if end else 0, 2 * size
    if delimiter is None or count(block[:end], b'"') % 2 == 0:
        return end
    return max(record_ends(bytes(block), delimiter).tolist()[-1:], default=0)


def _read_behind(rest: bytes, stream: Readable, size: int) -> tuple[memoryview, int]:
    """The rest and up to `size` bytes of a stream behind it, and how many these are."""
    place = memoryview(pa.allocate_buffer(len(rest) + size)).cast("B")  # memory that is kept
    place[: len(rest)] = rest
    read = stream.readinto(place[len(rest) :]) or 0
    return place[: len(rest) + read], read


class Block(NamedTuple):
    """Whole records of a stream.

    Attributes:
        text: their bytes.
        line: the number of their first line.
        end: the number of the line behind them.
        closed: whether no quoted cell is open at the end.
    """

    text: Text
    line: int
    end: int
    closed: bool


def cut(stream: Readable, delimiter: bytes | None, size: int) -> Iterator[Block]:
    """Blocks of whole records.

    Raises:
        RecordError: if a record is longer than 64 MB.
    """
    rest, line = b"", 1
    while True:
        both, read = _read_behind(rest, stream, size)
        end = _last_end(both, delimiter) if read else len(both)
        text, rest = both[:end], bytes(both[end:])
        if end:
            first, line = line, line + count(text, b"\n")
            closed = read > 0 or delimiter is None or is_closed(text, delimiter)
            yield Block(text, first, line, closed)
        if not read:
            return
        if len(rest) > LONGEST:
            raise RecordError(f"line {line}: a record must be shorter than {LONGEST:,} bytes")


def first_record(block: Text, delimiter: bytes) -> tuple[int, int]:
    """Where the first record that is not blank begins and ends; the end twice if there is none."""
    start = skip_blank(block)
    end = _line_end(block, start)
    while not is_closed(block[start:end], delimiter) and end < len(block):
        end = _line_end(block, end)
    return start, end


def skip_blank(block: Text) -> int:
    """Where the first line that is not blank begins."""
    found = _BLANK.match(block)
    return 0 if found is None else found.end()


def _line_end(block: Text, start: int) -> int:
    found = _END.search(block, start)
    return len(block) if found is None else found.end()


def split_records(block: bytes, delimiter: bytes | None) -> tuple[list[bytes], list[int]]:
    """The records of a block that are not blank, and the line of each, counted from 0."""
    ends = record_ends(block, delimiter).tolist()
    if not ends or ends[-1] < len(block):
        ends.append(len(block))
    records, lines, start, line = [], [], 0, 0
    for end in ends:
        record = block[start:end]
        if record.strip(b"\r\n" if delimiter else None):
            records.append(record)
            lines.append(line)
        line += record.count(b"\n")
        start = end
    return records, lines


def line_finder(block: Block, delimiter: bytes | None, rows: int) -> Callable[[], Sequence[int]]:
    """A function that counts the line of each row of a block, for when there is a complaint.

    It holds the text, unless every line is a row.
    """
    first, text = block.line, block.text
    if rows == block.end - first + (text[-1:] != b"\n"):
        return lambda: range(first, first + rows)

    def find() -> Sequence[int]:
        _, lines = split_records(bytes(text), delimiter)
        if len(lines) != rows:  # the parser saw other records, so the lines are about these
            return range(first, first + rows)
        return [first + line for line in lines]

    return find

"""Cuts CSV and JSONL streams into blocks of whole records, with their line numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
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

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes, none at the end."""
        ...


class RecordError(Exception):
    """Text that has no records that can be found; says the rule and the way out."""


def count(text: Text, byte: bytes) -> int:
    """How often a byte occurs; faster than `bytes.count` where it is frequent."""
    data = np.frombuffer(text, dtype=np.uint8)
    parts = (data[start : start + _PART] for start in range(0, len(data), _PART))
    return sum(int(np.count_nonzero(part == byte[0])) for part in parts)


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


def _last_end(block: bytes, delimiter: bytes | None) -> int:
    """Where the last whole record ends, 0 if there is none."""
    end = block.rfind(b"\n") + 1
    if delimiter is None or count(memoryview(block)[:end], b'"') % 2 == 0:
        return end
    return max(record_ends(block, delimiter).tolist()[-1:], default=0)


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
        read = stream.read(size)
        rest = rest + read if rest else read
        end = _last_end(rest, delimiter) if read else len(rest)
        if end:
            text, rest = memoryview(rest)[:end], rest[end:]
            first, line = line, line + count(text, b"\n")
            closed = bool(read) or delimiter is None or is_closed(text, delimiter)
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

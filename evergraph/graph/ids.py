"""Ids, names and times as they may be, and the key that every choice among nodes goes by."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evergraph.checks import shorten

Id = str | int
MAX_BYTES = 1024
PLAIN = frozenset((str, int))


class Coded(Sequence[Id]):
    """Many ids of which most repeat: the distinct ones, and for each id the number of its own.

    Example:
        >>> ends = Coded(["ann", 7], np.array([0, 1, 0]))
        >>> ends == ["ann", 7, "ann"], ends[1]
        (True, 7)
    """

    __slots__ = ("codes", "distinct")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, distinct: Sequence[Id], codes: NDArray[np.integer]) -> None:
        self.distinct = distinct
        self.codes = codes

    def __len__(self) -> int:
        return len(self.codes)

    @overload
    def __getitem__(self, at: int) -> Id: ...
    @overload
    def __getitem__(self, at: slice | NDArray[np.integer]) -> Coded: ...
    def __getitem__(self, at: int | slice | NDArray[np.integer]) -> Id | Coded:
        found = self.codes[at]
        return Coded(self.distinct, found) if found.ndim else self.distinct[int(found)]

    def __iter__(self) -> Iterator[Id]:
        return map(self.distinct.__getitem__, self.codes.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)


def check_id(value: object) -> Id:
    """The id as a plain string or integer; an error if it cannot be one.

    Example:
        >>> check_id(np.int64(7)), check_id("7")
        (7, '7')
        >>> check_id(7.0)
        Traceback (most recent call last):
        ValueError: an id must be a string or an integer, got 7.0 (float)
    """
    if type(value) is int and -(2**63) <= value < 2**63:
        return value
    if isinstance(value, str):
        return check_text("an id", value)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        if not -(2**63) <= value < 2**63:
            raise ValueError(
                f"an integer id must fit into 64 bits, got one of {int(value).bit_length()} bits: "
                "pass it as a string"
            )
        return int(value)
    raise ValueError(
        f"an id must be a string or an integer, got {shorten(value)} ({type(value).__name__})"
    )


def check_text(what: str, value: object) -> str:
    """A name as a plain string; an error if it is none, empty, broken or too long."""
    if not isinstance(value, str):
        raise ValueError(f"{what} must be a string, got {shorten(value)} ({type(value).__name__})")
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{what} must be valid Unicode, got {shorten(value)}") from None
    if not 0 < size <= MAX_BYTES:
        raise ValueError(
            f"{what} must have 1 to {MAX_BYTES} bytes in UTF-8, got {size}: {shorten(value)}"
        )
    return str(value)


def check_number(what: str, value: object) -> float:
    """A finite number such as a time, as floating point."""
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    raise ValueError(f"{what} must be a finite number, got {shorten(value)}")


def check_length(what: str, values: Sequence[object], length: int) -> None:
    """Refuse another number of elements."""
    if len(values) != length:
        raise ValueError(f"{what} must have {length} elements, got {len(values)}")


def check_times(times: ArrayLike | None, length: int) -> NDArray[np.float64]:
    """Times of many, NaN where there is none."""
    if times is None:
        return np.full(length, np.nan)
    found = np.asarray(times)
    if found.dtype.kind not in "iuf" or found.shape != (length,) or np.isinf(found).any():
        raise ValueError(f"times must be {length} finite numbers or NaN, got {shorten(times)}")
    return found.astype(np.float64)


def key(value: Id) -> int:
    """64 bits of a hash of an id: a fixed random order of all ids there can be.

    The neighbor cap, the holdout and the landmarks take the smallest keys, so that they follow
    from the graph and not from its history. A million ids share a key with chance 3e-8.

    Example:
        >>> key("7") != key(7)
        True
    """
    text = b"s" + value.encode() if isinstance(value, str) else b"i%d" % value
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")


def order_of(keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """How to sort keys, equal ones in their order.

    Example:
        >>> order_of(np.array([2**63, 1, 2**63, 0], dtype=np.uint64)).tolist()
        [3, 1, 0, 2]
    """
    order = np.arange(len(keys))
    for bits in (32, 48):  # numpy sorts 16 bits in linear time, and what is sorted nearly so
        digit = (keys[order] >> np.uint64(bits)).astype(np.uint16)
        order = order[np.argsort(digit, kind="stable")]
    return order[np.argsort(keys[order], kind="stable")]


def check_ids(values: Iterable[object]) -> tuple[list[Id], NDArray[np.uint64]]:
    """Many ids as `check_id` gives each, and their keys.

    Example:
        >>> check_ids([np.int64(7), "7"])[1].tolist() == [key(7), key("7")]
        True
    """
    ids: list[Id] = list(values)  # type: ignore[arg-type]
    types = set(map(type, ids))
    if types == {str} and _are_names(ids):  # type: ignore[arg-type]
        return ids, _keys(b"s", map(str.encode, ids))  # type: ignore[arg-type]
    if types == {int} and min(ids) >= -(2**63) and max(ids) < 2**63:  # type: ignore[operator]
        return ids, _keys(b"i", (b"%d" % value for value in ids))  # type: ignore[str-format]
    ids = [check_id(value) for value in ids]
    return ids, np.fromiter(map(key, ids), np.uint64, len(ids))


def _keys(tag: bytes, texts: Iterable[bytes]) -> NDArray[np.uint64]:
    """The hashes that `key` makes; the copy of a state is faster than a new one."""
    begin, digests = blake2b(tag, digest_size=8).copy, bytearray()
    for text in texts:
        state = begin()
        state.update(text)
        digests += state.digest()
    return np.frombuffer(digests, dtype=">u8").astype(np.uint64)


def _are_names(ids: list[str]) -> bool:
    """Whether all are ids without doubt: ASCII texts of a length that is allowed."""
    sizes = set(map(len, ids))
    return min(sizes) > 0 and max(sizes) <= MAX_BYTES and "".join(ids).isascii()

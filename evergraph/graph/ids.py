"""Ids, names and times as they may be, and the key that every choice among nodes goes by."""

from __future__ import annotations

import math
from hashlib import blake2b

import numpy as np

from evergraph.checks import shorten

Id = str | int
MAX_BYTES = 1024


def check_id(value: object) -> Id:
    """The id as a plain string or integer; an error if it cannot be one.

    Example:
        >>> check_id(np.int64(7)), check_id("7")
        (7, '7')
        >>> check_id(7.0)
        Traceback (most recent call last):
        ValueError: an id must be a string or an integer, got 7.0 (float)
    """
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
        size = len(value.encode())
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

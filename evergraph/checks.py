"""Checks of arguments: errors that name the rule and the value."""

from __future__ import annotations

import math
from collections.abc import Collection

import torch
from torch import Tensor

LABEL_LIMIT = 2**31  # labels at or above this are surely no class numbers


LONGEST = 60  # characters of a value in an error


def check_one_of(name: str, value: str, known: Collection[str]) -> None:
    """Reject an unknown name.

    Example:
        >>> check_one_of("optimizer", "adagrad", ("sgd", "adam"))
        Traceback (most recent call last):
        ValueError: optimizer must be one of sgd, adam, got 'adagrad'
    """
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")


def check_positive(**values: int) -> None:
    """Reject integers below 1."""
    for name, value in values.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def check_device(name: str) -> str:
    """The name of a device that is here; an error that lists those if it is not.

    Example:
        >>> check_device("cpu")
        'cpu'
        >>> check_device("gpu")
        Traceback (most recent call last):
        ValueError: device must be one that torch finds here, cpu, got 'gpu'; a GPU needs a ...
    """
    try:
        torch.ones(1, device=name).item()
    except (AssertionError, NotImplementedError, RuntimeError) as error:
        more = torch.accelerator.current_accelerator(check_available=True)
        here = "cpu" if more is None else f"cpu or {more.type}"
        raise ValueError(
            f"device must be one that torch finds here, {here}, got {name!r}; a GPU needs a torch "
            "that was built for it"
        ) from error
    return name


def find_non_finite(values: Tensor) -> tuple[int, ...] | None:
    """The index of the first NaN or infinity, or None."""
    values = values.detach()
    if math.isfinite(float(values.sum())):  # one pass: a NaN or infinity would have stayed
        return None
    found = torch.nonzero(~values.isfinite())
    return tuple(found[0].tolist()) if len(found) else None  # or finite numbers of infinite sum


def shorten(value: object) -> str:
    """The value as Python writes it, in at most 60 characters.

    Example:
        >>> shorten("ab" * 1000)
        "'abababababababababababababababababababababa'... (2,000 long)"
    """
    if isinstance(value, str | bytes) and len(value) > LONGEST - 2:
        return f"{value[: LONGEST - 17]!r}... ({len(value):,} long)"
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."

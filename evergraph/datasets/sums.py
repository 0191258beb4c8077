"""Exact sums of floating-point numbers: no order, chunking or history changes a bit of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

FRACTION = 64
"""Values count in units of 2**-64, their squares in units of 2**-128."""
LIMIT = 2.0**62
"""The largest absolute value that can be summed."""
SPARSE = 10
"""At most one value in ten differs from zero: zeros stay zeros, nothing is centered."""
STEPS = 16
"""The mean is rounded to this fraction of the scale, so that it changes rarely."""
_DIGIT = 18  # bits of the digits that numbers are split into
_CELLS = 1 << 17  # numbers that are split at a time, so that they stay in the cache
_ROWS = 1 << 16  # so many products of two digits add up in float64 without rounding

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Sums:
    """Count, sum and sum of squares of the rows of `width` numbers, as Python integers.

    Sums of parts can be added up and taken out again without a trace, so that the state is a
    function of the rows that are in.

    Example:
        >>> sums, huge = Sums(1), Sums(1)
        >>> sums.add(2, np.zeros(2, dtype=np.int64), np.array([1e18, 1.5]))
        >>> huge.add(1, np.zeros(1, dtype=np.int64), np.array([1e18]))
        >>> sums.merge(huge, -1)
        >>> int(sums.total[0]) / 2**64, sums.count
        (1.5, 1)
    """

    def __init__(self, width: int) -> None:
        self.count = 0
        self.nonzeros = np.zeros(width, dtype=np.int64)
        self.total: NDArray[Any] = np.zeros(width, dtype=object)
        self.squares: NDArray[Any] = np.zeros(width, dtype=object)

    def add(self, rows: int, place: Ints, value: Floats) -> None:
        """Add rows that are given by their values.

        Args:
            rows: how many.
            place: for each value its place in the row, from 0 to `width`.
            value: finite numbers up to `LIMIT`; zeros may be left out.
        """
        self.count += rows
        for start in range(0, len(value), _ROWS):
            part = place[start : start + _ROWS]
            digits, exponents = _digits(value[start : start + _ROWS])
            products = [digits[i] * digits[k] for i, k in _pairs(len(digits))]
            width = len(self.total)
            summed = [np.bincount(part, digit, width) for digit in (*digits, *products)]
            self.nonzeros += np.bincount(part[digits.any(axis=0)], minlength=width)
            self._add(exponents, summed)

    def add_columns(self, rows: int, columns: Floats) -> None:
        """Add rows that are given by columns of values, `(width, N)`; missing rows are zeros."""
        self.count += rows
        step = min(max(_CELLS // len(columns), 1), _ROWS)
        for start in range(0, columns.shape[1], step):
            digits, exponents = _digits(columns[:, start : start + step])
            # einsum and not @: threads of BLAS would wait busily for the next product
            products = [np.einsum("wn,wn->w", digits[i], digits[k]) for i, k in _pairs(len(digits))]
            sums = [*digits.sum(axis=2), *products]
            self.nonzeros += np.count_nonzero(digits.any(axis=0), axis=1)
            self._add(exponents, sums)

    def _add(self, exponents: list[int], sums: Sequence[NDArray[Any]]) -> None:
        """Add sums of the digits, and behind them sums of their products."""
        exact = [part.astype(np.int64).astype(object) for part in sums]
        for exponent, part in zip(exponents, exact, strict=False):
            self.total = self.total + (part << exponent)
        for (i, k), part in zip(_pairs(len(exponents)), exact[len(exponents) :], strict=True):
            self.squares = self.squares + (part << (exponents[i] + exponents[k] + (i != k)))

    def merge(self, other: Sums, sign: int = 1) -> None:
        """Add what another one has added, or take it out again (`sign=-1`)."""
        if self.count + sign * other.count < 0:
            raise ValueError(
                f"only rows that were added can be taken out, got {other.count} of {self.count}"
            )
        self.count += sign * other.count
        self.nonzeros = self.nonzeros + sign * other.nonzeros
        self.total = self.total + sign * other.total
        self.squares = self.squares + sign * other.squares

    @property
    def sparse(self) -> bool:
        """Whether at most one value in ten differs from zero."""
        return int(self.nonzeros.sum()) * SPARSE <= self.count * len(self.nonzeros)

    def standard(self) -> tuple[Ints, Ints]:
        """The rounded mean and scale of each place.

        The scale is the power of two nearest to the standard deviation, and the mean is rounded to
        a sixteenth of it. Sparse rows have one scale, from the mean square of their nonzeros, and
        no mean. A place that does not vary has the scale 1.

        Returns:
            The means in sixteenths of the scale, and the binary exponents of the scales.
        """
        width = len(self.total)
        if self.sparse:
            squares, nonzeros = int(sum(self.squares)), int(self.nonzeros.sum())
            exponent = _half_log(squares, nonzeros << (2 * FRACTION)) if squares else 0
            return np.zeros(width, dtype=np.int64), np.full(width, exponent, dtype=np.int64)
        mean, exponents = np.zeros(width, dtype=np.int64), np.zeros(width, dtype=np.int64)
        for place, (total, squares) in enumerate(zip(self.total, self.squares, strict=True)):
            spread = self.count * squares - total * total  # count² · variance
            exponent = _half_log(spread, self.count**2 << (2 * FRACTION)) if spread else 0
            exponents[place] = exponent
            # total / (count · 2**64) in units of 2**exponent / 16, rounded half up
            above, below = int(total) * STEPS * 2, self.count << FRACTION
            above, below = (
                (above << -exponent, below) if exponent < 0 else (above, below << exponent)
            )
            mean[place] = (above // below + 1) // 2
        return mean, exponents

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "count": self.count,
            "nonzeros": self.nonzeros.tolist(),
            "total": [int(value) for value in self.total],
            "squares": [int(value) for value in self.squares],
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Sums:
        """The inverse of `to_dict`."""
        sums = cls(len(state["total"]))
        sums.count = int(state["count"])
        sums.nonzeros = np.array(state["nonzeros"], dtype=np.int64)
        sums.total = np.array([int(value) for value in state["total"]], dtype=object)
        sums.squares = np.array([int(value) for value in state["squares"]], dtype=object)
        return sums


def _half_log(above: int, below: int) -> int:
    """The integer nearest to the base-2 logarithm of the root of `above / below`."""
    log = above.bit_length() - below.bit_length()
    if (above << max(-log, 0)) < (below << max(log, 0)):
        log -= 1
    return (log + 1) // 2


def _digits(values: Floats) -> tuple[Floats, list[int]]:
    """Numbers in units of 2**-64, rounded, as sums of small integers times powers of two.

    Returns:
        The integers, up to 2**18, `(digits, *values.shape)`, and the exponents of the powers.
    """
    rest = values * 2.0**FRACTION
    np.rint(rest, out=rest)
    largest = max(rest.max(initial=0.0), -rest.min(initial=0.0))
    exponent = int(np.frexp(largest)[1])
    digits = np.empty((-(-exponent // _DIGIT), *values.shape))
    exponents: list[int] = []
    while rest.any():
        exponent = max(exponent - _DIGIT, 0)
        digit = np.multiply(rest, 2.0**-exponent, out=digits[len(exponents)])
        np.rint(digit, out=digit)
        rest -= digit * 2.0**exponent
        exponents.append(exponent)
    return digits[: len(exponents)], exponents


def _pairs(size: int) -> list[tuple[int, int]]:
    return [(i, k) for i in range(size) for k in range(i, size)]

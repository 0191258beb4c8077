"""Exact sums of floating-point numbers: no order, chunking or history changes a bit of them."""

from __future__ import annotations

from collections.abc import Mapping
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
_HALF = 27  # a mantissa of 53 bits is split into 26 and 27 bits
_MASK = (1 << _HALF) - 1
_ROWS = 1 << 24  # so many numbers below 2**28 add up in float64 without rounding

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
            part = slice(start, start + _ROWS)
            nonzeros, total, squares = _sum(len(self.total), place[part], value[part])
            self.nonzeros = self.nonzeros + nonzeros
            self.total = self.total + total
            self.squares = self.squares + squares

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


def _sum(width: int, place: Ints, value: Floats) -> tuple[Ints, NDArray[Any], NDArray[Any]]:
    """Counts of nonzeros, sums and sums of squares by place.

    Numbers of the same place and exponent are added as integers: halves of their mantissas, whose
    sums float64 holds exactly. Python integers put the few sums together.
    """
    rounded = np.rint(value * 2.0**FRACTION)
    present = np.flatnonzero(rounded)
    if len(present) == 0:
        nothing = np.zeros(width, dtype=object)
        return np.zeros(width, dtype=np.int64), nothing, nothing
    place = place[present]
    fraction, exponent = np.frexp(rounded[present])
    lowest = int(exponent.min())
    spread = int(exponent.max()) - lowest + 1
    bins = place * spread + (exponent - lowest)
    signed = (fraction * 2.0**53).astype(np.int64)
    sign, mantissa = np.sign(signed), np.abs(signed)
    high, low = mantissa >> _HALF, mantissa & _MASK

    def add_up(numbers: Ints) -> NDArray[Any]:
        summed = np.bincount(bins, weights=numbers, minlength=width * spread)
        exact: NDArray[Any] = summed.astype(np.int64).astype(object)
        return exact.reshape(width, spread)

    def in_halves(numbers: Ints) -> NDArray[Any]:
        exact: NDArray[Any] = (add_up(numbers >> _HALF) << _HALF) + add_up(numbers & _MASK)
        return exact

    # Value = mantissa · 2**(exponent - 53); both shifts below are taken back at the end.
    shift = np.array([lowest + step for step in range(spread)], dtype=object)
    total = (add_up(sign * high) << _HALF) + add_up(sign * low)
    squares = in_halves(high * high) << (2 * _HALF)
    squares = squares + (in_halves(high * low) << (_HALF + 1)) + in_halves(low * low)
    nonzeros = np.bincount(place, minlength=width).astype(np.int64)
    return nonzeros, (total << shift).sum(axis=1) >> 53, (squares << (2 * shift)).sum(axis=1) >> 106

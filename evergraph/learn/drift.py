"""Has a stream changed? Means of numbers between 0 and 1 over a window that adapts its length."""

from __future__ import annotations

import math
from collections import deque

BUCKETS = 5  # of each size; two of them become one of twice the size when there are more
FEWEST = 16  # numbers on each side of a cut
EVERY = 16  # numbers between two looks


class Drift:
    """Keeps the numbers since the last change, as in ADWIN (Bifet and Gavaldà, 2007).

    The window is kept as sums of 1, 2, 4, ... numbers. Whenever the means of its older and its
    newer part differ by more than chance explains (Hoeffding's and Bernstein's bound with the
    variance of the window, confidence `1 - delta`), the older part is dropped. Memory and time
    grow with the logarithm of the window.

    Args:
        delta: how likely a false alarm is, about, in each look.

    Attributes:
        alarms: how many changes were found.
        change: the means before and after the last one.

    Example:
        >>> drift = Drift()
        >>> [drift.add(value) for value in [0.0] * 300 + [1.0] * 100].count(True) > 0
        True
        >>> len(drift) < 200 and drift.mean > 0.5
        True
    """

    def __init__(self, delta: float = 0.002) -> None:
        if not 0 < delta < 1:
            raise ValueError(f"delta must be between 0 and 1, got {delta}")
        self.delta, self.alarms = delta, 0
        self.change: tuple[float, float] | None = None
        self._rows: list[deque[tuple[float, float]]] = [deque()]  # sums and sums of squares
        self._seen = 0

    def __len__(self) -> int:
        """How many numbers are in the window."""
        return sum(len(row) << level for level, row in enumerate(self._rows))

    @property
    def mean(self) -> float:
        """Of the window; 0 if nothing has come."""
        return sum(total for row in self._rows for total, _ in row) / max(len(self), 1)

    def add(self, value: float) -> bool:
        """Take a number; whether the stream has changed."""
        if not 0 <= value <= 1:
            raise ValueError(f"a number must be between 0 and 1, got {value}")
        self._rows[0].append((value, value * value))
        for level, row in enumerate(self._rows):
            if len(row) <= BUCKETS:
                break
            (a, b), (c, d) = row.popleft(), row.popleft()
            if level + 1 == len(self._rows):
                self._rows.append(deque())
            self._rows[level + 1].append((a + c, b + d))
        self._seen += 1
        if self._seen % EVERY:
            return False
        found = False
        while (cut := self._cut()) is not None:
            self.change, found = cut, True
            oldest = max(level for level, row in enumerate(self._rows) if row)
            self._rows[oldest].popleft()
        self.alarms += found
        return found

    def _cut(self) -> tuple[float, float] | None:
        """The means of the older and the newer part where they differ too much."""
        size, total = len(self), self.mean * len(self)
        square = sum(part for row in self._rows for _, part in row)
        variance = max(square / max(size, 1) - (total / max(size, 1)) ** 2, 0)
        confidence = math.log(2 * math.log(max(size, 3)) / self.delta)
        count, old = 0, 0.0
        for level in range(len(self._rows) - 1, -1, -1):
            for part, _ in self._rows[level]:
                count, old = count + (1 << level), old + part
                rest = size - count
                if min(count, rest) < FEWEST:
                    continue
                share = 1 / count + 1 / rest
                bound = math.sqrt(2 * share * variance * confidence) + 2 / 3 * share * confidence
                before, after = old / count, (total - old) / rest
                if abs(before - after) > bound:
                    return before, after
        return None

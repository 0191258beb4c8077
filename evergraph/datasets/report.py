"""Complaints about a user's data, collected so that one run shows all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from evergraph.checks import shorten

SHOWN = 20
KEPT = 1000


@dataclass(frozen=True, slots=True)
class Problem:
    """One complaint.

    Attributes:
        file: what was read.
        line: where, counted from 1, or None if the problem is not in one place.
        column: the column, or None if the problem is in the whole line.
        value: what stands there, shortened.
        rule: what it must be.
        way_out: what the user can do.
        unit: what `line` counts: lines of a text, or rows of a table without lines.
    """

    file: str
    line: int | None
    column: str | None
    value: str
    rule: str
    way_out: str
    unit: str = "line"

    def __str__(self) -> str:
        place = self.file
        if self.line is not None:
            place += f", {self.unit} {self.line}"
        if self.column is not None:
            place += f", column {shorten(self.column)}"
        return f"{place}: {self.rule}, got {self.value}; {self.way_out}"


class TableError(ValueError):
    """Everything that is wrong with some data; the text shows the first 20 complaints.

    Attributes:
        problems: the first 1,000 complaints.
        count: how many there are.
    """

    def __init__(self, problems: Iterable[Problem], count: int) -> None:
        self.problems = tuple(problems)
        self.count = count
        lines = [f"  {problem}" for problem in self.problems[:SHOWN]]
        if count > len(lines):
            lines.append(f"  and {count - len(lines)} more")
        found = "1 problem" if count == 1 else f"{count} problems"
        super().__init__("\n".join([f"{found} in the data:", *lines]))


class Report:
    """Collects complaints; its memory is bounded, its count is not.

    Args:
        each: called with every complaint as it comes.

    Example:
        >>> report = Report()
        >>> report.add("nodes.csv", 3, "age", "old", "a number is needed", "leave it empty")
        >>> report.check()
        Traceback (most recent call last):
        evergraph.datasets.report.TableError: 1 problem in the data:
          nodes.csv, line 3, column 'age': a number is needed, got 'old'; leave it empty
    """

    def __init__(self, each: Callable[[Problem], None] | None = None) -> None:
        self.each = each
        self.problems: list[Problem] = []
        self.count = 0

    def add(
        self,
        file: str,
        line: int | None,
        column: str | None,
        value: object,
        rule: str,
        way_out: str,
        unit: str = "line",
    ) -> None:
        """Note a complaint; the value is shortened."""
        self.note(Problem(file, line, column, shorten(value), rule, way_out, unit))

    def note(self, problem: Problem) -> None:
        """Note a complaint that was made elsewhere."""
        self.count += 1
        if len(self.problems) < KEPT:
            self.problems.append(problem)
        if self.each is not None:
            self.each(problem)

    def check(self) -> None:
        """Raise all complaints, if there are any.

        Raises:
            TableError: with the complaints so far.
        """
        if self.count:
            raise TableError(self.problems, self.count)

"""Tables as Markdown, for files that people read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; the first column is aligned to the left, the others to the right.

    Example:
        >>> print(markdown(["model", "accuracy"], [["fgn", "0.9"]]))
        | model | accuracy |
        |:--|--:|
        | fgn | 0.9 |
    """
    lines = [f"| {' | '.join(columns)} |", f"|:--|{'--:|' * (len(columns) - 1)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)


def write(path: Path, title: str, table: str, notes: Sequence[str] = ()) -> None:
    """A page with one table and what must be known about it."""
    text = "\n\n".join([f"# {title}", table, *notes])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def value(mean: float | None, sd: float | None = None, runs: int | None = None) -> str:
    """`0.870 ± 0.011 (5)`, as much of it as is known.

    Example:
        >>> value(0.87, 0.011, 5), value(0.887), value(None)
        ('0.870 ± 0.011 (5)', '0.887', '')
    """
    if mean is None:
        return ""
    spread = "" if sd is None else f" ± {sd:.3f}"
    return f"{mean:.3f}{spread}{'' if runs is None else f' ({runs})'}"


def overall_rows(cells: Sequence[dict[str, Any]]) -> list[list[str]]:
    """The overall table: published, ours, difference, and what it cost."""
    rows = []
    for cell in cells:
        beside = cell["published"] or {"mean": None, "sd": None}
        difference = "" if beside["mean"] is None else f"{cell['mean'] - beside['mean']:+.3f}"
        rows.append(
            [
                f"{cell['dataset']}, {cell['scenario']}",
                cell["model"],
                cell["method"],
                value(beside["mean"], beside["sd"]),
                value(cell["mean"], cell["sd"], cell["runs"]),
                difference,
                f"{cell['seconds']:.1f}",
                f"{cell['memory_bytes'] / 1024:,.0f}",
            ]
        )
    return rows


OVERALL_COLUMNS = (
    "data, task", "model", "method", "published", "ours (runs)", "difference", "seconds", "kB kept",
)  # fmt: skip

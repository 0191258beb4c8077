"""Tables of action recognition: as Markdown, and beside what the paper published for WARD."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Cell = Mapping[str, Any]
Rows = list[list[str]]

TITLES = {
    "regular": "Regular learning: the first 80 % of each recording, the rest to test",
    "lifelong": "Lifelong learning: one pass, subject by subject, activities cycling",
    "subjects": "Two subjects left out, four pairs",
    "class": "Class-incremental: one activity after the other, one pass",
    "ablation": "What each part of FGN brings (regular learning)",
}


def find(cells: Sequence[Cell], table: str, model: str) -> Cell | None:
    """The first cell of a table with this model."""
    found = (cell for cell in cells if cell["table"] == table and cell["model"] == model)
    return next(found, None)


def beside_paper(cells: Sequence[Cell], paper: Mapping[str, Mapping[str, float]]) -> Rows:
    """The paper's Tables 5, 6 and 9, each number with ours: model by model.

    The paper's numbers are for WARD (13 activities), ours for the data at hand.
    """
    rows = [[
        "model", "regular, paper", "regular, ours", "lifelong, paper", "lifelong, ours",
        "forgetting, paper", "forgetting, ours", "ms, paper", "ms, ours",
    ]]  # fmt: skip
    for model, published in paper.items():
        regular, lifelong = find(cells, "regular", model), find(cells, "lifelong", model)
        rows.append([
            model,
            _number(published.get("regular")), _mean(regular),
            _number(published.get("lifelong")), _mean(lifelong),
            _percent(published.get("forgetting")), _percent(_get(lifelong, "forgetting")),
            _number(published.get("ms"), 2), _number(_get(regular, "ms_per_window"), 3),
        ])  # fmt: skip
    return rows


def lines(cells: Sequence[Cell], table: str) -> Rows:
    """One table: accuracy, forgetting and cost of each of its cells."""
    rows = [["model", "method", "memory", "accuracy", "forgetting", "ms per window", "runs"]]
    chosen = [cell for cell in cells if cell["table"] == table]
    if table == "ablation":
        whole = find(cells, "regular", "fgn")
        chosen = ([whole] if whole else []) + chosen
    for cell in chosen:
        memory = cell.get("memory")
        rows.append([
            cell["model"], cell["method"], f"{memory:,}" if memory else "", _mean(cell),
            _percent(cell["forgetting"]), _number(cell["ms_per_window"], 3),
            str(len(cell["runs"])),
        ])  # fmt: skip
    return rows


def classes(cells: Sequence[Cell], activities: Sequence[str], model: str = "fgn") -> Rows:
    """Recall and precision of every activity for one model, regular and lifelong."""
    rows = [["activity", "regular recall", "precision", "lifelong recall", "precision"]]
    found = [find(cells, table, model) for table in ("regular", "lifelong")]
    for number, activity in enumerate(activities):
        row = [activity]
        for cell in found:
            row += [
                "" if cell is None else _number(cell[measure][number])
                for measure in ("recall", "precision")
            ]
        rows.append(row)
    return rows


def markdown(rows: Rows) -> str:
    """Rows as a Markdown table; the first one is the header."""
    head, *body = rows
    out = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(out + ["| " + " | ".join(row) + " |" for row in body])


def document(
    cells: Sequence[Cell],
    activities: Sequence[str],
    paper: Mapping[str, Mapping[str, float]],
    about: str,
) -> str:
    """All tables in one Markdown text."""
    parts = ["# Action recognition: measured", about, "## Beside the paper (WARD there)"]
    parts.append(markdown(beside_paper(cells, paper)))
    for table, title in TITLES.items():
        if any(cell["table"] == table for cell in cells):
            parts += [f"## {title}", markdown(lines(cells, table))]
    if find(cells, "regular", "fgn") is not None:
        parts += ["## FGN, activity by activity", markdown(classes(cells, activities))]
    return "\n\n".join(parts) + "\n"


def _get(cell: Cell | None, name: str) -> float | None:
    return None if cell is None else cell[name]


def _mean(cell: Cell | None) -> str:
    if cell is None:
        return ""
    return (
        f"{cell['mean']:.3f} ± {cell['sd']:.3f}" if len(cell["runs"]) > 1 else f"{cell['mean']:.3f}"
    )


def _number(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2f} %"

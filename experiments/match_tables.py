"""Tables of feature matching, as the terminal shows them."""

from __future__ import annotations

from typing import Any

from rich.table import Table


def number_table(title: str, result: dict[str, Any]) -> Table:
    """All plain numbers of a result."""
    shown = Table(title=title)
    shown.add_column("")
    shown.add_column("", justify="right")
    for name, value in result.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            text = f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"
            shown.add_row(name.replace("_", " "), text)
    return shown


def method_table(rows: list[dict[str, Any]]) -> Table:
    """One row a method, with the area under the curve that the pairs allow."""
    shown = Table(title="Matches within 3 pixels")
    shown.add_column("method")
    auc = next((name for name in ("auc_magsac", "auc_pose") if name in rows[0]), None)
    names = ("precision", "recall", "F1", "mean error, px", *(("AUC",) if auc else ()))
    for name in names:
        shown.add_column(name, justify="right")
    for row in rows:
        numbers = [f"{row[name]:.3f}" for name in ("precision", "recall", "f1")]
        numbers.append(f"{row['mean_error']:.2f}" if "mean_error" in row else "")
        if auc:
            numbers.append(" / ".join(f"{100 * value:.1f}" for value in row[auc]))
        shown.add_row(row["method"], *numbers)
    return shown


def compare_table(cells: list[dict[str, Any]]) -> Table:
    """A table of all cells, test by test."""
    shown = Table(title="Matches within 3 pixels")
    for name in ("test", "method"):
        shown.add_column(name)
    for name in ("precision", "recall", "F1", "± sd", "training, CPU s"):
        shown.add_column(name, justify="right")
    before = None
    for cell in cells:
        if before not in (None, cell["test"]):
            shown.add_section()
        numbers = (cell[name] for name in ("precision", "recall", "f1", "f1_sd"))
        shown.add_row(
            cell["test"] if cell["test"] != before else "",
            cell["method"],
            *(f"{number:.3f}" for number in numbers),
            f"{cell['train_seconds']:.0f}",
        )
        before = cell["test"]
    return shown


def table_7(rows: list[dict[str, Any]]) -> Table:
    """Mean error by category, with the published values."""
    shown = Table(title="Mean error in pixels of the 150 most confident matches (Table 7)")
    categories = list(dict.fromkeys(row["category"] for row in rows))
    shown.add_column("method")
    for category in categories:
        shown.add_column(category, justify="right")
    cells = {(row["method"], row["category"]): row for row in rows}
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = [cells.get((method, category)) for category in categories]
        shown.add_row(method, *("" if r is None else f"{r['mean_error']:.2f}" for r in mine))
        if any(r is not None and r["published"] is not None for r in mine):
            published = [r["published"] if r else None for r in mine]
            texts = ["" if value is None else f"{value:.2f}" for value in published]
            shown.add_row(f"  {method}, published (TartanAir)", *texts, style="dim")
    for name in ("precision", "recall", "f1"):
        shown.add_section()
        for method in dict.fromkeys(row["method"] for row in rows):
            mine = [cells.get((method, category)) for category in categories]
            texts = ["" if r is None else f"{r[name]:.3f}" for r in mine]
            shown.add_row(f"{method}, {name}", *texts)
    return shown

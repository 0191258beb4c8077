"""Tables that the commands of matching print."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from evergraph.cli.console import table_of


def numbers(title: str, result: dict[str, Any]) -> Table:
    """All plain numbers of a result."""
    rows = [
        [name.replace("_", " "), f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"]
        for name, value in result.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    shown = table_of(title, ("", ""), rows)
    shown.show_header = False
    return shown


def methods_table(title: str, rows: list[dict[str, Any]]) -> Table:
    """One row a method, with what the truth allows: points, homographies or poses."""
    shown = {
        "precision": "precision", "recall": "recall", "f1": "F1",
        "epipolar_precision": "near epipolar lines", "mean_error": "mean error, px",
        "possible_error": "of points with a partner, px",
    }  # fmt: skip
    known = {name: text for name, text in shown.items() if any(name in row for row in rows)}
    auc = next((name for name in ("auc_magsac", "auc_pose") if name in rows[0]), None)
    lines = []
    for row in rows:
        cells = [f"{row[name]:.3f}" if name in row else "" for name in known]
        if auc:
            cells.append(" / ".join(f"{100 * value:.1f}" for value in row[auc]))
        lines.append([row["method"], *cells])
    columns = ("method", *known.values(), *(("AUC",) if auc else ()))
    return table_of(f"Matches within 3 pixels: {title}", columns, lines)

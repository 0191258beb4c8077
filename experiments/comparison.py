"""Pictures that set several models side by side, drawn from the cells of a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLORS = {
    "mlp": "tab:gray", "gcn": "tab:green", "sage": "tab:olive", "gat": "tab:purple",
    "appnp": "tab:orange", "fgn": "tab:blue",
}  # fmt: skip
Cell = dict[str, Any]


def stream_curves(cells: Sequence[Cell], path: Path) -> None:
    """Accuracy on all test items over the stream, one line per model and method."""
    figure, axes = _axes("items seen", "accuracy on all test items")
    for cell in cells:
        items, accuracy = zip(*cell["curve"], strict=True)
        axes.plot(items, accuracy, label=_name(cell), **_style(cell))
    axes.set_title(f"{cells[0]['dataset']}, {cells[0]['scenario']}-incremental, one pass")
    axes.legend(fontsize=8, loc="lower right")
    figure.savefig(path, dpi=120)


def against_memory(cells: Sequence[Cell], path: Path) -> None:
    """Accuracy over the items that the memory may hold, with the spread of the runs."""
    figure, axes = _axes("items in memory", "accuracy on all test items")
    for key in dict.fromkeys((cell["model"], cell["method"]) for cell in cells):
        mine = [cell for cell in cells if (cell["model"], cell["method"]) == key]
        mine.sort(key=lambda cell: int(cell["memory"]))
        sizes, means = [c["memory"] for c in mine], [c["mean"] for c in mine]
        axes.errorbar(
            sizes,
            means,
            [c["sd"] for c in mine],
            capsize=2,
            label=_name(mine[0]),
            **_style(mine[0]),
        )
    axes.set_xscale("log")
    axes.set_title(f"{cells[0]['dataset']}, {cells[0]['scenario']}-incremental")
    axes.legend(fontsize=8, loc="lower right")
    figure.savefig(path, dpi=120)


def against_seconds(cells: Sequence[Cell], path: Path) -> None:
    """Accuracy over the seconds of a run: up and to the left is better."""
    figure, axes = _axes("seconds of one run", "accuracy on all test items")
    for cell in cells:
        style = _style(cell)
        marker = "*" if cell["method"] == "analytic" else "o"
        axes.scatter(cell["seconds"], cell["mean"], color=style["color"], marker=marker, s=60)
        axes.annotate(
            _name(cell), (cell["seconds"], cell["mean"]), fontsize=8, xytext=(5, 3),
            textcoords="offset points",
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_title(f"{cells[0]['dataset']}, {cells[0]['scenario']}-incremental")
    figure.savefig(path, dpi=120)


def _axes(across: str, up: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlabel=across, ylabel=up)
    axes.grid(alpha=0.3)
    return figure, axes


def _name(cell: Cell) -> str:
    return f"{cell['model']}, {cell['method']}"


def _style(cell: Cell) -> dict[str, Any]:
    dashed = cell["method"] == "analytic"
    return {"color": COLORS.get(cell["model"], "black"), "linestyle": "--" if dashed else "-"}

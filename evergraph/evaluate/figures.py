"""Pictures of results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

mpl.use("Agg")


def learning_curve(result: dict[str, Any], path: Path) -> None:
    """Accuracy on all test items over the stream, one line per seed and their mean."""
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.add_subplot()
    items = [point[0] for point in result["curve"][0]]
    values = np.array([[point[1] for point in curve] for curve in result["curve"]])
    axes.plot(items, values.T, color="tab:blue", alpha=0.3, linewidth=1)
    axes.plot(items, values.mean(axis=0), color="tab:blue", linewidth=2, label="mean of seeds")
    axes.set(xlabel="items seen", ylabel="accuracy on all test items", ylim=(0, 1))
    axes.set_title(_title(result))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)


def accuracy_matrix(result: dict[str, Any], path: Path) -> None:
    """Accuracy on each test group after each task: dark columns stay dark if nothing is lost."""
    matrix = np.array(result["accuracy_matrix"], dtype=float)  # NaN where there is no test item
    figure = Figure(figsize=(1.6 + 0.6 * matrix.shape[1], 1.4 + 0.5 * len(matrix)), layout="tight")
    axes = figure.add_subplot()
    image = axes.imshow(matrix, vmin=0, vmax=1, cmap="Blues", aspect="auto")
    for (row, column), value in np.ndenumerate(matrix):
        color = "white" if value > 0.6 else "black"
        axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=color, fontsize=8)
    axes.set_xticks(range(matrix.shape[1]), [f"{i + 1}" for i in range(matrix.shape[1])])
    axes.set_yticks(range(len(matrix)), [f"{i + 1}" for i in range(len(matrix))])
    axes.set(xlabel="test items of task", ylabel="after task")
    axes.set_title(_title(result), fontsize=9)
    figure.colorbar(image, ax=axes)
    figure.savefig(path, dpi=120)


def confusion_matrix(confusion: Sequence[Sequence[int]], names: Sequence[str], path: Path) -> None:
    """Which class is taken for which: rows are true, columns predicted, shares in percent."""
    counts = np.array(confusion, dtype=float)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    size = max(4.0, 0.42 * len(names) + 2)
    figure = Figure(figsize=(size, size), layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(share, vmin=0, vmax=1, cmap="Blues")
    for (row, column), value in np.ndenumerate(share):
        if value >= 0.005:
            color, text = "white" if value > 0.6 else "black", f"{100 * value:.0f}"
            axes.text(column, row, text, ha="center", va="center", color=color, fontsize=7)
    axes.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set(xlabel="predicted", ylabel="true")
    figure.savefig(path, dpi=120)


def _title(result: dict[str, Any]) -> str:
    config = result["config"]
    return f"{config['dataset']}, {config['scenario']}-incremental, {config['method']}"

"""Pictures of action recognition: learning, classes, confusions, and a recording in bands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

mpl.use("Agg")


def stream_accuracy(cells: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Accuracy on all test windows during the stream, by network (the paper's Fig. 2c)."""
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = figure.add_subplot()
    for cell in cells:
        curves = np.array(cell["curves"], dtype=float)  # runs, points, (seen, accuracy)
        axes.plot(curves[0, :, 0], curves[:, :, 1].mean(0), marker="o", label=cell["model"])
    axes.set(xlabel="windows seen", ylabel="accuracy on all test windows", ylim=(0, 1.02))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", ncols=2)
    figure.savefig(path, dpi=120)


def per_class(cells: Sequence[Mapping[str, Any]], activities: Sequence[str], path: Path) -> None:
    """Recall and precision of every activity, one bar per network (the paper's Fig. 2d)."""
    figure = Figure(figsize=(max(7.0, 0.6 * len(activities)), 6.0), layout="constrained")
    width = 0.8 / max(len(cells), 1)
    for row, measure in enumerate(("recall", "precision")):
        axes = figure.add_subplot(2, 1, row + 1)
        for number, cell in enumerate(cells):
            place = np.arange(len(activities)) + (number - (len(cells) - 1) / 2) * width
            axes.bar(place, cell[measure], width, label=cell["model"])
        low = min(min(cell[measure]) for cell in cells)
        axes.set(ylabel=measure, ylim=(max(0.0, low - 0.05), 1.0))
        shown = activities if row else [""] * len(activities)
        axes.set_xticks(range(len(activities)), shown, rotation=60, ha="right")
        axes.grid(axis="y", alpha=0.3)
    figure.axes[0].legend(loc="lower left", ncols=4, fontsize=8)
    figure.savefig(path, dpi=120)


def confusion_matrix(
    confusion: Sequence[Sequence[int]], activities: Sequence[str], path: Path
) -> None:
    """Which activity is taken for which: rows are true, columns are told, shares in percent."""
    counts = np.array(confusion, dtype=float)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    size = max(4.0, 0.42 * len(activities) + 2)
    figure = Figure(figsize=(size, size), layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(share, vmin=0, vmax=1, cmap="Blues")
    for (row, column), value in np.ndenumerate(share):
        if value >= 0.005:
            color = "white" if value > 0.6 else "black"
            text = f"{100 * value:.0f}"
            axes.text(column, row, text, ha="center", va="center", color=color, fontsize=7)
    axes.set_xticks(range(len(activities)), activities, rotation=60, ha="right", fontsize=8)
    axes.set_yticks(range(len(activities)), activities, fontsize=8)
    axes.set(xlabel="told", ylabel="true")
    figure.savefig(path, dpi=120)


def bands(
    time: Sequence[float],
    told: Sequence[str],
    true: Sequence[str],
    step: float,
    path: Path,
) -> None:
    """A recording as two colored bands: what was told, and what was true if that is known.

    Args:
        time: the start of each window in seconds.
        told: the predicted activity of each.
        true: the true activity of each; empty if it is unknown.
        step: seconds from one window to the next.
        path: of the picture.
    """
    names = sorted({*told, *(name for name in true if name)})
    palette = mpl.colormaps["tab20"]
    color = {name: palette(i % 20) for i, name in enumerate(names)}
    lines = [("told", told)] + ([("true", true)] if any(true) else [])
    figure = Figure(figsize=(9, 1.4 + 0.5 * len(lines)), layout="constrained")
    axes = figure.add_subplot()
    for row, (_, labels) in enumerate(lines):
        for start, label in zip(time, labels, strict=True):
            if label:
                axes.broken_barh([(start, step)], (row - 0.4, 0.8), facecolor=color[label])
    axes.set_yticks(range(len(lines)), [name for name, _ in lines])
    axes.set(xlabel="seconds", xlim=(min(time), max(time) + step))
    handles = [Patch(color=color[name], label=name) for name in names]
    figure.legend(handles=handles, loc="outside upper center", ncols=6, fontsize=8)
    figure.savefig(path, dpi=120)

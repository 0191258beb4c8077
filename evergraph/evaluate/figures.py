"""Figures of results, in the color-blind safe palette of Okabe and Ito."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

mpl.use("Agg")

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C8C8C")
LINES = ("-", "--", ":", "-.")
MARKERS = "osD^vP*X"
HATCHES = ("", "///", "...", "xxx", "---")
ACCURACY = "accuracy on all test items"


def learning_curve(result: Mapping[str, Any], path: Path) -> None:
    """Accuracy on all test items over the stream, one line per seed and their mean."""
    figure, axes = _axes("items seen", _title(result))
    items = [point[0] for point in result["curve"][0]]
    values = np.array([[point[1] for point in curve] for curve in result["curve"]])
    if len(values) > 1:
        axes.plot(items, values.T, color=COLORS[0], alpha=0.3, linewidth=1)
    name = f"mean of {len(values)} seeds" if len(values) > 1 else "one seed"
    axes.plot(items, values.mean(axis=0), color=COLORS[0], linewidth=2, label=name)
    axes.set_ylim(0, 1)
    axes.legend(loc="lower right")
    _save(figure, path)


def accuracy_matrix(result: Mapping[str, Any], path: Path) -> None:
    """Accuracy on each test group after each task: dark columns stay dark if nothing is lost."""
    matrix = np.array(result["accuracy_matrix"], dtype=float)  # NaN where there is no test item
    figure = Figure(figsize=(2.6 + 0.6 * matrix.shape[1], 2.2 + 0.5 * len(matrix)), layout="tight")
    axes = figure.add_subplot()
    image = axes.imshow(matrix, vmin=0, vmax=1, cmap="Blues", aspect="auto")
    for (row, column), value in np.ndenumerate(matrix):
        color = "white" if value > 0.6 else "black"
        axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=color, fontsize=8)
    names = result.get("groups") or []
    for size, put, angle in (
        (matrix.shape[1], axes.set_xticks, 45),
        (len(matrix), axes.set_yticks, 0),
    ):
        known = len(names) == size
        labels = _as_is(names) if known else [str(i + 1) for i in range(size)]
        slope: dict[str, Any] = {}
        if known:
            slope = {"rotation": angle, "ha": "right", "rotation_mode": "anchor"}
        put(range(size), labels, **slope)
    axes.set(xlabel="test items of task", ylabel="after task")
    axes.set_title(_title(result), fontsize=9)
    figure.colorbar(image, ax=axes)
    _save(figure, path)


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
    names = _as_is(names)
    axes.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set(xlabel="predicted", ylabel="true")
    _save(figure, path)


def band_looks(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """How each name is drawn: eight colors, then the same with four kinds of hatching.

    Example:
        >>> band_looks(["a", "b"])["b"]["facecolor"]
        '#D55E00'
    """
    sizes = len(COLORS), len(HATCHES)
    return {
        name: {
            "facecolor": COLORS[i % sizes[0]],
            "hatch": HATCHES[i // sizes[0] % sizes[1]],
            "edgecolor": "white",
            "linewidth": 0,
        }
        for i, name in enumerate(names)
    }


def bands(
    labels: Mapping[str, Sequence[str]], time: Sequence[float], width: float, path: Path
) -> None:
    """Labels over time as colored bands, a row per name; each lasts `width`, empty ones nothing.

    Eight colors that color-blind eyes tell apart, then the same again with hatching.
    """
    names = sorted({label for row in labels.values() for label in row if label})
    look = band_looks(names)
    figure = Figure(figsize=(9, 1.4 + 0.5 * len(labels)), layout="constrained")
    axes = figure.add_subplot()
    for row, those in enumerate(labels.values()):
        for start, label in zip(time, those, strict=True):
            if label:
                axes.broken_barh([(start, width)], (row - 0.4, 0.8), **look[label])
    axes.set_yticks(range(len(labels)), list(labels))
    axes.set(xlabel="seconds", xlim=(min(time), max(time) + width))
    handles = [Patch(label=name, **look[name]) for name in names]
    figure.legend(handles=handles, loc="outside upper center", ncols=6, fontsize=8)
    _save(figure, path)


def curves(
    lines: Mapping[str, Sequence[Sequence[float]]],
    across: str,
    title: str,
    path: Path,
    log: bool = False,
    levels: Mapping[str, float] | None = None,
    measure: str = ACCURACY,
) -> None:
    """A measure over something, one line of (x, y) points per name; levels are dashed.

    Lines differ in color and in marker; the legend has them in the order of their ends.
    """
    figure, axes = _axes(across, title, measure)
    ends = {}
    for number, (name, points) in enumerate(lines.items()):
        xs, ys = zip(*points, strict=True)
        (line,) = axes.plot(xs, ys, label=name, markersize=4, alpha=0.9, **_look(number))
        ends[name] = ys[-1], line
    for number, (name, level) in enumerate((levels or {}).items(), len(lines)):
        color = COLORS[number % len(COLORS)]
        ends[name] = level, axes.axhline(level, color=color, linestyle="--", linewidth=1.2)
    if log:
        axes.set_xscale("log")
    _legend(figure, ends)
    _save(figure, path)


def scatter(points: Mapping[str, tuple[float, float]], across: str, title: str, path: Path) -> None:
    """Accuracy over a cost, one named point each: up and to the left is better."""
    figure, axes = _axes(across, title)
    ends = {}
    for number, (name, (x, y)) in enumerate(points.items()):
        (line,) = axes.plot([x], [y], markersize=8, **{**_look(number), "linestyle": ""})
        ends[name] = y, line
    axes.set_xscale("log")
    _legend(figure, ends)
    _save(figure, path)


def _look(number: int) -> dict[str, Any]:
    """Color, line and marker of a line, unlike those of all others."""
    again, first = divmod(number, len(COLORS))
    marker = MARKERS[(first + again) % len(MARKERS)]
    return {"color": COLORS[first], "linestyle": LINES[again % len(LINES)], "marker": marker}


def _legend(figure: Figure, ends: Mapping[str, tuple[float, Any]]) -> None:
    """Names beside the axes, where they hide nothing, the highest first, with their values."""
    order = sorted(ends.items(), key=lambda pair: -pair[1][0])
    names = _as_is([f"{name}  {value:.2f}" for name, (value, _) in order])
    lines = [line for _, (_, line) in order]
    figure.legend(lines, names, loc="outside right upper", fontsize=8)


def rank_diagram(
    ranks: Mapping[str, float], difference: float, runs: Sequence[tuple[int, int]], path: Path
) -> None:
    """Mean ranks on a line, the best at the left; a bar joins models that are not told apart.

    Args:
        ranks: by model.
        difference: the critical one, drawn as a measure above the line.
        runs: places of the first and the last model of each bar, as `significance.alike` gives.
        path: of the picture.
    """
    names, values = zip(*sorted(ranks.items(), key=lambda pair: pair[1]), strict=True)
    half, low, high = -(-len(names) // 2), min(1.0, values[0]), float(len(names))
    tall = 0.9 + 0.22 * (half + len(runs))
    figure = Figure(figsize=(9, tall), layout="constrained")
    axes = figure.add_subplot()
    first = -0.6 - 0.35 * len(runs)  # height of the first name, below the bars
    axes.set(xlim=(low - 3.5, high + 3.5), ylim=(first - half, 1.4))
    axes.axis("off")
    axes.plot([low, high], [0, 0], color="black")
    for tick in range(int(np.ceil(low)), int(high) + 1):
        axes.plot([tick, tick], [0, 0.15], color="black", linewidth=1)
        axes.text(tick, 0.25, str(tick), ha="center", fontsize=8)
    axes.plot([low, low + difference], [1.0, 1.0], color=COLORS[1], linewidth=2)
    axes.text(low + difference / 2, 1.1, f"CD {difference:.2f}", ha="center", fontsize=8)
    for place, (name, value) in enumerate(zip(_as_is(names), values, strict=True)):
        left = place < half
        y = first - (place if left else len(names) - 1 - place)
        end = low - 0.2 if left else high + 0.2
        axes.plot([value, value, end], [0, y, y], color=COLORS[7], linewidth=0.8)
        text, side = f"{name} ({value:.1f})", "right" if left else "left"
        axes.text(end + (-0.1 if left else 0.1), y, text, ha=side, va="center", fontsize=8)
    for number, (start, stop) in enumerate(runs):
        y = -0.35 * (number + 1)
        axes.plot([values[start] - 0.05, values[stop] + 0.05], [y, y], color=COLORS[0], linewidth=3)
    _save(figure, path)


def _axes(across: str, title: str, up: str = ACCURACY) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7.2, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlabel=across, ylabel=up)
    axes.set_title(title)
    axes.grid(alpha=0.3)
    return figure, axes


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def _title(result: Mapping[str, Any]) -> str:
    config = result["config"]
    title = f"{config['dataset']}, {config['scenario']}-incremental, {config['method']}"
    return _as_is([title])[0]


def _as_is(names: Iterable[str]) -> list[str]:
    """Names that are not read as formulas, though they may hold dollar signs."""
    return [name.replace("$", r"\$") for name in names]

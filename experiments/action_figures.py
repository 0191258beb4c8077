"""Tables and pictures of action recognition, drawn from the cells of `experiments.action`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from evergraph.evaluate.figures import confusion_matrix, curves
from experiments.cells import markdown, value

Cell = Mapping[str, Any]
Rows = list[list[str]]

TITLES = {
    "regular": "Regular learning: the first 80 % of each recording, the rest to test",
    "lifelong": "Lifelong learning: one pass, subject by subject, activities cycling",
    "subjects": "Two subjects left out, four pairs",
    "class": "Class-incremental: one activity after the other, one pass",
    "ablation": "What each part of FGN brings (regular learning)",
}
# Published for WARD (Tables 5, 6 and 9): precision, forgetting, milliseconds.
PAPER: dict[str, dict[str, float]] = {
    "mlp": {"regular": 0.645, "ms": 3.51},
    "gcn": {"regular": 0.881, "lifelong": 0.864, "forgetting": 0.0285, "ms": 5.38},
    "appnp": {"regular": 0.942, "lifelong": 0.898, "forgetting": 0.0196, "ms": 5.36},
    "gat": {"regular": 0.911, "lifelong": 0.826, "forgetting": 0.0202, "ms": 5.48},
    "fgn": {"regular": 0.954, "lifelong": 0.914, "forgetting": 0.0136, "ms": 5.76},
}


def find(cells: Sequence[Cell], table: str, model: str) -> Cell:
    """The first cell of a table with this model; empty if there is none."""
    mine = (c for c in cells if c["table"] == table and c["config"]["model"] == model)
    return next(mine, {})


def beside_paper(cells: Sequence[Cell]) -> Rows:
    """The paper's Tables 5, 6 and 9 (WARD, 13 activities), each number with ours."""
    rows = [[
        "model", "regular, paper", "regular, ours", "lifelong, paper", "lifelong, ours",
        "forgetting, paper", "forgetting, ours", "ms, paper", "ms, ours",
    ]]  # fmt: skip
    for model, published in PAPER.items():
        regular, lifelong = find(cells, "regular", model), find(cells, "lifelong", model)
        rows.append([
            model,
            value(published.get("regular")), _accuracy(regular),
            value(published.get("lifelong")), _accuracy(lifelong),
            _percent(published.get("forgetting")), _percent(lifelong.get("class_forgetting_mean")),
            f"{published['ms']:.2f}", value(regular.get("ms_per_window")),
        ])  # fmt: skip
    return rows


def lines(cells: Sequence[Cell], table: str) -> Rows:
    """One table: accuracy, forgetting and cost of each of its cells."""
    rows = [["model", "method", "memory", "accuracy", "forgetting", "ms per window", "runs"]]
    chosen = [cell for cell in cells if cell["table"] == table]
    whole = find(cells, "regular", "fgn")
    if table == "ablation" and whole:
        chosen = [whole, *chosen]
    for cell in chosen:
        config = cell["config"]
        rows.append([
            config["model"], config["method"],
            f"{config['memory']:,}" if config["method"] == "replay" else "", _accuracy(cell),
            _percent(cell["class_forgetting_mean"]), value(cell["ms_per_window"]),
            str(len(cell["seeds"])),
        ])  # fmt: skip
    return rows


def classes(cells: Sequence[Cell], activities: Sequence[str], model: str = "fgn") -> Rows:
    """Recall and precision of every activity for one model, regular and lifelong."""
    rows = [["activity", "regular recall", "precision", "lifelong recall", "precision"]]
    found = [find(cells, table, model) for table in ("regular", "lifelong")]
    columns = [
        [value(number) for number in cell[measure]] if cell else [""] * len(activities)
        for cell in found
        for measure in ("recall", "precision")
    ]
    return rows + [list(row) for row in zip(activities, *columns, strict=True)]


def document(cells: Sequence[Cell], activities: Sequence[str], name: str) -> str:
    """All tables in one Markdown text."""
    parts = [("Beside the paper (WARD there)", beside_paper(cells))]
    there = {cell["table"] for cell in cells}
    parts += [(title, lines(cells, table)) for table, title in TITLES.items() if table in there]
    if find(cells, "regular", "fgn"):
        parts.append(("FGN, activity by activity", classes(cells, activities)))
    text = [f"## {title}\n\n{markdown(head, body)}" for title, (head, *body) in parts]
    return "\n\n".join(["# Action recognition: measured", about(cells, name), *text]) + "\n"


def about(cells: Sequence[Cell], name: str) -> str:
    """How the cells were made, in a few sentences."""
    config = cells[0]["config"]
    text = (
        f"Recordings: {name}. Windows of {config['length']} samples, one every {config['stride']} "
        f"samples to train and every {config['test_stride']} to test. "
    )
    replay = {c["table"]: c["config"] for c in cells if c["config"]["method"] == "replay"}
    for table, found in replay.items():
        text += (
            f"{table.capitalize()}: one pass in batches of {found['batch_size']}, after each of "
            f"which {found['replay_batches']} batches of {found['replay_batch_size']} come from "
            "memory. "
        )
    return text + (
        "Accuracy: mean ± deviation over runs. Forgetting: best minus last recall, mean of "
        "activities. Times: CPU time of a prediction in batches of 100, one thread. Closed forms, "
        "LDA and ExtraTrees on rich features and a ridge on convolutions, which do not depend on "
        "the order, are on the same windows in action_rich.md."
    )


def draw(cells: Sequence[Cell], activities: Sequence[str], folder: Path) -> None:
    """The pictures of the lifelong table."""
    shown = [c for c in cells if c["table"] == "lifelong" and c["config"]["method"] == "replay"]
    if shown:
        stream_accuracy(shown, folder / "action_stream.png")
        few = [c for c in shown if c["config"]["model"] in ("fgn", "gat", "appnp", "cnn")]
        per_class(few or shown, activities, folder / "action_classes.png")
    fgn = find(cells, "lifelong", "fgn")
    if fgn:
        confusion_matrix(fgn["confusion"], activities, folder / "action_confusion.png")


def stream_accuracy(cells: Sequence[Cell], path: Path) -> None:
    """Accuracy on all test windows during the stream, by network (the paper's Fig. 2c)."""
    lines = {}
    for cell in cells:
        curve = np.array(cell["curve"], dtype=float)  # runs, points, (seen, accuracy)
        lines[cell["config"]["model"]] = curve.mean(0).tolist()
    curves(lines, "windows seen", "", path)


def per_class(cells: Sequence[Cell], activities: Sequence[str], path: Path) -> None:
    """Recall and precision of every activity, one bar per network (the paper's Fig. 2d)."""
    figure = Figure(figsize=(max(7.0, 0.6 * len(activities)), 6.0), layout="constrained")
    width = 0.8 / max(len(cells), 1)
    for row, measure in enumerate(("recall", "precision")):
        axes = figure.add_subplot(2, 1, row + 1)
        for number, cell in enumerate(cells):
            place = np.arange(len(activities)) + (number - (len(cells) - 1) / 2) * width
            axes.bar(place, cell[measure], width, label=cell["config"]["model"])
        low = min(min(cell[measure]) for cell in cells)
        axes.set(ylabel=measure, ylim=(max(0.0, low - 0.05), 1.0))
        shown = activities if row else [""] * len(activities)
        axes.set_xticks(range(len(activities)), shown, rotation=60, ha="right")
        axes.grid(axis="y", alpha=0.3)
    figure.axes[0].legend(loc="lower left", ncols=4, fontsize=8)
    figure.savefig(path, dpi=120)


def _accuracy(cell: Cell) -> str:
    several = len(cell.get("seeds", ())) > 1
    return value(cell.get("accuracy_mean"), cell["accuracy_sd"] if several else None)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.2f} %"

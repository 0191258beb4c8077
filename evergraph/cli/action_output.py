"""What the commands for body-worn sensors print and draw."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from evergraph.apps.action.online import Prediction
    from evergraph.apps.action.recognizer import Recognizer, Score


def line(made: Prediction, as_json: bool) -> str:
    """A prediction as a line of CSV or JSON."""
    if as_json:
        return json.dumps(asdict(made))
    text = StringIO()
    row = f"{made.time:.3f}", made.activity, f"{made.probability:.4f}", "+".join(made.missing)
    csv.writer(text, lineterminator="").writerow(row)
    return text.getvalue()


def remark(follower: Any, source: str, recognizer: Recognizer) -> None:
    """What was odd about a recording, on standard error."""
    console = Console(stderr=True)
    if follower is None:
        seconds = recognizer.config.length / recognizer.layout.rate
        console.print(f"{source} is shorter than one window of {seconds:g} s.", style="yellow")
        return
    if follower.degraded:
        console.print(
            f"A sensor was missing in {follower.degraded} of {follower.windows} windows.",
            style="yellow",
        )
    if follower.resampler.breaks:
        console.print(f"{len(follower.resampler.breaks)} breaks in time.", style="yellow")


def draw(
    kept: list[Prediction], file: str, recognizer: Recognizer, step: int, picture: Path
) -> None:
    """A recording as colored bands: what was predicted, and what was true if the file tells."""
    import matplotlib as mpl
    import numpy as np
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    from evergraph.apps.action.csv_stream import read_file

    config, rate = recognizer.config, recognizer.layout.rate
    time = [made.time for made in kept]
    bands = [("predicted", [made.activity for made in kept])]
    if file != "-":
        header, block = read_file(Path(file))
        if header.label >= 0:
            middle = np.array(time) + config.length / rate / 2
            place = np.clip(np.searchsorted(block.time, middle), 0, len(block.time) - 1)
            bands.append(("true", [block.labels[i] for i in place]))
    names = sorted({name for _, labels in bands for name in labels if name})
    color = {name: mpl.colormaps["tab20"](i % 20) for i, name in enumerate(names)}
    figure = Figure(figsize=(9, 1.4 + 0.5 * len(bands)), layout="constrained")
    axes = figure.add_subplot()
    for row, (_, labels) in enumerate(bands):
        for start, label in zip(time, labels, strict=True):
            if label:
                axes.broken_barh([(start, step / rate)], (row - 0.4, 0.8), facecolor=color[label])
    axes.set_yticks(range(len(bands)), [name for name, _ in bands])
    axes.set(xlabel="seconds", xlim=(min(time), max(time) + step / rate))
    handles = [Patch(color=color[name], label=name) for name in names]
    figure.legend(handles=handles, loc="outside upper center", ncols=6, fontsize=8)
    figure.savefig(picture, dpi=120)


def report_score(about: dict[str, Any], score: Score | None, as_json: bool, title: str) -> None:
    """How well a model does, activity by activity, and notes; the title if there is no score."""
    if as_json:
        found = {} if score is None else asdict(score)
        typer.echo(json.dumps({**about, **found}, indent=1))
        return
    console = Console()
    if score is not None:
        table = Table(title=f"{title}: accuracy {score.accuracy:.3f} on {score.windows} windows")
        for name in ("activity", "recall", "precision"):
            table.add_column(name, justify="left" if name == "activity" else "right")
        for name, recall in score.recall.items():
            table.add_row(escape(name), f"{recall:.3f}", f"{score.precision[name]:.3f}")
        console.print(table)
    else:
        console.print(escape(title))
    if about.get("skipped"):
        console.print(f"{about['skipped']} recordings were shorter than a window.", style="yellow")
    for note in about["notes"]:
        console.print(escape(note), style="dim")
    console.print(f"The model is in {about['model']}/", style="dim")

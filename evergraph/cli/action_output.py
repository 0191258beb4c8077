"""What the commands for body-worn sensors print: a table of activities, and notes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from evergraph.cli.console import remark, table_of

if TYPE_CHECKING:
    from evergraph.apps.action.score import Score


def summarized(notes: Sequence[str], most: int = 3) -> list[str]:
    """Notes of many files as a few lines: of one kind the first, and how many more there are.

    Notes are of one kind if they differ in the file, numbers and names before "from" alone.
    """
    kinds: dict[str, list[str]] = {}
    for note in notes:
        source, told, rest = note.partition(": ")
        kind = re.sub(r"[-+\d.e]+", "#", rest) if told else source
        kinds.setdefault(kind, []).append(note)
    shown = []
    for alike in kinds.values():
        shown += alike[:most] if len(alike) <= most else alike[:1]
        files = len({note.partition(": ")[0] for note in alike})
        if len(alike) > most:
            shown.append(f"... and {len(alike) - 1} more like it, in {files} files (--json: all).")
    return shown


def report_score(about: dict[str, Any], score: Score | None, as_json: bool, title: str) -> None:
    """How well a model does, activity by activity, and notes; the title if there is no score."""
    if as_json:
        typer.echo(json.dumps({**about, **({} if score is None else asdict(score))}, indent=1))
        return
    untested = about.get("untested", ())
    if score is not None:
        rows = [
            [name, f"{recall:.3f}", f"{score.precision[name]:.3f}"]
            for name, recall in score.recall.items()
        ]
        title = f"{title}: accuracy {score.accuracy:.3f} on {score.windows} windows"
        missing = dict.fromkeys(untested, "not tested")
        missing |= dict.fromkeys(about.get("unlearned", ()), "not learned")
        if missing:
            title += f" of {len(score.recall)} of {len(score.recall) + len(missing)} activities"
            rows += [[name, what, ""] for name, what in missing.items()]
        Console().print(table_of(title, ("activity", "recall", "precision"), rows))
    else:
        remark(title, "")
    if about.get("unlearned"):
        shown = ", ".join(about["unlearned"])
        remark(f"Not learned: {shown}. All recordings are shorter than a window.", "bold red")
    if score is not None and untested:
        remark(
            f"Not tested: {', '.join(untested)}. No window of them is held back, so the "
            "accuracy says nothing of them; record more, or take a shorter --length.",
            "bold red",
        )
    if about.get("clipped"):
        remark(f"{about['clipped']} outliers were clipped.", "yellow")
    if about.get("skipped"):
        remark(f"{about['skipped']} recordings were shorter than a window.", "yellow")
    for note in summarized(about["notes"]):
        remark(note)
    remark(f"The model is in {about['model']}/")

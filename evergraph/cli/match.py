"""The commands that match images."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from evergraph.cli.console import AsJson, Out, complaints, progress, publish, use_threads
from evergraph.report.evidence import provenance

if TYPE_CHECKING:
    from evergraph.applications.matching.matcher import Matcher

match = typer.Typer(no_args_is_help=True, help="Match the points of images, and learn to.")


@match.command("compare")
def match_compare(
    seeds: Annotated[int, typer.Option(min=1, help="Splits of the pictures to run.")] = 5,
    work: Annotated[
        Path, typer.Option(help="Folder for what is done so far; a run that stopped goes on.")
    ] = Path("out/matching"),
    small: Annotated[bool, typer.Option(help="A few pairs only, to see that it runs.")] = False,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Train MLP, GCN, GAT and FGN and compare them with what needs no learning.

    On pictures that come with scikit-image and scikit-learn: homographies of photographs that
    training never saw, the stereo pair of a motorcycle, and rendered scenes. About three minutes
    a seed on one free core. The trained matchers stay in the work folder.
    """
    from evergraph.applications.matching.experiment import Settings, aggregate, run_seed
    from evergraph.applications.matching.fit import Fit

    evidence = provenance()
    quiet_threads()
    settings = Settings()
    if small:
        settings = Settings(
            train=8, validation=4, test=4, surfaces=2, frames=6, stereo=(128,),
            fit=Fit(steps=4), kinds=("fgn", "mlp"), adalam=2,
        )  # fmt: skip
    cells: list[dict[str, Any]] = []
    with complaints(), progress(as_json) as shown:
        task = shown.add_task("comparing", total=seeds)
        for seed in range(seeds):

            def follow(what: str, seed: int = seed) -> None:
                shown.update(task, description=f"seed {seed}: {what}")

            part = work / f"seed_{seed}.json"
            if not part.exists():
                found, matchers = run_seed(seed, settings, follow)
                work.mkdir(parents=True, exist_ok=True)
                for kind, matcher in matchers.items():
                    matcher.save(work / f"{kind}_{seed}.safetensors", {"seed": seed, **evidence})
                done = {**evidence, "config": settings.plain(), "cells": found}
                part.write_text(json.dumps(done, indent=1) + "\n")
            done = json.loads(part.read_text())
            if done["config"] != json.loads(json.dumps(settings.plain())):
                raise ValueError(f"{part} belongs to other settings; use another --work folder")
            cells += done["cells"]
            shown.advance(task)
    result = {
        **{key: done[key] for key in evidence},
        "config": settings.plain(),
        "seeds": list(range(seeds)),
        "cells": aggregate(cells),
    }
    publish(result, as_json, out, lambda: compare_table(result["cells"]))


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


def quiet_threads() -> None:
    """One thread for torch and for OpenCV: small images are quickest so."""
    import cv2

    use_threads(1)
    cv2.setNumThreads(1)

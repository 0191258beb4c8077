"""The paper's tables of action recognition: `python -m experiments.action`.

A cell is a network, a split, a scenario and a method over several seeds: what
`evergraph.evaluate.run` returns, and the table it belongs to. Every run is saved, so that a job
that was stopped can be resumed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from evergraph.apps.action.sources import load
from evergraph.cli.console import AsJson, DataRoot, Out, complaints, progress, use_threads, write
from evergraph.evaluate.evidence import provenance
from evergraph.evaluate.run import SCHEMA
from experiments import action_figures
from experiments.action_cells import TABLES, cells, collect, fill
from experiments.action_search import searched

DSADS = Path("dsads") / "dsads_int16.npz"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    data: Annotated[str, typer.Option(help="Recordings; by default DSADS in --data-root.")] = "",
    tables: Annotated[str, typer.Option(help=f"Which: {', '.join(TABLES)}.")] = "regular,lifelong",
    seeds: Annotated[int, typer.Option(min=1, help="How many runs of each cell.")] = 5,
    runs: Annotated[Path, typer.Option(help="Runs so far.")] = Path("out/action_runs.jsonl"),
    search: Annotated[Path | None, typer.Option(help="Settings found so far.")] = None,
    pictures: Annotated[Path | None, typer.Option(help="Folder for the pictures.")] = None,
    only_show: Annotated[bool, typer.Option(help="Make no runs, show those at hand.")] = False,
    data_root: DataRoot = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Rerun Tables 5, 6 and 9 (forgetting, precision, running time) beside the published values.

    The paper's WARD is not available everywhere, so the default is DSADS: five sensors too, but
    19 activities. FGN, GAT, GCN, APPNP, MLP, a CNN, ExtraTrees and a ridge regression are run on
    the same windows. Runs in --runs are not made again. Settings that --search does not hold are
    searched first and written there. --out gets one JSON cell per line, and a .md beside it.
    """
    evidence = provenance()
    use_threads(1)
    with complaints(), progress(as_json) as shown:
        recordings = load(data or dsads(data_root))
        task = shown.add_task("", total=None)

        def report(name: str, seen: int, total: int) -> None:
            shown.update(task, description=name, completed=seen, total=total)

        names = tuple(part.strip() for part in tables.split(","))
        settings = searched(search, names, recordings, evidence, report) if search else {}
        plan = cells(names, seeds, **settings)
        if not only_show:
            every = shown.add_task("all runs", total=sum(cell.runs for cell in plan))
            for _ in fill(plan, recordings, runs, evidence, report):
                shown.advance(every)
        found = collect(plan, runs)
        if not found:
            raise ValueError(f"{runs} holds none of these runs; leave out --only-show to make them")
    text = action_figures.document(found, recordings.activities, recordings.name)
    if out is not None:
        write({"schema": SCHEMA, "cells": found}, out)
        out.with_suffix(".md").write_text(text)
    if pictures is not None:
        action_figures.draw(found, recordings.activities, pictures)
    typer.echo(json.dumps(found, indent=1) if as_json else text)


def dsads(data_root: Path | None) -> str:
    """Where DSADS is."""
    if data_root is None or not (data_root / DSADS).is_file():
        raise ValueError(
            f"DSADS was not found: name a folder that holds {DSADS} with --data-root (or "
            "EVERGRAPH_DATA), or recordings with --data"
        )
    return str(data_root / DSADS)


if __name__ == "__main__":
    app()

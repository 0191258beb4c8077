"""`python -m experiments.league`: run what is missing of the league, and write its tables."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

import typer

from evergraph.cli.console import DataRoot, complaints, progress, use_threads
from evergraph.evaluate.evidence import provenance
from evergraph.graph.dataset import Dataset
from experiments.cells import Folder, Jobs
from experiments.league.graphs import GRAPHS, read, split
from experiments.league.lines import Cell, Lines
from experiments.league.models import MODELS, ORDERS, Order, cell
from experiments.league.report import publish
from experiments.league.views import Seen, Views

Job = tuple[str, int, tuple[tuple[str, Order], ...]]  # graph, split, and models with their orders

SIZES = {"quick": (("cora", "citeseer", "acm"), 2), "nightly": (GRAPHS, 3), "full": (GRAPHS, 10)}
"""Graphs and splits of each size."""


def missing(
    cells: Sequence[Cell],
    graphs: Sequence[str],
    count: int,
    models: Sequence[str],
    orders: Sequence[str],
) -> list[Job]:
    """What is not there yet, one job for each split of a graph, the first splits first."""
    done = {(c["graph"], c["split"], c["model"], c["order"]) for c in cells}
    jobs = []
    for number, graph in product(range(count), graphs):
        todo = tuple(
            (model, order)
            for model in models
            for order in MODELS[model].orders
            if order in orders and (graph, number, model, order) not in done
        )
        if todo:
            jobs.append((graph, number, todo))
    return jobs


@lru_cache(maxsize=20)
def _graph(name: str, root: Path | None) -> tuple[Dataset, Views]:
    """A graph and its matrices, which serve all of its splits."""
    data = read(name, root)
    return data, Views(data.graph)


def work(job: Job, lines: Lines, data_root: Path | None, until: float) -> int:
    """Compute the cells of a job and append each to the file; returns how many were done."""
    use_threads(1)
    graph, number, todo = job
    if time.time() > until:
        return 0
    evidence = provenance()
    data, views = _graph(graph, data_root)
    seen = Seen(views, split(data, number))
    for done, (model, order) in enumerate(todo):
        if time.time() > until:
            return done
        made = {"graph": graph, **cell(model, seen, order), **evidence}
        lines.add(made)
    return len(todo)


def run(
    jobs: Sequence[Job], lines: Lines, data_root: Path | None, workers: int, until: float
) -> Iterator[int]:
    """Work on jobs in this process, or in several; yields how many cells were done at a time."""
    if workers == 1:
        yield from (work(job, lines, data_root, until) for job in jobs)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(work, job, lines, data_root, until) for job in jobs]
        try:
            yield from (future.result() for future in as_completed(futures))
        finally:
            pool.shutdown(cancel_futures=True)


def league(
    size: Annotated[
        str, typer.Option(help="quick, nightly or full: how many graphs and splits.")
    ] = "quick",
    graphs: Annotated[str, typer.Option(help="Only these, separated by commas.")] = "",
    models: Annotated[str, typer.Option(help="Only these, separated by semicolons.")] = "",
    orders: Annotated[
        str, typer.Option(help="Only these, of any, random and class, separated by commas.")
    ] = ",".join(("any", *ORDERS)),
    splits: Annotated[
        int, typer.Option(min=0, help="So many of each graph; 0 takes the size's.")
    ] = 0,
    minutes: Annotated[float, typer.Option(help="Begin no cell after so many minutes.")] = 1e6,
    cells: Annotated[Path, typer.Option(help="Finished cells, one JSON a line.")] = Path(
        "results/league_cells.jsonl"
    ),
    report_only: Annotated[
        bool, typer.Option(help="Only write the tables of what is there.")
    ] = False,
    jobs: Jobs = 1,
    results: Folder = Path("results"),
    figures: Annotated[
        Path | None, typer.Option(help="Folder for the diagrams of critical differences.")
    ] = None,
    data_root: DataRoot = None,
) -> None:
    """Compare all models on many real graphs, and write tables of what is finished.

    A cell that is in the file is not computed again: interrupt the command and call it again.
    """
    with complaints("What is done is kept: call it again to continue."):
        if size not in SIZES:
            raise ValueError(f"size must be one of {', '.join(SIZES)}, got {size!r}")
        names, count = SIZES[size]
        names = tuple(graphs.split(",")) if graphs else names
        chosen = models.split(";") if models else list(MODELS)
        if unknown := [name for name in chosen if name not in MODELS]:
            raise ValueError(f"models must be among {'; '.join(MODELS)}, got {unknown[0]!r}")
        kept = Lines(cells)
        kept.open()
        todo = (
            []
            if report_only
            else missing(kept.cells(), names, splits or count, chosen, orders.split(","))
        )
        until = time.time() + 60 * minutes
        with progress(report_only) as shown:
            task = shown.add_task("cells", total=sum(len(job[2]) for job in todo))
            for done in run(todo, kept, data_root, jobs, until):
                shown.update(task, advance=done)
        publish(kept.cells(), results, figures)


if __name__ == "__main__":
    typer.run(league)

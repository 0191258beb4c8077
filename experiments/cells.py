"""Tables made of cells: one JSON file per table, computed where it is incomplete.

A cell is what `evergraph.evaluate.run` returns for a configuration, with commit, versions and the
published value beside it. A table can be interrupted and called again.
"""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import typer

from evergraph.cli.console import progress, publish, table_of, use_threads, write
from evergraph.cli.engines import runner
from evergraph.evaluate.config import Config, run_config
from evergraph.evaluate.evidence import provenance
from evergraph.evaluate.run import SCHEMA
from evergraph.evaluate.search import Runner
from evergraph.graph.dataset import Dataset
from evergraph.nn.baselines import KINDS

MODELS = (*KINDS, "fgn")
SCENARIOS = ("regular", "data", "class")
DATASETS = ("cora", "citeseer", "pubmed")
Cell = dict[str, Any]

Folder = Annotated[
    Path, typer.Option(help="Where the table's JSON and Markdown are kept and found again.")
]
Jobs = Annotated[int, typer.Option(min=1, help="How many cells to compute at a time.")]


def published() -> dict[str, list[dict[str, Any]]]:
    """The paper's own numbers, table by table."""
    out: dict[str, list[dict[str, Any]]]
    out = json.loads(files("experiments").joinpath("published.json").read_text())
    return out


@dataclass(frozen=True)
class Ledger:
    """The cells of a table that are already there; one file, rewritten after every cell.

    Cells are in the order of the table, whatever the order in which they were computed.
    """

    path: Path

    def cells(self) -> list[Cell]:
        """All of them."""
        if not self.path.exists():
            return []
        cells: list[Cell] = json.loads(self.path.read_text())["cells"]
        return cells

    def find(self, config: Config, seeds: int) -> Cell | None:
        """The cell of a configuration, whatever the size of its data, with so many seeds."""
        wanted = [sized.plain() for sized in config.any_size()]
        for cell in self.cells():
            if cell["config"] in wanted and len(cell["seeds"]) >= seeds:
                return cell
        return None

    def add(self, cell: Cell) -> None:
        """Put a cell in its place, or in that of an older one of the same kind."""
        kept = [old for old in self.cells() if _kind(old) != _kind(cell)]
        write({"schema": SCHEMA, "cells": sorted([*kept, cell], key=_place)}, self.path)


def _kind(cell: Cell) -> tuple[Any, ...]:
    names = ("dataset", "scenario", "model", "method", "memory", "protocol")
    return tuple(cell["config"][name] for name in names)


def _place(cell: Cell) -> tuple[Any, ...]:
    config = cell["config"]
    names = (*DATASETS, config["dataset"])
    place = names.index(config["dataset"]), config["dataset"], SCENARIOS.index(config["scenario"])
    analytic = config["method"] == "analytic"
    return *place, MODELS.index(config["model"]), analytic, config["memory"]


def compute(
    wanted: Sequence[Config],
    seeds: int,
    path: Path,
    data_root: Path | None,
    quiet: bool,
    jobs: int,
    engine: str = "local",
    address: str | None = None,
) -> list[Cell]:
    """The cells of a table: those in the file, and the rest computed and added to it."""
    run = None if engine == "local" else runner(engine, address, jobs)
    ledger = Ledger(path)
    missing = [config for config in wanted if ledger.find(config, seeds) is None]
    for name in {config.dataset for config in missing}:
        load(name, data_root)  # a missing data set is an error before anything starts
    with progress(quiet) as shown:
        done = len(wanted) - len(missing)
        task = shown.add_task("", total=len(wanted), completed=done)
        for cell in _computed(missing, seeds, data_root, jobs, run):
            ledger.add(cell)
            shown.update(task, advance=1, description=", ".join(map(str, _kind(cell)[:4])))
    return [found for config in wanted if (found := ledger.find(config, seeds)) is not None]


def _computed(
    missing: Sequence[Config], seeds: int, data_root: Path | None, jobs: int, run: Runner | None
) -> Iterator[Cell]:
    if run is not None:
        one = partial(cell, seeds=seeds, data_root=data_root)
        yield from (found for _, found in run(one, missing))
        return
    if jobs == 1 or len(missing) < 2:
        yield from (cell(config, seeds, data_root) for config in missing)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(cell, config, seeds, data_root) for config in missing]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def cell(config: Config, seeds: int, data_root: Path | None) -> Cell:
    """One cell, in this process, with the published value beside it."""
    use_threads(1)
    data, evidence = load(config.dataset, data_root), provenance()
    result = run_config(config, tuple(range(seeds)), data)
    return {
        **result,
        "published": _published(config),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "generated": data.generated,
        **evidence,
    }


def _published(config: Config) -> dict[str, float | None] | None:
    if config.method == "analytic":
        return None
    for row in published()["overall"]:
        if all(row[key] == getattr(config, key) for key in ("dataset", "scenario", "model")):
            return {"mean": row["mean"], "sd": row["sd"]}
    return None


@cache
def load(name: str, data_root: Path | None) -> Dataset:
    """A data set, read once per process."""
    from evergraph.datasets import load as read

    return read(name, data_root)


def value(mean: float | None, sd: float | None = None, runs: int | None = None) -> str:
    """`0.870 ± 0.011 (5)`, as much of it as is known.

    Example:
        >>> value(0.87, 0.011, 5), value(0.887), value(None)
        ('0.870 ± 0.011 (5)', '0.887', '')
    """
    if mean is None:
        return ""
    spread = "" if sd is None else f" ± {sd:.3f}"
    return f"{mean:.3f}{spread}{'' if runs is None else f' ({runs})'}"


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first column is aligned to the left, the others to the right.

    Example:
        >>> print(markdown(["model", "accuracy"], [["fgn", "0.9"]]))
        | model | accuracy |
        |:--|--:|
        | fgn | 0.9 |
    """
    lines = [f"| {' | '.join(columns)} |", f"|:--|{'--:|' * (len(columns) - 1)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)


def page(path: Path, title: str, columns: Sequence[str], rows: Any, *notes: str) -> None:
    """Write a Markdown page with one table and what must be known about it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join([f"# {title}", markdown(columns, rows), *notes]) + "\n")


def show(
    title: str, columns: tuple[str, ...], rows: list[list[str]], result: Any, as_json: bool
) -> None:
    """Print a table, or its JSON."""
    publish(result, as_json, None, lambda: table_of(title, columns, rows))

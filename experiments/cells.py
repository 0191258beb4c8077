"""The cells of a table, computed where they are missing: one by one, or several at a time."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache, partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

from evergraph.cli.console import progress, use_threads
from evergraph.evaluate.evidence import provenance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rich.progress import Progress, TaskID

    from evergraph.evaluate.config import Config
    from evergraph.graph.dataset import Dataset

Cell = dict[str, Any]


def compute_cells(
    wanted: list[Config], seeds: int, path: Path, data_root: Path | None, quiet: bool, jobs: int
) -> list[Cell]:
    """The cells of a table: those in the file, and the rest computed and added to it."""
    from experiments import paper as tables

    ledger = tables.Ledger(path)
    missing = [config for config in wanted if ledger.find(config, seeds) is None]
    compute = _one_by_one if jobs == 1 or len(missing) < 2 else partial(_at_a_time, jobs)
    with progress(quiet) as shown:
        done = 100 * (len(wanted) - len(missing))
        task = shown.add_task("", total=100 * len(wanted), completed=done)
        for cell in compute(missing, seeds, data_root, shown, task):
            ledger.add(cell)
    return [found for config in wanted if (found := ledger.find(config, seeds)) is not None]


def _one_by_one(
    missing: list[Config], seeds: int, data_root: Path | None, shown: Progress, task: TaskID
) -> Iterator[Cell]:
    for config in missing:
        shown.update(task, description=_words(config))
        before = shown.tasks[task].completed

        def report(share: float, before: float = before) -> None:
            shown.update(task, completed=int(before + 100 * share))

        yield _cell(config, seeds, data_root, report)
        shown.update(task, completed=before + 100)


def _at_a_time(
    jobs: int,
    missing: list[Config],
    seeds: int,
    data_root: Path | None,
    shown: Progress,
    task: TaskID,
) -> Iterator[Cell]:
    for name in {config.dataset for config in missing}:
        _load(name, data_root)  # what cannot be had is said before others start
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        shown.update(task, description=_words(missing[0]))
        given = {pool.submit(_cell, config, seeds, data_root): config for config in missing}
        try:
            for future in as_completed(given):
                shown.update(task, advance=100, description=f"{_words(given[future])}: done")
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _cell(
    config: Config,
    seeds: int,
    data_root: Path | None,
    report: Callable[[float], None] = lambda share: None,
) -> Cell:
    """One cell, in this process; report gets the share that is done."""
    from experiments import paper as tables

    use_threads(1)
    data = _load(config.dataset, data_root)
    whole = len(data.train) * config.passes

    def follow(done: int, seen: int, _: float) -> None:
        report((done + seen / whole) / seeds)

    return tables.compute(config, seeds, data, provenance(), follow)


@cache
def _load(name: str, data_root: Path | None) -> Dataset:
    from evergraph.datasets import load

    return load(name, data_root)


def _words(config: Config) -> str:
    return f"{config.dataset}, {config.scenario}, {config.model}, {config.method}"

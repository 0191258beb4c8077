"""What the commands that learn share: finding the data, following a run, showing it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

if TYPE_CHECKING:
    from evergraph.evaluate.config import Config
    from evergraph.graph.dataset import Dataset


def load_or_generate(
    config: Config, data_root: Path | None, shown: Progress, quiet: bool
) -> tuple[Dataset, Config]:
    """The data set; if the default one cannot be had, a generated one, and a word about it."""
    from evergraph.datasets import DatasetNotFound, load

    task = shown.add_task(f"looking for {config.dataset}", total=None)
    try:
        return load(
            config.dataset,
            data_root,
            progress=lambda what, _: shown.update(task, description=what),
        ), config
    except DatasetNotFound as error:
        if config.dataset != "cora":
            raise
        if not quiet:
            note = "Cora cannot be had here, so this run is on a generated graph."
            Console(stderr=True).print(f"{error}\n[yellow]{note}[/yellow]")
        return load("generated"), replace(config, dataset="generated")
    finally:
        shown.remove_task(task)


def follow_run(
    config: Config,
    seeds: int,
    data: Dataset,
    checkpoint: Path | None,
    resume: bool,
    every: float,
    shown: Progress,
) -> dict[str, Any]:
    """Run all seeds with the current accuracy in the progress display."""
    from evergraph.evaluate import run as citation

    if resume and checkpoint is not None:
        there = checkpoint.exists()
        words = f"going on from {checkpoint}" if there else f"no {checkpoint} yet: from the start"
        shown.console.print(words, style="dim")
    total = len(data.train) * config.passes
    task = shown.add_task("", total=total * seeds)

    def report(number: int, seen: int, accuracy: float) -> None:
        words = f"{config.dataset}, {config.method}, seed {number + 1} of {seeds}"
        if accuracy == accuracy:
            words += f", accuracy {accuracy:.3f}"
        shown.update(task, completed=number * total + seen, description=words)

    try:
        return citation.run(config, tuple(range(seeds)), data, checkpoint, resume, every, report)
    finally:
        shown.remove_task(task)


def write_run(result: dict[str, Any], out: Path) -> None:
    """Write the numbers and the pictures of a run."""
    from evergraph.evaluate.figures import accuracy_matrix, learning_curve

    out.mkdir(parents=True, exist_ok=True)
    (out / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    learning_curve(result, out / "learning_curve.png")
    accuracy_matrix(result, out / "accuracy_matrix.png")


def run_table(results: list[dict[str, Any]]) -> Table:
    """One line per run: how well, how much was forgotten, at what cost."""
    config = results[0]["config"]
    title = f"{config['dataset']}, {config['scenario']}-incremental, one pass"
    if config["scenario"] == "regular":
        title = f"{config['dataset']}, regular, {config['epochs']} passes"
    if config["protocol"] != "paper":
        title = f"{config['dataset']}, {config['scenario']}-incremental, {config['protocol']}"

    def spread(result: dict[str, Any]) -> str:
        return f" ± {result['accuracy_sd']:.3f}" if len(result["seeds"]) > 1 else ""

    table = Table(title=title)
    table.add_column("model, method")
    field = config["protocol"] != "paper"
    words = ("AP", "AF") if field else ("accuracy", "forgetting")
    for name in (*words, "seconds", "items/s", "memory"):
        table.add_column(name, justify="right")
    for result in results:
        config = result["config"]
        table.add_row(
            f"{config['model']}, {config['method']}",
            f"[bold]{result['average_accuracy_mean']:.3f}[/bold]"
            if field
            else f"[bold]{result['accuracy_mean']:.3f}[/bold]{spread(result)}",
            f"{result['average_forgetting_mean' if field else 'forgetting_mean']:.3f}",
            f"{result['seconds']:.1f}",
            f"{result['items_per_second']:,.0f}",
            f"{result['memory_bytes'] / 1024:,.0f} kB",
        )
    meaning = "forgetting: best minus last, mean of tasks"
    if field:
        meaning = "AP: mean accuracy over classes at the end; AF: last minus first, mean of tasks"
    count = len(results[0]["seeds"])
    table.caption = f"{count} seed{'s' if count > 1 else ''}; {meaning}"
    return table

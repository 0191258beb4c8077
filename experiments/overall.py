"""Table 2: every model in regular, data- and class-incremental learning, and the closed form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from evergraph.checks import check_one_of
from evergraph.cli.console import AsJson, DataRoot, complaints
from evergraph.cli.engines import Address, EngineName
from evergraph.evaluate.config import Config
from evergraph.evaluate.figures import curves, scatter
from evergraph.evaluate.presets import DEFAULT, EMBEDDINGS, SHORT
from experiments.cells import (
    DATASETS,
    MODELS,
    SCENARIOS,
    Cell,
    Folder,
    Jobs,
    Ledger,
    compute,
    page,
    show,
    value,
)
from experiments.league.models import CHANGES

CLOSED_FORM = (*EMBEDDINGS, "fgn")  # whose embedding needs no learning
COLUMNS = (
    "data, task", "model", "method", "published", "ours (runs)", "difference", "seconds", "kB kept",
)  # fmt: skip


# What FGN is given: what `evergraph tune` chose on validation nodes, what a graph that nobody has
# searched on gets, or the latter with the network of the paper's equations.
DEFAULTS: dict[str, Any] = {**DEFAULT, **SHORT, "gain": 1.0, "diffusion": False}
WAYS: dict[str, dict[str, Any]] = {
    "preset": {},
    "default": DEFAULTS,
    "paper": DEFAULTS | CHANGES["the paper's"],
}


def cell_config(
    dataset: str,
    scenario: Any,
    model: str,
    method: str,
    memory: int = 500,
    settings: dict[str, Any] | None = None,
) -> Config:
    """What the paper fixes for a cell: memory, and the tasks of ogbn-arxiv."""
    epochs, batch, classes = 30, 50 if scenario == "regular" else 10, 1
    if dataset.endswith("arxiv"):
        memory = 4096 if scenario == "class" else 512
        epochs, batch, classes = 5, 16, 5
    cell = dataset, scenario, model, method, memory
    epochs = 1 if method == "analytic" else epochs
    return Config(
        *cell,
        batch_size=batch,
        classes_per_task=classes,
        epochs=epochs,
        settings=settings or {},
    )


def plans(
    datasets: Sequence[str] = DATASETS,
    models: Sequence[str] = MODELS,
    scenarios: Sequence[str] = SCENARIOS,
    way: str = "preset",
) -> Iterator[Config]:
    """The cells of the table, and the closed form beyond it if settings are presets."""
    for dataset in datasets:
        for scenario in scenarios:
            for model in models:
                method = "finetune" if scenario == "regular" else "replay"
                yield cell_config(dataset, scenario, model, method, settings=WAYS[way])
                if model in CLOSED_FORM and way == "preset":
                    yield cell_config(dataset, scenario, model, "analytic")


def rows(cells: Sequence[Cell]) -> list[list[str]]:
    """Published, ours, difference, and what it cost."""
    out = []
    for cell in cells:
        config, beside = cell["config"], cell["published"] or {"mean": None, "sd": None}
        mean, runs = cell["accuracy_mean"], len(cell["seeds"])
        difference = "" if beside["mean"] is None else f"{mean - beside['mean']:+.3f}"
        out.append([
            f"{config['dataset']}, {config['scenario']}",
            config["model"],
            config["method"],
            value(beside["mean"], beside["sd"]),
            value(mean, cell["accuracy_sd"], runs),
            difference,
            f"{cell['seconds'] / runs:.1f}",
            f"{cell['memory_bytes'] / 1024:,.0f}",
        ])  # fmt: skip
    return out


def pictures(cells: Sequence[Cell], folder: Path) -> None:
    """Accuracy over the stream and against seconds, data set by data set."""
    for name in dict.fromkeys(cell["config"]["dataset"] for cell in cells):
        found = [c for c in cells if c["config"]["dataset"] == name]
        mine = [c for c in found if c["config"]["scenario"] == "class"]
        title = f"{name}, class-incremental"
        lines, points = {}, {}
        for cell in mine:
            label = f"{cell['config']['model']}, {cell['config']['method']}"
            if label.endswith("replay") or label == "fgn, analytic":  # of closed forms, one
                lines[label] = np.mean([np.array(one) for one in cell["curve"]], axis=0).tolist()
            points[label] = (cell["seconds"] / len(cell["seeds"]), cell["accuracy_mean"])
        if mine:
            curves(lines, "items seen", f"{title}, one pass", folder / f"stream_{name}.png")
            scatter(points, "seconds of one run", title, folder / f"seconds_{name}.png")


def overall(
    dataset: Annotated[str, typer.Option(help="Data sets, separated by commas.")] = ",".join(
        DATASETS
    ),
    models: Annotated[str, typer.Option(help="Models, separated by commas.")] = ",".join(MODELS),
    scenarios: Annotated[
        str, typer.Option(help="Of regular, data and class, separated by commas.")
    ] = "regular,data,class",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each cell.")] = 5,
    quick: Annotated[
        bool, typer.Option(help="One run of each cell, kept apart from the full table.")
    ] = False,
    way: Annotated[
        str,
        typer.Option(
            help="preset; or FGN alone, in a table of its own, with default settings (default) or "
            "as in the paper's equations (paper)."
        ),
    ] = "preset",
    jobs: Jobs = 2,
    engine: EngineName = "local",
    address: Address = None,
    results: Folder = Path("results"),
    figures: Annotated[
        Path | None, typer.Option(help="Folder for pictures of the whole table.")
    ] = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Rerun Table 2 beside the published values.

    A cell that is in the file already is not computed again, so that the command can be
    interrupted and called again. Settings are presets, chosen on validation nodes; test nodes are
    used once.
    """
    name = f"overall_{way}" if way != "preset" else "overall"
    path = results / f"{name}{'_quick' if quick else ''}.json"
    with complaints("What is done is kept: call it again to continue."):
        check_one_of("way", way, WAYS)
        taking_part = models if way == "preset" else "fgn"
        parts = dataset.split(","), taking_part.split(","), scenarios.split(",")
        wanted = list(plans(*parts, way))
        cells = compute(
            wanted, 1 if quick else seeds, path, data_root, as_json, jobs, engine, address
        )
    every = Ledger(path).cells()
    note = (
        "Published: the paper's Table 2; its regular results are the best of all epochs on the "
        "test nodes, ours the last. Seconds are of one run, learning and testing."
    )
    page(path.with_suffix(".md"), "Overall performance (Table 2)", COLUMNS, rows(every), note)
    if figures is not None:
        pictures(every, figures)
    show("Table 2: accuracy on the test nodes", COLUMNS, rows(cells), cells, as_json)


if __name__ == "__main__":
    typer.run(overall)

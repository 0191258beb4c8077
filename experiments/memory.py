"""Beyond the paper: class-incremental accuracy against the size of the memory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evergraph.cli.console import AsJson, DataRoot, complaints
from evergraph.cli.engines import Address, EngineName
from evergraph.evaluate.figures import curves
from experiments.cells import Folder, Jobs, compute, page, show, value
from experiments.overall import cell_config


def memory(
    dataset: Annotated[str, typer.Option(help="One data set.")] = "cora",
    models: Annotated[str, typer.Option(help="Models, separated by commas.")] = "fgn,gat,gcn",
    sizes: Annotated[
        str, typer.Option(help="Items that the memory may hold, separated by commas.")
    ] = "10,50,100,200,500,1000,2000",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each size.")] = 3,
    jobs: Jobs = 2,
    engine: EngineName = "local",
    address: Address = None,
    results: Folder = Path("results"),
    figures: Annotated[Path | None, typer.Option(help="Folder for the picture.")] = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Run replay with memories of several sizes."""
    with complaints("What is done is kept: call it again to continue."):
        wanted = [
            cell_config(dataset, "class", model, "replay", memory=int(size))
            for model in models.split(",")
            for size in sizes.split(",")
        ]
        cells = compute(
            wanted, seeds, results / "memory.json", data_root, as_json, jobs, engine, address
        )
    columns = ("items in memory", "model", "accuracy (runs)", "kB kept")
    rows = [
        [
            str(cell["config"]["memory"]),
            cell["config"]["model"],
            value(cell["accuracy_mean"], cell["accuracy_sd"], len(cell["seeds"])),
            f"{cell['memory_bytes'] / 1024:,.0f}",
        ]
        for cell in cells
    ]
    page(results / "memory.md", f"Accuracy against memory: {dataset}", columns, rows)
    if figures is not None:
        lines: dict[str, list[list[float]]] = {}
        for cell in cells:
            point = [cell["config"]["memory"], cell["accuracy_mean"]]
            lines.setdefault(f"{cell['config']['model']}, replay", []).append(point)
        path = figures / f"memory_{dataset}.png"
        curves(lines, "items in memory", f"{dataset}, class-incremental", path, log=True)
    show(f"{dataset}, class-incremental", columns, rows, cells, as_json)


if __name__ == "__main__":
    typer.run(memory)

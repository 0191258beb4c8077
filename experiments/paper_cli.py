"""The paper's tables: every number rerun by one command, beside the published one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from experiments.cells import compute_cells
from evergraph.cli.console import AsJson, DataRoot, complaints
from evergraph.evaluate.evidence import provenance
from experiments.markdown import OVERALL_COLUMNS, markdown, overall_rows, value, write

if TYPE_CHECKING:
    from collections.abc import Sequence


paper = typer.Typer(
    no_args_is_help=True, help="Rerun the paper's tables, beside the published values."
)
Folder = Annotated[
    Path, typer.Option(help="Where the table's JSON and Markdown are kept and found again.")
]
Datasets = Annotated[
    str, typer.Option("--dataset", help="Data sets, separated by commas, as `evergraph datasets`.")
]
Jobs = Annotated[int, typer.Option(min=1, help="How many cells to compute at a time.")]
ALL = "cora,citeseer,pubmed"


@paper.command()
def overall(
    dataset: Datasets = ALL,
    models: Annotated[str, typer.Option(help="Models, separated by commas; all by default.")] = "",
    scenarios: Annotated[
        str, typer.Option(help="Of regular, data and class, separated by commas.")
    ] = "regular,data,class",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each cell.")] = 5,
    quick: Annotated[
        bool, typer.Option(help="One run of each cell, kept apart from the full table.")
    ] = False,
    jobs: Jobs = 2,
    results: Folder = Path("results"),
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Table 2: every model in regular, data- and class-incremental learning.

    A cell that is in the file already is not computed again, so that the command can be stopped
    and called again. Settings are presets, chosen on validation nodes; test nodes are used once.
    """
    from experiments import paper as tables

    name = "overall_quick" if quick else "overall"
    with complaints():
        chosen = tuple(name for name in models.split(",") if name) or tables.MODELS
        wanted = list(
            tables.plans(tuple(dataset.split(",")), chosen, tuple(scenarios.split(",")))  # type: ignore[arg-type]
        )
        path = results / f"{name}.json"
        cells = compute_cells(wanted, 1 if quick else seeds, path, data_root, as_json, jobs)
    notes = [
        "Published: the paper's Table 2; its regular results are the best of all epochs on the "
        "test nodes, ours the last. Seconds are of one run, learning and testing."
    ]
    every = markdown(OVERALL_COLUMNS, overall_rows(tables.Ledger(path).cells()))
    write(results / f"{name}.md", "Overall performance (Table 2)", every, notes)
    rows = overall_rows(cells)
    _show("Table 2: accuracy on the test nodes", OVERALL_COLUMNS, rows, cells, as_json)


@paper.command()
def memory(
    dataset: Annotated[str, typer.Option(help="One data set.")] = "cora",
    models: Annotated[str, typer.Option(help="Models, separated by commas.")] = "fgn,gat,gcn",
    sizes: Annotated[
        str, typer.Option(help="Items that the memory may hold, separated by commas.")
    ] = "10,50,100,200,500,1000,2000",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each size.")] = 3,
    jobs: Jobs = 2,
    results: Folder = Path("results"),
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Beyond the paper: class-incremental accuracy against the size of the memory."""
    from experiments import paper as tables
    from experiments.comparison import against_memory

    with complaints():
        wanted = list(
            tables.memory_plans(
                dataset, tuple(models.split(",")), tuple(map(int, sizes.split(",")))
            )
        )
        path = results / "memory.json"
        cells = compute_cells(wanted, seeds, path, data_root, as_json, jobs)
    against_memory(cells, results / f"memory_{dataset}.png")
    columns = ("items in memory", "model", "accuracy (runs)", "kB kept")
    text = [
        [
            str(cell["memory"]), cell["model"], value(cell["mean"], cell["sd"], cell["runs"]),
            f"{cell['memory_bytes'] / 1024:,.0f}",
        ]
        for cell in cells
    ]  # fmt: skip
    write(results / "memory.md", f"Accuracy against memory: {dataset}", markdown(columns, text))
    _show(f"{dataset}, class-incremental", columns, text, cells, as_json)


@paper.command()
def pictures(results: Folder = Path("results")) -> None:
    """Accuracy over the stream, against seconds, and what was forgotten, from the overall table."""
    from experiments.comparison import against_seconds, stream_curves
    from evergraph.evaluate.figures import accuracy_matrix

    with complaints():
        cells = _cells(results / "overall.json")
    for name in dict.fromkeys(cell["dataset"] for cell in cells):
        mine = [c for c in cells if c["dataset"] == name and c["scenario"] == "class"]
        if not mine:
            continue
        stream_curves(mine, results / f"stream_{name}.png")
        against_seconds(mine, results / f"seconds_{name}.png")
        for cell in mine:
            if (cell["model"], cell["method"]) == ("fgn", "replay"):
                accuracy_matrix(cell, results / f"matrix_{name}.png")
    Console().print(f"Pictures are in {results}/", style="dim")


@paper.command()
def forgetting(results: Folder = Path("results"), as_json: AsJson = False) -> None:
    """Table 3: the mean drop per class from regular to class-incremental learning.

    Computed from the cells of `evergraph paper overall`, which has to come first.
    """
    from experiments import paper as tables

    with complaints():
        rows = tables.forgetting(_cells(results / "overall.json"))
        columns = ("data", "model", "method", "published (%)", "ours (%)", "runs")
        text = [
            [
                row["dataset"], row["model"], row["method"],
                "" if row["published"] is None else f"{row['published']:.2f}",
                f"{row['percent']:.2f}", str(row["runs"]),
            ]
            for row in rows
        ]  # fmt: skip
        _keep(
            results / "forgetting.json",
            "Average class forgetting rate (Table 3)",
            columns,
            text,
            rows,
        )
    _show("Table 3: forgetting in class-incremental learning", columns, text, rows, as_json)


@paper.command()
def parameters(results: Folder = Path("results"), as_json: AsJson = False) -> None:
    """Table 4: the number of parameters of each network for ogbn-arxiv."""
    from experiments import paper as tables

    rows = [{**row, **provenance()} for row in tables.parameters()]
    columns = ("model", "published", "ours", "difference")
    text = [
        [r["model"], f"{r['published']:,}", f"{r['parameters']:,}",
         f"{r['parameters'] - r['published']:+,}"]
        for r in rows
    ]  # fmt: skip
    _keep(results / "parameters.json", "Parameters (Table 4)", columns, text, rows)
    _show("Table 4: parameters", columns, text, rows, as_json)


@paper.command()
def datasets(
    dataset: Datasets = ALL,
    results: Folder = Path("results"),
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Table 8: nodes, edges, classes, features and the share of nodes with a label to learn."""
    from experiments import paper as tables
    from evergraph.datasets import load

    with complaints():
        rows = [tables.statistics(load(name, data_root)) for name in dataset.split(",")]
    rows = [{**row, **provenance()} for row in rows]
    names = ("nodes", "edges", "classes", "features", "labels")
    columns = ("data", *(f"{name} (published)" for name in names))
    text = [
        [
            row["dataset"],
            *(_beside(row[name], (row["published"] or {}).get(name)) for name in names),
        ]
        for row in rows
    ]
    _keep(results / "datasets.json", "Data sets (Table 8)", columns, text, rows)
    _show("Table 8: data sets", columns, text, rows, as_json)


def _beside(ours: float, theirs: float | None) -> str:
    return f"{ours:,} ({'' if theirs is None else f'{theirs:,}'})"


def _cells(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        raise ValueError(f"{path} is not there yet; run `evergraph paper overall` first")
    cells: list[dict[str, Any]] = json.loads(path.read_text())
    return cells


def _keep(
    path: Path,
    title: str,
    columns: Sequence[str],
    text: list[list[str]],
    rows: list[dict[str, Any]],
) -> None:
    write(path.with_suffix(".md"), title, markdown(columns, text))
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


def _show(
    title: str, columns: Sequence[str], text: list[list[str]], rows: list[dict[str, Any]],
    as_json: bool,
) -> None:  # fmt: skip
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    table = Table(title=title)
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number < 1 else "right")
    for row in text:
        table.add_row(*row)
    Console().print(table)

"""The command line: parses, calls, prints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from evergraph.report.evidence import provenance

if TYPE_CHECKING:
    from evergraph.bench.batches import Case

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Lifelong learning on graphs that never stop growing.",
)
bench = typer.Typer(
    no_args_is_help=True, help="Measure this machine: ratios from one run, side by side."
)
app.add_typer(bench, name="bench")

AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON and nothing else on standard output.")
]
Out = Annotated[Path | None, typer.Option(help="Write the JSON to this file too.")]
DataRoot = Annotated[
    Path | None,
    typer.Option(
        envvar="EVERGRAPH_DATA", help="Folder with data sets; looked at before anything is fetched."
    ),
]


@app.command()
def run(epochs: Annotated[int, typer.Option(min=1, help="Passes over the nodes.")] = 3) -> None:
    """Train a feature graph network on a generated citation graph and test it."""
    from evergraph.applications.citation import train
    from evergraph.datasets import generate

    dataset = generate()
    graph = dataset.graph
    with progress(quiet=False) as shown:
        task = shown.add_task("training", total=epochs * len(dataset.train))

        def report(seen: int, loss: float) -> None:
            shown.update(task, completed=seen, description=f"training, loss {loss:.2f}")

        trained = train(dataset, epochs, report=report)
    table = Table(title="A feature graph network on a generated citation graph")
    table.add_column("what")
    table.add_column("value", justify="right")
    table.add_row("papers, citations", f"{graph.num_nodes:,}, {graph.num_edges:,}")
    table.add_row("words, topics", f"{graph.num_features:,}, {graph.num_classes}")
    table.add_row("papers learned from", f"{len(dataset.train):,}")
    table.add_row("topic found, of papers never seen", f"[bold]{trained.accuracy:.1%}[/bold]")
    table.add_row("by guessing", f"{1 / graph.num_classes:.1%}")
    Console().print(table)


@contextmanager
def progress(quiet: bool) -> Iterator[Progress]:
    """A progress display on standard error, so that standard output stays clean."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=quiet, transient=True) as shown:
        yield shown


def publish(
    result: dict[str, object], as_json: bool, out: Path | None, show: Callable[[], Table]
) -> None:
    """Write and print a result: as JSON, or as a table."""
    text = json.dumps(result, indent=1)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text + "\n")
    if as_json:
        typer.echo(text)
    else:
        Console().print(show())


@bench.command("speed")
def bench_speed(as_json: AsJson = False, out: Out = None, data_root: DataRoot = None) -> None:
    """Time a training step of FGN: the paper's F × F matrices against the exact fast forms.

    Both sides start from the same parameters and see the same batch; the table also shows how
    far their logits and gradients are apart. Without Cora and Citeseer at hand, batches with the
    same numbers of features, words and neighbors are generated.
    """
    from evergraph.bench.batches import dense_embeddings
    from evergraph.bench.speed import speed

    rows: list[dict[str, Any]] = []
    with progress(as_json) as shown:
        task = shown.add_task("comparing", total=3)
        for case in [*_citation_cases(data_root), dense_embeddings(256, 128, 20)]:
            shown.update(task, description=f"{case.name}, naive and fast in turns")
            rows.append(speed(case))
            shown.advance(task)

    def table() -> Table:
        shown = Table(title="One training step: F × F matrices against ours")
        shown.add_column("")
        for r in rows:
            mark = " (generated)" if r["origin"] == "generated" else ""
            shown.add_column(f"{r['dataset']}{mark}", justify="right")
        lines = {
            "features": ("num_features", ",.0f"),
            "naive, ms": ("naive_ms", ",.0f"),
            "naive, tuned by hand, ms": ("lean_ms", ",.0f"),
            "ours, ms": ("fast_ms", ",.2f"),
            "[bold]ratio to naive[/bold]": ("ratio", ",.1f"),
            "ratio to tuned": ("ratio_to_lean", ",.1f"),
            "largest difference, logits": ("max_abs_diff_logits", ".0e"),
            "largest difference, gradients": ("max_abs_diff_grad", ".0e"),
            "naive, peak MB": ("naive_peak_mb", ",.0f"),
            "ours, peak MB": ("fast_peak_mb", ",.1f"),
        }
        for line, (key, form) in lines.items():
            shown.add_row(line, *(format(r[key], form) for r in rows))
        return shown

    publish({**provenance(), "cases": rows}, as_json, out, table)


def _citation_cases(data_root: Path | None) -> list[Case]:
    from evergraph.bench.batches import bags_of_words, from_dataset
    from evergraph.datasets import DatasetNotFound, load

    cases = []
    for name, words in (("cora", (1433, 18, 67, 4)), ("citeseer", (3703, 32, 91, 4))):
        try:
            cases.append(from_dataset(load(name, data_root, fetch=False), 10))
        except DatasetNotFound:
            cases.append(bags_of_words(10, *words, name=name))
    return cases


@bench.command("growth")
def bench_growth(as_json: AsJson = False, out: Out = None) -> None:
    """Time and bytes per item as features, neighborhoods and the stream grow.

    The exponent is the slope on a log-log scale: 0 means flat, 1 means linear.
    """
    from evergraph.bench import growth

    with progress(as_json) as shown:
        task = shown.add_task("more features", total=growth.STREAM[-1])
        features = list(growth.by_features())
        shown.update(task, description="more neighbors")
        neighbors = list(growth.by_neighbors())
        shown.update(task, description="longer stream")
        stream = list(growth.by_stream(report=lambda seen: shown.update(task, completed=seen)))
    sweeps = {"features": features, "neighbors": neighbors, "items": stream}
    result = {
        **provenance(),
        **{f"by_{size}": rows for size, rows in sweeps.items()},
        "exponents": {
            f"{value}_by_{size}": growth.exponent(rows, size, value)
            for size, rows in sweeps.items()
            for value in rows[0]
            if value != size
        },
    }

    def table() -> Table:
        shown = Table(title="Cost per item while things grow")
        for name in ("grows", "size", "µs per item", "bytes per item", "resident MB"):
            shown.add_column(name, justify="left" if name == "grows" else "right")
        for size, rows in sweeps.items():
            for row in rows:
                stored = f"{row['bytes_per_item']:,.0f}" if "bytes_per_item" in row else ""
                resident = f"{row['resident_mb']:.0f}" if "resident_mb" in row else ""
                shown.add_row(
                    size, f"{row[size]:,.0f}", f"{row['us_per_item']:.0f}", stored, resident
                )
            slope = growth.exponent(rows, size, "us_per_item")
            shown.add_row("", "exponent", f"[bold]{slope:.2f}[/bold]", end_section=True)
        return shown

    publish(result, as_json, out, table)

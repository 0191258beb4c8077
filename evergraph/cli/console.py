"""What all commands share: common options, the progress display, tables, JSON and errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
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
    if out is not None:
        write(result, out)
    if as_json:
        typer.echo(json.dumps(result, indent=1))
    else:
        Console().print(show())


def write(result: Mapping[str, object], out: Path) -> None:
    """Write a result as JSON, in a folder that is made if need be; never half of it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    fresh = out.with_name(f"{out.name}.part")
    fresh.write_text(json.dumps(result, indent=1) + "\n")
    fresh.replace(out)


@contextmanager
def complaints() -> Iterator[None]:
    """Turn the errors that a user can mend into one line and exit code 2."""
    from evergraph.datasets import DatasetNotFound

    try:
        yield
    except (ValueError, OSError, FloatingPointError, DatasetNotFound) as error:
        Console(stderr=True).print(f"[red]Error:[/red] {escape(str(error))}", highlight=False)
        raise typer.Exit(2) from error


def use_threads(count: int) -> None:
    """Let torch use so many threads."""
    import torch

    torch.set_num_threads(count)

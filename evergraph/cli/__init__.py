"""The command line: parses, calls, prints."""

from __future__ import annotations

import typer

from evergraph.cli.bench import bench
from evergraph.cli.learn import compare, datasets, run, tune
from evergraph.cli.match import match

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Lifelong learning on graphs that never stop growing.",
)
for command in (run, compare, tune, datasets):
    app.command()(command)
app.add_typer(bench, name="bench")
app.add_typer(match, name="match")

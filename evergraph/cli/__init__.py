"""The command line: parses, calls, prints."""

from __future__ import annotations

from typing import Annotated

import typer

from benchmarks.cli import bench
from evergraph import __version__
from evergraph.cli.action import action
from evergraph.cli.learn import compare, datasets, run, tune
from evergraph.cli.match import match
from experiments.action_cli import bench_action, bench_action_stream, paper_action
from experiments.match_results import (
    bench_matching,
    match_compare,
    match_render,
    match_stream,
    paper_matching,
)
from experiments.paper_cli import paper

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    invoke_without_command=True,
)


@app.callback()
def main(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Lifelong learning on graphs that never stop growing."""
    if version:
        typer.echo(__version__)
        raise typer.Exit


for command in (run, compare, tune, datasets):
    app.command()(command)
bench.command("action")(bench_action)
bench.command("action-stream")(bench_action_stream)
paper.command("action")(paper_action)
match.command("compare")(match_compare)
match.command("stream")(match_stream)
match.command("render")(match_render)
paper.command("matching")(paper_matching)
bench.command("matching")(bench_matching)
app.add_typer(action, name="action")
app.add_typer(bench, name="bench")
app.add_typer(match, name="match")
app.add_typer(paper, name="paper")

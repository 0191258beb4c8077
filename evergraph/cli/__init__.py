"""The command line: parses, calls, prints. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from textwrap import fill
from typing import Annotated

import typer

from evergraph import __version__
from evergraph.cli import feed  # the module `learn` has the name of its command
from evergraph.cli.action import action
from evergraph.cli.console import complaints
from evergraph.cli.learn import compare, run
from evergraph.cli.match import match
from evergraph.cli.model import Pairs, forget, inspect, predict, refit, train
from evergraph.cli.serve import at, compact, serve
from evergraph.cli.tune import datasets, tune

__all__ = ["app", "main"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    invoke_without_command=True,
)
ANY = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.callback()
def callback(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Lifelong learning on graphs that never stop growing."""
    if version:
        typer.echo(__version__)
        raise typer.Exit


def _module(package: str, context: typer.Context) -> None:
    """Run `python -m PACKAGE.NAME ARGUMENTS`, if the repository is there."""
    arguments = context.args or ["--help"]
    repository = Path(__file__).parents[2]
    with complaints():
        if not (repository / package).is_dir():
            raise ValueError(
                f"{package} are not in the installed package; clone the repository, and run "
                f"python -m {package}.NAME in it"
            )
        name = arguments[0].replace("-", "_")
        known = sorted(path.stem for path in (repository / package).glob("[a-z]*.py"))
        if arguments[0] == "--help":
            typer.echo(f"{context.get_help()}\n\n{fill('Names: ' + ', '.join(known), 80)}")
            return
        if name not in known:
            raise ValueError(
                f"expected a module of {package}, one of {', '.join(known)}, got {name!r}"
            )
    sys.path.insert(0, str(repository))
    sys.argv = [f"{package}.{name}", *arguments[1:]]
    runpy.run_module(f"{package}.{name}", run_name="__main__")


COMMANDS = (
    *(train, feed.learn, predict, forget, refit, inspect, serve, at, compact),
    *(run, compare, tune, datasets),
)
for command in COMMANDS:
    app.command(cls=Pairs if command is forget else None)(command)


@app.command(context_settings=ANY)
def paper(context: typer.Context) -> None:
    """Rerun a table of the paper, in a checkout: `paper overall --help`."""
    _module("experiments", context)


@app.command(context_settings=ANY)
def bench(context: typer.Context) -> None:
    """Run a benchmark, in a checkout: `bench speed --json`."""
    _module("benchmarks", context)


app.add_typer(action, name="action")
app.add_typer(match, name="match")


def main() -> None:
    """Run the program; a reader that closes the pipe early, such as `head`, is no error."""
    try:
        app()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)

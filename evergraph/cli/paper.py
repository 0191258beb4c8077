"""The commands that rerun the paper's tables."""

from __future__ import annotations

import typer

paper = typer.Typer(
    no_args_is_help=True, help="Rerun the paper's tables, beside the published values."
)


@paper.callback()
def group() -> None:
    """Rerun the paper's tables, beside the published values."""

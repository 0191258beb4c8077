"""Results of the matching experiments: made in parts that are kept, published side by side."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from evergraph.cli.console import write

Cell = dict[str, Any]
SCHEMA = 2


def origin(result: Cell) -> str:
    """Seeds and commit, for the head of a page."""
    seeds = len(result["seeds"])
    return f"{seeds} seeds, commit `{result['commit']}`; every number is in the JSON beside."


def publish(
    page: Callable[[Cell], str], as_json: bool, out: Path | None, seeds: int, **body: Any
) -> None:
    """Print a result as JSON or as a Markdown page, and write both side by side."""
    result = {"schema": SCHEMA, "seeds": list(range(seeds)), **body}
    text = page(result)
    if out is not None:
        write(result, out)
        out.with_suffix(".md").write_text(text)
    typer.echo(json.dumps(result, indent=1) if as_json else text)


def resumed(part: Path, config: Cell, evidence: Cell, make: Callable[[], Cell]) -> Cell:
    """One part of a result from its file, which is made where it is missing."""
    config = json.loads(json.dumps(config))
    if not part.exists():
        write({**evidence, "config": config, **make()}, part)
    done: Cell = json.loads(part.read_text())
    if done["config"] != config:
        raise ValueError(f"{part} belongs to other settings; use another --work folder")
    return done

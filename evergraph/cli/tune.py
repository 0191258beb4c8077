"""The commands that look for settings and for data: tune, datasets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from evergraph.cli.console import (
    AsJson,
    DataRoot,
    Out,
    complaints,
    progress,
    publish,
    table_of,
    use_threads,
    write,
)
from evergraph.cli.learn import Capacity, DatasetName, ModelName, Seeds, Threads, load_or_generate
from evergraph.evaluate.evidence import provenance


def tune(
    dataset: DatasetName = "cora",
    model: ModelName = "fgn",
    method: Annotated[str, typer.Option(help="As in `evergraph run`.")] = "replay",
    memory: Capacity = 500,
    seeds: Seeds = 2,
    threads: Threads = 1,
    data_root: DataRoot = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Try all candidate settings on validation nodes, taken from the training part.

    Every network gets as many candidates, with the same learning rates, so that none is better
    tuned than others; the closed form gets strengths, and one pass serves them all.
    The test nodes are never looked at. What --out has already is not tried again, so that a
    search can be stopped and called again.
    """
    from evergraph.evaluate import search
    from evergraph.evaluate.config import Config

    about = {
        **provenance(), "dataset": dataset, "model": model, "method": method, "memory": memory,
        "seeds": seeds,
    }  # fmt: skip
    use_threads(threads)
    with complaints(), progress(as_json) as shown:
        config = Config(dataset=dataset, model=model, method=method, memory=memory)
        data, config = load_or_generate(config, data_root, shown, as_json)
        task = shown.add_task(f"{dataset}, {model}, {method}", total=None)

        def report(rows: list[search.Row], total: int) -> None:
            shown.update(task, completed=len(rows), total=total)
            if out is not None:
                write({**about, "trials": rows}, out)

        known = [] if out is None else _known_trials(out, about)
        rows = search.search(config, data, seeds=tuple(range(seeds)), known=known, report=report)

    def table() -> Table:
        columns = ("settings", *rows[0]["validation_accuracy"], "mean")
        text = [
            [
                ", ".join(f"{key} {value}" for key, value in row["settings"].items()),
                *(f"{number:.4f}" for number in row["validation_accuracy"].values()),
                f"{row['validation_mean']:.4f}",
            ]
            for row in rows
        ]
        return table_of(
            f"{dataset}, {model}, {method}: accuracy on validation nodes", columns, text
        )

    publish({**about, "trials": rows}, as_json, out, table)


def _known_trials(out: Path, about: dict[str, Any]) -> list[dict[str, Any]]:
    """The trials of an earlier call for the same search."""
    if not out.exists():
        return []
    try:
        found = json.loads(out.read_text())
        trials: list[dict[str, Any]] = found["trials"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{out} is no search: {error}; move it, or use another --out") from error
    differ = [
        f"{key} is {found.get(key)!r} there, {about[key]!r} here"
        for key in ("dataset", "model", "method", "memory", "seeds")
        if found.get(key) != about[key]
    ]
    if differ:
        raise ValueError(
            f"{out} belongs to another search: {'; '.join(differ)}; use the same options, or "
            "another --out"
        )
    return trials


def datasets(data_root: DataRoot = None, as_json: AsJson = False) -> None:
    """List the data sets: what is here, what can be fetched, what can be generated."""
    from dataclasses import asdict

    from evergraph.datasets import available

    found = available(data_root)
    if as_json:
        rows = [{**asdict(entry), "where": str(entry.where or "")} for entry in found]
        typer.echo(json.dumps(rows, indent=1))
        return
    text = [
        [entry.name, entry.state]
        + [f"{n:,}" if n else "" for n in (entry.nodes, entry.edges, entry.features, entry.classes)]
        for entry in found
    ]
    columns = ("name", "state", "nodes", "edges", "features", "classes")
    Console().print(table_of("Data sets", columns, text, left=2))

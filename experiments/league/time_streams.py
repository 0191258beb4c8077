"""Citation graphs that arrive in time: each step is predicted before it is learned.

The nodes have no attributes: features are a causal sketch of the first neighbors and their number.
A node sees the neighbors that arrived before it, and classes appear as they come.

Run it with `python -m experiments.league.time_streams`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from evergraph.cli.console import DataRoot, complaints, progress, use_threads, write
from evergraph.evaluate.config import Config, build
from evergraph.evaluate.evidence import provenance
from evergraph.evaluate.significance import paired_difference
from evergraph.graph.dataset import Dataset
from evergraph.stream.schedule import shuffled
from experiments.cells import Folder, page
from experiments.league.graphs import STREAMS, read
from experiments.league.lines import Cell, Lines, complete
from experiments.league.models import BATCH

NODES = 1500  # labelled nodes that are streamed
MAJORITY = "largest class so far"
# Name, network, method, settings.
LEARNERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "feature-graph kernel, 500 items": ("fgn", "kernel", {"capacity": 500}),
    "closed form, x + m + Âx": ("fgn", "analytic", {}),
    "ridge on m": ("gcn", "analytic", {}),
    "ridge on x": ("mlp", "analytic", {}),
    "SLDA on x + m": ("sage", "analytic", {"solver": "lda", "strength": 1.0}),
    "FGN + replay": ("fgn", "replay", {}),
    "GCN + replay": ("gcn", "replay", {}),
    "SAGE + replay": ("sage", "replay", {}),
    "MLP + replay": ("mlp", "replay", {}),
}


def draw(data: Dataset, number: int) -> Dataset:
    """Some labelled nodes that ever arrive, to be streamed."""
    graph = data.graph
    assert graph.labels is not None
    assert graph.time is not None
    arrives = graph.time <= int(graph.edge_time.max())  # type: ignore[union-attr]
    nodes = ((graph.labels >= 0) & arrives).nonzero().squeeze(1)
    chosen = shuffled(nodes, np.random.default_rng(number))[:NODES].sort().values
    return replace(data, train=chosen, test=chosen[:0])


def prequential(data: Dataset, name: str, seed: int) -> Cell:
    """How many nodes of each step are predicted right before any of the step is learned."""
    model, method, settings = LEARNERS[name if name != MAJORITY else "ridge on x"]
    config = Config(
        "league", "time", model, method, batch_size=BATCH, visibility="arrived", settings=settings
    )
    stream, learner = build(config, data, seed)
    time = data.graph.time
    assert time is not None
    steps, seen = [], Counter[int]()
    for step, batches in groupby(stream, lambda batch: int(time[batch.node[-1]])):
        items = list(batches)
        truth = torch.cat([batch.target for batch in items])
        if seen:
            found = (
                torch.full_like(truth, seen.most_common(1)[0][0])
                if name == MAJORITY
                else torch.cat([learner.predict(batch) for batch in items])
            )
            steps.append([step, int((found == truth).sum()), len(truth), len(seen)])
        for batch in items if name != MAJORITY else []:
            learner.observe(batch)
        seen.update(truth.tolist())
    memory = 0 if learner.memory is None else learner.memory.nbytes
    right, total = (sum(step[place] for step in steps) for place in (1, 2))
    return {"accuracy": right / total, "steps": steps, "bytes": memory + learner.method.nbytes}


def publish(cells: Sequence[Cell], folder: Path) -> None:
    """Write `league_time.json` and its page: draws that all learners of a stream have."""
    done = {(cell["stream"], cell["split"], cell["model"]): cell for cell in cells}
    names = [name for name in (*LEARNERS, MAJORITY) if any(key[2] == name for key in done)]
    common = {
        stream: [
            n for n in sorted({key[1] for key in done if key[0] == stream})
            if all((stream, n, name) in done for name in names)
        ]
        for stream in STREAMS
    }  # fmt: skip
    rows, first = [], names[0] if names else ""
    for name in names:
        row, found = [name], []
        for stream, numbers in common.items():
            mine, best = (
                [done[stream, n, one]["accuracy"] for n in numbers] for one in (name, first)
            )
            found += mine
            if not numbers:
                row.append("")
                continue
            gap = paired_difference(mine, best)
            reach = f" ({100 * gap.mean:+.1f})" if name != first else ""
            row.append(f"{100 * np.mean(mine):.1f}{reach}")
        rows.append([*row, f"{100 * np.mean(found):.1f}" if found else ""])
    draws = {stream: len(numbers) for stream, numbers in common.items()}
    kept = [cell for cell in cells if cell["split"] in common[cell["stream"]]]
    write({"schema": 2, "draws": draws, "cells": kept}, folder / "league_time.json")
    note = (
        f"Prequential accuracy in percent over all steps but the first, {NODES:,} labelled nodes, "
        f"draws: {', '.join(f'{stream} {count}' for stream, count in draws.items())}; in brackets "
        "the difference to the first row. Default settings; nothing was searched."
    )
    columns = ("model", *STREAMS, "mean")
    page(folder / "league_time.md", "Streams in time", columns, rows, note)


def time_streams(
    splits: Annotated[int, typer.Option(min=1, help="Draws of nodes.")] = 5,
    streams: Annotated[str, typer.Option(help="Separated by commas.")] = ",".join(STREAMS),
    models: Annotated[str, typer.Option(help="Separated by semicolons.")] = ";".join(
        (*LEARNERS, MAJORITY)
    ),
    minutes: Annotated[float, typer.Option(help="Begin no cell after so many minutes.")] = 1e6,
    cells: Annotated[Path, typer.Option(help="Finished cells.")] = Path("out/time.jsonl"),
    results: Folder = Path("results"),
    data_root: DataRoot = None,
) -> None:
    """Predict and then learn step after step; call it again to resume."""
    use_threads(1)

    def compute(key: Cell) -> Cell:
        data = draw(read(key["stream"], data_root), key["split"])
        return {**prequential(data, key["model"], key["split"]), **provenance()}

    wanted = [
        {"stream": stream, "split": number, "model": name}
        for number, stream, name in product(range(splits), streams.split(","), models.split(";"))
    ]
    with complaints("What is done is kept: call it again to continue."), progress(False) as shown:
        task = shown.add_task("cells", total=len(wanted))
        for _ in complete(Lines(cells), wanted, compute, minutes):
            shown.update(task, advance=1)
        publish(Lines(cells).cells(), results)


if __name__ == "__main__":
    typer.run(time_streams)

"""Streams without task boundaries, as DRIFT measures them (arXiv 2605.12998).

Batches of 10, one pass, a buffer of 100 items, one minibatch of 10 replayed for each new one, a GCN
of width 256 and Adam at .005. Groups are two classes each, in the order of their labels; the four
streams are the class stream and three in which groups overlap. A_AUC is the mean accuracy over the
stream on the test nodes of all groups, FM the final minus the best accuracy of a group. Differences
to the authors': our splits and graphs, items see one hop (their GCN two, with 10 and 25 sampled
neighbors), the head grows as classes come, and nothing is measured before the first batch.

Run it with `python -m experiments.league.task_free`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import Tensor

from evergraph.cli.console import DataRoot, complaints, progress, use_threads, write
from evergraph.evaluate.config import Config, build
from evergraph.evaluate.evidence import provenance
from evergraph.evaluate.metrics import final_minus_peak
from evergraph.stream.schedule import (
    Schedule,
    blurred,
    blurred_at_boundaries,
    by_class,
    gaussian,
)
from experiments.cells import Folder, page
from experiments.league.graphs import Split, read, split
from experiments.league.lines import Cell, Lines, complete
from experiments.league.models import BATCH

GRAPHS = ("cora", "citeseer", "amazon-computers", "uai", "flickr")
STREAMS = ("class", "blurry", "boundary-blurry", "gaussian")
SHARE, WIDTH, SIGMA = 0.1, 5 * BATCH, 10.0  # the authors' defaults; the width is in items
POINTS = 8  # measurements along the stream
ADAM: dict[str, Any] = {
    "optimizer": "adam", "lr": 0.005, "weight_decay": 5e-4, "hidden": (256,), "dropout": 0.0,
    "averaging": 0.0, "replay_batches": 1, "replay_batch_size": BATCH,
}  # fmt: skip
# Name, network, method, settings.
METHODS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bare": ("gcn", "finetune", ADAM),
    "ER": ("gcn", "replay", ADAM),
    "A-GEM": ("gcn", "agem", {**ADAM, "sample": BATCH}),
    "GEM": ("gcn", "gem", {**ADAM, "sample": BATCH}),
    "DER++": ("gcn", "der", ADAM),
    "ER-GNN, mean of feature": ("gcn", "replay", ADAM),
    "ER-GNN, coverage": ("gcn", "replay", ADAM),
    "ER-GNN, influence": ("gcn", "influence", ADAM),
    "GSS": ("gcn", "gss", {**ADAM, "sample": BATCH}),
    "MIR": ("gcn", "mir", {**ADAM, "sample": 5 * BATCH}),
    "SSM": ("gcn", "ssm", ADAM),
    "MAS task-free": ("gcn", "mas-task-free", ADAM),
    "MAS online": ("gcn", "mas", ADAM),
    "TWP": ("gcn", "twp", ADAM),
    "EWC online": ("gcn", "ewc", ADAM),
    "LwF online": ("gcn", "lwf", ADAM),
    "FGN + ER, its defaults": ("fgn", "replay", {}),
    "closed form, x + m + Âx": ("fgn", "analytic", {}),
    "feature-graph kernel, 100 items": ("fgn", "kernel", {"capacity": 100}),
    "feature-graph kernel": ("fgn", "kernel", {}),
}
RULES = {"ER-GNN, mean of feature": "mean-of-feature", "ER-GNN, coverage": "coverage"}  # of memory
BUFFER = 100


def schedule(drawn: Split, kind: str) -> tuple[Schedule, list[Tensor]]:
    """A stream of training nodes, and the test nodes of each of its groups of two classes."""
    rng = np.random.default_rng([drawn.number, STREAMS.index(kind)])
    train, labels = drawn.data.train, drawn.labels
    groups = by_class(train, labels, rng, classes_per_task=2)
    tests = [
        drawn.test[torch.isin(labels[drawn.test], labels[index].unique())]
        for index in groups.values()
    ]
    if kind == "class":
        return Schedule.from_groups(groups, BATCH), tests
    if kind == "blurry":
        return Schedule.from_groups(blurred(groups, SHARE, rng), BATCH), tests
    if kind == "boundary-blurry":
        order = blurred_at_boundaries(groups, WIDTH, rng)
    else:
        order = gaussian(groups, BATCH, SIGMA, rng)
    return Schedule.from_groups({"stream": order}, BATCH), tests


def measured(drawn: Split, kind: str, name: str) -> Cell:
    """Accuracy on the test nodes of every group, along a stream."""
    model, method, settings = METHODS[name]
    config = Config(
        "league",
        "class",
        model,
        method,
        memory=BUFFER,
        memory_rule=RULES.get(name, "reservoir"),
        batch_size=BATCH,
        settings=settings,
    )
    stream, learner = build(config, drawn.data, drawn.number)
    plan, tests = schedule(drawn, kind)
    stream = replace(stream, schedule=plan, test_groups=tests)
    step, matrix, kept = -(-len(stream) // POINTS), [], 0
    for batch in stream:
        learner.observe(batch)
        memory = 0 if learner.memory is None else learner.memory.nbytes
        kept = max(kept, memory + learner.method.nbytes)
        if learner.position % step == 0 or learner.position == len(stream):
            matrix.append([learner.evaluate(stream.test(group)) for group in tests])
    weights = list(map(len, tests))
    along = [float(np.average(row, weights=weights)) for row in matrix]
    return {
        "a_auc": float(np.mean(along)),
        "fm": final_minus_peak(np.array(matrix)),
        "final": along[-1],
        "matrix": np.round(matrix, 4).tolist(),
        "bytes": kept,
    }


def publish(cells: Sequence[Cell], folder: Path) -> None:
    """Write `league_task_free.json` and its page: means over the splits that all methods have."""
    done = {(c["graph"], c["stream"], c["split"], c["method"]): c for c in cells}
    names = [name for name in METHODS if any(key[3] == name for key in done)]
    rows, shown = [], []
    for stream, graph in product(STREAMS, GRAPHS):
        numbers = sorted({key[2] for key in done if key[:2] == (graph, stream)})
        common = [n for n in numbers if all((graph, stream, n, one) in done for one in names)]
        if not common:
            continue
        for name in names:
            mine = [done[graph, stream, n, name] for n in common]
            row = {"graph": graph, "stream": stream, "method": name, "splits": common}
            row |= {key: [cell[key] for cell in mine] for key in ("a_auc", "fm", "final")}
            rows.append({**row, "bytes": max(cell["bytes"] for cell in mine)})
    for stream, found in groupby(rows, lambda row: row["stream"]):
        mine = list(found)
        graphs = list(dict.fromkeys(row["graph"] for row in mine))
        for name in names:
            own = [row for row in mine if row["method"] == name]
            pairs = [f"{100 * np.mean(r['a_auc']):.1f} / {100 * np.mean(r['fm']):.1f}" for r in own]
            means = [100 * np.mean([np.mean(r[key]) for r in own]) for key in ("a_auc", "fm")]
            shown.append([
                f"{stream}: {name}", *pairs, *[""] * (len(GRAPHS) - len(graphs)),
                "{:.1f} / {:.1f}".format(*means), f"{max(r['bytes'] for r in own) / 2**20:.2f}",
            ])  # fmt: skip
    commits = sorted({str(cell["commit"]) for cell in cells})
    write({"schema": 2, "cells": rows, "commits": commits}, folder / "league_task_free.json")
    note = (
        "A_AUC / FM in percent (FM: final minus best accuracy, mean over groups), means over "
        f"splits. Buffer {BUFFER} items, batches of {BATCH}, one pass. MB is the most that memory "
        "and method kept on any graph; the closed form and the kernel without a limit keep more "
        "than the buffer, the kernel of 100 items as many items."
    )
    columns = ("stream: method", *GRAPHS, "mean", "MB")
    page(folder / "league_task_free.md", "Streams without task boundaries", columns, shown, note)


def task_free(
    splits: Annotated[int, typer.Option(min=1, help="Draws of nodes.")] = 5,
    graphs: Annotated[str, typer.Option(help="Separated by commas.")] = ",".join(GRAPHS),
    streams: Annotated[str, typer.Option(help="Separated by commas.")] = ",".join(STREAMS),
    methods: Annotated[str, typer.Option(help="Separated by semicolons.")] = ";".join(METHODS),
    minutes: Annotated[float, typer.Option(help="Begin no cell after so many minutes.")] = 1e6,
    cells: Annotated[Path, typer.Option(help="Finished cells.")] = Path("out/task_free.jsonl"),
    results: Folder = Path("results"),
    data_root: DataRoot = None,
) -> None:
    """Measure all methods on streams without task boundaries; call it again to resume."""
    use_threads(1)

    def compute(key: Cell) -> Cell:
        drawn = split(read(key["graph"], data_root), key["split"])
        return {**measured(drawn, key["stream"], key["method"]), **provenance()}

    chosen = product(range(splits), streams.split(","), graphs.split(","), methods.split(";"))
    wanted = [
        {"graph": graph, "stream": stream, "split": number, "method": name}
        for number, stream, graph, name in chosen
    ]
    with complaints("What is done is kept: call it again to continue."), progress(False) as shown:
        task = shown.add_task("cells", total=len(wanted))
        for _ in complete(Lines(cells), wanted, compute, minutes):
            shown.update(task, advance=1)
        publish(Lines(cells).cells(), results)


if __name__ == "__main__":
    typer.run(task_free)

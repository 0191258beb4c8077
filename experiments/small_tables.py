"""Tables 3, 4 and 8: forgetting, parameters, data sets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from evergraph.checks import check_one_of
from evergraph.cli.console import AsJson, DataRoot, complaints, write
from evergraph.evaluate.evidence import provenance
from evergraph.evaluate.metrics import forgetting_rate
from evergraph.evaluate.run import SCHEMA
from evergraph.graph.dataset import Dataset
from evergraph.nn.baselines import KINDS, baseline
from evergraph.nn.fgn import FGN
from experiments.cells import DATASETS, Cell, Folder, Ledger, load, page, published, show

Table = tuple[str, tuple[str, ...], list[list[str]], list[Cell]]


def forgetting(cells: list[Cell]) -> Table:
    """Table 3: the mean drop per class from regular to class-incremental learning, in percent."""
    given = {(r["dataset"], r["model"]): r["percent"] for r in published()["forgetting"]}
    found = []
    for late in (cell for cell in cells if cell["config"]["scenario"] == "class"):
        config = late["config"]
        method = "analytic" if config["method"] == "analytic" else "finetune"
        wanted = {**{k: config[k] for k in ("dataset", "model")}, "method": method}
        for early in cells:
            other = early["config"]
            if other["scenario"] == "regular" and all(other[k] == v for k, v in wanted.items()):
                rate = forgetting_rate(_per_class(early), _per_class(late))
                beside = given.get((config["dataset"], config["model"]))
                found.append({
                    **{key: config[key] for key in ("dataset", "model", "method")},
                    "seeds": late["seeds"],
                    "percent": 100 * rate,
                    "published": None if config["method"] == "analytic" else beside,
                })  # fmt: skip
    rows = [
        [
            row["dataset"], row["model"], row["method"],
            "" if row["published"] is None else f"{row['published']:.2f}",
            f"{row['percent']:.2f}", str(len(row["seeds"])),
        ]
        for row in found
    ]  # fmt: skip
    columns = ("data", "model", "method", "published (%)", "ours (%)", "runs")
    return "Average class forgetting rate (Table 3)", columns, rows, found


def _cells(path: Path) -> list[Cell]:
    if not path.exists():
        raise ValueError(f"{path} is not there yet; run `python -m experiments.overall` first")
    return Ledger(path).cells()


def _per_class(cell: Cell) -> list[float]:
    names = sorted({label for one in cell["class_accuracy"] for label in one}, key=int)
    return [float(np.mean([one[n] for one in cell["class_accuracy"]])) for n in names]


def parameters() -> Table:
    """Table 4: the parameters of the networks for ogbn-arxiv (128 features, 40 classes)."""
    given = {row["model"]: row["parameters"] for row in published()["parameters"]}
    models: dict[str, Any] = {kind: baseline(kind, 128, 40, hidden=(128, 128)) for kind in KINDS}
    models["fgn"] = FGN.preset("arxiv", 128, 40)
    found = [
        {
            "model": name,
            "parameters": sum(p.numel() for p in model.parameters()),
            "published": given[name],
        }
        for name, model in models.items()
    ]
    rows = [
        [
            r["model"], f"{r['published']:,}", f"{r['parameters']:,}",
            f"{r['parameters'] - r['published']:+,}",
        ]
        for r in found
    ]  # fmt: skip
    return "Parameters (Table 4)", ("model", "published", "ours", "difference"), rows, found


def statistics(dataset: Dataset) -> Cell:
    """A row of Table 8: the size of a data set, and the share of its nodes that are learned."""
    graph, name = dataset.graph, dataset.name
    ours = {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "classes": graph.num_classes,
        "features": graph.num_features,
        "labels": round(len(dataset.train) / graph.num_nodes, 3),
    }
    beside = next((row for row in published()["datasets"] if row["dataset"] == name), None)
    return {"dataset": name, **ours, "published": beside}


def datasets(found: list[Cell]) -> Table:
    """Table 8: nodes, edges, classes, features and the share of nodes with a label to learn."""
    names = ("nodes", "edges", "classes", "features", "labels")
    rows = []
    for row in found:
        beside = row["published"] or {}
        pairs = [(row[name], beside.get(name)) for name in names]
        shown = [f"{ours:,} ({'' if theirs is None else f'{theirs:,}'})" for ours, theirs in pairs]
        rows.append([row["dataset"], *shown])
    columns = ("data", *(f"{name} (published)" for name in names))
    return "Data sets (Table 8)", columns, rows, found


def small_tables(
    only: Annotated[str, typer.Option(help="Of forgetting, parameters and datasets.")] = (
        "forgetting,parameters,datasets"
    ),
    dataset: Annotated[str, typer.Option(help="Data sets of Table 8.")] = ",".join(DATASETS),
    results: Folder = Path("results"),
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Rerun the small tables; forgetting needs the cells of `python -m experiments.overall`."""
    makers: dict[str, Callable[[], Table]] = {
        "forgetting": lambda: forgetting(_cells(results / "overall.json")),
        "parameters": parameters,
        "datasets": lambda: datasets([statistics(load(n, data_root)) for n in dataset.split(",")]),
    }
    for name in only.split(","):
        with complaints():
            check_one_of("--only", name, makers)
            title, columns, rows, cells = makers[name]()
            write({"schema": SCHEMA, **provenance(), "cells": cells}, results / f"{name}.json")
            page(results / f"{name}.md", title, columns, rows)
        show(title, columns, rows, cells, as_json)


if __name__ == "__main__":
    typer.run(small_tables)

"""The paper's node-classification tables, rerun cell by cell, beside the published values."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from evergraph.evaluate.run import run
from evergraph.evaluate.presets import EMBEDDINGS
from evergraph.evaluate.config import Config, plain, read_settings
from evergraph.nn.baselines import KINDS, Baseline
from evergraph.stream.continuum import Scenario
from evergraph.graph.dataset import Dataset
from evergraph.evaluate.metrics import forgetting_rate
from evergraph.nn.fgn import FGN

MODELS = (*KINDS, "fgn")
SCENARIOS: tuple[Scenario, ...] = ("regular", "data", "class")
DATASETS = ("cora", "citeseer", "pubmed")
CLOSED_FORM = (*EMBEDDINGS, "fgn")  # whose embedding needs no learning
Cell = dict[str, Any]


def published() -> dict[str, list[dict[str, Any]]]:
    """The paper's own numbers, table by table."""
    text = files("experiments").joinpath("published.json").read_text()
    out: dict[str, list[dict[str, Any]]] = json.loads(text)
    return out


def plans(
    datasets: tuple[str, ...] = DATASETS,
    models: tuple[str, ...] = MODELS,
    scenarios: tuple[Scenario, ...] = SCENARIOS,
) -> Iterator[Config]:
    """The cells of the overall table (Table 2), and the closed form beyond it."""
    for dataset in datasets:
        for scenario in scenarios:
            for model in models:
                method = "finetune" if scenario == "regular" else "replay"
                yield cell_config(dataset, scenario, model, method)
                if model in CLOSED_FORM:
                    yield cell_config(dataset, scenario, model, "analytic")


def memory_plans(
    dataset: str, models: tuple[str, ...], sizes: tuple[int, ...] = (10, 50, 100, 200, 500, 1000)
) -> Iterator[Config]:
    """Class-incremental replay with memories of several sizes."""
    for model in models:
        for size in sizes:
            yield replace(cell_config(dataset, "class", model, "replay"), memory=size)


def cell_config(dataset: str, scenario: Scenario, model: str, method: str) -> Config:
    """What the paper fixes for a cell: memory, and the tasks of ogbn-arxiv."""
    if not dataset.endswith("arxiv"):
        epochs = 1 if method == "analytic" else 30
        batch = 50 if scenario == "regular" else 10
        return Config(dataset, scenario, model, method, 500, batch_size=batch, epochs=epochs)
    return Config(
        dataset,
        scenario,
        model,
        method,
        memory=4096 if scenario == "class" else 512,
        batch_size=16,
        classes_per_task=5,
        epochs=1 if method == "analytic" else 5,
    )


@dataclass(frozen=True)
class Ledger:
    """The cells of a table that are already there; one file, rewritten after every cell.

    Cells stand in the order of the table, whatever the order in which they were computed.
    """

    path: Path

    def cells(self) -> list[Cell]:
        """All of them."""
        return json.loads(self.path.read_text()) if self.path.exists() else []

    def find(self, config: Config, seeds: int) -> Cell | None:
        """The cell of a configuration with at least so many seeds."""
        wanted, names = plain(config), read_settings(config)
        for cell in self.cells():
            settings = {k: v for k, v in cell["config"]["settings"].items() if k in names}
            if {**cell["config"], "settings": settings} == wanted and cell["runs"] >= seeds:
                return cell
        return None

    def add(self, cell: Cell) -> None:
        """Put a cell in its place, or in that of an older one of the same kind."""
        key = ("dataset", "scenario", "model", "method", "memory")
        kept = [old for old in self.cells() if any(old[k] != cell[k] for k in key)]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_suffix(".part")
        rows = ",\n".join(json.dumps(one) for one in sorted([*kept, cell], key=_place))
        fresh.write_text(f"[\n{rows}\n]\n")
        fresh.replace(self.path)


def _place(cell: Cell) -> tuple[Any, ...]:
    names = (*DATASETS, cell["dataset"])
    place = names.index(cell["dataset"]), cell["dataset"], SCENARIOS.index(cell["scenario"])
    return *place, MODELS.index(cell["model"]), cell["method"] == "analytic", cell["memory"]


def compute(
    config: Config,
    seeds: int,
    dataset: Dataset,
    evidence: dict[str, object],
    report: Callable[[int, int, float], None] = lambda number, seen, accuracy: None,
) -> Cell:
    """Run one cell and put the published value beside it."""
    result = run(config, tuple(range(seeds)), dataset, report=report)
    classes = sorted({label for one in result["class_accuracy"] for label in one}, key=int)
    per_class = [np.mean([one[c] for one in result["class_accuracy"]]) for c in classes]
    return {
        "dataset": config.dataset,
        "scenario": config.scenario,
        "model": config.model,
        "method": config.method,
        "memory": config.memory,
        "mean": result["accuracy_mean"],
        "sd": result["accuracy_sd"],
        "runs": seeds,
        "published": _published(config),
        "seconds": result["seconds"] / seeds,
        "memory_bytes": result["memory_bytes"],
        "items_per_second": result["items_per_second"],
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "forgetting": result["forgetting_mean"],
        "per_seed": result["accuracy_per_seed"],
        "class_accuracy": [float(value) for value in per_class],
        "accuracy_matrix": result["accuracy_matrix"],
        "curve": np.mean([np.array(curve) for curve in result["curve"]], axis=0).tolist(),
        "config": plain(config),
        "generated": dataset.generated,
        **evidence,
    }


def _published(config: Config) -> dict[str, float | None] | None:
    if config.method == "analytic":
        return None
    for row in published()["overall"]:
        if all(row[key] == getattr(config, key) for key in ("dataset", "scenario", "model")):
            return {"mean": row["mean"], "sd": row["sd"]}
    return None


def forgetting(cells: list[Cell]) -> list[Cell]:
    """Table 3: the mean drop per class from regular to class-incremental learning, in percent."""
    given = {(r["dataset"], r["model"]): r["percent"] for r in published()["forgetting"]}
    rows = []
    for late in (cell for cell in cells if cell["scenario"] == "class"):
        method = "analytic" if late["method"] == "analytic" else "finetune"
        for early in cells:
            same = all(early[key] == late[key] for key in ("dataset", "model"))
            if not same or early["scenario"] != "regular" or early["method"] != method:
                continue
            rate = forgetting_rate(early["class_accuracy"], late["class_accuracy"])
            beside = given.get((late["dataset"], late["model"]))
            rows.append(
                {
                    **{key: late[key] for key in ("dataset", "model", "method", "runs", "commit")},
                    "percent": 100 * rate,
                    "published": None if late["method"] == "analytic" else beside,
                }
            )
    return rows


def parameters() -> list[Cell]:
    """Table 4: the parameters of the networks for ogbn-arxiv (128 features, 40 classes)."""
    given = {row["model"]: row["parameters"] for row in published()["parameters"]}
    rows = []
    for kind in KINDS:
        model = Baseline(kind, 128, 40, hidden=(128, 128))
        rows.append({"model": kind, "parameters": _count(model), "published": given[kind]})
    fgn = FGN.preset("arxiv", 128, 40)
    return [*rows, {"model": "fgn", "parameters": _count(fgn), "published": given["fgn"]}]


def _count(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


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

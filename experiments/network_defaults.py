"""Which rate and normalization the network of a model folder has by default.

A fifth of the training nodes of a data set is held out; at most `LABELS` of the others are learned
in random order, once. Test nodes are in the graph without labels, and are never predicted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from evergraph.cli.console import AsJson, DataRoot, complaints, progress, use_threads, write
from evergraph.evaluate.evidence import provenance
from evergraph.evaluate.run import SCHEMA
from evergraph.feature_graph.equations import NORMALIZATIONS
from evergraph.graph.dataset import Dataset
from evergraph.graph.growing import GrowingGraph
from evergraph.learn.network import LAYERS, TRAINING, NetworkLearner
from evergraph.stream.continuum import validation_split
from evergraph.stream.schedule import shuffled
from experiments.cells import DATASETS, Cell, Folder, Ledger, load, page, show

RATES = (0.001, 0.003, 0.01)
LABELS = 1000
DEFAULT = f"{TRAINING.lr:g}, {LAYERS['normalization']}"
Compared = dict[str, float]


class Split:
    """Labels to learn, in random order, and held-out nodes with their true classes."""

    def __init__(self, data: Dataset, seed: int) -> None:
        labels, parts = data.graph.labels, validation_split(data, seed=seed)
        assert labels is not None
        order = shuffled(parts.train, np.random.default_rng(seed))[:LABELS]
        known = torch.full_like(labels, -1)
        known[order] = labels[order]
        self.graph = GrowingGraph.from_graph(replace(data.graph, labels=known, class_names=()))
        self.seed, self.order, self.held = seed, order.tolist(), parts.test.tolist()
        self.truth = np.array([str(label) for label in labels[parts.test].tolist()])


def learn(split: Split, lr: float, normalization: str) -> NetworkLearner:
    """A network that has learned the labels of a split, each once."""
    training, layers = replace(TRAINING, lr=lr), {**LAYERS, "normalization": normalization}
    size, hops = split.graph.num_features, split.graph.hops
    network = NetworkLearner(size, hops, seed=split.seed, training=training, layers=layers)
    network.todo = replace(network.todo, waiting=tuple(split.order))
    network.follow(split.graph)
    return network


def accuracy(network: NetworkLearner, split: Split) -> float:
    """The share of held-out nodes that get their class."""
    names = [str(name) for name in network.names]
    likely, _ = network.probabilities(split.graph, split.graph.slots(split.held), names)
    return float(np.mean(np.array(names)[likely.argmax(1)] == split.truth))


def cells(wanted: Sequence[Cell], seeds: int, data_root: Path | None) -> Iterator[Cell]:
    """One cell for each configuration; those of one data set share their splits."""
    evidence = provenance()
    for name, configs in groupby(wanted, key=lambda config: str(config["dataset"])):
        splits = [Split(load(name, data_root), seed) for seed in range(seeds)]
        for config in configs:
            networks = [learn(split, config["lr"], config["normalization"]) for split in splits]
            found = [accuracy(*pair) for pair in zip(networks, splits, strict=True)]
            yield {
                "schema": SCHEMA,
                "config": config,
                "seeds": list(range(seeds)),
                "accuracy_mean": float(np.mean(found)),
                "accuracy_per_seed": found,
                "diverged": sum(network.skipped for network in networks),
                **evidence,
            }


def summarize(made: Sequence[Cell], seeds: int) -> dict[str, dict[str, Compared]]:
    """By setting and data set, and for their `mean`: accuracy, and difference to the default."""
    table: dict[str, dict[str, Any]] = {}
    for cell in made:
        config, found = cell["config"], np.array(cell["accuracy_per_seed"][:seeds])
        setting = f"{config['lr']:g}, {config['normalization']}"
        table.setdefault(setting, {})[config["dataset"]] = found
    for parts in table.values():
        parts["mean"] = np.mean([*parts.values()], axis=0)

    def compared(setting: str, name: str) -> Compared:
        found = table[setting][name]
        above = found - table[DEFAULT][name]
        se = float(above.std(ddof=1) / np.sqrt(seeds))
        return {"accuracy": float(found.mean()), "difference": float(above.mean()), "se": se}

    return {one: {name: compared(one, name) for name in parts} for one, parts in table.items()}


def choose(settings: dict[str, dict[str, Compared]]) -> str:
    """The setting with the best mean; the default if that is within one standard error."""
    best = max(settings, key=lambda one: settings[one]["mean"]["difference"])
    mean = settings[best]["mean"]
    return best if mean["difference"] > mean["se"] else DEFAULT


def command(
    datasets: Annotated[str, typer.Option(help="Separated by commas.")] = ",".join(DATASETS),
    seeds: Annotated[int, typer.Option(min=2, help="Draws of held-out nodes.")] = 5,
    results: Folder = Path("results"),
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Compare rates and normalizations of a model folder's network on held-out training nodes."""
    use_threads(1)
    path = results / "network_defaults.json"
    wanted = [
        {"dataset": name, "labels": LABELS, "lr": lr, "normalization": normalization}
        for name, lr, normalization in product(datasets.split(","), RATES, NORMALIZATIONS)
    ]
    with complaints("What is done is kept: call it again to continue."), progress(as_json) as shown:
        kept = {str(cell["config"]): cell for cell in Ledger(path).cells()}
        done = [cell["config"] for cell in kept.values() if len(cell["seeds"]) >= seeds]
        missing = [config for config in wanted if config not in done]
        task = shown.add_task("cells", total=len(wanted), completed=len(wanted) - len(missing))
        for cell in cells(missing, seeds, data_root):
            kept[str(cell["config"])] = cell
            write({"schema": SCHEMA, "cells": [*kept.values()]}, path)
            shown.update(task, advance=1)
    settings = summarize([kept[str(config)] for config in wanted], seeds)
    result = {"settings": settings, "chosen": choose(settings)}
    columns = ("rate, normalization", *settings[DEFAULT])
    text = "{accuracy:.3f} ({difference:+.3f} ± {se:.3f})".format_map
    rows = [[one, *map(text, parts.values())] for one, parts in settings.items()]
    note = (
        f"Accuracy on held-out training nodes, and in brackets the difference to {DEFAULT}: "
        f"mean ± standard error of {seeds} paired seeds. Chosen: {result['chosen']}."
    )
    page(path.with_suffix(".md"), "Defaults of the model folder's network", columns, rows, note)
    show("Defaults of the model folder's network", columns, rows, result, as_json)


if __name__ == "__main__":
    typer.run(command)

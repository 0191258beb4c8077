"""Choosing settings: every candidate on the same validation nodes, never on test nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.evaluate.config import Config, build, run_config
from evergraph.evaluate.presets import CLOSED_FORMS
from evergraph.graph.dataset import Dataset
from evergraph.learn.methods import Analytic
from evergraph.stream.continuum import validation_split
from evergraph.stream.schedule import Scenario

Row = dict[str, Any]
Runner = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[tuple[int, Any]]]
"""Calls a function with each of some items: the number of an item and its result, in any order."""

# Where every candidate starts, whatever was chosen before.
START: dict[str, Any] = {"gain": 1.0, "hops": 1, "diffusion": False}
# One list for every network that learns by gradients, so that all get as many trials.
GRADIENT_CANDIDATES: tuple[dict[str, Any], ...] = (
    {"lr": 0.03, "dropout": 0.3},
    {"lr": 0.1, "dropout": 0.3},
    {"lr": 0.3, "dropout": 0.3},
)
# What is special to a network: three choices each, the last one a wider neighborhood if it can.
FGN_CANDIDATES: tuple[dict[str, Any], ...] = (
    {"normalization": "column", "concatenate": True},
    {"normalization": "symmetric", "concatenate": False},
    {"gain": 0.1, "hops": 2, "diffusion": True},
)
BASELINE_CANDIDATES: tuple[dict[str, Any], ...] = (
    {"hidden": [64, 32]},
    {"hidden": [256]},
    {"hidden": [256], "hops": 2, "diffusion": True},
)
MLP_CANDIDATES = (*BASELINE_CANDIDATES[:2], {"hidden": [128, 64]})
OWN_CANDIDATES = {"fgn": FGN_CANDIDATES, "mlp": MLP_CANDIDATES}
KERNEL_CANDIDATES: tuple[dict[str, Any], ...] = (
    {"hops": 1, "diffusion": False},
    {"hops": 2, "diffusion": False},
    {"hops": 2, "diffusion": True},
)
# The closed form reads the last two when it solves: one pass serves all of their values.
SOLVED = ("relevance", "strength")
ANALYTIC_CANDIDATES: tuple[dict[str, Any], ...] = tuple(
    {"hops": hops, "diffusion": diffusion, "relevance": relevance, "strength": strength}
    for hops, diffusion in ((1, False), (2, False), (2, True))
    for relevance in (False, True)
    for strength in (0.5, 1.0, 2.0, 4.0)
)


def one_by_one(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """The number of each item and what a function makes of it, in this process."""
    return ((at, function(item)) for at, item in enumerate(items))


def candidates(config: Config) -> list[dict[str, Any]]:
    """All settings to try for a model and a method."""
    if config.method == "analytic":
        return list(ANALYTIC_CANDIDATES)
    if config.method == "kernel":
        return list(KERNEL_CANDIDATES)
    own = OWN_CANDIDATES.get(config.model, BASELINE_CANDIDATES)
    return [{**base, **special} for special in own for base in GRADIENT_CANDIDATES]


def search(
    config: Config,
    dataset: Dataset,
    scenarios: tuple[Scenario, ...] = ("data", "class"),
    seeds: tuple[int, ...] = (0, 1),
    known: Sequence[Row] = (),
    report: Callable[[list[Row], int], None] = lambda rows, total: None,
    run: Runner = one_by_one,
    device: str = "cpu",
) -> list[Row]:
    """Run every candidate in every scenario on validation nodes; the best mean comes first.

    Every seed has validation nodes of its own, since one draw of them says little.

    Args:
        config: model, method and memory; its settings are the starting point.
        dataset: of which the training nodes are used.
        scenarios: orders of the stream.
        seeds: draws of validation nodes and of all else.
        known: rows of an earlier search, whose settings are not tried again.
        report: gets the rows so far and the number of candidates after each.
        run: calls a function with each of some items, in any order.
        device: where networks compute.
    """
    if config.method in CLOSED_FORMS:
        scenarios = ("data",)  # any order gives the same
    held_out = {seed: validation_split(dataset, seed=seed) for seed in seeds}
    tried = candidates(config)
    rows = list(known)
    todo = [one for one in tried if all(row["settings"] != one for row in rows)]
    groups = _groups(config, todo)
    for at, found in run(partial(_tried, config, scenarios, held_out, device), groups):
        for i, settings in enumerate(groups[at]):
            accuracy = {scenario: float(values[i]) for scenario, values in found.items()}
            rows.append(
                {
                    "settings": settings,
                    "seeds": list(seeds),
                    "validation_accuracy": accuracy,
                    "validation_mean": float(np.mean(list(accuracy.values()))),
                }
            )
        rows.sort(key=lambda row: (-float(row["validation_mean"]), _place(row, tried)))
        report(rows, len(tried))
    return rows


def _place(row: Row, tried: Sequence[dict[str, Any]]) -> int:
    """Where settings stand in the list of candidates; those of other lists last."""
    return tried.index(row["settings"]) if row["settings"] in tried else len(tried)


def _tried(
    config: Config,
    scenarios: Sequence[Scenario],
    held_out: Mapping[int, Dataset],
    device: str,
    group: list[dict[str, Any]],
) -> dict[Scenario, NDArray[np.float64]]:
    """The accuracy of each of a group in each scenario, the mean over draws of nodes."""
    return {
        scenario: np.mean(
            [_trial(config, scenario, group, held_out[seed], seed, device) for seed in held_out],
            axis=0,
        )
        for scenario in scenarios
    }


def _groups(config: Config, todo: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Candidates that one pass over the stream can serve."""
    if config.method != "analytic":
        return [[settings] for settings in todo]
    groups: dict[str, list[dict[str, Any]]] = {}
    for settings in todo:
        key = str({name: value for name, value in settings.items() if name not in SOLVED})
        groups.setdefault(key, []).append(settings)
    return list(groups.values())


def _trial(
    config: Config,
    scenario: Scenario,
    group: list[dict[str, Any]],
    dataset: Dataset,
    seed: int,
    device: str,
) -> list[float]:
    """The accuracy of each of a group on the validation nodes of one seed."""
    trial = replace(config, scenario=scenario, settings={**START, **group[0]})
    if config.method != "analytic":
        return [run_config(trial, (seed,), dataset, device=device)["accuracy_mean"]]
    stream, learner = build(trial, dataset, seed)
    for batch in stream:
        learner.observe(batch)
    sums = learner.method
    assert isinstance(sums, Analytic)
    out = []
    for settings in group:
        own = {name: settings[name] for name in SOLVED if name in settings}
        learner.method = replace(sums, **own, solution=None)
        out.append(learner.evaluate(stream.test()))
    return out


def choose(rows: Sequence[Row], scenario: str) -> dict[str, Any]:
    """The settings that did best in one order of the stream; of equals, the smaller rate.

    Example:
        >>> choose([{"settings": {"lr": 0.1}, "validation_accuracy": {"data": 0.8}}], "data")
        {'lr': 0.1}
    """
    best = min(
        rows,
        key=lambda row: (
            -round(row["validation_accuracy"][scenario], 6),
            row["settings"].get("lr", 0.0),
        ),
    )
    settings: dict[str, Any] = best["settings"]
    return settings

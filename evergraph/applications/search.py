"""Choosing settings: every candidate on the same validation nodes, never on test nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from evergraph.applications.citation import run
from evergraph.applications.setup import Config
from evergraph.continuum import Scenario, validation_split
from evergraph.dataset import Dataset

Row = dict[str, Any]

# Where every candidate starts, whatever was chosen before.
START: dict[str, Any] = {"gain": 1.0, "hops": 1, "diffusion": False, "condensed": False}
# One list for every network that learns by gradients: nobody gets more trials than others.
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
    {"hidden": [256], "hops": 2, "diffusion": True, "condensed": True},
)
MLP_CANDIDATES = (*BASELINE_CANDIDATES[:2], {"hidden": [128, 64]})
OWN_CANDIDATES = {"fgn": FGN_CANDIDATES, "mlp": MLP_CANDIDATES}
ANALYTIC_CANDIDATES: tuple[dict[str, Any], ...] = tuple(
    {"strength": strength, "hops": hops, "diffusion": diffusion}
    for hops, diffusion in ((1, False), (2, False), (2, True))
    for strength in (1.0, 2.0, 4.0)
)


def candidates(config: Config) -> list[dict[str, Any]]:
    """All settings to try for a model and a method."""
    if config.method == "analytic":
        return list(ANALYTIC_CANDIDATES)
    own = OWN_CANDIDATES.get(config.model, BASELINE_CANDIDATES)
    return [{**base, **special} for special in own for base in GRADIENT_CANDIDATES]


def search(
    config: Config,
    dataset: Dataset,
    scenarios: tuple[Scenario, ...] = ("data", "class"),
    seeds: tuple[int, ...] = (0, 1),
    known: Sequence[Row] = (),
    report: Callable[[list[Row], int], None] = lambda rows, total: None,
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
    """
    if config.method == "analytic":
        scenarios = ("data",)  # any order gives the same
    held_out = {seed: validation_split(dataset, seed=seed) for seed in seeds}
    tried = candidates(config)
    rows = list(known)
    for settings in tried:
        if any(row["settings"] == settings for row in rows):
            continue
        accuracy: dict[str, float] = {}
        for scenario in scenarios:
            trial = replace(config, scenario=scenario, settings={**START, **settings})
            found = [run(trial, (seed,), held_out[seed])["accuracy_mean"] for seed in seeds]
            accuracy[scenario] = float(np.mean(found))
        rows.append(
            {
                "settings": settings,
                "seeds": list(seeds),
                "validation_accuracy": accuracy,
                "validation_mean": float(np.mean(list(accuracy.values()))),
            }
        )
        rows.sort(key=lambda row: -float(row["validation_mean"]))
        report(rows, len(tried))
    return rows


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

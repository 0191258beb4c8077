"""Choosing settings: every candidate on the same validation nodes, never on test nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from evergraph.applications.citation import run
from evergraph.applications.setup import Config
from evergraph.continuum import Scenario, validation_split
from evergraph.dataset import Dataset

# One list for every network that learns by gradients: nobody gets more trials than others.
GRADIENT_CANDIDATES: tuple[dict[str, Any], ...] = (
    {"lr": 0.03, "dropout": 0.3},
    {"lr": 0.1, "dropout": 0.3},
    {"lr": 0.1, "dropout": 0.0},
)
# Where all baselines did best at the largest rate, one more for them: nobody is held back.
LARGER_RATE: dict[str, Any] = {"lr": 0.3, "dropout": 0.3}
# What is special to a network: two choices each.
OWN_CANDIDATES: dict[str, tuple[dict[str, Any], ...]] = {
    "fgn": (
        {"normalization": "column", "concatenate": True},
        {"normalization": "symmetric", "concatenate": False},
    ),
}
BASELINE_CANDIDATES: tuple[dict[str, Any], ...] = ({"unit": True}, {"unit": False})
ANALYTIC_CANDIDATES: tuple[dict[str, Any], ...] = tuple(
    {"strength": strength, "hops": hops, "diffusion": diffusion}
    for hops, diffusion in ((1, False), (2, False), (2, True))
    for strength in (1.0, 2.0, 4.0)
)


def candidates(config: Config) -> list[dict[str, Any]]:
    """All settings to try for a model and a method."""
    if config.method == "analytic":
        return list(ANALYTIC_CANDIDATES)
    if config.model in OWN_CANDIDATES:
        own, rates = OWN_CANDIDATES[config.model], GRADIENT_CANDIDATES
    else:
        own, rates = BASELINE_CANDIDATES, (*GRADIENT_CANDIDATES, LARGER_RATE)
    return [{**base, **special} for special in own for base in rates]


def search(
    config: Config,
    dataset: Dataset,
    scenarios: tuple[Scenario, ...] = ("data", "class"),
    seeds: tuple[int, ...] = (0, 1),
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[dict[str, Any]]:
    """Run every candidate in every scenario on validation nodes; the best mean comes first.

    Every seed has validation nodes of its own, since one draw of them says little.
    """
    if config.method == "analytic":
        scenarios = ("data",)  # any order gives the same
    held_out = {seed: validation_split(dataset, seed=seed) for seed in seeds}
    tried = candidates(config)
    rows = []
    for done, settings in enumerate(tried):
        accuracy: dict[str, float] = {}
        for scenario in scenarios:
            trial = replace(config, scenario=scenario, settings=settings)
            found = [run(trial, (seed,), held_out[seed])["accuracy_mean"] for seed in seeds]
            accuracy[scenario] = float(np.mean(found))
        rows.append(
            {
                "settings": settings,
                "validation_accuracy": accuracy,
                "validation_mean": float(np.mean(list(accuracy.values()))),
            }
        )
        report(done + 1, len(tried))
    return sorted(rows, key=lambda row: -float(row["validation_mean"]))

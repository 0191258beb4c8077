"""Settings that were chosen on validation nodes, taken from the training part of each data set."""

from __future__ import annotations

from typing import Any

# What holds wherever nothing else is said.
DEFAULT: dict[str, Any] = {
    "lr": 0.01,
    "steps": 5,
    "dropout": 0.3,
    "averaging": 0.8,
    "normalization": "column",
    "concatenate": True,
    "hops": 1,
}

# By method and data set. `evergraph tune` runs the search over lr, steps and dropout again;
# averaging was chosen among 0, 0.8, 0.9 and 0.95 on three validation splits.
CHOSEN: dict[tuple[str, str], dict[str, Any]] = {
    ("replay", "citeseer"): {"steps": 1, "dropout": 0.0},
    ("replay", "pubmed"): {"lr": 0.1, "steps": 1, "averaging": 0.9},
    ("analytic", "cora"): {"strength": 1.0},
    ("analytic", "citeseer"): {"strength": 2.0},
    ("analytic", "pubmed"): {"strength": 4.0},
}


def preset(method: str, dataset: str) -> dict[str, Any]:
    """The settings for a method on a data set: the default, and what was chosen beyond it.

    Example:
        >>> preset("replay", "somewhere else")["lr"]
        0.01
    """
    return {**DEFAULT, **CHOSEN.get((method, dataset), {})}

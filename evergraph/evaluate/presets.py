"""Settings that were chosen on validation nodes, taken from the training part of each data set."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

# What holds wherever nothing else is said.
DEFAULT: dict[str, Any] = {
    "steps": 1,
    "dropout": 0.3,
    "averaging": 0.9,
    "normalization": "column",
    "concatenate": True,
    "root": True,
    "hops": 1,
}

CLOSED_FORMS = ("analytic", "kernel")  # methods that learn nothing by gradients
# The kernel chooses its weights itself, and leaves a hop out that does not help.
KERNEL: dict[str, Any] = {"hops": 3, "diffusion": True}

# What the closed form reads of an item stands for what a network could see.
EMBEDDINGS: dict[str, tuple[str, ...]] = {"mlp": ("x",), "gcn": ("mean",), "sage": ("x", "mean")}

# What follows from the length of the stream. A short one can afford to replay all of its memory
# after each batch. Of a long one only the schedule differs, and the rate with it; nothing was
# searched on one, and the networks are those that won on short ones.
SHORT: dict[str, Any] = {"replay_batch_size": 50, "lr": 0.03}
# Of baselines; on validation nodes ahead of (64, 32) at .03 on every graph of the league on which
# both were tried (docs/league.md), while FGN loses with a rate of .1.
BASELINE: dict[str, Any] = {"hidden": (256,), "lr": 0.1}
LONG: dict[str, Any] = {
    "replay_batches": 2, "replay_batch_size": 20, "lr": 0.1, "gain": 0.1, "hidden": (256,),
}  # fmt: skip
VERY_LONG: dict[str, Any] = {"replay_batches": 4, "replay_batch_size": 64, "lr": 0.1, "cap": 20}
LONG_ITEMS, LONG_NUMBERS = 2**12, 2**19  # a long stream has at least so many items and numbers
VERY_LONG_ITEMS = 2**16
# The paper's networks for very long streams of dense features, such as ogbn-arxiv.
DENSE: dict[str, Any] = {
    "fgn": {"channels": (4, 32), "features": (16, 1), "directed": True},
    "baseline": {"hidden": (128, 128)},
}


def by_size(model: str, items: int, numbers: int, dense: bool) -> dict[str, Any]:
    """The settings that follow from the size of a stream, whatever it is called.

    Args:
        model: the name of the network.
        items: that come in one pass.
        numbers: that their features hold together, zeros of sparse rows apart.
        dense: whether features are dense.

    Example:
        >>> by_size("fgn", 1_140, 20_000, False)["replay_batch_size"]
        50
        >>> by_size("fgn", 8_252, 2_200_000, False)["replay_batches"]
        2
    """
    short, long, very_long, very_long_dense = schedules(model)
    if items < LONG_ITEMS or numbers < LONG_NUMBERS:
        return short
    if items < VERY_LONG_ITEMS:
        return long
    return very_long_dense if dense else very_long


def schedules(model: str) -> tuple[dict[str, Any], ...]:
    """All that `by_size` may give: for short, long, very long, and very long dense streams."""
    network = DENSE.get(model, DENSE["baseline"])
    short = SHORT if model in DENSE else SHORT | BASELINE
    return short, LONG, VERY_LONG, VERY_LONG | network


def preset(model: str, method: str, dataset: str, scenario: str) -> dict[str, Any]:
    """The settings for a cell: the default, and what `evergraph tune` chose (chosen.json).

    What is in neither follows from the size of the stream, see `by_size`.

    Regular learning takes what was chosen for random order: it is the same learning, only longer.

    Example:
        >>> preset("fgn", "replay", "somewhere else", "class")["dropout"]
        0.3
    """
    out = dict(DEFAULT)
    if method == "analytic":
        if model in EMBEDDINGS:
            out["blocks"] = EMBEDDINGS[model]
        for reader in ("fgn", model):  # what was chosen for all of x, m and Âx serves its parts
            out |= chosen().get(f"{reader}, analytic, {dataset}", {})
        return out
    if method == "kernel":
        return out | KERNEL
    order = "class" if scenario == "class" else "data"
    return out | chosen().get(f"{model}, replay, {dataset}, {order}", {})


@cache
def chosen() -> dict[str, dict[str, Any]]:
    """What was chosen on validation nodes, by model, method, data set and order of the stream."""
    text = files("evergraph.evaluate").joinpath("chosen.json").read_text()
    out: dict[str, dict[str, Any]] = json.loads(text)
    return out

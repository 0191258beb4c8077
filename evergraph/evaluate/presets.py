"""Settings that were chosen on validation nodes, taken from the training part of each data set."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

# What holds wherever nothing else is said.
DEFAULT: dict[str, Any] = {
    "lr": 0.03,
    "steps": 1,
    "dropout": 0.3,
    "averaging": 0.9,
    "replay_batch_size": 50,
    "normalization": "column",
    "concatenate": True,
    "root": True,
    "hops": 1,
}

# What the closed form reads of an item stands for what a network could see.
EMBEDDINGS: dict[str, tuple[str, ...]] = {"mlp": ("x",), "gcn": ("mean",), "sage": ("x", "mean")}

ARXIV_LIKE = ("ogbn-arxiv", "generated-arxiv")
# The paper's networks and our schedule for ogbn-arxiv and graphs of its kind.
ARXIV: dict[str, Any] = {"replay_batches": 4, "replay_batch_size": 64, "lr": 0.1, "cap": 20}
ARXIV_MODEL: dict[str, Any] = {
    "fgn": {"channels": (4, 32), "features": (16, 1), "directed": True},
    "baseline": {"hidden": (128, 128)},
}

# Graphs with tens of thousands of items: a part of the memory after each batch, not all of it.
# Nothing was searched on them; the networks are those that won on the three smaller graphs.
LARGE = ("amazon-computers", "amazon-photo", "coauthor-cs", "coauthor-physics")
LARGE_SETTINGS: dict[str, Any] = {
    "replay_batches": 2, "replay_batch_size": 20, "lr": 0.1, "gain": 0.1, "hidden": (256,),
}  # fmt: skip


def preset(model: str, method: str, dataset: str, scenario: str) -> dict[str, Any]:
    """The settings for a cell: the default, and what `evergraph tune` chose (chosen.json).

    Regular learning takes what was chosen for random order: it is the same learning, only longer.

    Example:
        >>> preset("fgn", "replay", "somewhere else", "class")["lr"]
        0.03
    """
    out = dict(DEFAULT)
    if dataset in ARXIV_LIKE:
        out |= ARXIV | ARXIV_MODEL.get(model, ARXIV_MODEL["baseline"])
    if dataset in LARGE:
        out |= LARGE_SETTINGS
    if method == "analytic":
        if model in EMBEDDINGS:
            out["blocks"] = EMBEDDINGS[model]
        for reader in ("fgn", model):  # what was chosen for all of x, m and Âx serves its parts
            out |= chosen().get(f"{reader}, analytic, {dataset}", {})
        return out
    order = "class" if scenario == "class" else "data"
    return out | chosen().get(f"{model}, replay, {dataset}, {order}", {})


@cache
def chosen() -> dict[str, dict[str, Any]]:
    """What was chosen on validation nodes, by model, method, data set and order of the stream."""
    text = files("evergraph.evaluate").joinpath("chosen.json").read_text()
    out: dict[str, dict[str, Any]] = json.loads(text)
    return out

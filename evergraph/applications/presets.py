"""Settings that were chosen on validation nodes, taken from the training part of each data set."""

from __future__ import annotations

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
    "unit": True,
    "root": True,
    "hops": 1,
}

# What the closed form reads of an item stands for what a network could see.
EMBEDDINGS: dict[str, tuple[str, ...]] = {"mlp": ("x",), "gcn": ("mean",)}

# The paper's networks and our schedule for ogbn-arxiv and graphs of its kind.
ARXIV: dict[str, Any] = {"replay_batches": 4, "replay_batch_size": 64, "lr": 0.1, "cap": 20}
ARXIV_MODEL: dict[str, Any] = {
    "fgn": {"channels": (4, 32), "features": (16, 1), "directed": True},
    "baseline": {"hidden": (128, 128)},
}

# By model, method and data set: what `evergraph tune` found.
CHOSEN: dict[tuple[str, str, str], dict[str, Any]] = {
    ("fgn", "analytic", "cora"): {"strength": 1.0},
    ("fgn", "analytic", "citeseer"): {"strength": 2.0},
    ("fgn", "analytic", "pubmed"): {"strength": 1.0},
}


def preset(model: str, method: str, dataset: str) -> dict[str, Any]:
    """The settings for a model and a method on a data set: the default, and what was chosen.

    Example:
        >>> preset("fgn", "replay", "somewhere else")["lr"]
        0.03
    """
    out = dict(DEFAULT)
    if dataset.endswith("arxiv"):
        out |= ARXIV | ARXIV_MODEL.get(model, ARXIV_MODEL["baseline"])
    if method == "analytic" and model in EMBEDDINGS:
        out["blocks"] = EMBEDDINGS[model]
    learning = "replay" if method == "finetune" else method  # regular learning shares the search
    return out | CHOSEN.get((model, learning, dataset), {})

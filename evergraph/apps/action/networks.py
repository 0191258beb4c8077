"""Every network of this application by its name, at the paper's sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from evergraph.apps.action.models import GraphNetwork
from evergraph.apps.action.plain import Convolutions, Perceptron
from evergraph.apps.action.preprocessing import Augmentation, triples
from evergraph.apps.action.recording import Layout

GRAPHS: dict[str, dict[str, Any]] = {
    "fgn": {},
    # the same layers, hops and parameters; nodes collect their neighbors and not Âx
    "gat": {"relation": "mean"},
    "gcn": {"relation": "mean", "attention": False},
    # as published: one neighborhood with the node in it, whose mean replaces the node
    "gat-plain": {"relation": "mean", "together": True, "concatenate": False},
    "gcn-plain": {
        "relation": "mean", "attention": False, "together": True, "concatenate": False,
    },
    # on a complete graph any number of steps of its iteration is one step
    "appnp": {"relation": "none", "teleport": 0.1},
    # what each part of FGN brings
    "fgn-identity": {"relation": "identity"},
    "fgn-one-hop": {"hops": 1},
    "fgn-uniform": {"attention": False},
    "fgn-bare": {"concatenate": False},
    # W of Eq. (8) without any restriction
    "fgn-dense": {"kernels": None},
    "gat-dense": {"kernels": None, "relation": "mean"},
}  # fmt: skip
OTHERS: dict[str, Callable[..., nn.Module]] = {
    "mlp": Perceptron,
    "cnn": lambda sensors, channels, _, classes=0, **s: Convolutions(
        sensors, channels, classes, **s
    ),
}
NETWORKS: tuple[str, ...] = (*GRAPHS, *OTHERS)


def network(
    name: str, layout: Layout, features: int, seed: int = 0, disturb: bool = False, **settings: Any
) -> nn.Module:
    """A network for windows of a layout; it has no classes yet and grows as they come.

    With `disturb` it changes windows a little while it trains, see `Augmentation`.

    Example:
        >>> model = network("fgn", Layout(("arm", "leg"), ("x", "y", "z"), 25.0), features=25)
        >>> model.readout.bias.shape
        torch.Size([0])
    """
    if name not in NETWORKS:
        raise ValueError(f"model must be one of {', '.join(NETWORKS)}, got {name!r}")
    sizes = (len(layout.sensors), len(layout.channels), features)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if name in GRAPHS:
            model: Any = GraphNetwork(*sizes, **{**GRAPHS[name], **settings})
        else:
            model = OTHERS[name](*sizes, **settings)
    if disturb:
        model.scaling.augmentation = Augmentation(triples(layout.channels))
    made: nn.Module = model
    return made

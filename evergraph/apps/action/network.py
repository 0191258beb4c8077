"""FGN on windows of sensors, and the networks it is compared with: values of one class.

The nodes of a window are its sensors at two instants. Within an instant they are 1-hop neighbors
of each other, those of the other instant are 2-hop neighbors (Appendix C of the paper). Since
every window has the same places, a batch stores no neighbors, and each layer finds them
transformed by their own feature graphs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from evergraph.apps.action.preprocessing import Augmentation, Standardize, triples
from evergraph.apps.action.recording import Layout
from evergraph.apps.action.windows import INSTANTS
from evergraph.nn.fgn import FGN

HOPS = 2

FGN_VALUES: dict[str, Any] = {
    "channels": (32, 32),
    "kernels": (5, 3),
    "concatenate": True,
    "activation": "relu",
    "attention": "softmax",
    "scaled_attention": True,
    "dropout": 0.1,
}
"""The paper's sizes, with a band for W, as the authors' code has it."""
DENSE: dict[str, Any] = {"kernels": None, "widths": (12, 6), "activation": "softsign"}

NETWORKS: dict[str, dict[str, Any]] = {
    "fgn": {},
    # the same layers, hops and parameters; nodes collect their neighbors and not Âx
    "gat": {"message": "mean"},
    "gcn": {"message": "mean", "attention": None},
    # as published: one neighborhood with the node in it, whose mean replaces the node
    "gat-plain": {"message": "mean", "together": True, "concatenate": False},
    "gcn-plain": {"message": "mean", "attention": None, "together": True, "concatenate": False},
    # on a complete graph any number of steps of its iteration is one step
    "appnp": {"message": "none", "together": True, "teleport": 0.1},
    # what each part of FGN brings
    "fgn-identity": {"message": "identity"},
    "fgn-one-hop": {"hops": 1},
    "fgn-uniform": {"attention": None},
    "fgn-bare": {"concatenate": False},
    # W of Eq. (8) without any restriction
    "fgn-dense": DENSE,
    "gat-dense": {**DENSE, "message": "mean"},
    # no graph: the window as one node
    "mlp": {
        "arrangement": "flat", "message": "none", "channels": (200, 200), "kernels": None,
        "widths": (1, 1),
    },
    "cnn": {
        "arrangement": "signals", "message": "none", "channels": (32, 56, 104),
        "kernels": (5, 5, 5), "pooled": True, "dropout": 0.0,
    },
}  # fmt: skip
"""What each network changes in `FGN_VALUES`."""


def neighborhoods(sensors: int, hops: int = HOPS, together: bool = False) -> Tensor:
    """Who neighbors whom, `(P, 2 S, 2 S)` booleans: row i holds the neighbors of node i.

    Args:
        sensors: S.
        hops: 1 for the same instant only, 2 for the adjacent one too, in a plane of its own.
        together: one plane with all nodes, the node itself included, as GCN and GAT have it.

    Example:
        >>> neighborhoods(sensors=2).sum(-1)
        tensor([[1, 1, 1, 1],
                [2, 2, 2, 2]])
    """
    instant = torch.arange(INSTANTS).repeat_interleave(sensors)
    same = instant.unsqueeze(1) == instant
    if together:
        return torch.ones_like(same).unsqueeze(0)
    itself = torch.eye(len(instant), dtype=torch.bool)
    return torch.stack([same & ~itself, ~same][:hops])


def network(
    name: str, layout: Layout, features: int, seed: int = 0, augment: bool = False, **settings: Any
) -> FGN:
    """A network for windows of a layout; it has no classes yet and grows as they come.

    Args:
        name: of `NETWORKS`.
        layout: sensors and channels.
        features: F, the samples of an instant.
        seed: of the parameters.
        augment: change windows a little in training, see `Augmentation`.
        settings: other values for `FGN`, where `widths` is F after each layer; `hops` and
            `together` of `neighborhoods`.

    Example:
        >>> model = network("fgn", Layout(("arm", "leg"), ("x", "y", "z"), 25.0), features=25)
        >>> model.head.outputs
        0
    """
    if name not in NETWORKS:
        raise ValueError(f"model must be one of {', '.join(NETWORKS)}, got {name!r}")
    values = {**FGN_VALUES, **NETWORKS[name], **settings}
    hops, together = values.pop("hops", HOPS), values.pop("together", False)
    encoder = Standardize(*layout.shape, features, values.pop("arrangement", "sensors"))
    if augment:
        encoder.augmentation = Augmentation(triples(layout.channels))
    nodes, in_channels, num_features = encoder.out_shape
    places = neighborhoods(len(layout.sensors), hops, together)
    values |= {
        "features": values.pop("widths", None),
        "places": places if nodes > 1 else places.new_ones(1, 1, 1),
        "nodes": nodes,
        "encoder": encoder,
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return FGN(num_features, in_channels=in_channels, **values)

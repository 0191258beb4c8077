"""What FGN is compared with: the same network with another message, for every application.

All see what FGN sees: a node and its neighbors, nothing else of the graph. Only what a node
collects differs, so that a difference in accuracy comes from the message. Tests compare the
messages with PyG's own layers.

Layers are followed by layer normalization: batches of a
class-incremental stream are of one class, and with the statistics of such batches every one of
these networks lost points.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from evergraph.checks import check_one_of
from evergraph.nn.fgn import FGN

Kind = Literal["mlp", "gcn", "sage", "gat", "appnp"]
KINDS: tuple[Kind, ...] = get_args(Kind)

BASELINES: dict[str, dict[str, Any]] = {
    "mlp": {"message": "none", "concatenate": True},
    "gcn": {"message": "mean", "concatenate": False},
    "sage": {"message": "mean", "concatenate": True},
    "gat": {"message": "mean", "attention": "softmax", "concatenate": False},
    "appnp": {"message": "none", "concatenate": True, "teleport": 0.1},
}
"""What each baseline changes in an FGN."""


def baseline(
    kind: Kind,
    num_features: int,
    num_outputs: int = 0,
    *,
    in_channels: int = 1,
    hops: int = 1,
    edge_components: int = 1,
    hidden: tuple[int, ...] = (64, 32),
    dropout: float = 0.0,
) -> FGN:
    """A baseline for nodes: layers of a kind, each with layer normalization, ReLU and dropout.

    Args:
        kind: `mlp` looks at the node alone, `gcn` at the mean of its neighborhood, `sage` at both,
            `gat` at a learned mean (Eq. 9); `appnp` is the MLP whose outputs are averaged.
        num_features: F of the input.
        num_outputs: number of outputs.
        in_channels: C of the input.
        hops: K, the hops of neighbors in the items; each has a mean of its own.
        edge_components: W, the length of a vector edge weight; each has a mean of its own.
        hidden: width after each layer.
        dropout: rate after each layer.

    Example:
        >>> from evergraph.stream import node_continuum
        >>> from evergraph.datasets import generate
        >>> batch = next(iter(node_continuum(generate())))
        >>> baseline("gcn", num_features=500, num_outputs=3)(batch).shape
        torch.Size([10, 3])
    """
    check_one_of("kind", kind, KINDS)
    return FGN(
        num_features,
        num_outputs,
        in_channels=in_channels,
        layer="transform",
        channels=(1,) * len(hidden),
        features=hidden,
        hops=hops,
        edge_components=edge_components,
        norm="layer",
        activation="relu",
        dropout=dropout,
        centered=False,
        **BASELINES[kind],
    )

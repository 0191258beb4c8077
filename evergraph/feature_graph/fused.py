"""A whole stack of broadcast layers on the support, classifier included, as one operator.

The classifier takes the value of absent nodes times its column sums, or measures from it. So
logits, batch statistics and all gradients take time that depends on the nonzeros and not on F.
The blocks in `evergraph.nn.blocks` compute the same, one operation after the other. On small
batches a call from Python into compiled code is expensive: there is one in each direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from evergraph.feature_graph.compiled import network as network_loops
from evergraph.feature_graph.compiled.norm import masks
from evergraph.feature_graph.compiled.vector import LANES
from evergraph.feature_graph.support import Arrays
from evergraph.noise import generator

Array = np.ndarray[Any, Any]
NO_MASK = np.empty((0, 0, 0), np.uint16)
LAYER = 5  # arrays per layer: weight, scale, shift, running mean and variance
TRAINED = 3  # of which so many get gradients


class Network(NamedTuple):
    """What the whole stack needs beyond its parameters.

    Attributes:
        centered, sparse_gradient: of the classifier, see `evergraph.nn.heads.Readout`.
        dropout: rate after each layer; 0 if not training.
        momentum, eps: of batch normalization, as in torch.
        num_nodes: all nodes of the batch, present or not.
        training: use the statistics of the batch and update the running ones.
    """

    centered: bool
    sparse_gradient: bool
    dropout: float
    momentum: float
    eps: float
    num_nodes: int
    training: bool

    @property
    def settings(self) -> tuple[float, float, int, bool]:
        """Those of batch normalization, as the loops take them."""
        return self.momentum, self.eps, self.num_nodes, self.training


def broadcast_network(
    network: Network, graph: Arrays, hat: Tensor | None, readout: tuple[Tensor, Tensor],
    layers: list[Tensor],
) -> Tensor:  # fmt: skip
    """Logits `(B, K)` of a batch.

    Args:
        network: its settings.
        graph: the support of the batch.
        hat: the adjacency in `graph`, if it wants a gradient.
        readout: weight `(F, C, K)` and bias `(K,)` of the classifier.
        layers: weight `(P * C, D)`, scale, shift and the running mean and variance `(D,)`, which
            are updated in place in training, of every layer in turn.
    """
    if not torch.is_grad_enabled():
        _, (logits, *_) = _forward(network, graph, readout, layers)
        return torch.from_numpy(logits)
    trained = [t for n, t in enumerate(layers) if n % LAYER < TRAINED]
    out: Tensor = _BroadcastNetwork.apply(network, graph, layers, hat, *readout, *trained)  # type: ignore[no-untyped-call]
    return out


def _forward(
    network: Network, graph: Arrays, readout: tuple[Tensor, Tensor], parameters: Sequence[Tensor]
) -> tuple[tuple[Any, ...], tuple[Array, ...]]:
    """What the loops are given, and what they return: logits, and what the way back needs."""
    arrays = [t.detach().numpy() for t in parameters]
    layers = tuple(tuple(arrays[i : i + LAYER]) for i in range(0, len(arrays), LAYER))
    kept_bits, scaling = _masks(network.dropout, layers, graph), 1 / (1 - network.dropout)
    weight, bias = (t.detach().numpy() for t in readout)
    given = graph, layers, kept_bits, scaling, weight
    return given, network_loops.forward(*given, bias, network.settings, network.centered)


class _BroadcastNetwork(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, network: Network, graph: Arrays, layers: list[Tensor], hat: Tensor | None,
        readout: Tensor, bias: Tensor, *trained: Tensor,
    ) -> Tensor:  # fmt: skip
        given, (logits, *kept) = _forward(network, graph, (readout, bias), layers)
        ctx.network, ctx.kept = network, (*given, *kept)
        ctx.save_for_backward(hat, readout, *trained)
        return torch.from_numpy(logits)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        hat, readout, *_ = ctx.saved_tensors  # raises if a parameter was changed in between
        network: Network = ctx.network
        g = grads[0].contiguous().numpy()
        g_hat = np.zeros((0, 0) if hat is None else hat.shape, g.dtype)
        g_layers = tuple(tuple(np.empty_like(a) for a in layer[:TRAINED]) for layer in ctx.kept[1])
        head = network.centered, network.sparse_gradient
        g_readout, g_bias, present = network_loops.backward(
            *ctx.kept, g, network.settings, head, g_hat, g_layers
        )
        g_weight = torch.from_numpy(g_readout)
        if network.sparse_gradient:
            g_weight = torch.sparse_coo_tensor(
                torch.from_numpy(present).unsqueeze(0), g_weight, readout.shape,
                check_invariants=False,
            )  # fmt: skip
        g_adjacency = None if hat is None else torch.from_numpy(g_hat)
        g_trained = (torch.from_numpy(part) for layer in g_layers for part in layer)
        return None, None, None, g_adjacency, g_weight, torch.from_numpy(g_bias), *g_trained


def _masks(rate: float, layers: tuple[Any, ...], graph: Arrays) -> Array:
    """Which channels of which node are kept after every layer, see `compiled.norm.masks`."""
    if rate == 0:
        return NO_MASK
    lanes = -(-max(layer[1].shape[0] for layer in layers) // LANES) * LANES
    seed = int(torch.randint(1 << 62, (1,), generator=generator()))  # torch's own draws are dearer
    found: Array = masks(seed, rate, len(layers), graph.feature.shape[0], lanes)
    return found

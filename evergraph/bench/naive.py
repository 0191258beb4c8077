"""FGN the plain way: the paper's equations with F × F matrices, as a good engineer writes them.

It uses the parameters of an `FGN`, so that both can be compared number by number. Nothing is
held back: neighbors are averaged before the outer product, matrices that want no gradient are
built without one, and every product is batched.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import batch_norm, softsign

from evergraph.feature_graph import Neighbors, feature_adjacency, neighborhood_mean, normalize
from evergraph.layers import BroadcastBlock
from evergraph.models import FGN


def naive_logits(model: FGN, x: Tensor, neighbors: Neighbors) -> Tensor:
    """Logits `(B, K)` of a broadcast FGN with a plain linear classifier, x `(B, C, F)`."""
    if model.transforms or model.readout.centered:
        raise ValueError("the naive form has broadcast layers and centered=False")
    with torch.set_grad_enabled(bool(model.attentions)):
        if model.attentions:
            neighbors = neighbors.with_weight(model.attentions[0](x, neighbors, model.hops))
        mean = neighborhood_mean(neighbors, len(x), model.hops)
        adjacency = feature_adjacency(x, mean, model.directed)
        adjacency = normalize(adjacency, model.normalization)
    z = x
    for block in model.blocks:
        assert isinstance(block, BroadcastBlock)
        norm = block.norm
        z = (adjacency @ z.unsqueeze(1).unsqueeze(-1)).squeeze(-1).flatten(1, 2)
        z = torch.einsum("bcf,cd->bdf", z, block.layer.weight)
        statistics = (norm.running_mean.clone(), norm.running_var.clone())
        z = batch_norm(
            z, *statistics, norm.weight, norm.bias, model.training, norm.momentum, norm.eps
        )
        z = softsign(z)
        if adjacency.shape[2] > 1:  # deeper layers: every adjacency acts on every channel
            adjacency = adjacency.flatten(1, 2).unsqueeze(2)
    return torch.einsum("bcf,fck->bk", z, model.readout.weight) + model.readout.bias

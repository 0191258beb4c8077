"""FGN the plain way: the paper's equations with F × F matrices, as a good engineer writes them.

It uses the parameters of an `FGN`, so that both can be compared number by number. Neighbors are
averaged before the outer product, matrices that want no gradient are built without one, and every
product is batched. `lean` squeezes the same matrices further, in place and by hand.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import batch_norm, softsign

from evergraph.feature_graph import neighborhood_mean, normalize, propagate
from evergraph.feature_graph.equations import divisors
from evergraph.graph import Neighbors
from evergraph.nn.blocks import BroadcastBlock
from evergraph.nn.fgn import FGN


def naive_logits(model: FGN, x: Tensor, neighbors: Neighbors, lean: bool = False) -> Tensor:
    """Logits `(B, K)` of a broadcast FGN with a plain linear classifier, x `(B, C, F)`."""
    if model.layer != "broadcast" or model.head.centered or model.attentions:
        raise ValueError("the naive form has broadcast layers, no attention and centered=False")
    mean = neighborhood_mean(neighbors, len(x), model.hops)
    adjacency = (_lean_adjacency if lean else _fixed_adjacency)(model, x, mean)
    z = x
    for block in model.blocks:
        assert isinstance(block, BroadcastBlock)
        norm = block.norm
        z = propagate(adjacency, z)
        z = torch.einsum("bcf,cd->bdf", z, block.layer.weight)
        statistics = (norm.running_mean.clone(), norm.running_var.clone())
        z = batch_norm(z, *statistics, *norm.affine, model.training, norm.momentum, norm.eps)
        z = softsign(z)
        if adjacency.shape[2] > 1:  # deeper layers: every adjacency acts on every channel
            adjacency = adjacency.flatten(1, 2).unsqueeze(2)
    out: Tensor = torch.einsum("bcf,fck->bk", z, model.head.weight) + model.head.bias
    return out


@torch.no_grad()
def _fixed_adjacency(model: FGN, x: Tensor, mean: Tensor) -> Tensor:
    """Eqs. (4)-(5), normalized: without gradients the root needs no care at zero."""
    outer = torch.einsum("bcf,bpcg->bpcfg", x, mean)
    if not model.directed:
        outer = outer + outer.mT
    adjacency = outer.sign() * outer.abs().sqrt()
    return normalize(adjacency, model.normalization)


@torch.no_grad()
def _lean_adjacency(model: FGN, x: Tensor, mean: Tensor) -> Tensor:
    """The same in place, with as few passes over the matrices as torch allows."""
    adjacency = x.unsqueeze(1).unsqueeze(-1) * mean.unsqueeze(-2)
    if not model.directed:
        adjacency = adjacency + adjacency.mT
    sign = adjacency.sign()
    adjacency.abs_().sqrt_()
    row, column = adjacency.sum(-1, keepdim=True), adjacency.sum(-2, keepdim=True)
    adjacency.mul_(sign)
    if model.normalization == "none":
        return adjacency
    left, right = divisors(row, column, model.normalization)
    return adjacency.mul_(left.reciprocal()).mul_(right.reciprocal())

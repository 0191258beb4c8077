"""Gradients as one vector: the part that GEM and A-GEM share."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.stream.batch import Batch
from evergraph.learn.learner import Learner
from evergraph.learn.methods.anchors import gradients


def memory_gradient(learner: Learner, batch: Batch) -> Tensor:
    """The gradient of the loss on old items, as one vector."""
    found = gradients(learner.model, learner.loss(batch))
    return torch.cat([g.flatten() for g in found.values()])


def current_gradient(learner: Learner) -> Tensor:
    """The gradient that the optimizer is about to use, as one vector."""
    parts = []
    for p in learner.model.parameters():
        grad = torch.zeros_like(p) if p.grad is None else p.grad
        parts.append((grad.to_dense() if grad.is_sparse else grad).flatten())
    return torch.cat(parts)


def set_gradient(learner: Learner, vector: Tensor) -> None:
    """Let the optimizer use another gradient."""
    start = 0
    for p in learner.model.parameters():
        p.grad = vector[start : start + p.numel()].view_as(p).clone()
        start += p.numel()

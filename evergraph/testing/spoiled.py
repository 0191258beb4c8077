"""Batches that no learner may take: what `check_learner` offers it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from evergraph.graph.neighbors import Features, Neighbors
from evergraph.graph.rows import SparseRows
from evergraph.stream.batch import Batch


def spoiled(batch: Batch) -> Iterator[tuple[str, Any]]:
    """Inputs that are wrong in one way each, made from a good batch, with the name of the way."""
    yield "what is no batch", batch.x
    yield "a list of batches", [batch]
    yield "a batch without items", batch.select(torch.arange(0))
    yield from _wrong_shapes(batch)
    yield from _wrong_values(batch)
    yield from _wrong_targets(batch)


def _wrong_shapes(batch: Batch) -> Iterator[tuple[str, Batch]]:
    yield "items of another width", _with_features(batch, _wider)
    if isinstance(batch.x, SparseRows):
        nodes = (batch.nodes_per_item,) if batch.nodes_per_item > 1 else ()
        x = batch.x.to_dense().view(len(batch), *nodes, 1, -1)
        around = batch.neighbors
        if isinstance(around, Neighbors):
            around = around.with_features(around.features.to_dense().unsqueeze(1))
        yield "dense items after sparse ones", replace(batch, x=x, neighbors=around)
    elif batch.x.shape[-2] == 1 and batch.nodes_per_item == 1:
        yield "sparse items after dense ones", _with_features(batch, _sparse)


def _wrong_values(batch: Batch) -> Iterator[tuple[str, Batch]]:
    for name, value in (("NaN", torch.nan), ("infinity", torch.inf), ("1e20", 1e20)):
        yield f"{name} as a feature", replace(batch, x=_with_value(batch.x, value))
        around = batch.neighbors
        if isinstance(around, Neighbors) and len(around) and _values(around.features).numel():
            wrong = around.with_features(_with_value(around.features, value))
            yield f"{name} as a feature of a neighbor", replace(batch, neighbors=wrong)
    yield (
        "features with gradients",
        replace(batch, x=_with_values(batch.x, lambda values: values.clone().requires_grad_())),
    )


def _wrong_targets(batch: Batch) -> Iterator[tuple[str, Batch]]:
    target = batch.target
    if target.is_floating_point():
        yield "NaN as a target", replace(batch, target=torch.full_like(target, torch.nan))
        yield "an infinite target", replace(batch, target=torch.full_like(target, torch.inf))
        yield "labels in place of numbers", replace(batch, target=torch.arange(len(target)))
        yield "targets of another width", replace(batch, target=torch.cat([target, target], 1))
        return
    yield "labels with NaN", replace(batch, target=target.double() * torch.nan)
    yield "labels with fractions", replace(batch, target=target.double() + 0.5)
    yield "labels that are true or false", replace(batch, target=target > 0)
    yield "negative labels", replace(batch, target=torch.full_like(target, -5))
    yield "huge labels", replace(batch, target=target.long() + 10**12)


def _with_features(batch: Batch, change: Callable[[Features], Features]) -> Batch:
    """The same items with other features, of their neighbors too."""
    around = batch.neighbors
    if isinstance(around, Neighbors):
        around = around.with_features(change(around.features))
    return replace(batch, x=change(batch.x), neighbors=around)


def _wider(features: Features) -> Features:
    if isinstance(features, SparseRows):
        return replace(features, num_features=features.num_features + 1)
    return torch.nn.functional.pad(features, (0, 1))


def _sparse(features: Features) -> Features:
    assert isinstance(features, Tensor)
    return SparseRows.from_dense(features.flatten(0, -2))


def _values(features: Features) -> Tensor:
    return features.values if isinstance(features, SparseRows) else features


def _with_values(features: Features, change: Callable[[Tensor], Tensor]) -> Features:
    if isinstance(features, SparseRows):
        return replace(features, values=change(features.values))
    return change(features)


def _with_value(features: Features, value: float) -> Features:
    """The same features with one other number."""

    def change(values: Tensor) -> Tensor:
        fresh = values.clone()
        fresh.view(-1)[len(fresh.view(-1)) // 2] = value
        return fresh

    return _with_values(features, change)

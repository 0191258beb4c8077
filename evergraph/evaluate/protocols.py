"""Evaluation protocols of the field: splits and measures that make results comparable.

`cglb` is the class-incremental setting of CGLB without edges between tasks: two classes a task in
the order of their labels, 60 / 20 / 20 % of every class for training, validation and test, many
passes over each task, accuracy as a mean over classes. `online` is the same with one pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

import torch

from evergraph.graph.dataset import Dataset, split_by_class

Protocol = Literal["paper", "cglb", "online"]
PROTOCOLS: tuple[str, ...] = get_args(Protocol)


def recut(
    dataset: Dataset,
    classes_per_task: int = 2,
    class_order: Sequence[int] | None = None,
    seed: int = 1,
) -> tuple[Dataset, tuple[int, ...]]:
    """The data set as CGLB cuts it, and its classes in the order in which they come.

    Classes of fewer than two nodes and an incomplete last task are left out, and so is every edge
    between two tasks. The validation part is in neither `train` nor `test`.

    Example:
        >>> from evergraph.datasets import generate
        >>> data, order = recut(generate())
        >>> data.graph.labels.unique().tolist()  # of seven classes the last has no partner
        [-1, 0, 1, 2, 3, 4, 5]
    """
    graph, labels = dataset.graph, dataset.graph.labels
    if labels is None:
        raise ValueError(f"data set {dataset.name!r} has no labels to learn from")
    classes, size = labels[labels >= 0].unique(return_counts=True)
    large = classes[size >= 2].tolist()
    if class_order is not None and not set(class_order) >= set(large):
        raise ValueError(
            f"class_order must name each class of two nodes or more, {large}, got "
            f"{list(class_order)}"
        )
    order = large if class_order is None else [label for label in class_order if label in large]
    order = order[: len(order) // classes_per_task * classes_per_task]
    if not order:
        raise ValueError(
            f"the protocol needs at least {classes_per_task} classes of two nodes or more, "
            f"{dataset.name!r} has {len(large)}"
        )
    task = torch.full_like(labels, -1)
    for position, label in enumerate(order):
        task[labels == label] = position // classes_per_task
    kept = torch.where(task >= 0, labels, -1)
    source, target = (task[end] for end in graph.edges)
    inside = (source == target) & (source >= 0)
    inner = replace(graph.with_edges(inside), labels=kept)
    train, test = split_by_class(kept, train=0.6, test=0.2, seed=seed)
    return replace(dataset, graph=inner, train=train, test=test), tuple(order)

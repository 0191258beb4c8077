"""From a growing graph to the frozen `Graph` of a moment, and back."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from evergraph.graph.graph import Graph
from evergraph.graph.hops import Floats, Ints
from evergraph.graph.links import Links
from evergraph.graph.nodes import FRACTION, MAX_VALUE, Nodes
from evergraph.graph.rows import SparseRows


def freeze(nodes: Nodes, links: Links, num_features: int) -> Graph:
    """The graph of this moment, its nodes in the order of their keys."""
    slots = nodes.sorted()
    indptr, index, value = (torch.from_numpy(part) for part in nodes.rows(slots))
    features = SparseRows(indptr, index.long(), value / 2.0**FRACTION, num_features)
    names = sorted(nodes.classes)
    number = {name: at for at, name in enumerate(names)}
    found = [nodes.label[slot] for slot in slots.tolist()]
    labels = [-1 if name is None else number[name] for name in found]
    edges, weight, edge_time = _edges(links, slots)
    return Graph(
        features,
        edges,
        torch.tensor(labels) if names else None,
        weight,
        time=_known(nodes.time.array[slots]),
        edge_time=edge_time,
        directed=links.directed,
        class_names=tuple(names),
    )


def _edges(links: Links, slots: Ints) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Edges by source, then by target, each once; their weights and times if all have some."""
    rank = np.zeros(links.num_nodes, dtype=np.int64)
    rank[slots] = np.arange(len(slots))
    source, target, entry = links.step(slots)
    target = rank[target]
    if not links.directed:
        once = source < target
        source, target, entry = source[once], target[once], entry[once]
    plain = links.components is None and not links.weighted
    weight = None if plain else torch.from_numpy(links.weights(entry))
    return torch.from_numpy(np.stack([source, target])), weight, _known(links.times(entry))


def _known(times: Floats) -> Tensor | None:
    return torch.from_numpy(times) if len(times) and not np.isnan(times).any() else None


def fixed_rows(graph: Graph) -> tuple[Ints, Ints, Ints]:
    """The features of a graph in fixed point: `indptr`, `index` (ascending) and `value`."""
    features = graph.features
    if isinstance(features, Tensor):
        if features.dim() != 2:
            raise ValueError(f"features must have shape (N, F), got {tuple(features.shape)}")
        features = SparseRows.from_dense(features)
    index, value = features.indices.cpu().numpy(), features.values.detach().cpu().double().numpy()
    limit = MAX_VALUE / 2**FRACTION
    if (np.abs(value) > limit).any():
        raise ValueError(
            f"features must be from -{limit:g} to {limit:g} in fixed point, got "
            f"{value[np.abs(value).argmax()]:g}: standardize them"
        )
    order = np.lexsort((index, features.rows.cpu().numpy()))
    fixed = np.rint(value * 2**FRACTION).astype(np.int64)
    return features.indptr.cpu().numpy(), index[order], fixed[order]

"""Fixed (not learned) embeddings of a node, its neighborhood mean and its feature graph."""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from evergraph.feature_graph import Normalization, condense, feature_graph, neighborhood_mean
from evergraph.feature_graph.build import build
from evergraph.feature_graph.compiled import embedding as loops
from evergraph.feature_graph.equations import NORMALIZATIONS
from evergraph.feature_graph.ops import numpy, supports
from evergraph.feature_graph.support import NO_HOP, loop_arguments
from evergraph.graph.neighbors import Features, Linked, Neighbors, check_items
from evergraph.graph.rows import SparseRows

Block = Literal["x", "mean", "propagated"]
BLOCKS: tuple[Block, ...] = get_args(Block)


def fixed_embedding(
    x: Features,
    neighbors: Neighbors,
    hops: int = 1,
    blocks: tuple[Block, ...] = BLOCKS,
    normalization: Normalization = "column",
) -> Features:
    """One vector per item: the sum of x, m and Âx, each of unit length, brought to unit length.

    `x` is the node itself, `mean` its neighborhood (one part per hop and edge component), and
    `propagated` what Â of the same hop makes of x. All of them live among the same features, so
    that their sum is as wide as x. Nothing is learned: it is known the moment an item comes.

    Returns:
        `(B, D)` with D = C · F (times the nodes of a sub-graph): sparse rows if x is sparse.

    Example:
        >>> neighbors = Neighbors(torch.rand(5, 1, 6), owner=torch.tensor([0, 0, 0, 1, 1]))
        >>> fixed_embedding(torch.rand(2, 1, 6), neighbors).shape
        torch.Size([2, 6])
    """
    check_items(x, neighbors, hops)
    return embed(x, neighbors, hops, blocks, normalization)


def embed(
    x: Features,
    neighbors: Neighbors,
    hops: int,
    blocks: tuple[Block, ...],
    normalization: Normalization,
) -> Features:
    """The same for items that have been checked."""
    if isinstance(x, SparseRows):
        return _sparse(x, neighbors, hops, blocks, normalization)
    x = x.to(torch.promote_types(x.dtype, torch.float32))  # half precision has no matrix product
    nodes = x.shape[1:-2].numel()
    flat = x.reshape(len(x) * nodes, *x.shape[-2:])
    parts: list[Tensor] = []
    if "x" in blocks:
        parts.append(flat.unsqueeze(1))
    if "mean" in blocks:
        parts.append(neighborhood_mean(neighbors, len(flat), hops))
    if "propagated" in blocks:
        out = build(flat, neighbors, hops, False, normalization, x.dtype, "dense").propagate(flat)
        parts.append(out.unflatten(1, (-1, flat.shape[1])))
    rows = _unit_length(torch.cat(parts, dim=1).flatten(2)).sum(1)
    return _unit_length(rows).view(len(x), nodes * rows.shape[1])


def _sparse(
    x: SparseRows,
    neighbors: Neighbors,
    hops: int,
    blocks: tuple[Block, ...],
    normalization: Normalization,
) -> SparseRows:
    assert isinstance(neighbors.features, SparseRows)
    if supports(x.values, neighbors.features.values):
        wanted = np.array([name in blocks for name in BLOCKS])
        how = NORMALIZATIONS.index(normalization)
        given = loop_arguments(
            x, neighbors.with_features(neighbors.features.to(x.values.dtype)), hops
        )
        indptr, indices, values = map(torch.from_numpy, loops.embedding(*given, how, wanted))
        return SparseRows(indptr, indices, values, x.num_features)
    parts: list[SparseRows] = []
    if "x" in blocks:
        parts.append(x)
    if "mean" in blocks:
        mean = condense(neighbors, len(x), hops).features
        assert isinstance(mean, SparseRows)
        planes = len(mean) // max(len(x), 1)
        parts += [mean[torch.arange(len(x)) * planes + plane] for plane in range(planes)]
    if "propagated" in blocks:
        graph = feature_graph(x, neighbors, hops=hops, normalization=normalization, form="support")
        support = graph.support
        assert support is not None
        for values in graph.propagate(graph.nodes):
            parts.append(SparseRows(support.ptr, support.feature, values, x.num_features))
    stacked = SparseRows.concatenate([_unit(part) for part in parts])
    item = torch.arange(len(x)).repeat(len(parts))
    return _unit(stacked.pool(item, len(x), torch.ones(len(item), dtype=stacked.values.dtype)))


def largest_feature(x: Features, neighbors: Neighbors | Linked, hops: int) -> float | None:
    """The size of the largest feature of sparse items without edge weights, if nothing is wrong.

    One compiled pass in place of `check_items`, which says what is wrong; None for other items.
    """
    y = neighbors.features if isinstance(neighbors, Neighbors) else None
    if not (isinstance(x, SparseRows) and isinstance(y, SparseRows)):
        return None
    assert isinstance(neighbors, Neighbors)
    hop = neighbors.owner if neighbors.hop is None else neighbors.hop
    places = x.indptr, x.indices, y.indptr, y.indices, neighbors.owner, hop
    alike = x.values.dtype == y.values.dtype and x.num_features == y.num_features
    if not (alike and supports(x.values, y.values)) or neighbors.weight is not None:
        return None
    if any(t.dtype != torch.int64 or not t.is_cpu for t in places):
        return None
    kind = np.uint32 if x.values.dtype == torch.float32 else np.uint64
    x_ptr, x_index, x_value, y_ptr, y_index, y_value = numpy(*_parts(x), *_parts(y))
    whose = neighbors.owner.numpy(), NO_HOP if neighbors.hop is None else hop.numpy()
    given = x_ptr, x_index, x_value.view(kind), y_ptr, y_index, y_value.view(kind), *whose
    bits = loops.extent(*given, x.num_features, hops)
    size = float(np.array(bits, kind).view(x_value.dtype))
    return size if math.isfinite(size) else None


def _parts(rows: SparseRows) -> tuple[Tensor, Tensor, Tensor]:
    return rows.indptr, rows.indices, rows.values


def _unit_length(rows: Tensor) -> Tensor:
    length = rows.square().sum(-1, keepdim=True).sqrt()
    return rows / length.masked_fill(length == 0, 1)


def _unit(rows: SparseRows) -> SparseRows:
    row = rows.rows
    square = rows.values.new_zeros(len(rows)).index_add(0, row, rows.values.square())
    length = square.sqrt().masked_fill(square == 0, 1)
    return SparseRows(rows.indptr, rows.indices, rows.values / length[row], rows.num_features)

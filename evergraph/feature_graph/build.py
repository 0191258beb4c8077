"""From a batch to its feature graphs, in the form that is cheapest for the data."""

from __future__ import annotations

from typing import Any, Literal
from weakref import ref

import torch
from torch import Tensor

from evergraph.checks import check_one_of
from evergraph.feature_graph import ops
from evergraph.feature_graph.dense import DenseGraph
from evergraph.feature_graph.equations import NORMALIZATIONS, Normalization
from evergraph.feature_graph.rank_one import RankOneGraph
from evergraph.feature_graph.support import Arrays, SupportGraph, fixed_arrays
from evergraph.graph.neighbors import Features, Neighbors, as_dense, check_items, versions
from evergraph.graph.rows import SparseRows

FeatureGraph = DenseGraph | SupportGraph | RankOneGraph
Form = Literal["auto", "dense", "support", "support-torch"]

SPARSE_BELOW = 0.5  # share of nonzeros under which dense input is worth compressing
SMALL = 64  # features up to which it is not


def feature_graph(
    x: Features,
    neighbors: Neighbors,
    *,
    hops: int = 1,
    directed: bool = False,
    normalization: Normalization = "symmetric",
    dtype: torch.dtype | None = None,
    form: Form = "auto",
) -> FeatureGraph:
    """Turn every node of a batch into a graph of its own, Eqs. (3)-(6).

    Args:
        x: features, `(*, C, F)` or sparse rows; the leading dimensions count the items.
        neighbors: packed; their owners index the items.
        hops: K, the number of hops; each has its own adjacency.
        directed: leave out the transposed term of Eq. (4).
        normalization: see `normalize`.
        dtype: compute in this type; that of x if None, float32 for half precision.
        form: which of the exact forms to use. `auto` picks it from the data; the others are
            there to compare.

    Example:
        >>> x = torch.tensor([[[1.0, 0.0, 0.0, 1.0]]])
        >>> neighbors = Neighbors(torch.ones(2, 1, 4), owner=torch.tensor([0, 0]))
        >>> graph = feature_graph(x, neighbors, normalization="none")
        >>> graph.adjacency[0, 0, 0].square().round()
        tensor([[2., 1., 1., 2.],
                [1., 0., 0., 1.],
                [1., 0., 0., 1.],
                [2., 1., 1., 2.]])
    """
    check_one_of("normalization", normalization, NORMALIZATIONS)
    check_items(x, neighbors, hops)
    return build(x, neighbors, hops, directed, normalization, dtype or _compute_type(x), form)


def build(
    x: Features,
    neighbors: Neighbors,
    hops: int,
    directed: bool,
    normalization: Normalization,
    dtype: torch.dtype,
    form: Form = "auto",
) -> FeatureGraph:
    """The same for a batch that has been checked."""
    if form == "dense" or (form == "auto" and not _mostly_zero(x, neighbors)):
        x = as_dense(x).to(dtype)
        neighbors = neighbors.with_features(as_dense(neighbors.features).to(dtype))
        form_of = RankOneGraph if directed else DenseGraph
        return form_of.build(x, neighbors, hops, normalization)
    x, neighbors = _as_sparse(x, neighbors, dtype)
    if directed:
        return RankOneGraph.build(x, neighbors, hops, normalization)
    compiled = False if form == "support-torch" else None
    return SupportGraph.build(x, neighbors, hops, normalization, compiled)


class _Recent:
    """The support of the batch that was laid out last, as long as its items are in use.

    A prediction and the steps after it read the same items, so that the work is done once.
    """

    def __init__(self) -> None:
        self._held: dict[Any, tuple[Any, Any, Arrays]] = {}  # by a reference that empties it

    def find(self, x: SparseRows, neighbors: Neighbors, mark: Any) -> Arrays | None:
        """The support, if neither the items nor how they are read has changed."""
        for items, (around, known, found) in tuple(self._held.items()):  # other threads write
            if items() is x and around() is neighbors and known == mark:
                return found
        return None

    def keep(self, x: SparseRows, neighbors: Neighbors, mark: Any, found: Arrays) -> None:
        """Keep the support in place of the one before.

        It goes with its items, without a line of Python that an interrupt could come into.
        """
        self._held.clear()
        self._held[ref(x, self._held.pop)] = ref(neighbors), mark, found


_RECENT = _Recent()


def fixed_support(
    x: Features, neighbors: Neighbors, hops: int, normalization: Normalization, dtype: torch.dtype
) -> Arrays | None:
    """The compiled support form of an undirected batch, if `build` would take that; or None."""
    if not isinstance(x, SparseRows):
        if not _mostly_zero(x, neighbors):
            return None
        x, neighbors = _as_sparse(x, neighbors, dtype)
        return fixed_arrays(x, neighbors, hops, normalization) if ops.supports(x.values) else None
    mark = hops, normalization, dtype, versions(x, neighbors)
    found = _RECENT.find(x, neighbors, mark)
    if found is None:
        rows, around = _as_sparse(x, neighbors, dtype)
        if not ops.supports(rows.values):
            return None
        found = fixed_arrays(rows, around, hops, normalization)
        _RECENT.keep(x, neighbors, mark, found)
    return found


def _compute_type(x: Features) -> torch.dtype:
    dtype = x.values.dtype if isinstance(x, SparseRows) else x.dtype
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def _mostly_zero(x: Features, neighbors: Neighbors) -> bool:
    """Whether the support form is the cheaper one (and possible: one channel, fixed features)."""
    if isinstance(x, SparseRows):
        return True  # with all features present it stores as much as the dense form, and no more
    y = neighbors.features
    if x.dim() != 3 or x.shape[1] != 1 or x.shape[2] <= SMALL:
        return False
    if x.requires_grad or (isinstance(y, Tensor) and y.requires_grad):
        return False
    return int(torch.count_nonzero(x)) < SPARSE_BELOW * x.numel()


def _as_sparse(
    x: Features, neighbors: Neighbors, dtype: torch.dtype
) -> tuple[SparseRows, Neighbors]:
    y = neighbors.features
    if isinstance(x, Tensor):
        x = SparseRows.from_dense(x.squeeze(1))
    if isinstance(y, Tensor):
        y = SparseRows.from_dense(y.squeeze(1))
    return x.to(dtype), neighbors.with_features(y.to(dtype))

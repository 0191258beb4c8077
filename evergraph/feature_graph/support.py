"""The exact sparse form: a feature graph on the nonzero features of x and its neighbors.

The symmetric adjacency `sgnroot(x mᵀ + m xᵀ)` is zero outside supp(x) × supp(m) and its
transpose, and of rank one outside supp(x) × supp(x). On bags of words that leaves about a thousand
numbers of millions; `compiled.support` says how they are stored. All items of a batch are laid out
in one row of N present feature nodes, so that feature nodes have shape `(C, N)`: the `(*, C, F)` of
the layers with no leading dimension.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from evergraph.feature_graph import ops
from evergraph.feature_graph.compiled import support as kernels
from evergraph.feature_graph.equations import NORMALIZATIONS, Normalization, divisors, sgnroot
from evergraph.feature_graph.neighborhoods import coefficients
from evergraph.graph.neighbors import Neighbors
from evergraph.graph.rows import SparseRows

Array = np.ndarray[Any, Any]
NO_HOP = np.empty(0, np.int64)


@dataclass(frozen=True)
class Support:
    """Which feature nodes of which item are present, item after item.

    Attributes:
        feature: `(N,)`, the feature at each position.
        ptr: `(B + 1,)`; item b owns the positions `ptr[b]:ptr[b + 1]`.
        width: `(B,)`; the first so many positions of an item are the support of x.
        offset: `(B + 1,)`, where the stored adjacency of each item begins.
        position: `(nnz,)`, where each entry of the neighbors lies.
        num_features: F, present or not.
    """

    feature: Tensor
    ptr: Tensor
    width: Tensor
    offset: Tensor
    position: Tensor
    num_features: int

    @property
    def num_items(self) -> int:
        """B, the number of items."""
        return self.width.shape[0]

    @property
    def num_nodes(self) -> int:
        """All feature nodes, B · F, present or not."""
        return self.num_items * self.num_features

    @cached_property
    def item(self) -> Tensor:
        """The item of each position, `(N,)`."""
        return torch.repeat_interleave(self.ptr.diff())

    @cached_property
    def inside(self) -> Tensor:
        """Which positions are in the support of x, `(N,)`."""
        return self._step < self.width[self.item]

    @cached_property
    def block(self) -> tuple[Tensor, Tensor, Tensor]:
        """Row, column and place in store of every entry of a block, `(E,)` each."""
        center = torch.nonzero(self.inside).squeeze(-1)  # one run of entries for each
        size = self.width[self.item[center]]
        owner = torch.repeat_interleave(size)
        step = torch.arange(owner.shape[0], device=owner.device) - (size.cumsum(0) - size)[owner]
        row, item = center[owner], self.item[center[owner]]
        place = self.offset[item] + self._step[row] * self.width[item] + step
        return row, self.ptr[item] + step, place

    @cached_property
    def factors(self) -> tuple[Tensor, Tensor]:
        """The places in store of left and right, `(N,)` each."""
        left = (self.offset[:-1] + self.width.square())[self.item] + self._step
        return left, left + self.ptr.diff()[self.item]

    @cached_property
    def _step(self) -> Tensor:
        return torch.arange(self.item.shape[0], device=self.item.device) - self.ptr[self.item]

    def across(self, values: Tensor) -> Tensor:
        """For each position in the support of x the sum over the others of its item, and back."""
        inner = self.spread(self.total(values * self.inside))
        return torch.where(self.inside, self.spread(self.total(values)) - inner, inner)

    def total(self, values: Tensor) -> Tensor:
        """Sum over the positions of each item: `(*, N)` to `(*, B)`."""
        out = values.new_zeros(*values.shape[:-1], self.num_items)
        return out.index_add(-1, self.item, values)

    def spread(self, values: Tensor) -> Tensor:
        """Give each position the value of its item: `(*, B)` to `(*, N)`."""
        return values[..., self.item]

    def to_dense(self, values: Tensor, absent: Tensor | float = 0) -> Tensor:
        """Lay `(C, N)` out as `(B, C, F)`, with one constant per channel elsewhere."""
        dense = torch.as_tensor(absent, dtype=values.dtype, device=values.device)
        shape = (self.num_items, self.num_features, values.shape[0])
        return dense.expand(shape).index_put((self.item, self.feature), values.mT).mT


def find_support(x: SparseRows, neighbors: Neighbors) -> tuple[Support, Tensor]:
    """Lay out supp(x) and what the neighbors add; also returns the values of x, `(N,)`."""
    y = _sparse(neighbors)
    arrays = (x.indptr, x.indices, x.values, y.indptr, y.indices, neighbors.owner)
    found = kernels.union_support(*(a.detach().cpu().numpy() for a in arrays), x.num_features)
    tensors = (torch.from_numpy(a).to(x.values.device) for a in found)
    feature, ptr, width, offset, values, position = tensors
    return Support(feature, ptr, width, offset, position, x.num_features), values


def support_mean(support: Support, neighbors: Neighbors, hops: int) -> Tensor:
    """Eq. (5) on the support: the weighted mean of the neighbors, `(K * W, N)`."""
    y = _sparse(neighbors)
    components = neighbors.edge_components
    shape = (hops * components, support.feature.shape[0])
    scale = coefficients(neighbors, support.num_items, hops, y.values.dtype)
    row = y.rows
    plane = torch.arange(components, device=row.device)
    if neighbors.hop is not None:
        plane = plane + (neighbors.hop[row].unsqueeze(-1) - 1) * components
    place = plane * shape[1] + support.position.unsqueeze(-1)
    terms = scale[row] * y.values.unsqueeze(-1)
    flat = terms.new_zeros(shape[0] * shape[1])
    return flat.index_add(0, place.flatten(), terms.flatten()).view(shape)


class Arrays(NamedTuple):
    """A support and its adjacency for the compiled loops, one node for all its twins.

    Attributes:
        feature, ptr: of all nodes, see `Support`.
        number: `(N,)`, the one of the V distinct nodes that stands for each.
        start, width, offset: of the distinct nodes, as ptr, width and offset of `Support`.
        size: `(V,)`, how many nodes each of them stands for.
        values: `(V,)`, x.
        hat: what is stored of Â, `(P, E)`; see `compiled.support`.
    """

    feature: Array
    ptr: Array
    number: Array
    start: Array
    width: Array
    offset: Array
    size: Array
    values: Array
    hat: Array


def fixed_arrays(
    x: SparseRows, neighbors: Neighbors, hops: int, normalization: Normalization
) -> Arrays:
    """The support form of a batch whose edge weights want no gradient."""
    how = NORMALIZATIONS.index(normalization)
    found: tuple[Array, ...] = kernels.fixed_graph(*loop_arguments(x, neighbors, hops), how)
    return Arrays(*found)


def loop_arguments(x: SparseRows, neighbors: Neighbors, hops: int) -> tuple[Any, ...]:
    """A batch as the compiled loops take it: x, its neighbors, and the sizes K, W and F."""
    y, hop, weight = _sparse(neighbors), neighbors.hop, neighbors.weight
    components = neighbors.edge_components
    return (
        x.indptr.numpy(), x.indices.numpy(), x.values.numpy(),
        y.indptr.numpy(), y.indices.numpy(), y.values.numpy(),
        neighbors.owner.numpy(),
        NO_HOP if hop is None else hop.numpy(),
        np.empty((0, 1), x.values.numpy().dtype) if weight is None
        else weight.to(y.values.dtype).reshape(-1, components).numpy(),
        hops, components, x.num_features,
    )  # fmt: skip


def _sparse(neighbors: Neighbors) -> SparseRows:
    assert isinstance(neighbors.features, SparseRows)
    return neighbors.features


@dataclass(frozen=True)
class SupportGraph:
    """The undirected feature graphs of a batch, on their support.

    Attributes:
        nodes: the feature nodes of Eq. (3), `(1, N)`.
        support: what lies where.
        neighbors: as sparse rows.
        hat: what is stored of Â, `(P, E)`; see `compiled.support`.
        compiled: use the compiled loops; the same in plain torch otherwise.
    """

    nodes: Tensor
    support: Support
    neighbors: Neighbors
    hat: Tensor
    compiled: bool

    @classmethod
    def build(
        cls,
        x: SparseRows,
        neighbors: Neighbors,
        hops: int,
        normalization: Normalization,
        compiled: bool | None = None,
    ) -> SupportGraph:
        """Lay out the support and compute Eqs. (4)-(5) on it."""
        if compiled is None:
            compiled = ops.supports(x.values)
        support, values = find_support(x, neighbors)
        m = support_mean(support, neighbors, hops)
        if compiled:
            layout = (support.ptr, support.width, support.offset)
            hat = ops.normalized_adjacency(values, m, layout, normalization)
        else:
            hat = _torch_adjacency(values, m, support, normalization)
        return cls(values.unsqueeze(0), support, neighbors, hat, compiled)

    @property
    def arrays(self) -> Arrays:
        """The same as arrays, every node by itself: twins need not have the same gradient."""
        s, values = self.support, self.nodes[0]
        number = torch.arange(values.shape[0])
        parts = (s.feature, s.ptr, number, *self.layout, torch.ones_like(values), values)
        return Arrays(*(part.numpy() for part in (*parts, self.hat.detach())))

    @property
    def layout(self) -> tuple[Tensor, Tensor, Tensor]:
        """ptr, width and offset of the packed support, see `compiled.support`."""
        return self.support.ptr, self.support.width, self.support.offset

    @property
    def adjacency(self) -> Tensor:
        """Â as dense matrices, `(B, P, 1, F, F)`, for inspection."""
        support, (row, column, place) = self.support, self.support.block
        left, right = (support.to_dense(self.hat[:, at]) for at in support.factors)
        inside = support.to_dense(support.inside.to(left.dtype).unsqueeze(0))
        apart = inside.mT != inside  # one of the two in the support of x
        dense = left.unsqueeze(-1) * right.unsqueeze(-2) * apart.unsqueeze(1)
        feature, item = support.feature, support.item[row]
        dense = dense.movedim(1, -1).index_put(
            (item, feature[row], feature[column]), self.hat[:, place].mT
        )
        return dense.movedim(-1, 1).unsqueeze(2)

    def across_channels(self) -> SupportGraph:
        """One adjacency already serves all channels."""
        return self

    def propagate(self, z: Tensor) -> Tensor:
        """Â z: `(C, N)` to `(P * C, N)`."""
        if self.compiled:
            return ops.product(self.hat, self.layout, z).flatten(0, 1)
        row, column, place = self.support.block
        left, right = (self.hat[:, None, at] for at in self.support.factors)
        terms = self.hat[:, None, place] * z[:, column]
        out = left * self.support.across(right * z)
        return out.index_add(-1, row, terms).flatten(0, 1)

    def adjoint(self, g: Tensor) -> Tensor:
        """Σ_p Âᵀ_p g_p: `(P * C, N)` to `(C, N)`."""
        g = g.unflatten(0, (self.hat.shape[0], -1))
        if self.compiled:
            return ops.adjoint(self.hat, self.layout, g)
        row, column, place = self.support.block
        left, right = (self.hat[:, None, at] for at in self.support.factors)
        terms = (self.hat[:, None, place] * g[..., row]).sum(0)
        out = (right * self.support.across(left * g)).sum(0)
        return out.index_add(-1, column, terms)


def _torch_adjacency(x: Tensor, m: Tensor, support: Support, how: Normalization) -> Tensor:
    row, column, place = support.block
    value = sgnroot(x[row] * m[:, column] + m[:, row] * x[column])
    root = sgnroot(torch.where(support.inside, x, m))
    size = root.abs()
    degree = (size * support.across(size)).index_add(-1, row, value.abs())
    left, right = (t.expand_as(m) for t in divisors(degree, degree, how))
    stored = m.new_zeros(m.shape[0], int(support.offset[-1]))
    stored = stored.index_copy(-1, place, value / (left[:, row] * right[:, column]))
    vectors = root / left, root / right
    for at, values in zip(support.factors, vectors, strict=True):
        stored = stored.index_copy(-1, at, values)
    return stored

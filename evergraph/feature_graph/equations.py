"""The paper's equations (3) to (6), once each, as pure functions on dense tensors.

Axes: `*` any leading dimensions, P planes (hops times edge components), C channels, F features.
Every other file of this package computes the same numbers faster.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from evergraph.checks import check_one_of

Normalization = Literal["none", "row", "column", "symmetric"]
NORMALIZATIONS: tuple[str, ...] = get_args(Normalization)


def sgnroot(x: Tensor) -> Tensor:
    """The square root that keeps the sign: `sgnroot(x) = sign(x) · sqrt(|x|)`, with Eq. (4).

    The slope at zero is infinite; its gradient there is defined as 0, because a zero of the
    adjacency is a missing edge and not a small number.

    Example:
        >>> sgnroot(torch.tensor([4.0, 0.0, -9.0]))
        tensor([ 2.,  0., -3.])
    """
    return x.sign() * x.abs().masked_fill(x == 0, 1).sqrt()


def mean_coefficient(weight: Tensor, count: Tensor | int) -> Tensor:
    """The share of one neighbor in the mean of its neighborhood, Eq. (5): `w / |N_k|`."""
    return weight / count


def feature_adjacency(x: Tensor, mean: Tensor, directed: bool = False) -> Tensor:
    """Which feature of a node goes with which feature of its neighbors, Eq. (4).

    `A[p, c] = sgnroot(x_c m_cᵀ)`, with `m = E[w y]` from Eq. (5): the expectation moves onto
    the neighbors because x is the same in all terms. Undirected graphs use `x mᵀ + m xᵀ`.

    Args:
        x: features, `(*, C, F)`.
        mean: weighted mean of the neighbors per plane, `(*, P, C, F)`.
        directed: leave out the transposed term.

    Returns:
        `(*, P, C, F, F)`.

    Example:
        >>> x, mean = torch.tensor([[1.0, 0.0]]), torch.tensor([[[1.0, 4.0]]])
        >>> feature_adjacency(x, mean, directed=True)[0, 0]
        tensor([[1., 2.],
                [0., 0.]])
    """
    outer = torch.einsum("...cf,...pcg->...pcfg", x, mean)
    return sgnroot(outer if directed else outer + outer.mT)


def normalize(adjacency: Tensor, how: Normalization = "symmetric") -> Tensor:
    """Scale an adjacency by its absolute row and column sums; empty rows and columns stay 0.

    `row` divides by the row sums, `column` by the column sums, `symmetric` by the root of both,
    as GCN does, which bounds the spectral norm by 1 and keeps an undirected graph undirected.

    Args:
        adjacency: `(*, F, F)`.
        how: one of `none`, `row`, `column`, `symmetric`.

    Example:
        >>> normalize(torch.tensor([[0.0, 4.0], [0.0, 0.0]]), "row")
        tensor([[0., 1.],
                [0., 0.]])
    """
    check_one_of("normalization", how, NORMALIZATIONS)
    if how == "none":
        return adjacency
    size = adjacency.abs()
    left, right = divisors(size.sum(-1, keepdim=True), size.sum(-2, keepdim=True), how)
    return adjacency / (left * right)


def divisors(row: Tensor, column: Tensor, how: Normalization) -> tuple[Tensor, Tensor]:
    """What `normalize` divides each row and each column by, from their absolute sums."""
    row, column = row.masked_fill(row == 0, 1), column.masked_fill(column == 0, 1)
    if how == "symmetric":
        return row.sqrt(), column.sqrt()
    one = row.new_ones(())
    return row if how == "row" else one, column if how == "column" else one


def propagate(adjacency: Tensor, z: Tensor) -> Tensor:
    """Let every feature collect from the features it is connected to: `Â z`, inside Eq. (7).

    Args:
        adjacency: normalized, `(*, P, A, F, F)`: A = C (one per channel) or 1 (for all).
        z: feature nodes, `(*, C, F)`.

    Returns:
        `(*, P * C, F)`, plane by plane.
    """
    if adjacency.shape[-3] == 1:  # one matrix for all channels: a single product
        out = z.unsqueeze(-3) @ adjacency.squeeze(-3).mT
    else:
        out = (adjacency @ z.unsqueeze(-3).unsqueeze(-1)).squeeze(-1)
    return out.flatten(-3, -2)

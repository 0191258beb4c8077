"""The product with an undirected feature adjacency in one pass, for prediction."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]


@njit(cache=True, fastmath=True)  # type: ignore[untyped-decorator]
def _product(x: Array, mean: Array, z: Array, out: Array) -> None:
    rows, features = x.shape
    for row in range(rows):
        for i in range(features):
            total = x.dtype.type(0)
            for j in range(features):
                entry = x[row, i] * mean[row, j] + mean[row, i] * x[row, j]
                total += math.copysign(math.sqrt(abs(entry)), entry) * z[row, j]
            out[row, i] = total


def symmetric_product(x: Array, mean: Array, z: Array) -> Array:
    """`sgnroot(x mᵀ + m xᵀ) z` of Eqs. (4) and (7) for every row of `(N, F)` arrays.

    The F × F matrix is never stored, so that a small F costs no more than its arithmetic.

    Example:
        >>> one = np.ones((1, 2), np.float32)
        >>> symmetric_product(one, 2 * one, one)
        array([[4., 4.]], dtype=float32)
    """
    out = np.empty_like(x)
    _product(x, mean, z, out)
    return out

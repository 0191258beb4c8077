"""Ridge regression and linear discriminants in their dual form, for many penalties at once.

With about 1,000 labelled items and many more features the dual costs a fraction of the primal that
`evergraph.learn.methods.Analytic` solves, and gives the same classifier; the tests compare both.
The primal is what is learned in one pass: its sums do not depend on the order of the items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import eigh

FULL = 0.02  # share of nonzeros from which on a dense product is faster
Array = np.ndarray[Any, Any]


def ridge(kernel: Kernel, labels: Array, strengths: Sequence[float]) -> list[Array]:
    """Predicted classes by `(G + λ I) W = S`, for each λ.

    Args:
        kernel: products of the rows.
        labels: `(n,)`, of the training rows.
        strengths: the λ.
    """
    classes, known = np.unique(labels, return_inverse=True)
    values, vectors = eigh(kernel.inner)
    target, read = vectors.T @ np.eye(len(classes))[known], kernel.across @ vectors
    weights = [1 / (values.clip(min=0) + strength)[:, None] for strength in strengths]
    return [classes[(read @ (weight * target)).argmax(1)] for weight in weights]


def discriminant(kernel: Kernel, labels: Array, strengths: Sequence[float]) -> list[Array]:
    """Predicted classes by class means and the common covariance, shrunk by λ times its mean."""
    classes, known, counts = np.unique(labels, return_inverse=True, return_counts=True)
    inner, across = kernel.inner, kernel.across
    share = np.eye(len(classes))[known] / counts  # rows of training items to means of classes
    center = np.eye(len(labels)) - share @ np.eye(len(classes))[known].T
    values, vectors = eigh(center @ inner @ center.T)
    values = values.clip(min=0)
    free = max(len(labels) - len(classes), 1)
    means, seen = inner @ share, vectors.T @ center
    of_means, of_tests = seen @ means, seen @ across.T
    out = []
    for strength in strengths:
        penalty = max(strength * values.sum() / (free * kernel.width), 1e-12)
        inside = 1 / (values + free * penalty)[:, None]
        both = (across @ share - of_tests.T @ (inside * of_means)) / penalty
        own = (share.T @ means - of_means.T @ (inside * of_means)) / penalty
        scores = both - np.diagonal(own) / 2 + np.log(counts / len(labels))
        out.append(classes[scores.argmax(1)])
    return out


@dataclass(frozen=True)
class Kernel:
    """Inner products of rows.

    Attributes:
        inner: `(n, n)` among training rows.
        across: `(m, n)` of the rows to test with training rows.
        width: of the rows.
    """

    inner: Array
    across: Array
    width: int

    @classmethod
    def of(cls, rows: Any, count: int) -> Kernel:
        """Of sparse or dense rows, of which the first `count` are for training."""
        thin = sparse.issparse(rows)
        if thin and rows.nnz > FULL * np.prod(rows.shape):
            # BLAS is faster then; single precision is far finer than any penalty
            rows, thin = rows.astype(np.float32).toarray(), False
        found = rows @ rows[:count].T
        dense: Array = (found.toarray() if thin else found).astype(np.float64)
        return cls(dense[:count], dense[count:], rows.shape[1])

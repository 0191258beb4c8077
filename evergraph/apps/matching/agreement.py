"""How candidate matches predict each other: similarity transforms, and what neighbors correct.

Points are complex numbers, so that a similarity transform is one product.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from evergraph.apps.matching.features import ImageFeatures

Array = NDArray[Any]
REACH = 40.0  # pixels, the unit of distances in the consensus
RIDGE = 0.1  # pulls the consensus to the candidate itself where hardly anybody agrees


def plane(points: Array) -> Array:
    """Points as complex numbers, so that a similarity transform is one product."""
    return np.asarray(points[:, 0] + 1j * points[:, 1], np.complex64)


def change(first: ImageFeatures, second: ImageFeatures, i: Array, j: Array) -> tuple[Array, Array]:
    """Logarithm of the change of scale, and the change of orientation, of candidates."""
    ratio = np.log(second.scales[j] / first.scales[i])
    return ratio, second.orientations[j] - first.orientations[i]


def nearest(points: Array, nearby: int) -> Array:
    """The nearest other points of each, `(N, nearby)` or fewer."""
    count = min(nearby, len(points) - 1)
    if not count:
        return np.zeros((len(points), 0), np.int64)
    return np.asarray(cKDTree(points).query(points, count + 1)[1])[:, 1:]


def agreement(
    place: Array, target: Array, turned: Array, others: Array, slack: float, tolerance: float
) -> Array:
    """How well candidates and their neighbors predict each other, in 0..1."""
    moved0 = place[others] - place[:, None]
    moved1 = target[others] - target[:, None]
    length = np.abs(moved1)
    strain = np.zeros(moved0.shape, np.float32)
    for transform in (turned[:, None], turned[others]):
        predicted = transform * moved0
        allowed = slack * (np.abs(predicted) + length) + tolerance
        strain += np.square(np.abs(predicted - moved1) / allowed)
    return np.exp(-strain)


def correction(place: Array, target: Array, turned: Array, index: Array, weight: Array) -> Array:
    """What neighbors add to a candidate's own transform to make it an affine map, `(3, E)`.

    By weighted least squares; the first row is how far the candidate is from where its neighbors
    would put it in pixels, the others are the change along x and y per `REACH`.
    """
    moved0 = place[index] - place[:, None]
    missed = target[index] - target[:, None] - turned[:, None] * moved0
    x, y = moved0.real / REACH, moved0.imag / REACH
    columns = np.stack([np.ones_like(x), x, y], -1)  # (E, K, 3)
    weighted = columns * weight[..., None]
    square = np.einsum("eka,ekb->eab", weighted, columns) + RIDGE * np.eye(3, dtype=np.float32)
    right = np.einsum("eka,ek->ea", weighted, missed)
    return np.asarray(np.linalg.solve(square, right[..., None])[..., 0].T)


def affine(turned: Array, added: Array, moved: Array) -> Array:
    """Where a displacement goes by a candidate's transform and what neighbors added to it."""
    here, along, across = added
    return np.asarray(
        turned * moved + here + along * (moved.real / REACH) + across * (moved.imag / REACH)
    )

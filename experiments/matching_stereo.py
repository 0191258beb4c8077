"""The stereo pair of a motorcycle that scikit-image brings, with its true disparity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.apps.matching.features import Detector, detect
from evergraph.apps.matching.truth import Pair, Truth
from evergraph.extras import require

Array = NDArray[Any]


def motorcycle_pairs(points: tuple[int, ...], detector: Detector = "sift") -> Iterator[Pair]:
    """The pair with each maximum number of keypoints."""
    left, right, disparity = require("skimage.data", "matching").stereo_motorcycle()
    size = (left.shape[1], left.shape[0])
    for count in points:
        first, second = (detect(image[..., ::-1], detector, count) for image in (left, right))
        forward, seen = shift(first.keypoints, disparity)
        backward, seen_back = shift_back(second.keypoints, disparity)
        truth = Truth(forward, backward, seen, seen_back)
        yield Pair(first, second, truth, size, name=f"motorcycle, {count} points")


def shift(points: Array, disparity: Array) -> tuple[Array, Array]:
    """Positions of points of the left image in the right one, and whether they are known."""
    column, row = _pixels(points, disparity)
    by = disparity[row, column].astype(np.float64)
    known = np.isfinite(by)
    out = points.astype(np.float64).copy()
    out[:, 0] -= np.where(known, by, np.nan)
    return out, known & (out[:, 0] >= 0)


def shift_back(points: Array, disparity: Array) -> tuple[Array, Array]:
    """Positions of points of the right image in the left one, and whether they are known.

    Of all pixels of the row that map to a point, the one closest to the camera counts.
    """
    _, row = _pixels(points, disparity)
    across = np.arange(disparity.shape[1])
    with np.errstate(invalid="ignore"):
        miss = np.abs(across - disparity[row] - points[:, :1])
        miss = np.where(np.isfinite(miss), miss, np.inf)
        lands = miss <= 0.75
    nearest = np.where(lands, disparity[row], -np.inf).argmax(1)
    known = lands.any(1)
    out = points.astype(np.float64).copy()
    out[:, 0] += np.where(known, disparity[row, nearest], np.nan)
    return out, np.asarray(known)


def _pixels(points: Array, disparity: Array) -> tuple[Array, Array]:
    high, wide = disparity.shape
    column = np.clip(np.rint(points[:, 0]).astype(int), 0, wide - 1)
    row = np.clip(np.rint(points[:, 1]).astype(int), 0, high - 1)
    return column, row

"""What is true of a pair of images: where the points of one lie in the other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from evergraph.apps.matching.features import ImageFeatures

Array = NDArray[Any]
PIXELS = 3.0  # how far a match may lie from the truth


@dataclass(frozen=True)
class Truth:
    """Where the points of each image lie in the other one.

    A point that is hidden, or whose depth nobody knows, is not judged: it counts neither for nor
    against a matcher. A homography judges all points, since whatever a point outside of the other
    image is matched with is wrong.

    Attributes:
        forward: `(N0, 2)`, the points of the first image in the second.
        backward: `(N1, 2)`, the points of the second image in the first.
        judged: `(N0,)` bool, whether matches of a point of the first image can be judged.
        judged_back: `(N1,)` bool, the same for the second image.
    """

    forward: Array
    backward: Array
    judged: Array
    judged_back: Array


@dataclass(frozen=True)
class Pair:
    """Two images by their features, with the truth about them.

    Attributes:
        first, second: features of the two images.
        truth: where their points belong.
        size: width and height of the first image in pixels.
        homography: 3 × 3, first to second, if there is one.
        motion: 4 × 4, first camera to second (x right, y down, z forward), if it is known.
        name: where it comes from.
    """

    first: ImageFeatures
    second: ImageFeatures
    truth: Truth
    size: tuple[int, int]
    homography: Array | None = None
    motion: Array | None = None
    name: str = ""

    def error(self, first: Array, second: Array) -> Array:
        """How far points of the second image are from where those of the first belong, pixels."""
        off = self.truth.forward[first] - self.second.keypoints[second]
        return np.asarray(np.linalg.norm(off, axis=-1))

    def labels(self, first: Array, second: Array, pixels: float = PIXELS) -> Array:
        """1 for a true match, 0 for a false one, -1 where it cannot be judged."""
        right = (self.error(first, second) <= pixels).astype(np.int64)
        return np.where(self.truth.judged[first], right, -1)

    def true_matches(self, pixels: float = PIXELS) -> Array:
        """For each point of the first image its partner in the second, or -1, `(N0,)`.

        Partners are nearest to each other, and within so many pixels in both images.
        """
        return self._partners if pixels == PIXELS else self._true_matches(pixels)

    @cached_property
    def _partners(self) -> Array:
        return self._true_matches(PIXELS)

    def _true_matches(self, pixels: float) -> Array:
        out = np.full(len(self.first), -1)
        near, far = self._distances(pixels)
        if near is None or far is None:
            return out
        worst = np.maximum(near, far)
        worst[~self.truth.judged] = np.inf
        worst[:, ~self.truth.judged_back] = np.inf
        partner, back = worst.argmin(1), worst.argmin(0)
        rows = np.arange(len(out))
        mutual = (back[partner] == rows) & (worst[rows, partner] <= pixels)
        return np.where(mutual, partner, -1)

    def _distances(self, pixels: float) -> tuple[Array | None, Array | None]:
        """Distances in the second and in the first image, of points that come near at all."""
        if not len(self.first) or not len(self.second):
            return None, None
        near = _within(self.truth.forward, self.second.keypoints, pixels)
        far = _within(self.truth.backward, self.first.keypoints, pixels).T
        return near, far


def _within(points: Array, others: Array, pixels: float) -> Array:
    """Distances `(N, M)` up to so many pixels, infinity beyond."""
    out = np.full((len(points), len(others)), np.inf)
    usable = np.flatnonzero(np.isfinite(points).all(1))
    if len(usable):
        tree, other = cKDTree(points[usable]), cKDTree(others)
        found = tree.sparse_distance_matrix(other, pixels, output_type="ndarray")
        out[usable[found["i"]], found["j"]] = found["v"]
    return out


def warp(points: Array, homography: Array) -> Array:
    """Apply a homography to points `(N, 2)`; those behind the plane of sight become NaN."""
    ones = np.ones((len(points), 1))
    out = np.concatenate([points.astype(np.float64), ones], 1) @ homography.T
    depth = np.where(out[:, 2:] > 1e-9, out[:, 2:], np.nan)
    return np.asarray(out[:, :2] / depth)


def homography_pair(
    first: ImageFeatures,
    second: ImageFeatures,
    homography: Array,
    size: tuple[int, int],
    name: str = "",
) -> Pair:
    """A pair of images of a plane: every point is judged."""
    truth = Truth(
        warp(first.keypoints, homography),
        warp(second.keypoints, np.linalg.inv(homography)),
        np.ones(len(first), bool),
        np.ones(len(second), bool),
    )
    return Pair(first, second, truth, size, homography, name=name)


def unknown_pair(
    first: ImageFeatures, second: ImageFeatures, size: tuple[int, int], name: str = ""
) -> Pair:
    """A pair of which nothing is known: no point is judged."""
    truth = Truth(
        np.full((len(first), 2), np.nan),
        np.full((len(second), 2), np.nan),
        np.zeros(len(first), bool),
        np.zeros(len(second), bool),
    )
    return Pair(first, second, truth, size, name=name)

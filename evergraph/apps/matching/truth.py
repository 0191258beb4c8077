"""Matches of two images, and which of them are true."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from evergraph.apps.matching.features import ImageFeatures

Array = NDArray[Any]
PIXELS = 3.0  # maximum reprojection error of a true match


@dataclass(frozen=True)
class Matches:
    """Matches of two images, in descending order of confidence.

    Attributes:
        first, second: `(M,)` indices of keypoints.
        confidence: `(M,)` float32 in 0..1.
    """

    first: Array
    second: Array
    confidence: Array

    def __len__(self) -> int:
        return len(self.first)

    def strongest(self, count: int) -> Matches:
        """The `count` most confident matches."""
        return Matches(self.first[:count], self.second[:count], self.confidence[:count])


def sorted_matches(first: Array, second: Array, confidence: Array) -> Matches:
    """Sort matches by descending confidence; ties by index."""
    order = np.lexsort((second, first, -confidence))
    return Matches(first[order], second[order], confidence[order].astype(np.float32))


@dataclass(frozen=True)
class Truth:
    """Positions of the keypoints of each image in the other one.

    Keypoints that are occluded or of unknown depth are not judged: they count neither for nor
    against a matcher. Under a homography all are: any match of one that leaves the image is wrong.

    Attributes:
        forward, backward: `(N0, 2)`, keypoints of the first image in the second; `(N1, 2)` back.
        judged, judged_back: `(N0,)` and `(N1,)` bool, whether their matches can be judged.
    """

    forward: Array
    backward: Array
    judged: Array
    judged_back: Array


@dataclass(frozen=True)
class Pair:
    """Features of two images with their ground truth.

    Attributes:
        first, second: features of the two images.
        truth: positions of their keypoints in the other image.
        size: width and height of the first image in pixels.
        homography: `(3, 3)`, first to second, if there is one.
        motion: `(4, 4)`, first camera to second (x right, y down, z forward), if known.
        cameras: intrinsic matrices of both, `(3, 3)`; by default TartanAir's, of this size.
        name: source of the pair.
    """

    first: ImageFeatures
    second: ImageFeatures
    truth: Truth
    size: tuple[int, int]
    homography: Array | None = None
    motion: Array | None = None
    cameras: tuple[Array, Array] | None = None
    name: str = ""

    @property
    def intrinsics(self) -> tuple[Array, Array]:
        """The cameras; TartanAir's have a focal length of half the width."""
        width, height = self.size
        camera = np.array([[width / 2, 0, width / 2], [0, width / 2, height / 2], [0, 0, 1]])
        return self.cameras or (camera, camera)

    def error(self, first: Array, second: Array) -> Array:
        """Reprojection error of matches in the second image, in pixels."""
        off = self.truth.forward[first] - self.second.keypoints[second]
        return np.asarray(np.linalg.norm(off, axis=-1))

    def labels(self, first: Array, second: Array) -> Array:
        """1 for a true match, 0 for a false one, -1 where it cannot be judged."""
        right = (self.error(first, second) <= PIXELS).astype(np.int64)
        return np.where(self.truth.judged[first], right, -1)

    def points(self, matches: Matches) -> tuple[Array, Array]:
        """Positions of matches in both images, `(M, 2)` float64 each."""
        ends = self.first.keypoints[matches.first], self.second.keypoints[matches.second]
        return ends[0].astype(np.float64), ends[1].astype(np.float64)

    @cached_property
    def partners(self) -> Array:
        """Index of the point of the second image closest to each true place, or -1, `(N0,)`.

        It must lie within `PIXELS`, and the true place be known: these points can be matched.
        """
        if not len(self.first) or not len(self.second):
            return np.full(len(self.first), -1)
        distance = _distances(self.truth.forward, self.second.keypoints)
        closest = distance.argmin(1)
        near = distance[np.arange(len(closest)), closest] <= PIXELS
        return np.where(near & self.truth.judged, closest, -1)

    @cached_property
    def true_matches(self) -> Array:
        """Index of the true match of each keypoint of the first image, or -1, `(N0,)`.

        True matches are mutual nearest neighbors with an error of at most `PIXELS` in both images.
        """
        if not len(self.first) or not len(self.second):
            return np.full(len(self.first), -1)
        error = np.maximum(
            _distances(self.truth.forward, self.second.keypoints),
            _distances(self.truth.backward, self.first.keypoints).T,
        )
        error[~self.truth.judged] = np.inf
        error[:, ~self.truth.judged_back] = np.inf
        partner, back = error.argmin(1), error.argmin(0)
        rows = np.arange(len(partner))
        mutual = (back[partner] == rows) & (error[rows, partner] <= PIXELS)
        return np.where(mutual, partner, -1)


def _distances(points: Array, others: Array) -> Array:
    """Distances `(N, M)` up to `PIXELS`, infinity beyond."""
    out = np.full((len(points), len(others)), np.inf)
    usable = np.flatnonzero(np.isfinite(points).all(1))
    if len(usable):
        tree, other = cKDTree(points[usable]), cKDTree(others)
        found = tree.sparse_distance_matrix(other, PIXELS, output_type="ndarray")
        out[usable[found["i"]], found["j"]] = found["v"]
    return out


def warp(points: Array, homography: Array) -> Array:
    """Apply a homography to points `(N, 2)`; NaN for points behind the camera.

    A homography is known up to a factor, and so its sign is not given. It is chosen so that the
    map keeps the orientation, as two views of one side of a plane do, with the origin of the image
    in front; if these two disagree (a mirror image, a strong tilt), so that more points are in
    front.
    """
    matrix = np.asarray(homography, np.float64)
    matrix = matrix / max(np.abs(matrix[2]).max(), np.finfo(float).tiny)
    out = np.concatenate([points.astype(np.float64), np.ones((len(points), 1))], 1) @ matrix.T
    orientation = np.sign(np.linalg.det(matrix))
    agreed = orientation == np.sign(matrix[2, 2])
    out *= orientation if agreed or not len(out) else np.sign(np.sign(out[:, 2]).sum() or 1)
    depth = np.where(out[:, 2:] > 1e-9, out[:, 2:], np.nan)
    return np.asarray(out[:, :2] / depth)


def homography_pair(
    first: ImageFeatures,
    second: ImageFeatures,
    homography: Array,
    size: tuple[int, int],
    name: str = "",
) -> Pair:
    """A pair related by a homography: all keypoints are judged."""
    forward = warp(first.keypoints, homography)
    backward = warp(second.keypoints, np.linalg.inv(homography))
    judged = np.ones(len(first), bool), np.ones(len(second), bool)
    return Pair(first, second, Truth(forward, backward, *judged), size, homography, name=name)


def unknown_pair(
    first: ImageFeatures, second: ImageFeatures, size: tuple[int, int], name: str = ""
) -> Pair:
    """A pair without ground truth: no keypoint is judged."""
    places = (np.full((len(side), 2), np.nan) for side in (first, second))
    judged = (np.zeros(len(side), bool) for side in (first, second))
    return Pair(first, second, Truth(*places, *judged), size, name=name)

"""Keypoints of images and their descriptors: SIFT, ORB, corners, or those of any other detector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evergraph.apps.matching.images import Image, to_gray
from evergraph.checks import check_positive
from evergraph.extras import require

cv2 = require("cv2", "matching")

Array = NDArray[Any]
Detector = Literal["sift", "orb", "corners"]
CELL = 3  # pixels; only the strongest keypoint of each cell is kept
ORB_SURPLUS = 4  # keypoints that ORB detects for each one kept
CORNER, CORNER_SIZE = 0.005, 8.0  # least quality of a corner, as a share; diameter in pixels


@dataclass(frozen=True)
class ImageFeatures:
    """The N keypoints of an image with their descriptors, strongest first.

    Attributes:
        keypoints: `(N, 2)` float32, x and y in pixels.
        descriptors: `(N, D)` float32, rows of unit length or zero.
        scales: `(N,)` float32, diameter of the described region in pixels; 1 if unknown.
        orientations: `(N,)` float32, radians from the x axis to the y axis; 0 if unknown.
    """

    keypoints: Array
    descriptors: Array
    scales: Array
    orientations: Array

    def __len__(self) -> int:
        return len(self.keypoints)

    def take(self, index: Array) -> ImageFeatures:
        """Select keypoints by index."""
        parts = (self.keypoints, self.descriptors, self.scales, self.orientations)
        return ImageFeatures(*(part[index] for part in parts))


def features(
    keypoints: ArrayLike,
    descriptors: ArrayLike,
    scales: ArrayLike | None = None,
    orientations: ArrayLike | None = None,
) -> ImageFeatures:
    """Validate the output of any detector and normalize its descriptors.

    Example:
        >>> features([[3.0, 4.0]], [[0.0, 2.0]]).descriptors
        array([[0., 1.]], dtype=float32)
    """
    points = np.asarray(keypoints, np.float32)
    points = points.reshape(0, 2) if points.size == 0 else points
    count = len(points)
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError(f"keypoints must have shape (N, 2), got {points.shape}")
    table = np.asarray(descriptors, np.float32)
    table = table.reshape(0, table.shape[-1] if table.ndim == 2 else 0) if not count else table
    if table.ndim != 2 or len(table) != count:
        raise ValueError(f"descriptors must have shape ({count}, D), got {table.shape}")
    vectors = {}
    for name, given, default in (("scales", scales, 1.0), ("orientations", orientations, 0.0)):
        one = np.full(count, default) if given is None else np.asarray(given)
        if one.shape != (count,):
            raise ValueError(f"{name} must have shape ({count},), got {one.shape}")
        vectors[name] = one.astype(np.float32)
    if count and not vectors["scales"].min() > 0:
        raise ValueError(f"scales must be positive, got {vectors['scales'].min()}")
    for name, part in (("keypoints", points), ("descriptors", table), *vectors.items()):
        if not np.isfinite(part).all():
            row = int(np.argwhere(~np.isfinite(part))[0][0])
            raise ValueError(f"{name} must be finite, got {part[row]} at point {row}")
    length = np.linalg.norm(table, axis=1, keepdims=True)
    table = np.asarray(table / np.maximum(length, 1e-12), np.float32)
    return ImageFeatures(points, table, **vectors)


def check_detector(name: str) -> None:
    """Reject an unknown detector."""
    if name not in get_args(Detector):
        raise ValueError(f"detector must be sift, orb or corners, got {name!r}")


def detect(image: Image, detector: Detector = "sift", points: int = 512) -> ImageFeatures:
    """Detect the strongest keypoints of an image and compute their descriptors.

    SIFT descriptors are returned as RootSIFT (square root of the L1-normalized histogram), ORB's
    bits as ±1, both of unit length, so that the inner product is the cosine similarity. `corners`
    (Shi and Tomasi) have upright RootSIFT descriptors of one size, no scale and no orientation, as
    many learned detectors do. An image without texture gives no keypoints.
    """
    check_positive(points=points)
    check_detector(detector)
    gray = to_gray(image)
    extractor = _extractor(detector, points if detector == "orb" else 0)
    found: Sequence[Any] = []
    if min(gray.shape) > 1:
        wanted = detector == "corners"
        found = _corners(gray, points) if wanted else _strongest(extractor.detect(gray), points)
    if found:
        found, table = extractor.compute(gray, found)
    if not found:
        none, width = np.zeros(0, np.float32), 256 if detector == "orb" else 128
        return ImageFeatures(none.reshape(0, 2), none.reshape(0, width), none, none)
    places, table = np.array([p.pt for p in found], np.float32), _unit_rows(table, detector)
    if detector == "corners":
        return features(places, table)
    scales = np.array([p.size for p in found], np.float32)
    angles = np.array([p.angle for p in found], np.float32)
    return ImageFeatures(places, table, scales, np.deg2rad(angles))


def canonical_order(found: ImageFeatures) -> Array:
    """Indices that sort the keypoints, whatever order they come in."""
    keys = [found.orientations, found.scales, found.keypoints[:, 1], found.keypoints[:, 0]]
    order = np.lexsort(keys)
    table = np.stack(keys)[:, order]
    if len(found) > 1 and (table[:, 1:] == table[:, :-1]).all(0).any():  # ties
        order = np.lexsort([*found.descriptors.T[::-1], *keys])
    return order


@cache
def _extractor(detector: Detector, points: int) -> Any:
    if detector != "orb":
        return cv2.SIFT_create(nfeatures=0, contrastThreshold=0.005, edgeThreshold=20)
    return cv2.ORB_create(nfeatures=points * ORB_SURPLUS, fastThreshold=7)


def _strongest(found: Sequence[Any], points: int) -> list[Any]:
    """The strongest keypoints, at most one per cell."""
    kept: dict[tuple[int, int], Any] = {}
    for point in sorted(found, key=lambda p: (-p.response, p.pt, p.size, p.angle)):
        kept.setdefault((int(point.pt[0] // CELL), int(point.pt[1] // CELL)), point)
        if len(kept) == points:
            break
    return list(kept.values())


def _corners(gray: Image, points: int) -> list[Any]:
    """Corners at least a cell apart, strongest first."""
    found = cv2.goodFeaturesToTrack(gray, points, CORNER, CELL)
    places = [] if found is None else found.reshape(-1, 2).tolist()
    return [cv2.KeyPoint(x, y, CORNER_SIZE, 0.0) for x, y in places]


def _unit_rows(table: Array, detector: Detector) -> Array:
    """RootSIFT, or the bits of ORB as ±1, in rows of length 1."""
    if detector != "orb":
        share = table / np.maximum(table.sum(1, keepdims=True), 1e-8)
        return np.asarray(np.sqrt(share), np.float32)
    bits = np.unpackbits(table, axis=1).astype(np.float32)
    return (2 * bits - 1) / np.float32(np.sqrt(bits.shape[1]))

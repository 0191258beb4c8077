"""Interest points and their descriptors: OpenCV's SIFT and ORB, or anybody's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from evergraph.apps.matching.images import Image, to_gray

Array = NDArray[Any]
Detector = Literal["sift", "orb"]
CELL = 3  # pixels: of several points in such a cell the strongest stays
ORB_SURPLUS = 4  # so many times more points are looked for than the cells may leave


@dataclass(frozen=True)
class ImageFeatures:
    """What a detector found in an image: N points, strongest first.

    Attributes:
        keypoints: `(N, 2)` float32, x and y in pixels.
        descriptors: `(N, D)` float32 of unit length, or zeros.
        scales: `(N,)` float32, the diameter of the region described; all 1 if unknown.
        orientations: `(N,)` float32, radians, from x towards y; all 0 if unknown.
    """

    keypoints: Array
    descriptors: Array
    scales: Array
    orientations: Array

    def __len__(self) -> int:
        return len(self.keypoints)

    def take(self, index: Array) -> ImageFeatures:
        """The points at these positions."""
        return ImageFeatures(
            self.keypoints[index],
            self.descriptors[index],
            self.scales[index],
            self.orientations[index],
        )


def features(
    keypoints: ArrayLike,
    descriptors: ArrayLike,
    scales: ArrayLike | None = None,
    orientations: ArrayLike | None = None,
) -> ImageFeatures:
    """Check what another detector found, and bring it into our form.

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
    return ImageFeatures(points, _unit(table), vectors["scales"], vectors["orientations"])


def detect(image: Image, detector: Detector = "sift", points: int = 512) -> ImageFeatures:
    """Find the strongest points of an image and describe them.

    SIFT descriptors come as RootSIFT (the root of L1-normalized histograms), ORB's bits as ±1,
    both of unit length, so that the inner product is the similarity. An image without any
    structure has no points; that is no error.

    Args:
        image: see `images.to_gray`.
        detector: `sift` or `orb`.
        points: how many to keep at the most.
    """
    if points < 1:
        raise ValueError(f"points must be at least 1, got {points}")
    gray = to_gray(image)
    if detector not in ("sift", "orb"):
        raise ValueError(f"detector must be sift or orb, got {detector!r}")
    maker = _sift() if detector == "sift" else _orb(points * ORB_SURPLUS)
    found = _thin(maker.detect(gray, None), points) if min(gray.shape) > 1 else []
    if found:
        found, table = maker.compute(gray, found)
    if not found:
        return _nothing(128 if detector == "sift" else 256)
    return ImageFeatures(
        np.array([p.pt for p in found], np.float32),
        _root(table) if detector == "sift" else _bits(table),
        np.array([p.size for p in found], np.float32),
        np.deg2rad(np.array([p.angle for p in found], np.float32)),
    )


def canonical_order(found: ImageFeatures) -> Array:
    """An order of the points that does not depend on the order in which they came."""
    keys = [found.orientations, found.scales, found.keypoints[:, 1], found.keypoints[:, 0]]
    order = np.lexsort(keys)
    table = np.stack(keys)[:, order]
    if len(found) > 1 and (table[:, 1:] == table[:, :-1]).all(0).any():  # twins: look closer
        order = np.lexsort([*found.descriptors.T[::-1], *keys])
    return order


@cache
def _sift() -> Any:
    return cv2.SIFT_create(  # type: ignore[attr-defined]
        nfeatures=0, contrastThreshold=0.005, edgeThreshold=20
    )


@cache
def _orb(points: int) -> Any:
    return cv2.ORB_create(nfeatures=points, fastThreshold=7)  # type: ignore[attr-defined]


def _thin(found: Sequence[Any], points: int) -> list[Any]:
    """The strongest points, one per cell."""
    seen: set[tuple[int, int]] = set()
    kept = []
    for point in sorted(found, key=lambda p: (-p.response, p.pt, p.size, p.angle)):
        cell = (int(point.pt[0] // CELL), int(point.pt[1] // CELL))
        if cell not in seen:
            seen.add(cell)
            kept.append(point)
            if len(kept) == points:
                break
    return kept


def _nothing(width: int) -> ImageFeatures:
    empty = np.zeros(0, np.float32)
    return ImageFeatures(empty.reshape(0, 2), empty.reshape(0, width), empty, empty)


def _root(table: Array) -> Array:
    share = table / np.maximum(table.sum(1, keepdims=True), 1e-8)
    return np.asarray(np.sqrt(share), np.float32)


def _bits(table: Array) -> Array:
    bits = np.unpackbits(table, axis=1).astype(np.float32)
    return (2 * bits - 1) / np.float32(np.sqrt(bits.shape[1]))


def _unit(table: Array) -> Array:
    length = np.linalg.norm(table, axis=1, keepdims=True)
    return np.asarray(table / np.maximum(length, 1e-12), np.float32)

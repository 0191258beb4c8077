"""Geometric verification: one homography, fundamental or essential matrix that matches agree on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from evergraph.checks import check_one_of
from evergraph.extras import require

cv2 = require("cv2", "matching")

Array = NDArray[Any]
Model = Literal["homography", "fundamental", "essential"]
MODELS: tuple[Model, ...] = get_args(Model)
LEAST: dict[Model, int] = {"homography": 5, "fundamental": 8, "essential": 6}
"""Matches that are needed: one more than a minimal sample, or no match could disagree."""
TOLERANCE: dict[Model, float] = {"homography": 3.0, "fundamental": 1.0, "essential": 1.0}
"""Largest error of an inlier in pixels: of the point, or of its distance from a line."""
CONFIDENCE = 0.999
ROUNDS = 10_000


@dataclass(frozen=True)
class Geometry:
    """What was estimated from M matches.

    Attributes:
        model: `(3, 3)`, from the first image to the second; None if nothing was found.
        inliers: `(M,)` bool, which matches agree with it.
        rotation, translation: `(3, 3)` and `(3,)` of unit length, first camera to second, of an
            essential matrix.
    """

    model: Array | None
    inliers: Array
    rotation: Array | None = None
    translation: Array | None = None

    def arrays(self) -> dict[str, Array]:
        """What was found, by name."""
        parts = {"model": self.model, "rotation": self.rotation, "translation": self.translation}
        return {name: part for name, part in parts.items() if part is not None}


def verify(
    points0: Array,
    points1: Array,
    model: Model = "fundamental",
    cameras: tuple[Array, Array] | None = None,
    tolerance: float | None = None,
) -> Geometry:
    """Estimate a model from matched points `(M, 2)` each with MAGSAC, always with the same seed.

    `cameras` are the intrinsic matrices `(3, 3)`, which an essential matrix needs.

    Example:
        >>> points = np.random.default_rng(0).uniform(0, 100, (20, 2))
        >>> moved = points + 5
        >>> moved[:4] += 40
        >>> verify(points, moved, "homography").inliers.sum()
        np.int64(16)
    """
    check_one_of("model", model, MODELS)
    if model == "essential" and cameras is None:
        raise ValueError("an essential matrix needs the intrinsics of the cameras, got none")
    nothing = Geometry(None, np.zeros(len(points0), bool))
    if len(points0) < LEAST[model]:
        return nothing
    limit = TOLERANCE[model] if tolerance is None else tolerance
    cv2.setRNGSeed(0)
    try:
        if model == "essential":
            assert cameras is not None
            return _essential(points0, points1, cameras, limit) or nothing
        estimate = cv2.findHomography if model == "homography" else cv2.findFundamentalMat
        found, mask = estimate(
            points0, points1, cv2.USAC_MAGSAC, limit, maxIters=ROUNDS, confidence=CONFIDENCE
        )
    except cv2.error:  # of a sample that no model fits, as among wrong matches
        return nothing
    if found is None or found.shape != (3, 3):
        return nothing
    return Geometry(found, mask[:, 0].astype(bool))


def _essential(
    points0: Array, points1: Array, cameras: tuple[Array, Array], limit: float
) -> Geometry | None:
    """An essential matrix and the pose; both cameras are brought to the same focal length first.

    OpenCV's estimate is poor for points at distance 1 from the camera, so that they stay pixels.
    """
    focal = float(np.mean([camera[[0, 1], [0, 1]] for camera in cameras]))
    common = np.diag([focal, focal, 1.0])
    rays = [
        cv2.undistortPoints(np.ascontiguousarray(points)[:, None], camera, None, P=common)[:, 0]
        for points, camera in zip((points0, points1), cameras, strict=True)
    ]
    how = {"method": cv2.USAC_MAGSAC, "prob": CONFIDENCE, "threshold": limit, "maxIters": ROUNDS}
    found, mask = cv2.findEssentialMat(*rays, common, **how)
    if found is None or found.shape != (3, 3):
        return None
    inliers = mask[:, 0].astype(bool)
    _, rotation, shift, _ = cv2.recoverPose(found, *rays, common, mask=mask.copy())
    return Geometry(found, inliers, rotation, shift[:, 0])

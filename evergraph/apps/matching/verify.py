"""Geometric verification: one homography, fundamental or essential matrix that matches agree on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from evergraph.apps.matching.truth import warp
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
SOFT = 0.5  # pixels off at which a match counts half in a refined homography
REFITS = 10


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
    refine: bool = True,
) -> Geometry:
    """Estimate a model from matched points `(M, 2)` each with MAGSAC, always with the same seed.

    `cameras` are the intrinsic matrices `(3, 3)`, which an essential matrix needs. A homography is
    refined, see `refined_homography`.

    Example:
        >>> points = np.random.default_rng(0).uniform(0, 100, (20, 2))
        >>> moved = points + 5
        >>> moved[:4] += 40
        >>> verify(points, moved, "homography").inliers.sum()
        np.int64(16)
    """
    check_model(model, cameras)
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
    if model == "homography" and refine:
        found = refined_homography(found, points0, points1)
        off = np.linalg.norm(warp(points0, found) - points1, axis=1)
        return Geometry(found, np.nan_to_num(off, nan=np.inf) <= limit)
    return Geometry(found, mask[:, 0].astype(bool))


def refined_homography(model: Array, points0: Array, points1: Array) -> Array:
    """Least squares on all matches, those far off counting less, ten times anew.

    The weights are those of a Cauchy distribution, `1 / (1 + d² / SOFT²)`. With the errors e0 and
    e1 of a match in both images, d is their Sampson distance to first order,
    `1 / d² = 1 / e0² + 1 / e1²`. The model is kept as it was if `Σ log(1 + d² / SOFT²)` grows.

    Example:
        >>> points = np.random.default_rng(0).uniform(0, 100, (20, 2))
        >>> rough = np.array([[1, 0, 4.5], [0, 1, 5.5], [0, 0, 1]])
        >>> refined_homography(rough, points, points + 5).round(3)[:2, 2]
        array([5., 5.])
    """
    unit0, unit1 = _to_unit_size(points0), _to_unit_size(points1)
    (x, y), (u, v) = warp(points0, unit0).T, warp(points1, unit1).T
    one, none = np.ones_like(x), np.zeros_like(x)
    start = np.stack([x, y, one], 1)
    across = np.stack([x, y, one, none, none, none, -u * x, -u * y, -u], 1)
    down = np.stack([none, none, none, x, y, one, -v * x, -v * y, -v], 1)
    best, cost = model, np.inf
    for _ in range(REFITS + 1):
        try:
            square0, square1 = _squared_errors(model, points0, points1)
            scaled = unit1 @ model @ np.linalg.inv(unit0)
        except np.linalg.LinAlgError:
            break
        distance = square0 * square1 / (square0 + square1) / SOFT**2
        if (now := float(np.log1p(distance).sum())) < cost:
            best, cost = model, now
        depth = start @ scaled[2] / np.linalg.norm(scaled[2])
        # an algebraic error is e1 times the depth, and e1² is d² (1 + e1² / e0²)
        weight = 1 / (1 + distance) / (1 + square1 / square0) / np.maximum(depth**2, 1e-6)
        table = sum((rows * weight[:, None]).T @ rows for rows in (across, down))
        smallest = np.linalg.eigh(table)[1][:, 0].reshape(3, 3)
        model = np.linalg.inv(unit1) @ smallest @ unit0
        model = model / (model[2, 2] or 1.0)
    return best


def _squared_errors(model: Array, points0: Array, points1: Array) -> tuple[Array, Array]:
    """Squared errors of matches in both images, large where a point has no place."""
    back = np.linalg.inv(model)
    ends = (warp(points1, back) - points0, warp(points0, model) - points1)
    first, second = (np.nan_to_num(np.square(off).sum(1), nan=1e12) + 1e-12 for off in ends)
    return first, second


def _to_unit_size(points: Array) -> Array:
    """A similarity that centers points and gives them a mean distance of √2, `(3, 3)`."""
    middle = points.mean(0)
    scale = np.sqrt(2) / max(float(np.linalg.norm(points - middle, axis=1).mean()), 1e-9)
    x, y = -scale * middle
    return np.array([[scale, 0, x], [0, scale, y], [0, 0, 1]])


def check_model(model: str, cameras: object, name: str = "model") -> None:
    """Reject an unknown model, and an essential matrix without cameras."""
    check_one_of(name, model, MODELS)
    if model == "essential" and cameras is None:
        raise ValueError(
            "an essential matrix needs the intrinsics of the cameras, got none; the "
            "command line needs --intrinsics fx,fy,cx,cy"
        )


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


def epipolar_distance(points0: Array, points1: Array, fundamental: Array) -> Array:
    """Larger distance of matches from their epipolar lines in both images, in pixels, `(M,)`."""
    ones = np.ones((len(points0), 1))
    ends0, ends1 = np.concatenate([points0, ones], 1), np.concatenate([points1, ones], 1)
    line1, line0 = ends0 @ fundamental.T, ends1 @ fundamental
    off = np.abs((ends1 * line1).sum(1))
    with np.errstate(divide="ignore", invalid="ignore"):
        distances = [off / np.hypot(line[:, 0], line[:, 1]) for line in (line0, line1)]
    return np.asarray(np.nan_to_num(np.maximum(*distances), nan=np.inf))


def fundamental_matrix(motion: Array, cameras: tuple[Array, Array]) -> Array:
    """`K1⁻ᵀ [t]× R K0⁻¹` of a motion `(4, 4)`, first camera to second."""
    x, y, z = motion[:3, 3]
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    inverse0, inverse1 = (np.linalg.inv(camera) for camera in cameras)
    return np.asarray(inverse1.T @ cross @ motion[:3, :3] @ inverse0)


def read_cameras(text: str) -> tuple[Array, Array]:
    """Intrinsic matrices of both cameras from `fx,fy,cx,cy`, once or twice with `;` between.

    Example:
        >>> read_cameras("300,310,160,120")[1]
        array([[300.,   0., 160.],
               [  0., 310., 120.],
               [  0.,   0.,   1.]])
    """
    try:
        values = [[float(word) for word in part.split(",")] for part in text.split(";")]
        fx, fy, cx, cy = np.array(values * (2 // len(values))).T
        valid = len(fx) == 2 and min(*fx, *fy) > 0
    except (ValueError, ZeroDivisionError):
        valid = False
    if not valid:
        raise ValueError(
            f"--intrinsics must be fx,fy,cx,cy with focal lengths above 0, once or twice with ; "
            f"between, got {text!r}"
        )
    first, second = (
        np.array([[a, 0, x], [0, b, y], [0, 0, 1]])
        for a, b, x, y in zip(fx, fy, cx, cy, strict=True)
    )
    return first, second

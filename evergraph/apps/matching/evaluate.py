"""Metrics: precision, recall, F1, the paper's mean error, and AUC of homography and pose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.apps.matching.truth import PIXELS, Matches, Pair
from evergraph.extras import require

cv2 = require("cv2", "matching")

Array = NDArray[Any]
Match = Callable[[Pair], Matches]
STRONGEST = 150  # most confident matches of a pair, which the paper's error averages
CORNERS = (1.0, 3.0, 5.0)  # pixels, limits of the AUC of corner errors
ANGLES = (5.0, 10.0, 20.0)  # degrees, limits of the AUC of pose errors


@dataclass(frozen=True)
class Score:
    """Metrics of one pair.

    Attributes:
        precision: share of the judged matches with an error of at most 3 pixels; 0 if there are
            none.
        recall: share of the true matches that were found; NaN if there are none.
        errors: errors of the 150 most confident matches in pixels, occluded keypoints included, as
            the paper averages them.
        corner: mean corner error in pixels of homographies estimated by DLT and by MAGSAC; None
            without a true homography.
        angle: larger of the errors of rotation and translation direction, in degrees, of an
            estimated essential matrix; None without a true motion.
    """

    precision: float
    recall: float
    errors: Array = field(repr=False)
    corner: tuple[float, float] | None = None
    angle: float | None = None


def judge(pair: Pair, matches: Matches, geometry: bool = False) -> Score:
    """Score the matches of a pair; `geometry` also estimates its homography or motion."""
    judged = pair.truth.judged[matches.first]
    first, second = matches.first[judged], matches.second[judged]
    right = pair.error(first, second) <= PIXELS
    truth = pair.true_matches()
    total = int((truth >= 0).sum())
    found = int((truth[first] == second).sum())
    top = matches.strongest(STRONGEST)
    errors = pair.error(top.first, top.second)
    corner = angle = None
    if geometry and pair.homography is not None:
        corner = corner_errors(pair, matches)
    elif geometry and pair.motion is not None:
        angle = pose_error(pair, matches)
    return Score(
        float(right.mean()) if len(right) else 0.0,
        found / total if total else float("nan"),
        errors[np.isfinite(errors)],
        corner,
        angle,
    )


def evaluate(pairs: Iterable[Pair], match: Match, geometry: bool = False) -> dict[str, Any]:
    """Score a matcher on many pairs."""
    return summarize([judge(pair, match(pair), geometry) for pair in pairs])


def summarize(scores: Sequence[Score]) -> dict[str, Any]:
    """Mean over the pairs that have true matches; F1 of mean precision and mean recall."""
    usable = [score for score in scores if not np.isnan(score.recall)]
    if not usable:
        raise ValueError(f"none of the {len(scores)} pairs has any true match to look for")
    precision = float(np.mean([score.precision for score in usable]))
    recall = float(np.mean([score.recall for score in usable]))
    out: dict[str, Any] = {
        "pairs": len(usable),
        "precision": precision,
        "recall": recall,
        "f1": harmonic(precision, recall),
    }
    errors = np.concatenate([score.errors for score in scores])
    if len(errors):
        out["mean_error"] = float(errors.mean())
        out["median_error"] = float(np.median(errors))
        out["error_90"] = float(np.quantile(errors, 0.9))
    corners = [score.corner for score in scores if score.corner is not None]
    for kind, name in enumerate(("dlt", "magsac")):
        if corners:
            out[f"auc_{name}"] = areas([c[kind] for c in corners], CORNERS)
    angles = [score.angle for score in scores if score.angle is not None]
    if angles:
        out["auc_pose"] = areas(angles, ANGLES)
    return out


def harmonic(precision: float, recall: float) -> float:
    """Harmonic mean of precision and recall, F1.

    Example:
        >>> harmonic(0.5, 1.0)
        0.6666666666666666
    """
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def areas(errors: Sequence[float], limits: Sequence[float]) -> list[float]:
    """Area under the curve of recall against error up to each limit, divided by the limit (AUC).

    Example:
        >>> areas([0.0, 5.0], [10.0])
        [0.75]
    """
    ordered = np.sort(np.asarray(errors, float))
    return [float(np.clip(1 - ordered / limit, 0, None).mean()) for limit in limits]


def corner_errors(pair: Pair, matches: Matches) -> tuple[float, float]:
    """Mean corner errors of homographies estimated by DLT and by MAGSAC, in pixels."""
    points0, points1 = pair.points(matches)
    out = []
    for method in (0, cv2.USAC_MAGSAC):
        estimate = None
        if len(points0) >= 4:
            cv2.setRNGSeed(0)
            estimate, _ = cv2.findHomography(points0, points1, method, 3.0)
        out.append(np.inf if estimate is None else _corner_distance(pair, estimate))
    return out[0], out[1]


def _corner_distance(pair: Pair, estimate: Array) -> float:
    width, height = pair.size
    corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], float)
    assert pair.homography is not None
    with np.errstate(all="ignore"):
        there = [cv2.perspectiveTransform(corners[None], m)[0] for m in (pair.homography, estimate)]
        distance = float(np.linalg.norm(there[0] - there[1], axis=1).mean())
    return distance if np.isfinite(distance) else np.inf


def pose_error(pair: Pair, matches: Matches) -> float:
    """Larger error of rotation and translation direction, in degrees; 180 without an estimate."""
    assert pair.motion is not None
    if len(matches) < 5:
        return 180.0
    focal = pair.size[0] / 2
    camera = np.array([[focal, 0, pair.size[0] / 2], [0, focal, pair.size[1] / 2], [0, 0, 1]])
    points0, points1 = pair.points(matches)
    cv2.setRNGSeed(0)
    essential, inliers = cv2.findEssentialMat(
        points0, points1, camera, method=cv2.RANSAC, prob=0.999, threshold=1.0
    )
    if essential is None or essential.shape != (3, 3):
        return 180.0
    _, rotation, translation, _ = cv2.recoverPose(essential, points0, points1, camera, mask=inliers)
    trace = np.trace(rotation.T @ pair.motion[:3, :3])
    angle = np.degrees(np.arccos(np.clip((trace - 1) / 2, -1, 1)))
    return max(float(angle), _direction_error(translation[:, 0], pair.motion[:3, 3]))


def _direction_error(estimate: Array, truth: Array) -> float:
    length = float(np.linalg.norm(estimate) * np.linalg.norm(truth))
    if length < 1e-9:
        return 0.0  # a static camera has no direction of translation
    angle = np.degrees(np.arccos(np.clip(abs(estimate @ truth) / length, -1, 1)))
    return float(angle)

"""How good matches are: precision, recall and F1, the paper's error, and what geometry gains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from evergraph.apps.matching.decide import Matches
from evergraph.apps.matching.truth import PIXELS, Pair

Array = NDArray[Any]
Match = Callable[[Pair], Matches]
STRONGEST = 150  # matches of a pair that the paper's error looks at
CORNERS = (1.0, 3.0, 5.0)  # pixels
ANGLES = (5.0, 10.0, 20.0)  # degrees
TOLERANCES = tuple(round(0.25 * step, 2) for step in range(1, 41))  # pixels, up to 10


@dataclass(frozen=True)
class Score:
    """What is known of the matches of one pair.

    Attributes:
        precision: share of the judged matches that lie within 3 pixels of the truth; 0 if there
            are none.
        recall: share of the true matches that were found; NaN if there are none.
        errors: of the most confident 150 matches in pixels, hidden points included: what the
            paper averages.
        corner: mean error of the corners in pixels under homographies from all matches (DLT) and
            from a robust estimate (MAGSAC); None if the pair is not of a plane.
        angle: larger of the errors of rotation and direction, in degrees, under a robust
            essential matrix; None if the motion is unknown.
    """

    precision: float
    recall: float
    errors: Array = field(repr=False)
    corner: tuple[float, float] | None = None
    angle: float | None = None


def judge(pair: Pair, matches: Matches, geometry: bool = False) -> Score:
    """Judge the matches of a pair; `geometry` also estimates its homography or motion."""
    judged = pair.truth.judged[matches.first]
    first, second = matches.first[judged], matches.second[judged]
    right = pair.error(first, second) <= PIXELS
    truth = pair.true_matches()
    there = int((truth >= 0).sum())
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
        found / there if there else float("nan"),
        errors[np.isfinite(errors)],
        corner,
        angle,
    )


def evaluate(pairs: Iterable[Pair], match: Match, geometry: bool = False) -> dict[str, Any]:
    """Judge a matcher on many pairs."""
    return summarize([judge(pair, match(pair), geometry) for pair in pairs])


def summarize(scores: Sequence[Score]) -> dict[str, Any]:
    """Means over the pairs that have true matches; F1 is that of the mean precision and recall."""
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


def tolerance_curve(errors: Array, tolerances: Sequence[float] = TOLERANCES) -> list[float]:
    """The share of matches with an error up to each tolerance: the paper's Fig. 3."""
    if not len(errors):
        return [0.0] * len(tolerances)
    return [float((errors <= tolerance).mean()) for tolerance in tolerances]


def harmonic(precision: float, recall: float) -> float:
    """F1.

    Example:
        >>> harmonic(0.5, 1.0)
        0.6666666666666666
    """
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def areas(errors: Sequence[float], limits: Sequence[float]) -> list[float]:
    """Area under the curve of recall against error, up to each limit, as a share of the limit.

    Example:
        >>> areas([0.0, 5.0], [10.0])
        [0.75]
    """
    ordered = np.sort(np.asarray(errors, float))
    return [float(np.clip(1 - ordered / limit, 0, None).mean()) for limit in limits]


def corner_errors(pair: Pair, matches: Matches) -> tuple[float, float]:
    """How far estimated homographies move the corners: least squares, and MAGSAC."""
    points0 = pair.first.keypoints[matches.first].astype(np.float64)
    points1 = pair.second.keypoints[matches.second].astype(np.float64)
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
    """The angle by which an estimated motion is off, in degrees; 180 if there is no estimate."""
    assert pair.motion is not None
    if len(matches) < 5:
        return 180.0
    focal = pair.size[0] / 2
    camera = np.array([[focal, 0, pair.size[0] / 2], [0, focal, pair.size[1] / 2], [0, 0, 1]])
    points0 = pair.first.keypoints[matches.first].astype(np.float64)
    points1 = pair.second.keypoints[matches.second].astype(np.float64)
    cv2.setRNGSeed(0)
    essential, inliers = cv2.findEssentialMat(
        points0, points1, camera, method=cv2.RANSAC, prob=0.999, threshold=1.0
    )
    if essential is None or essential.shape != (3, 3):
        return 180.0
    _, turn, shift, _ = cv2.recoverPose(essential, points0, points1, camera, mask=inliers)
    off = np.trace(turn.T @ pair.motion[:3, :3])
    rotation = np.degrees(np.arccos(np.clip((off - 1) / 2, -1, 1)))
    return max(float(rotation), _direction_error(shift[:, 0], pair.motion[:3, 3]))


def _direction_error(estimate: Array, truth: Array) -> float:
    length = float(np.linalg.norm(estimate) * np.linalg.norm(truth))
    if length < 1e-9:
        return 0.0  # a camera that stands still has no direction to miss
    angle = np.degrees(np.arccos(np.clip(abs(estimate @ truth) / length, -1, 1)))
    return float(angle)

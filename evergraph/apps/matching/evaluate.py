"""How good matches are.

Metrics are precision, recall, F1, the paper's mean error, and the AUC of homography and pose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.apps.matching.truth import PIXELS, Matches, Pair
from evergraph.apps.matching.verify import epipolar_distance, fundamental_matrix, verify
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
        precision: share of judged matches with an error of at most 3 pixels; 0 if there are none.
        recall: share of the true matches that were found; NaN if there are none.
        errors: in pixels, of the 150 most confident matches, occluded keypoints included.
        possible: the same of points that have a partner within 3 pixels of their true place.
        share: of points that have one.
        corner: see `corner_errors`; None without a true homography.
        angle: see `pose_error`; None without a true motion.
        epipolar: share of matches within 3 pixels of their true epipolar lines; as `angle`.
    """

    precision: float
    recall: float
    errors: Array = field(repr=False)
    possible: Array = field(repr=False)
    share: float
    corner: tuple[float, float, float] | None = None
    angle: float | None = None
    epipolar: float | None = None


def judge(pair: Pair, matches: Matches, geometry: bool = False) -> Score:
    """Score the matches of a pair; `geometry` also estimates its homography or motion."""
    judged = pair.truth.judged[matches.first]
    first, second = matches.first[judged], matches.second[judged]
    right = pair.error(first, second) <= PIXELS
    precision = float(right.mean()) if len(right) else 0.0
    total = int((pair.true_matches >= 0).sum())
    found = int((pair.true_matches[first] == second).sum())
    recall = found / total if total else float("nan")
    paired = pair.partners >= 0
    errors, possible = (
        pair.error(matches.first[rows], matches.second[rows])
        for rows in (slice(STRONGEST), np.flatnonzero(paired[matches.first])[:STRONGEST])
    )
    corner = angle = epipolar = None
    if geometry and pair.homography is not None:
        corner = corner_errors(pair, matches)
    elif geometry and pair.motion is not None:
        angle = pose_error(pair, matches)
        lines = fundamental_matrix(pair.motion, pair.intrinsics)
        near = epipolar_distance(*pair.points(matches), lines) <= PIXELS
        epipolar = float(near.mean()) if len(near) else 0.0
    share = float(paired.mean()) if len(paired) else 0.0
    finite = errors[np.isfinite(errors)]
    return Score(precision, recall, finite, possible, share, corner, angle, epipolar)


def evaluate(pairs: Iterable[Pair], match: Match, geometry: bool = False) -> dict[str, Any]:
    """Score a matcher on many pairs."""
    return summarize([judge(pair, match(pair), geometry) for pair in pairs])


def summarize(scores: Sequence[Score]) -> dict[str, Any]:
    """Mean over the pairs that have true matches; F1 of mean precision and mean recall.

    Pairs with poses but without true matches have neither, but the rest.
    """
    usable = [score for score in scores if not np.isnan(score.recall)]
    posed = [score for score in scores if score.angle is not None]
    if not usable and not posed:
        raise ValueError(f"none of the {len(scores)} pairs has any true match to look for")
    out: dict[str, Any] = {"pairs": len(usable or posed)}
    if usable:
        for name in ("precision", "recall"):
            out[name] = float(np.mean([getattr(score, name) for score in usable]))
        out["f1"] = harmonic(out["precision"], out["recall"])
    errors = np.concatenate([score.errors for score in scores])
    if len(errors):
        out |= {"mean_error": float(errors.mean()), "median_error": float(np.median(errors))}
        out["error_90"] = float(np.quantile(errors, 0.9))
    possible = np.concatenate([score.possible for score in scores])
    if len(possible):
        out["possible_error"] = float(possible.mean())
        out["possible_share"] = float(np.mean([score.share for score in scores]))
    corners = [score.corner for score in scores if score.corner is not None]
    for kind, name in enumerate(("dlt", "magsac", "unrefined")):
        if corners:
            out[f"auc_{name}"] = areas([c[kind] for c in corners], CORNERS)
    if posed:
        out["auc_pose"] = areas([score.angle or 0.0 for score in posed], ANGLES)
        out["epipolar_precision"] = float(np.mean([score.epipolar or 0.0 for score in posed]))
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


def corner_errors(pair: Pair, matches: Matches) -> tuple[float, float, float]:
    """Mean corner errors of homographies by DLT, by MAGSAC refined and by MAGSAC, in pixels."""
    points0, points1 = pair.points(matches)
    corners = np.array([[[0, 0], [1, 0], [1, 1], [0, 1]]], float) * pair.size
    direct = cv2.findHomography(points0, points1, 0)[0] if len(points0) >= 4 else None
    robust = [verify(points0, points1, "homography", refine=r).model for r in (True, False)]
    out = []
    for found in (direct, *robust):
        distance = np.inf
        if found is not None:
            with np.errstate(all="ignore"):
                there = [cv2.perspectiveTransform(corners, m)[0] for m in (pair.homography, found)]
                distance = float(np.linalg.norm(there[0] - there[1], axis=1).mean())
        out.append(distance if np.isfinite(distance) else np.inf)
    return out[0], out[1], out[2]


def pose_error(pair: Pair, matches: Matches) -> float:
    """Larger error of rotation and translation direction, in degrees; 180 without an estimate."""
    assert pair.motion is not None
    found = verify(*pair.points(matches), "essential", pair.intrinsics)
    if found.rotation is None or found.translation is None:
        return 180.0
    rotation, shift = found.rotation, found.translation
    cosine = (np.trace(rotation.T @ pair.motion[:3, :3]) - 1) / 2
    true = pair.motion[:3, 3]
    length = float(np.linalg.norm(shift) * np.linalg.norm(true))
    # a static camera has no direction of translation
    along = abs(shift @ true) / length if length >= 1e-9 else 1.0
    return float(np.degrees(np.arccos(np.clip([cosine, along], -1, 1))).max())

"""Labels without any truth: what a robust estimate of the geometry agrees with."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from evergraph.apps.matching.candidates import CandidateGraph
from evergraph.apps.matching.decide import one_to_one
from evergraph.apps.matching.truth import PIXELS, Pair

Array = NDArray[Any]
SURE = 0.5  # least probability of the matches that the estimate is made from
FEWEST = 16  # matches that must agree before anything is believed
WRONG = 3 * PIXELS  # distance from the epipolar line at which a candidate must be false


def verified_labels(pair: Pair, graph: CandidateGraph, score: Array) -> Array:
    """Labels `(E,)` of candidates: 1 true, 0 false, -1 unknown (Eq. 1's target from geometry).

    Confident matches vote on a fundamental matrix (MAGSAC). Those that agree with it are true,
    whatever shares a point with them or lies far from its epipolar line is false, and the rest
    stays unknown: near the line means little.
    """
    unknown = np.full(len(graph), -1)
    matches = one_to_one(graph.first, graph.second, score, SURE)
    if len(matches) < FEWEST:
        return unknown
    points0 = pair.first.keypoints[matches.first].astype(np.float64)
    points1 = pair.second.keypoints[matches.second].astype(np.float64)
    cv2.setRNGSeed(0)
    estimate, agrees = cv2.findFundamentalMat(points0, points1, cv2.USAC_MAGSAC, 1.0, 0.999)
    if estimate is None or estimate.shape != (3, 3) or int(agrees.sum()) < FEWEST:
        return unknown
    kept = agrees[:, 0].astype(bool)
    partner = np.full(len(pair.first), -1)
    partner[matches.first[kept]] = matches.second[kept]
    taken = np.zeros(len(pair.second), bool)
    taken[matches.second[kept]] = True
    true = partner[graph.first] == graph.second
    rival = (partner[graph.first] >= 0) | taken[graph.second]
    far = epipolar_distance(pair, graph, estimate) > WRONG
    return np.where(true, 1, np.where(rival | far, 0, unknown))


def epipolar_distance(pair: Pair, graph: CandidateGraph, fundamental: Array) -> Array:
    """How far candidates lie from the epipolar lines of their points, pixels."""
    ones = np.ones((len(graph), 1))
    points0 = np.concatenate([pair.first.keypoints[graph.first], ones], 1)
    points1 = np.concatenate([pair.second.keypoints[graph.second], ones], 1)
    line1, line0 = points0 @ fundamental.T, points1 @ fundamental
    off = np.abs((points1 * line1).sum(1))
    with np.errstate(divide="ignore", invalid="ignore"):
        away = [off / np.hypot(line[:, 0], line[:, 1]) for line in (line0, line1)]
    return np.asarray(np.nan_to_num(np.maximum(*away), nan=np.inf))

"""Points of detectors without scale and orientation: both are estimated from mutual neighbors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from evergraph.apps.matching.evaluate import nearest
from evergraph.apps.matching.features import ImageFeatures
from evergraph.apps.matching.truth import Matches, sorted_matches
from evergraph.apps.matching.verify import verify

Array = NDArray[Any]
NEARBY = 8  # matches around each that vote with it
SEEDS = 400  # votes that may become the mode
WIDTH = 0.2  # of the mode, in logarithms of scale and in radians
FEWEST = 8  # mutual neighbors that an estimate needs
AGREED, SHARE = 24, 0.35  # mutual neighbors that agree on a geometry, and their share, to be used


def unknown(found: ImageFeatures) -> bool:
    """Whether points have neither scale nor orientation."""
    return bool((found.scales == 1).all() and (found.orientations == 0).all())


def mutual(first: ImageFeatures, second: ImageFeatures) -> Matches:
    """Mutual nearest neighbors; confidence falls with the ratio to the second nearest."""
    partner, _, ratio, both = nearest(first, second)
    kept = np.flatnonzero(both)
    return sorted_matches(kept, partner[kept], np.clip(1 - ratio[kept], 0, 1))


def with_frames(first: ImageFeatures, second: ImageFeatures) -> tuple[ImageFeatures, ImageFeatures]:
    """Give the second image the scale and orientation that most mutual neighbors agree on.

    Each mutual neighbor and those around it vote: the displacement between two of them in the
    second image, over that in the first, is a scale with a rotation. The mode of the votes is
    taken; without a vote both are as they were.
    """
    found = mutual(first, second)
    if len(found) < FEWEST:
        return first, second
    source, target = (
        side.keypoints[index].astype(np.float64) @ [1, 1j]
        for side, index in ((first, found.first), (second, found.second))
    )
    tree = cKDTree(first.keypoints[found.first])
    count = min(NEARBY, len(found) - 1) + 1
    around = np.asarray(tree.query(first.keypoints[found.first], count)[1])[:, 1:]
    moved0, moved1 = (part[around] - part[:, None] for part in (source, target))
    weight = found.confidence[around] * found.confidence[:, None] + 1e-3
    usable = (np.abs(moved0) > 1) & (np.abs(moved1) > 1)
    if not usable.any():
        return first, second
    vote, weight = np.log(moved1[usable] / moved0[usable]), weight[usable]
    seeds = vote[np.argsort(-weight, kind="stable")[:SEEDS]]
    off = vote - seeds[:, None]
    turn = np.angle(np.exp(1j * off.imag))
    near = np.exp(-(np.square(off.real) + np.square(turn)) / (2 * WIDTH**2)) * weight
    best = int(near.sum(1).argmax())
    share = near[best] / near[best].sum()
    scale = np.exp(seeds[best].real + share @ off[best].real)
    angle = seeds[best].imag + share @ turn[best]
    count = len(second)
    scales, angles = (np.full(count, value, np.float32) for value in (scale, angle))
    return first, replace(second, scales=scales, orientations=angles)


def at_least_mutual(first: ImageFeatures, second: ImageFeatures, matches: Matches) -> Matches:
    """Matches, or mutual nearest neighbors if more of those agree on an epipolar geometry."""
    plain = mutual(first, second)
    counts = [
        int(verify(first.keypoints[m.first], second.keypoints[m.second]).inliers.sum())
        for m in (matches, plain)
    ]
    if counts[1] > counts[0] and counts[1] >= max(AGREED, SHARE * len(plain)):
        return plain
    return matches

"""Points without scale or orientation: what is missing is estimated from mutual neighbors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from evergraph.apps.matching.baselines import nearest
from evergraph.apps.matching.features import ImageFeatures
from evergraph.apps.matching.truth import Matches, sorted_matches
from evergraph.apps.matching.verify import verify

Array = NDArray[Any]
NEARBY = 8  # matches around each that vote with it
SEEDS = 200  # votes that may become the mode
PARTS = np.real, np.imag  # of a vote: the logarithm of the scale, and the angle
WIDTH = 0.2  # of the mode, in logarithms of scale and in radians
FEWEST = 8  # mutual neighbors that an estimate needs
AGREED, SHARE = 24, 0.35  # mutual neighbors that agree on a geometry, and their share, to be used


def missing(first: ImageFeatures, second: ImageFeatures) -> tuple[bool, bool]:
    """Whether the scales of one of two images are unknown (all 1), and the orientations (all 0)."""
    sides = [side for side in (first, second) if len(side)]
    return (
        any(bool((side.scales == 1).all()) for side in sides),
        any(bool((side.orientations == 0).all()) for side in sides),
    )


def without(side: ImageFeatures, scales: bool, orientations: bool) -> ImageFeatures:
    """The same points, of which one does not know the scales, the orientations or both."""
    return replace(
        side,
        scales=np.ones_like(side.scales) if scales else side.scales,
        orientations=np.zeros_like(side.orientations) if orientations else side.orientations,
    )


def mutual(first: ImageFeatures, second: ImageFeatures) -> Matches:
    """Mutual nearest neighbors; confidence falls with the ratio to the second nearest."""
    partner, _, ratio, both = nearest(first, second)
    kept = np.flatnonzero(both)
    return sorted_matches(kept, partner[kept], np.clip(1 - ratio[kept], 0, 1))


def with_frames(first: ImageFeatures, second: ImageFeatures) -> tuple[ImageFeatures, ImageFeatures]:
    """Give two images scales and orientations where one of them has none.

    Each mutual neighbor and those around it vote: the displacement between two of them in the
    second image, over that in the first, is a scale with a rotation. The mode of the votes is what
    all points of the second image get, relative to a scale of 1 and an angle of 0 in the first;
    without votes it gets these as well.
    """
    lost = missing(first, second)
    if not any(lost):
        return first, second
    first, second = without(first, *lost), without(second, *lost)
    scale, angle = motion_of_most(first, second)
    scales, angles = (np.full(len(second), value, np.float32) for value in (scale, angle))
    return first, replace(
        second,
        scales=scales if lost[0] else second.scales,
        orientations=angles if lost[1] else second.orientations,
    )


def motion_of_most(first: ImageFeatures, second: ImageFeatures) -> tuple[float, float]:
    """The scale and the angle that most mutual neighbors agree on; 1 and 0 without votes."""
    found = mutual(first, second)
    if len(found) < FEWEST:
        return 1.0, 0.0
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
        return 1.0, 0.0
    vote, weight = np.log(moved1[usable] / moved0[usable]), weight[usable]
    seeds = vote[np.argsort(-weight, kind="stable")[:SEEDS]]
    size, turn = ((part(vote) - part(seeds)[:, None]).astype(np.float32) for part in PARTS)
    turn -= np.float32(2 * np.pi) * np.rint(turn / np.float32(2 * np.pi))
    near = np.exp((size**2 + turn**2) / np.float32(-2 * WIDTH**2))
    best = int((near @ weight.astype(np.float32)).argmax())
    share = near[best] * weight
    share /= share.sum()
    scale = float(np.exp(seeds[best].real + share @ size[best]))
    return scale, float(seeds[best].imag + share @ turn[best])


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

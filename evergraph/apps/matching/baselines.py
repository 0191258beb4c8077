"""Baselines without learning: nearest neighbors, the ratio test, GMS and AdaLAM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from evergraph.apps.matching.features import ImageFeatures
from evergraph.apps.matching.truth import Matches, Pair, sorted_matches
from evergraph.extras import require

cv2 = require("cv2", "matching")

Array = NDArray[Any]
Baseline = Callable[[Pair], Matches]


@dataclass(frozen=True)
class Nearest:
    """Nearest neighbors by descriptor, `(N,)` each.

    Attributes:
        first, second: indices of the keypoints.
        similarity: cosine of the descriptors.
        ratio: distance divided by that to the second nearest neighbor.
        mutual: whether the keypoints are nearest neighbors of each other.
    """

    first: Array
    second: Array
    similarity: Array
    ratio: Array
    mutual: Array


def nearest(first: ImageFeatures, second: ImageFeatures) -> Nearest:
    """Find the nearest neighbor of each keypoint of the first image in the second."""
    if not len(first) or not len(second):
        none = np.zeros(0)
        return Nearest(none.astype(int), none.astype(int), none, none, none.astype(bool))
    similarity = first.descriptors @ second.descriptors.T
    rows, partner = np.arange(len(first)), similarity.argmax(1)
    best = similarity[rows, partner]
    ratio = np.zeros(len(first), np.float32)
    if len(second) > 1:
        runner_up = np.partition(similarity, len(second) - 2, axis=1)[:, -2]
        near, far = (np.sqrt(np.maximum(2 - 2 * s, 0)) for s in (best, runner_up))
        ratio = np.where(far > 0, near / np.maximum(far, 1e-12), 1.0)
    return Nearest(rows, partner, best, ratio, similarity.argmax(0)[partner] == rows)


def nearest_neighbor(pair: Pair) -> Matches:
    """Nearest neighbors without a check, as in the paper; confidence is the cosine."""
    found = nearest(pair.first, pair.second)
    return sorted_matches(found.first, found.second, found.similarity)


def ratio_test(pair: Pair, ratio: float, mutual: bool = True) -> Matches:
    """Nearest neighbors whose distance ratio to the second nearest is at most `ratio` (Lowe)."""
    found = nearest(pair.first, pair.second)
    kept = (found.ratio <= ratio) & (found.mutual | (not mutual))
    return sorted_matches(found.first[kept], found.second[kept], 1 - 0.5 * found.ratio[kept])


def gms(pair: Pair, threshold: float = 6.0) -> Matches:
    """Grid-based motion statistics (Bian et al. 2017), from OpenCV's contributed modules."""
    found = nearest(pair.first, pair.second)
    if not len(found.first):
        return sorted_matches(found.first, found.second, found.similarity)
    points0, points1 = (
        [cv2.KeyPoint(float(x), float(y), 1.0) for x, y in side.keypoints]
        for side in (pair.first, pair.second)
    )
    proposed = [
        cv2.DMatch(int(i), int(j), float(1 - s))
        for i, j, s in zip(found.first, found.second, found.similarity, strict=True)
    ]
    kept = cv2.xfeatures2d.matchGMS(
        pair.size, pair.size, points0, points1, proposed,
        withRotation=True, withScale=True, thresholdFactor=threshold,
    )  # fmt: skip
    first = np.array([match.queryIdx for match in kept], int)
    second = np.array([match.trainIdx for match in kept], int)
    return sorted_matches(first, second, found.similarity[first])


def adalam(pair: Pair, settings: dict[str, Any] | None = None) -> Matches:
    """Adaptive locally-affine matching (Cavalli et al. 2020), from kornia.

    Args:
        pair: two images.
        settings: changes to kornia's default configuration.
    """
    kornia = require("kornia.feature.adalam", "adalam")
    if len(pair.first) < 4 or len(pair.second) < 4:
        none = np.zeros(0, int)
        return sorted_matches(none, none, np.zeros(0))
    default = kornia.get_adalam_default_config()
    matcher = kornia.AdalamFilter({**default, **(settings or {}), "device": torch.device("cpu")})
    (k1, d1, o1, s1), (k2, d2, o2, s2) = (_tensors(side) for side in (pair.first, pair.second))
    shape = pair.size[::-1]
    with torch.random.fork_rng():  # AdaLAM draws from the global generator
        torch.manual_seed(0)
        found, distance = matcher.match_and_filter(
            k1, k2, d1, d2, shape, shape, o1, o2, s1, s2, return_dist=True
        )
    index = found.numpy().reshape(-1, 2)
    return sorted_matches(index[:, 0], index[:, 1], 1 - 0.5 * distance.numpy().reshape(-1))


def _tensors(side: ImageFeatures) -> list[torch.Tensor]:
    """Keypoints, descriptors, orientations in degrees and scales, as AdaLAM takes them."""
    turn = np.rad2deg(side.orientations)
    parts = (side.keypoints, side.descriptors, turn, side.scales)
    return [torch.from_numpy(part).float() for part in parts]


def settled() -> dict[str, Baseline]:
    """The baselines that are installed, with settings chosen on validation pairs."""
    out: dict[str, Baseline] = {
        "nearest neighbor": nearest_neighbor,
        "mutual nearest neighbor": partial(ratio_test, ratio=1.0),
        "ratio test": partial(ratio_test, ratio=0.875),
    }
    if hasattr(cv2, "xfeatures2d") and hasattr(cv2.xfeatures2d, "matchGMS"):
        out["GMS"] = partial(gms, threshold=2.0)
    if find_spec("kornia") is not None:
        out["AdaLAM"] = adalam
    return out

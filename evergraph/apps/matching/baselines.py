"""What is there without learning: nearest neighbors, the ratio test, GMS and AdaLAM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from evergraph.apps.matching.decide import Matches, sorted_matches
from evergraph.apps.matching.features import ImageFeatures
from evergraph.apps.matching.truth import Pair

Array = NDArray[Any]
Baseline = Callable[[Pair], Matches]
RATIOS = tuple(round(0.7 + 0.025 * step, 3) for step in range(13))  # 0.7 to 1


@dataclass(frozen=True)
class Nearest:
    """Nearest neighbors of all points by descriptor."""

    first: Array
    second: Array
    similarity: Array
    ratio: Array
    mutual: Array


def nearest(first: ImageFeatures, second: ImageFeatures) -> Nearest:
    """Each point of the first image with the most similar one of the second."""
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
    """The paper's rule: the most similar point, no check; confidence is the cosine."""
    found = nearest(pair.first, pair.second)
    return sorted_matches(found.first, found.second, found.similarity)


def mutual_nearest_neighbor(pair: Pair) -> Matches:
    """The most similar point, if that holds both ways."""
    return ratio_test(pair, 1.0)


def ratio_test(pair: Pair, ratio: float, mutual: bool = True) -> Matches:
    """Mutual nearest neighbors that are so much closer than the second nearest (Lowe)."""
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
    first, second = (np.array([getattr(m, name) for m in kept], int) for name in ENDS)
    return sorted_matches(first, second, found.similarity[first])


ENDS = ("queryIdx", "trainIdx")
ADALAM_GRID: tuple[dict[str, Any], ...] = tuple(
    {"search_expansion": reach, "min_inliers": least, "min_confidence": sure}
    for reach, least in ((8, 4), (4, 4), (8, 6))
    for sure in (50, 200)
)
"""Settings that AdaLAM is tuned over."""


def adalam(pair: Pair, settings: dict[str, Any] | None = None) -> Matches:
    """Adaptive locally-affine matching (Cavalli et al. 2020), from kornia."""
    from kornia.feature.adalam import AdalamFilter
    from kornia.feature.adalam.adalam import get_adalam_default_config

    none = np.zeros(0, int)
    if len(pair.first) < 4 or len(pair.second) < 4:
        return sorted_matches(none, none, np.zeros(0))
    config = {**get_adalam_default_config(), **(settings or {}), "device": torch.device("cpu")}
    sides = [_for_adalam(side) for side in (pair.first, pair.second)]
    with torch.random.fork_rng():  # it draws from the global randomness
        torch.manual_seed(0)
        found, distance = AdalamFilter(config).match_and_filter(
            sides[0]["points"], sides[1]["points"], sides[0]["table"], sides[1]["table"],
            pair.size[::-1], pair.size[::-1],
            sides[0]["turn"], sides[1]["turn"], sides[0]["scale"], sides[1]["scale"],
            return_dist=True,
        )  # fmt: skip
    index = found.numpy().reshape(-1, 2)
    return sorted_matches(index[:, 0], index[:, 1], 1 - 0.5 * distance.numpy().reshape(-1))


def _for_adalam(side: ImageFeatures) -> dict[str, torch.Tensor]:
    """The points as AdaLAM wants them: orientations in degrees."""
    return {
        "points": torch.from_numpy(side.keypoints).float(),
        "table": torch.from_numpy(side.descriptors).float(),
        "turn": torch.from_numpy(np.rad2deg(side.orientations)).float(),
        "scale": torch.from_numpy(side.scales).float(),
    }


def variants() -> dict[str, dict[str, Baseline]]:
    """Every baseline with all settings that validation pairs choose from."""
    out: dict[str, dict[str, Baseline]] = {
        "nearest neighbor": {"": nearest_neighbor},
        "mutual nearest neighbor": {"": mutual_nearest_neighbor},
        "ratio test": {
            f"ratio {ratio}{', mutual' * mutual}": partial(ratio_test, ratio=ratio, mutual=mutual)
            for ratio in RATIOS
            for mutual in (False, True)
        },
    }
    if hasattr(cv2, "xfeatures2d") and hasattr(cv2.xfeatures2d, "matchGMS"):
        out["GMS"] = {f"threshold {t}": partial(gms, threshold=t) for t in (2.0, 6.0)}
    if find_spec("kornia") is not None:
        tuned = {str(settings): partial(adalam, settings=settings) for settings in ADALAM_GRID}
        out["AdaLAM"] = {"default": adalam, **tuned}
    return out


def settled() -> dict[str, Baseline]:
    """Every baseline with a setting that validation pairs chose, for tables without tuning."""
    kept = {"ratio test": "ratio 0.875, mutual", "GMS": "threshold 2.0", "AdaLAM": "default"}
    return {method: settings[kept.get(method, "")] for method, settings in variants().items()}

"""What to compare with: an oracle, nearest neighbors, the ratio test, GMS, AdaLAM, LightGlue."""

from __future__ import annotations

from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from evergraph.apps.matching.evaluate import Match
from evergraph.apps.matching.features import Detector, ImageFeatures
from evergraph.apps.matching.truth import Matches, Pair, sorted_matches
from evergraph.extras import require

cv2 = require("cv2", "matching")

Array = NDArray[Any]


def nearest(first: ImageFeatures, second: ImageFeatures) -> tuple[Array, Array, Array, Array]:
    """The nearest neighbor in the second image of each of N keypoints of the first, `(N,)` each.

    Returns its index, the cosine of the descriptors, the distance divided by that to the second
    nearest, and whether both keypoints are nearest neighbors of each other.
    """
    if not len(first) or not len(second):
        none = np.zeros(0)
        return none.astype(int), none, none, none.astype(bool)
    similarity = first.descriptors @ second.descriptors.T
    rows, partner = np.arange(len(first)), similarity.argmax(1)
    best = similarity[rows, partner]
    ratio = np.zeros(len(first), np.float32)
    if len(second) > 1:
        runner_up = np.partition(similarity, len(second) - 2, axis=1)[:, -2]
        near, far = (np.sqrt(np.maximum(2 - 2 * s, 0)) for s in (best, runner_up))
        ratio = np.where(far > 0, near / np.maximum(far, 1e-12), 1.0)
    return partner, best, ratio, similarity.argmax(0)[partner] == rows


def oracle(pair: Pair) -> Matches:
    """The point closest to each true place, which needs the truth; the strongest points first."""
    first = np.flatnonzero(pair.partners >= 0)
    return sorted_matches(first, pair.partners[first], np.ones(len(first)))


def nearest_neighbor(pair: Pair) -> Matches:
    """Nearest neighbors without a check, as in the paper; confidence is the cosine."""
    partner, cosine, _, _ = nearest(pair.first, pair.second)
    return sorted_matches(np.arange(len(partner)), partner, cosine)


def ratio_test(pair: Pair, ratio: float, mutual: bool = True) -> Matches:
    """Nearest neighbors whose distance ratio to the second nearest is at most `ratio` (Lowe)."""
    partner, _, found, both = nearest(pair.first, pair.second)
    kept = np.flatnonzero((found <= ratio) & (both | (not mutual)))
    return sorted_matches(kept, partner[kept], 1 - 0.5 * found[kept])


mutual_neighbor = partial(ratio_test, ratio=1.0)
"""Nearest neighbors of each other."""


def gms(pair: Pair, threshold: float = 6.0) -> Matches:
    """Grid-based motion statistics (Bian et al. 2017), from OpenCV's contributed modules."""
    partner, cosine, _, _ = nearest(pair.first, pair.second)
    if not len(partner):
        return sorted_matches(partner, partner, cosine)
    points0, points1 = (
        [cv2.KeyPoint(float(x), float(y), 1.0) for x, y in side.keypoints]
        for side in (pair.first, pair.second)
    )
    proposed = [
        cv2.DMatch(i, int(j), float(1 - s))
        for i, (j, s) in enumerate(zip(partner, cosine, strict=True))
    ]
    kept = cv2.xfeatures2d.matchGMS(
        pair.size, pair.size, points0, points1, proposed,
        withRotation=True, withScale=True, thresholdFactor=threshold,
    )  # fmt: skip
    first = np.array([match.queryIdx for match in kept], int)
    return sorted_matches(first, partner[first], cosine[first])


def adalam(pair: Pair, settings: dict[str, Any] | None = None) -> Matches:
    """AdaLAM (Cavalli et al. 2020) from kornia; settings change kornia's configuration."""
    kornia = require("kornia.feature.adalam", "adalam")
    if len(pair.first) < 4 or len(pair.second) < 4:
        none = np.zeros(0, int)
        return sorted_matches(none, none, np.zeros(0))
    default = kornia.get_adalam_default_config()
    matcher = kornia.AdalamFilter({**default, **(settings or {}), "device": torch.device("cpu")})
    (k1, d1, o1, s1), (k2, d2, o2, s2) = (
        [
            torch.from_numpy(part).float()
            for part in (s.keypoints, s.descriptors, np.rad2deg(s.orientations), s.scales)
        ]
        for s in (pair.first, pair.second)
    )
    shape = pair.size[::-1]
    with torch.random.fork_rng():  # AdaLAM draws from the global generator
        torch.manual_seed(0)
        found, distance = matcher.match_and_filter(
            k1, k2, d1, d2, shape, shape, o1, o2, s1, s2, return_dist=True
        )
    index = found.numpy().reshape(-1, 2)
    return sorted_matches(index[:, 0], index[:, 1], 1 - 0.5 * distance.numpy().reshape(-1))


def lightglue_weights() -> Path:
    """Where kornia looks for LightGlue's weights for SIFT; nothing is downloaded here."""
    return Path(torch.hub.get_dir()) / "checkpoints" / "sift_lightglue_v0-1_arxiv-pth"


@cache
def _lightglue(weights: Path) -> Any:
    return require("kornia.feature", "adalam").LightGlue("sift").eval()


@torch.inference_mode()
def lightglue(pair: Pair) -> Matches:
    """LightGlue (Lindenberger et al. 2023) for SIFT from kornia, if its weights are here."""
    if not len(pair.first) or not len(pair.second):
        none = np.zeros(0, int)
        return sorted_matches(none, none, np.zeros(0))
    sides = {}
    for number, side in enumerate((pair.first, pair.second)):
        size = np.maximum(pair.size, np.ceil(side.keypoints.max(0)))  # the second may be larger
        parts = {
            "keypoints": side.keypoints, "descriptors": side.descriptors,
            "scales": side.scales, "oris": side.orientations, "image_size": size,
        }  # fmt: skip
        sides[f"image{number}"] = {
            name: torch.from_numpy(part).float()[None] for name, part in parts.items()
        }
    found = _lightglue(lightglue_weights())(sides)
    index, sure = found["matches"][0].numpy(), found["scores"][0].numpy()
    return sorted_matches(index[:, 0], index[:, 1], sure)


def settled(detector: Detector = "sift") -> dict[str, Match]:
    """The baselines that are installed, with settings chosen on validation pairs."""
    out: dict[str, Match] = {
        "nearest neighbor": nearest_neighbor,
        "mutual nearest neighbor": mutual_neighbor,
        "ratio test": partial(ratio_test, ratio=0.875),
    }
    if hasattr(cv2, "xfeatures2d") and hasattr(cv2.xfeatures2d, "matchGMS"):
        out["GMS"] = partial(gms, threshold=2.0)
    if find_spec("kornia") is not None:
        out["AdaLAM"] = adalam
        if detector == "sift" and lightglue_weights().is_file():
            out["LightGlue"] = lightglue
    return out

"""What `experiments.matching` tests on: photographs, surfaces, stereo, rendered scenes, others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any

import numpy as np

from evergraph.apps.matching.arrangements import KINDS, Kind
from evergraph.apps.matching.features import Detector
from evergraph.apps.matching.frames import without
from evergraph.apps.matching.homography import Views, pairs
from evergraph.apps.matching.images import Image
from evergraph.apps.matching.sources import photograph, split
from evergraph.apps.matching.train import GENTLE, Fit
from evergraph.apps.matching.truth import Pair, unknown_pair
from experiments.matching_scenes import HARSH, rendered_pairs
from experiments.matching_stereo import motorcycle_pairs

APART = 4  # frames between the two of a rendered pair
UNRELATED = 100  # pairs of views of different pictures


@dataclass(frozen=True)
class Settings:
    """Sizes of the comparison: pairs of each kind, and what is run on them."""

    train: int = 1000
    validation: int = 40
    test: int = 60
    surfaces: int = 12
    frames: int = 8  # of the rendered sequence of each category
    stereo: tuple[int, ...] = (256, 512, 1024)  # points of each image of the stereo pair
    views: Views = field(default_factory=Views)
    fit: Fit = field(default_factory=Fit)
    kinds: tuple[Kind, ...] = KINDS
    slow: int = 10  # validation pairs that GMS and AdaLAM, which are slow, are tuned on
    baselines: bool = True
    bare: int = 400  # pairs of points without scale or orientation to train on; 0 for none
    gentle: Fit = GENTLE  # how FGN is adapted to them


SMALL: dict[str, Any] = {
    "train": 8, "validation": 4, "test": 4, "surfaces": 2, "frames": 6, "stereo": (128,),
    "fit": Fit(steps=4), "slow": 2, "bare": 4, "gentle": Fit(steps=2),
}  # fmt: skip
"""A few pairs only, to see that it runs."""


Tests = dict[str, list[Pair]]


def related_tests(seed: int, settings: Settings) -> Tests:
    """Pairs that show the same thing, by test."""
    chosen = split(seed)
    scenes, surfaces = (
        [photograph(name) for name in names] for names in (chosen.test, chosen.surfaces)
    )
    views, textures = settings.views, [*scenes, *surfaces]
    return {
        "homographies of photographs": list(pairs(scenes, settings.test, 10 * seed + 2, views)),
        "homographies of surfaces": list(pairs(surfaces, settings.surfaces, 10 * seed + 3, views)),
        "stereo, motorcycle": list(motorcycle_pairs(settings.stereo)),
        "rendered, four frames apart": _rendered(textures, seed, settings),
    }


def _rendered(
    textures: Sequence[Image], seed: int, settings: Settings, detector: Detector = "sift"
) -> list[Pair]:
    size = settings.frames, seed, APART, settings.views.points
    return [
        pair
        for name, category in HARSH.items()
        for pair in rendered_pairs(category, textures, *size, name=name, detector=detector)
    ]


def bare_tests(seed: int, settings: Settings, tests: Tests) -> Tests:
    """Points without scale and orientation: of SIFT in tests that exist, and corners."""
    chosen, views = split(seed), settings.views
    shown, surfaces = (
        [photograph(name) for name in names] for names in (chosen.test, chosen.surfaces)
    )
    upright = replace(views, detector="corners", angle=views.angle / 3)
    planar = list(pairs(shown, settings.test, 10 * seed + 4, upright))
    return {
        **{
            f"{name}, SIFT without scale and orientation": [
                replace(
                    pair,
                    first=without(pair.first, True, True),
                    second=without(pair.second, True, True),
                )
                for pair in tests[name]
            ]
            for name in ("homographies of photographs", "stereo, motorcycle")
        },
        "homographies of photographs, corners": planar,
        "stereo, motorcycle, corners": list(motorcycle_pairs(settings.stereo, "corners")),
        "rendered, four frames apart, corners": _rendered(
            [*shown, *surfaces], seed, settings, "corners"
        ),
    }


def strangers(tests: dict[str, list[Pair]], count: int = UNRELATED) -> list[Pair]:
    """Pairs of views of different test pictures, which have no true match."""
    planar = [pair for name in tests if name.startswith("homographies") for pair in tests[name]]
    both = [(a, b) for a, b in permutations(planar, 2) if a.name != b.name]
    order = np.random.default_rng(0).permutation(len(both))[:count]
    return [unknown_pair(both[n][0].first, both[n][1].first, both[n][0].size) for n in order]

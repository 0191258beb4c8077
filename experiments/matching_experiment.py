"""The comparison behind `results/matching.json`: networks and baselines on unseen pictures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np

from evergraph.apps.matching.baselines import Baseline, adalam, gms, ratio_test, settled
from evergraph.apps.matching.evaluate import Match, evaluate, harmonic
from evergraph.apps.matching.features import Detector, detect
from evergraph.apps.matching.fit import Fit, examples
from evergraph.apps.matching.homography import Views, album_pairs, pairs
from evergraph.apps.matching.images import Image
from evergraph.apps.matching.matcher import Matcher
from evergraph.apps.matching.network import KINDS
from evergraph.apps.matching.sources import Split, photograph, split
from evergraph.apps.matching.tartanair import Frame, frame_pair
from evergraph.apps.matching.train import train_on
from evergraph.apps.matching.truth import Pair
from experiments.matching_render import CATEGORIES, sequence
from experiments.matching_stereo import motorcycle_pairs

Report = Callable[[str], None]
Cell = dict[str, Any]
APART = 4  # frames between the two of a rendered pair
ORACLE = "ratio test, best on the test itself"
RATIOS = tuple(round(0.7 + 0.025 * step, 3) for step in range(13))  # 0.7 to 1
ADALAM_GRID: tuple[dict[str, Any], ...] = tuple(
    {"search_expansion": reach, "min_inliers": least, "min_confidence": sure}
    for reach, least in ((8, 4), (4, 4), (8, 6))
    for sure in (50, 200)
)


@dataclass(frozen=True)
class Settings:
    """Sizes of the comparison.

    Attributes:
        train, validation, test, surfaces: pairs of each kind.
        frames: of the rendered sequence of each category.
        stereo: points of each image of the stereo pair.
        views: how the pairs of the test are made.
        fit: how networks are trained.
        kinds: networks to train.
        slow: validation pairs that GMS and AdaLAM, which are slow, are tuned on.
    """

    train: int = 1000
    validation: int = 40
    test: int = 60
    surfaces: int = 12
    frames: int = 8
    stereo: tuple[int, ...] = (256, 512, 1024)
    views: Views = field(default_factory=Views)
    fit: Fit = field(default_factory=Fit)
    kinds: tuple[str, ...] = KINDS
    slow: int = 10

    def plain(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self)


def rendered_pairs(
    textures: Sequence[Image],
    frames: int,
    seed: int,
    apart: int = APART,
    points: int = 256,
    detector: Detector = "sift",
) -> Iterator[Pair]:
    """Pairs of frames of one sequence of each category, so many frames apart."""
    for name, category in CATEGORIES.items():
        seen = [
            Frame(detect(image, detector, points), depth, pose, (image.shape[1], image.shape[0]))
            for image, depth, pose in sequence(category, textures, frames, seed)
        ]
        for start in range(len(seen) - apart):
            yield frame_pair(seen[start], seen[start + apart], f"{name}:{start}")


def run_seed(
    seed: int, settings: Settings, report: Report = lambda what: None
) -> tuple[list[Cell], dict[str, Matcher]]:
    """All cells of one seed, and the matchers that it trained."""
    chosen = split(seed)
    report("making training pairs")
    start = time.process_time()
    images = [photograph(name) for name in chosen.train]
    data = examples(album_pairs(images, settings.train, 10 * seed, settings.views))
    making = time.process_time() - start
    report("making validation and test pairs")
    valid = album_pairs(
        [photograph(name) for name in chosen.validation],
        settings.validation,
        10 * seed + 1,
        settings.views,
    )
    tests = _tests(chosen, seed, settings)
    cells = []
    for method, match, setting, seconds in _tuned_baselines(valid, settings.slow, report):
        cells += _cells(tests, method, match, seed, {"setting": setting, "train_seconds": seconds})
    cells += _oracle(tests, seed)
    matchers = {}
    for kind in settings.kinds:
        report(f"training {kind}")
        matcher, told = train_on(kind, data, valid, settings.fit, settings.views, seed)
        more = {
            "setting": "",
            "train_seconds": making + told["train_seconds"],
            "parameters": told["parameters"],
        }
        cells += _cells(tests, kind.upper(), matcher.match_pair, seed, more)
        matchers[kind] = matcher
    return cells, matchers


def _tests(chosen: Split, seed: int, settings: Settings) -> dict[str, list[Pair]]:
    scenes, surfaces = (
        [photograph(name) for name in names] for names in (chosen.test, chosen.surfaces)
    )
    views = settings.views
    return {
        "homographies of photographs": list(pairs(scenes, settings.test, 10 * seed + 2, views)),
        "homographies of surfaces": list(pairs(surfaces, settings.surfaces, 10 * seed + 3, views)),
        "stereo, motorcycle": list(motorcycle_pairs(settings.stereo, views.detector)),
        "rendered, four frames apart": list(
            rendered_pairs([*scenes, *surfaces], settings.frames, seed, APART, views.points)
        ),
    }


def variants() -> dict[str, dict[str, Baseline]]:
    """The settings of every installed baseline that validation pairs choose from."""
    grids: dict[str, dict[str, Baseline]] = {
        "ratio test": {
            f"ratio {ratio}{', mutual' * mutual}": partial(ratio_test, ratio=ratio, mutual=mutual)
            for ratio in RATIOS
            for mutual in (False, True)
        },
        "GMS": {f"threshold {t}": partial(gms, threshold=t) for t in (2.0, 6.0)},
        "AdaLAM": {
            "default": adalam,
            **{str(settings): partial(adalam, settings=settings) for settings in ADALAM_GRID},
        },
    }
    return {name: grids.get(name, {"": match}) for name, match in settled().items()}


def _tuned_baselines(
    valid: Sequence[Pair], slow: int, report: Report
) -> Iterator[tuple[str, Match, str, float]]:
    """Every baseline with the setting of the best F1 on validation pairs."""
    for method, settings in variants().items():
        report(f"tuning {method}")
        start = time.process_time()
        shown = valid[:: max(len(valid) // slow, 1)] if method in ("GMS", "AdaLAM") else valid
        score = {
            name: evaluate(shown, match)["f1"] if len(settings) > 1 else 0.0
            for name, match in settings.items()
        }
        best = max(score, key=lambda name: score[name])
        yield method, settings[best], best, time.process_time() - start


def _oracle(tests: dict[str, list[Pair]], seed: int) -> list[Cell]:
    """The ratio test with the ratio that is best on each test itself: a bound, not a method."""
    cells = []
    ratios = variants()["ratio test"]
    for test, shown in tests.items():
        score = {name: evaluate(shown, match)["f1"] for name, match in ratios.items()}
        best = max(score, key=lambda name: score[name])
        more = {"setting": best, "train_seconds": 0.0}
        cells += _cells({test: shown}, ORACLE, ratios[best], seed, more)
    return cells


def _cells(
    tests: dict[str, list[Pair]], method: str, match: Match, seed: int, more: Cell
) -> list[Cell]:
    return [
        {"test": test, "method": method, "seed": seed, **more, **evaluate(shown, match, True)}
        for test, shown in tests.items()
    ]


def aggregate(cells: Sequence[Cell]) -> list[Cell]:
    """One cell for each test and method: means over the seeds, with their spread."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell["test"], cell["method"]), []).append(cell)
    tests = list(dict.fromkeys(cell["test"] for cell in cells))
    out = []
    for (test, method), runs in sorted(groups.items(), key=lambda item: tests.index(item[0][0])):
        precision, recall, f1, seconds, error = (
            [float(run[name]) for run in runs]
            for name in ("precision", "recall", "f1", "train_seconds", "mean_error")
        )
        merged: Cell = {
            "test": test,
            "method": method,
            "precision": float(np.mean(precision)),
            "recall": float(np.mean(recall)),
            "f1": float(np.mean(f1)),
            "f1_sd": float(np.std(f1, ddof=1)) if len(f1) > 1 else 0.0,
            "f1_of_means": harmonic(float(np.mean(precision)), float(np.mean(recall))),
            "mean_error": float(np.mean(error)),
            "runs": len(runs),
            "train_seconds": float(np.mean(seconds)),
            "settings": [run["setting"] for run in runs],
            "f1_per_seed": f1,
        }
        for name in ("auc_dlt", "auc_magsac", "auc_pose"):
            if name in runs[0]:
                merged[name] = np.mean([run[name] for run in runs], axis=0).tolist()
        if "parameters" in runs[0]:
            merged["parameters"] = runs[0]["parameters"]
        out.append(merged)
    return out

"""How far apart two views may be: F1 against tilt, turn and zoom, and training on wider views.

The shipped matcher, as it is and adapted to views that are tilted and turned by any angle, on test
pictures of the split that it was trained on, seen again from farther and farther away; validation
pictures say what adapting costs on usual pairs:
`python -m experiments.matching_limits --out results/matching_limits.json`
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import typer

from evergraph.apps.matching.baselines import settled
from evergraph.apps.matching.evaluate import Match, evaluate
from evergraph.apps.matching.features import Array, ImageFeatures, detect
from evergraph.apps.matching.homography import (
    WIDE,
    Views,
    album_pairs,
    fit,
    photometric,
    turned_view,
)
from evergraph.apps.matching.images import Image, to_gray
from evergraph.apps.matching.matcher import Matcher
from evergraph.apps.matching.sources import photograph, split
from evergraph.apps.matching.train import GENTLE, Fit, adapt, examples
from evergraph.apps.matching.truth import Pair, homography_pair
from evergraph.cli.console import AsJson, Out, complaints, progress
from evergraph.cli.match import quiet_threads
from evergraph.evaluate.evidence import provenance
from evergraph.extras import require
from experiments.cells import markdown
from experiments.matching_results import Cell, origin, publish

cv2 = require("cv2", "matching")

STEPS: dict[str, tuple[float, ...]] = {
    "tilt": (0.0, 30.0, 45.0, 60.0, 70.0, 80.0),
    "turn": (0.0, 45.0, 90.0, 135.0, 180.0),
    "zoom": (1.0, 2.0, 3.0, 4.0, 6.0),
}
"""Degrees of tilt and turn, and factors of size, each alone."""
USABLE = 0.5  # least F1 that counts as matched, for the limit


def moved_pairs(
    images: Sequence[Image], change: str, amount: float, each: int, seed: int, views: Views
) -> list[Pair]:
    """Each picture from the front and from a camera that moved by so much, `each` times."""
    rng = np.random.default_rng(seed)
    out = []
    for number, image in enumerate(images):
        ready = fit(to_gray(image), views.size)
        high, wide = ready.shape
        scale = max(views.size[0] / wide, views.size[1] / high)
        front = np.diag([scale, scale, 1.0])
        front[:2, 2] = (np.array(views.size) - scale * np.array([wide, high])) / 2
        for _ in range(each):
            moved = turned_view(views.size, axis=rng.uniform(-180, 180), **{change: amount})
            first, second = (seen(ready, matrix, rng, views) for matrix in (front, moved @ front))
            out.append(homography_pair(first, second, moved, views.size, f"image {number}"))
    return out


def seen(image: Image, matrix: Array, rng: np.random.Generator, views: Views) -> ImageFeatures:
    """The points of a view, with little photometric noise."""
    warped = cv2.warpPerspective(image, matrix, views.size, flags=cv2.INTER_AREA)
    return detect(photometric(warped, rng, 0.3), views.detector, views.points)


def limit(amounts: Sequence[float], scores: Sequence[float]) -> float | None:
    """The largest amount up to which F1 is at least one half throughout.

    Example:
        >>> limit([0, 30, 60], [0.9, 0.6, 0.2])
        30
    """
    reached = None
    for amount, score in zip(amounts, scores, strict=True):
        if score < USABLE:
            break
        reached = amount
    return reached


def measure(
    methods: dict[str, Match], images: Sequence[Image], each: int, seed: int
) -> list[dict[str, Any]]:
    """One row for each change, amount and method."""
    rows = []
    for change, amounts in STEPS.items():
        for amount in amounts:
            shown = moved_pairs(images, change, amount, each, seed, Views())
            for method, match in methods.items():
                found = evaluate(shown, match, geometry=True)
                rows.append({"change": change, "amount": amount, "method": method, **found})
    return rows


def page(result: Cell) -> str:
    """F1 by amount, and the limit of each method."""
    costs = result["validation_f1"]
    parts = ["# How far apart two views may be", origin(result)]
    lines = [[name, *(f"{value:.3f}" for value in row.values())] for name, row in costs.items()]
    columns = ["method", *next(iter(costs.values()))]
    parts += ["## F1 on validation pictures", markdown(columns, lines)]
    for change, amounts in STEPS.items():
        mine = [row for row in result["cells"] if row["change"] == change]
        lines = []
        for method in dict.fromkeys(row["method"] for row in mine):
            scores = [row["f1"] for row in mine if row["method"] == method]
            end = limit(amounts, scores)
            lines.append([method, *(f"{s:.3f}" for s in scores), "" if end is None else f"{end:g}"])
        head = ["method", *(f"{amount:g}" for amount in amounts), f"F1 above {USABLE} up to"]
        parts += [f"## {change.capitalize()}", markdown(head, lines)]
    return "\n\n".join(parts) + "\n"


def run(count: int, each: int, how: Fit, report: Callable[[str], None]) -> dict[str, Any]:
    """What both matchers reach on validation pictures, and the rows of the test pictures."""
    chosen, kinds = split(0), {"usual views": Views(), "wide views": WIDE}
    learn, valid, shown = (
        [photograph(name) for name in names]
        for names in (chosen.train, chosen.validation, (*chosen.test, *chosen.surfaces))
    )
    shipped = Matcher.pretrained()
    report("adapting to wide views")
    data = examples(album_pairs(learn, count, 0, WIDE))
    wide = replace(shipped, network=adapt(shipped.network, data, how))
    ours = {"evergraph": shipped.match_pair, "evergraph, adapted": wide.match_pair}
    costs: dict[str, dict[str, float]] = {method: {} for method in ours}
    for name, views in kinds.items():
        pairs = album_pairs(valid, max(count // 10, 1), 1, views)
        for method, match in ours.items():
            costs[method][f"F1 on {name}"] = evaluate(pairs, match)["f1"]
    report("testing")
    methods = {**settled(), **ours}
    methods.pop("GMS", None)  # takes longer than all others together
    return {"validation_f1": costs, "cells": measure(methods, shown, each, 0)}


def main(
    pairs: int = 400,
    each: int = 2,
    steps: int = GENTLE.steps,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """F1 against tilt, turn and zoom: the shipped matcher as it is, and adapted to wide views."""
    evidence = provenance()
    quiet_threads()
    how = replace(GENTLE, steps=steps)
    with complaints(), progress(as_json) as shown:
        task = shown.add_task("making pairs", total=None)
        body = run(pairs, each, how, lambda what: shown.update(task, description=what))
    config = {"pairs": pairs, "each": each, "fit": asdict(how), "wide": asdict(WIDE)}
    publish(page, as_json, out, 1, **evidence, config=config, **body)


if __name__ == "__main__":
    typer.run(main)

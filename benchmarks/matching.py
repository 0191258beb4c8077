"""Time of matching against the number of points, beside OpenCV's ratio test and a GCN.

`bare` are the same points without scale and orientation.

After detection, on one core: `python -m benchmarks.matching --out results/bench_matching.json`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import numpy as np
import torch
import typer

from benchmarks.measure import milliseconds
from evergraph.apps.matching.arrangements import Kind, candidate_network, graph_logits
from evergraph.apps.matching.candidates import propose
from evergraph.apps.matching.features import ImageFeatures
from evergraph.apps.matching.frames import without
from evergraph.apps.matching.matcher import Matcher
from evergraph.apps.matching.truth import unknown_pair
from evergraph.cli.console import AsJson, Out
from evergraph.cli.match import quiet_threads
from evergraph.evaluate.evidence import provenance
from evergraph.extras import require

cv2 = require("cv2", "matching")

POINTS = (256, 512, 1024, 2048, 4096)
RATIO = 0.8
KINDS: tuple[Kind, ...] = ("fgn", "gcn")


def scene(points: int, seed: int = 0) -> tuple[ImageFeatures, ImageFeatures]:
    """Features as a detector would give them: half of the points seen again, turned and noisy."""
    rng = np.random.default_rng(seed)
    size = np.sqrt(points / 256) * np.array([320.0, 240.0])
    sides = []
    place = rng.uniform(0, 1, (points, 2)) * size
    table = rng.gamma(0.4, size=(points, 128))
    turn = rng.uniform(-np.pi, np.pi, points)
    for side in (0, 1):
        again = rng.permutation(points)[: points // 2] if side else np.arange(0)
        where, looks, angle = place.copy(), table.copy(), turn.copy()
        if side:
            fresh = np.setdiff1d(np.arange(points), again)
            where[fresh] = rng.uniform(0, 1, (len(fresh), 2)) * size
            looks[fresh] = rng.gamma(0.4, size=(len(fresh), 128))
            where[again] += rng.normal(8, 0.5, (len(again), 2))
            looks[again] *= rng.uniform(0.5, 1.5, (len(again), 128))
        unit = looks / np.linalg.norm(looks, axis=1, keepdims=True)
        scales = np.full(points, 5.0, np.float32)
        sides.append(
            ImageFeatures(
                where.astype(np.float32), unit.astype(np.float32), scales, angle.astype(np.float32)
            )
        )
    return sides[0], sides[1]


def by_points(points: tuple[int, ...] = POINTS, repeats: int = 7) -> Iterator[dict[str, Any]]:
    """One row for each number of points: medians of wall-clock time and of CPU time."""
    matcher = Matcher.pretrained()
    networks = {kind: candidate_network(kind).eval() for kind in KINDS}
    for count in points:
        first, second = scene(count)
        pair = unknown_pair(first, second, (320, 240))
        sides = without(first, True, True), without(second, True, True)
        bare = unknown_pair(*sides, (320, 240))
        graph = propose(first, second)
        steps: dict[str, Callable[[], object]] = {
            "match": lambda pair=pair: matcher.match_pair(pair),  # type: ignore[misc]
            "bare": lambda pair=bare: matcher.match_pair(pair),  # type: ignore[misc]
            "graph": lambda a=first, b=second: propose(a, b),  # type: ignore[misc]
            "opencv": lambda a=first, b=second: brute_force(a, b),  # type: ignore[misc]
        }
        scores: dict[str, Callable[[], object]] = {
            kind: lambda n=network, g=graph: graph_logits(n, g)  # type: ignore[misc]
            for kind, network in networks.items()
        }
        times = milliseconds(steps, dict.fromkeys(steps, repeats))
        cpu = milliseconds(steps, dict.fromkeys(steps, repeats), time.process_time)
        with torch.inference_mode():
            cpu |= milliseconds(scores, dict.fromkeys(scores, 5 * repeats), time.process_time)
        yield {
            "points": count,
            "candidates": len(graph),
            **{f"{name}_ms": value for name, value in times.items()},
            **{f"{name}_cpu_ms": cpu[name] for name in steps},
            "fgn_us_per_item": cpu["fgn"] * 1e3 / len(graph),
            "gcn_us_per_item": cpu["gcn"] * 1e3 / len(graph),
            "fgn_to_gcn": cpu["fgn"] / cpu["gcn"],
            "match_to_opencv": cpu["match"] / cpu["opencv"],
        }


def brute_force(first: ImageFeatures, second: ImageFeatures) -> int:
    """OpenCV's brute-force matcher with Lowe's ratio test; returns how many are left."""
    found = cv2.BFMatcher(cv2.NORM_L2).knnMatch(first.descriptors, second.descriptors, k=2)
    return sum(best.distance < RATIO * other.distance for best, other in found)


def main(
    repeats: Annotated[int, typer.Option(min=1, help="Of each measurement.")] = 7,
    most: Annotated[int, typer.Option(min=256, help="Points at the most.")] = 4096,
    as_json: AsJson = False,
    out: Out = None,
) -> None:
    """Time a pair: the whole match, OpenCV's ratio test, a candidate in FGN and in a GCN."""
    quiet_threads()
    rows = list(by_points(tuple(points for points in POINTS if points <= most), repeats))
    result = json.dumps({**provenance(), "rows": rows}, indent=1)
    if out is not None:
        out.write_text(result + "\n")
    if as_json:
        typer.echo(result)
        return
    for row in rows:
        typer.echo("  ".join(f"{name} {value:,.4g}" for name, value in row.items()))


if __name__ == "__main__":
    typer.run(main)

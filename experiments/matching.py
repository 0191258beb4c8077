"""The comparison behind `results/matching.json`: networks and baselines on unseen pictures.

Homographies of photographs that training never saw, the stereo pair of a motorcycle, and rendered
scenes; about three CPU minutes a seed. `python -m experiments.matching --out results/matching.json`
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import typer

from evergraph.apps.matching.arrangements import KINDS, TYPICAL
from evergraph.apps.matching.baselines import adalam, gms, ratio_test, settled
from evergraph.apps.matching.candidates import Proposal
from evergraph.apps.matching.evaluate import Match, evaluate, harmonic
from evergraph.apps.matching.homography import album_pairs
from evergraph.apps.matching.matcher import Matcher
from evergraph.apps.matching.sources import photograph, split
from evergraph.apps.matching.train import adapt, bare_pairs, examples, train_on
from evergraph.apps.matching.truth import Pair
from evergraph.cli.console import AsJson, Out, complaints, progress, write
from evergraph.cli.match import quiet_threads
from evergraph.evaluate.evidence import provenance
from evergraph.stream.batch import Batch
from experiments.cells import markdown
from experiments.matching_results import SCHEMA, Cell, origin, publish, resumed
from experiments.matching_tests import SMALL, Settings, bare_tests, related_tests, strangers

Report = Callable[[str], None]
ORACLE = "ratio test, best on the test itself"
AVERAGED = (
    "precision", "recall", "f1", "mean_error", "possible_error", "train_seconds", "auc_dlt",
    "auc_magsac", "auc_unrefined", "auc_pose",
)  # fmt: skip

RATIOS = tuple(round(0.7 + 0.025 * step, 3) for step in range(13))  # 0.7 to 1
ADALAM_GRID: tuple[dict[str, Any], ...] = tuple(
    {"search_expansion": reach, "min_inliers": least, "min_confidence": sure}
    for reach, least in ((8, 4), (4, 4), (8, 6))
    for sure in (50, 200)
)


def labeled(seed: int, settings: Settings) -> tuple[list[Batch], list[Pair], float]:
    """Labeled candidates to learn from, validation pairs of other pictures, and CPU seconds."""
    chosen, start = split(seed), time.process_time()
    learn, valid = (
        [photograph(name) for name in names] for names in (chosen.train, chosen.validation)
    )
    data = examples(album_pairs(learn, settings.train, 10 * seed, settings.views))
    seconds = time.process_time() - start
    return data, album_pairs(valid, settings.validation, 10 * seed + 1, settings.views), seconds


def search_scale(seeds: int, settings: Settings) -> list[Cell]:
    """F1 of GCN on the validation pairs of each seed, by the scale of its message; best first.

    Weights of neighbors add up to several times their mean. The factor between the two is applied
    before V, after V, or not at all.
    """
    factor = Proposal.neighbors / TYPICAL
    rows: list[Cell] = [
        {"settings": {"message_scale": scale}, "seeds": list(range(seeds)), "validation_f1": []}
        for scale in ((factor, 1.0), (1.0, factor), (1.0, 1.0))
    ]
    for seed in range(seeds):
        data, valid, _ = labeled(seed, settings)
        for row in rows:
            sizes = settings.fit, settings.views, seed
            found = train_on("gcn", data, valid, *sizes, **row["settings"])[1]
            row["validation_f1"].append(found["validation_f1"])
            row["validation_mean"] = float(np.mean(row["validation_f1"]))
    return sorted(rows, key=lambda row: -row["validation_mean"])


def run_seed(
    seed: int, settings: Settings, report: Report = lambda what: None
) -> tuple[Cell, dict[str, Matcher]]:
    """All cells of one seed with matches of unrelated pairs, and the matchers that it trained."""
    report("making pairs")
    data, valid, making = labeled(seed, settings)
    tests = related_tests(seed, settings)
    cells: list[Cell] = []
    matchers: dict[str, Matcher] = {}
    if settings.baselines:
        cells += _baseline_cells(tests, valid, seed, settings.slow, report)
    for kind in settings.kinds:
        report(f"training {kind}")
        matcher, found = train_on(kind, data, valid, settings.fit, settings.views, seed)
        seconds = making + found["train_seconds"]
        more = {"setting": "", "train_seconds": seconds, "parameters": found["parameters"]}
        cells += cells_of(tests, kind.upper(), matcher.match_pair, seed, more)
        matchers[kind] = matcher
    if settings.bare and "fgn" in matchers:
        report("points without scale or orientation")
        cells += _bare_cells(seed, settings, tests, matchers["fgn"])
    report("unrelated pairs")
    methods = {kind.upper(): matcher.match_pair for kind, matcher in matchers.items()}
    return {
        "cells": cells,
        "unrelated": unrelated_matches({**settled(), **methods}, tests),
    }, matchers


def unrelated_matches(methods: dict[str, Match], tests: dict[str, list[Pair]]) -> dict[str, Cell]:
    """How many matches there are in pairs of different pictures, and in pairs of one picture."""
    kinds = {"different": strangers(tests), "same": tests["homographies of photographs"]}
    return {
        method: {kind: [len(match(pair)) for pair in shown] for kind, shown in kinds.items()}
        for method, match in methods.items()
    }


def tell_unrelated(runs: Sequence[dict[str, Cell]]) -> list[Cell]:
    """One row a method: matches of pairs of different pictures, and pairs of one without any."""
    rows = []
    for method in runs[0]:
        different, same = (
            np.concatenate([run[method][kind] for run in runs]) for kind in ("different", "same")
        )
        rows.append({
            "method": method, "pairs": len(different), "median": float(np.median(different)),
            "mean": float(different.mean()), "most": int(different.max()),
            "share_with_matches": float((different > 0).mean()),
            "same_picture_without_matches": float((same == 0).mean()),
        })  # fmt: skip
    return rows


def _bare_cells(
    seed: int, settings: Settings, tests: dict[str, list[Pair]], matcher: Matcher
) -> Iterator[Cell]:
    """FGN, adapted to points without scale or orientation and not, beside what needs neither."""
    start, views = time.process_time(), settings.views
    learn = [photograph(name) for name in split(seed).train]
    data = examples(bare_pairs(learn, settings.bare, 10 * seed, views))
    network = adapt(matcher.network, data, settings.gentle, seed)
    more = {"setting": "", "train_seconds": time.process_time() - start}
    bare = bare_tests(seed, settings, tests)
    methods: dict[str, Match] = {
        "FGN": replace(matcher, bare=network).match_pair,
        "FGN, not adapted": matcher.match_pair,
        **settled("corners"),
    }
    for method, match in methods.items():
        yield from cells_of(bare, method, match, seed, more)
        more = {"setting": "", "train_seconds": 0.0}


def variants() -> dict[str, dict[str, Match]]:
    """The settings of every installed baseline that validation pairs choose from."""
    grids: dict[str, dict[str, Match]] = {
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


def _baseline_cells(
    tests: dict[str, list[Pair]], valid: Sequence[Pair], seed: int, slow: int, report: Report
) -> Iterator[Cell]:
    """Every baseline with the setting of the best F1 on validation pairs, and the oracle."""
    grids = variants()
    for method, settings in grids.items():
        report(f"tuning {method}")
        start = time.process_time()
        shown = valid[:: max(len(valid) // slow, 1)] if method in ("GMS", "AdaLAM") else valid
        best = _best(shown, settings)
        more = {"setting": best, "train_seconds": time.process_time() - start}
        yield from cells_of(tests, method, settings[best], seed, more)
    ratios = grids["ratio test"]
    for test, shown in tests.items():  # a bound, not a method
        best = _best(shown, ratios)
        more = {"setting": best, "train_seconds": 0.0}
        yield from cells_of({test: list(shown)}, ORACLE, ratios[best], seed, more)


def _best(shown: Sequence[Pair], settings: dict[str, Match]) -> str:
    """The setting with the best F1."""
    if len(settings) == 1:
        return next(iter(settings))
    score = {name: evaluate(shown, match)["f1"] for name, match in settings.items()}
    return max(score, key=lambda name: score[name])


def cells_of(
    tests: dict[str, list[Pair]], method: str, match: Match, seed: int, more: Cell
) -> list[Cell]:
    """The scores of one method on every test."""
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
        f1 = [float(run["f1"]) for run in runs]
        merged: Cell = {"test": test, "method": method}
        for name in AVERAGED:
            if name in runs[0]:
                merged[name] = np.mean([run[name] for run in runs], axis=0).tolist()
        merged |= {
            "f1_sd": float(np.std(f1, ddof=1)) if len(f1) > 1 else 0.0,
            "f1_of_means": harmonic(merged["precision"], merged["recall"]),
            "runs": len(runs),
            "settings": [run["setting"] for run in runs],
            "f1_per_seed": f1,
        }
        if "parameters" in runs[0]:
            merged["parameters"] = runs[0]["parameters"]
        out.append(merged)
    return out


COLUMNS = (
    "method", "precision", "recall", "F1", "± sd", "mean error, px", "AUC", "training, CPU s",
)  # fmt: skip


def page(result: Cell) -> str:
    """One table a test, best F1 in bold."""
    parts = ["# Feature matching: networks and baselines", origin(result)]
    for test in dict.fromkeys(cell["test"] for cell in result["cells"]):
        mine = [cell for cell in result["cells"] if cell["test"] == test]
        top = max(cell["f1"] for cell in mine if cell["method"] != ORACLE)
        rows = []
        for cell in mine:
            names = ("precision", "recall", "f1", "f1_sd")
            numbers = [f"{cell[name]:.3f}" for name in names]
            numbers[2] = f"**{numbers[2]}**" if cell["f1"] == top else numbers[2]
            area = " / ".join(f"{v:.3f}" for v in cell.get("auc_magsac", cell.get("auc_pose", ())))
            error = f"{cell['mean_error']:.2f}" if "mean_error" in cell else ""
            rest = [error, area, f"{cell['train_seconds']:.0f}"]
            rows.append([cell["method"], *numbers, *rest])
        parts += [f"## {test[0].upper()}{test[1:]}", markdown(COLUMNS, rows)]
    counts = ("median", "mean", "most", "share_with_matches", "same_picture_without_matches")
    lines = [
        [row["method"], *(f"{row[name]:.3g}" for name in counts)] for row in result["unrelated"]
    ]
    titles = ["method", *(name.replace("_", " ") for name in counts)]
    parts += ["## Matches in pairs of different pictures", markdown(titles, lines)]
    return "\n\n".join(parts) + "\n"


def main(
    seeds: int = 5,
    work: Path = Path("out/matching"),
    kinds: str = ",".join(KINDS),
    baselines: bool = True,
    small: bool = False,
    search: Path | None = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Train MLP, GCN, GAT and FGN and compare them with what needs no learning.

    Finished seeds and their matchers stay in the --work folder, from which a run resumes. With
    --search only the scale of GCN's message is chosen, on validation pairs; FILE keeps the trials.
    """
    evidence = provenance()
    quiet_threads()
    chosen: Any = tuple(kinds.split(","))
    settings = Settings(kinds=chosen, baselines=baselines, **(SMALL if small else {}))
    if search is not None:
        trials = search_scale(seeds, settings if small else replace(settings, validation=100))
        known = json.loads(search.read_text()) if search.exists() else {"searches": {}}
        known["searches"]["matching"] = {**evidence, "model": "gcn", "trials": trials}
        write({"schema": SCHEMA, **known}, search)
        return
    config = json.loads(json.dumps(asdict(settings)))
    cells: list[Cell] = []
    unrelated: list[dict[str, Cell]] = []
    with complaints(), progress(as_json) as shown:
        task = shown.add_task("comparing", total=seeds)
        for seed in range(seeds):

            def follow(what: str, seed: int = seed) -> None:
                shown.update(task, description=f"seed {seed}: {what}")

            def make(seed: int = seed, follow: Report = follow) -> Cell:
                found, matchers = run_seed(seed, settings, follow)
                work.mkdir(parents=True, exist_ok=True)
                for kind, matcher in matchers.items():
                    matcher.save(work / f"{kind}_{seed}.safetensors", {"seed": seed, **evidence})
                return found

            done = resumed(work / f"seed_{seed}.json", config, evidence, make)
            cells += done["cells"]
            unrelated.append(done["unrelated"])
            shown.advance(task)
    made = {key: done[key] for key in evidence}
    publish(page, as_json, out, seeds, **made, config=config, cells=aggregate(cells),
            unrelated=tell_unrelated(unrelated))  # fmt: skip


if __name__ == "__main__":
    typer.run(main)

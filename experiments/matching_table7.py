"""The paper's Table 7 and Fig. 3: FGN against GAT in the paper's arrangement, by category.

Mean error of the 150 most confident matches, hidden points included, as the paper counts; beside it
precision, recall, F1 and pose AUC, and our candidate graph. The published values are of the whole
TartanAir with learned descriptors: on anything else compare the rows with each other, not with
them. `python -m experiments.matching_table7 [TARTANAIR] --out results/matching_table7.json`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray

from evergraph.apps.matching.evaluate import (
    Match,
    Score,
    evaluate,
    judge,
    nearest_neighbor,
    summarize,
)
from evergraph.apps.matching.matcher import Matcher
from evergraph.apps.matching.tartanair import Sequence as Frames
from evergraph.apps.matching.tartanair import sequence_pairs, sequences
from evergraph.apps.matching.train import Fit, fit
from evergraph.apps.matching.truth import Pair
from evergraph.cli.console import AsJson, Out, complaints, progress
from evergraph.cli.match import quiet_threads
from evergraph.evaluate.evidence import provenance
from experiments.cells import markdown
from experiments.matching import origin, publish
from experiments.matching_paper import (
    PAPER_KINDS,
    PaperKind,
    PaperNetwork,
    PointMatching,
    labeled_points,
)
from experiments.matching_scenes import write_sequences

Report = Callable[[str], None]
Run = dict[str, dict[str, list[Score]]]  # the scores of pairs by method and sequence
OVERALL = "all"
TOLERANCES = tuple(round(0.25 * step, 2) for step in range(1, 41))  # pixels, up to 10
PUBLISHED: dict[str, dict[str, float]] = {
    "gat": {
        "indoor": 1.70, "outdoor": 2.73, "natural": 4.17, "artificial": 2.31, "mixed": 2.19,
        "dark": 6.00, "hard": 4.68, OVERALL: 2.64,
    },
    "fgn": {
        "indoor": 1.52, "outdoor": 2.05, "natural": 2.88, "artificial": 1.85, "mixed": 1.56,
        "dark": 4.75, "hard": 3.25, OVERALL: 2.00,
    },
}  # fmt: skip
"""Mean error in pixels on TartanAir, Table 7 of the paper."""


@dataclass(frozen=True)
class Table7:
    """Sizes of the comparison."""

    apart: int = 1  # frames between the two of a pair
    width: int = 320  # of the images in pixels
    points: int = 256  # of each image; half of them, the strongest, in training
    steps: int = 100  # pairs to train on
    rates: tuple[float, ...] = (1e-4, 1e-3)  # to choose from on validation sequences
    share: float = 0.8  # of sequences to train on; a quarter of those is for validation
    most: int = 50  # pairs of a sequence


def read_categories(path: Path | None = None) -> dict[str, list[str]]:
    """Patterns of sequence names by category: a JSON file of your own, or ours."""
    text = (path or Path(__file__).with_name("matching_categories.json")).read_text()
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"categories must be JSON, got {path}: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(v, list) for v in found.values()):
        raise ValueError(f"categories must map each name to a list of patterns, got {path}")
    return found


def categories_of(name: str, categories: dict[str, list[str]]) -> list[str]:
    """All categories of a sequence; a sequence may have several, as in the paper.

    Example:
        >>> categories_of("office2/Hard/P000", {"indoor": ["office*"], "hard": ["*/Hard/*"]})
        ['indoor', 'hard']
    """
    return [
        category
        for category, patterns in categories.items()
        if any(fnmatch(name, pattern) for pattern in patterns)
    ]


def load_pairs(found: Sequence[Frames], how: Table7, report: Report) -> dict[str, list[Pair]]:
    """The pairs of every sequence."""
    out = {}
    for one in found:
        report(f"reading {one.name}")
        stride = max((len(one) - how.apart) // how.most, 1)
        pairs = sequence_pairs(one, how.apart, how.width, how.points, stride=stride)
        out[one.name] = list(pairs)
    return out


def split_sequences(
    names: Sequence[str], share: float, seed: int
) -> tuple[list[str], list[str], list[str]]:
    """Random names to train on, to validate with and to test on; at least one of each.

    Environments take turns, so that all have sequences in each part if they have enough.
    """
    if len(names) < 3:
        raise ValueError(f"a comparison needs at least 3 sequences, got {len(names)}")
    turns: dict[str, int] = {}
    ranked = []
    for name in np.random.default_rng(seed).permutation(sorted(names)).tolist():
        environment = name.split("/")[0]
        turns[environment] = turns.get(environment, -1) + 1
        ranked.append((turns[environment], name))
    order = [name for _, name in sorted(ranked, key=lambda item: item[0])]
    test = min(max(round(len(order) * (1 - share)), 1), len(order) - 2)
    valid = min(max((len(order) - test) // 4, 1), len(order) - test - 1)
    return order[test + valid :], order[test : test + valid], order[:test]


def run_seed(
    data: dict[str, list[Pair]], how: Table7, seed: int, ours: Matcher, report: Report
) -> Run:
    """The scores of every pair of the test sequences: by method, then by sequence."""
    train, valid, test = split_sequences(list(data), how.share, seed)
    small = [_strongest(pair, how.points // 2) for name in train for pair in data[name]]
    watch = [pair for name in valid for pair in data[name]]
    methods: dict[str, Match] = {"descriptors alone": nearest_neighbor}
    for kind in PAPER_KINDS:
        report(f"seed {seed}: training {kind}")
        methods[kind] = _train(kind, small, watch, how, seed)
    methods["ours, candidate graph"] = ours.match_pair
    return {
        method: {
            name: [judge(pair, match(pair), geometry=True) for pair in data[name]] for name in test
        }
        for method, match in methods.items()
    }


def _train(kind: PaperKind, pairs: list[Pair], watch: list[Pair], how: Table7, seed: int) -> Match:
    """The network of the learning rate with the least mean error on validation pairs."""
    data = [batch for pair in pairs if (batch := labeled_points(pair)).target.eq(1).any()]
    found: list[tuple[float, Match]] = []
    for rate in how.rates:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            network = PaperNetwork(kind, pairs[0].first.descriptors.shape[1])
        fit(network, data, Fit(how.steps, 1, rate, False), seed, PointMatching())
        found.append((evaluate(watch, network.match)["mean_error"], network.match))
    return min(found, key=lambda one: one[0])[1]


def _strongest(pair: Pair, count: int) -> Pair:
    """The same pair with fewer points, which detectors give strongest first."""
    rows0, rows1 = (np.arange(min(count, len(side))) for side in (pair.first, pair.second))
    t = pair.truth
    truth = type(t)(t.forward[rows0], t.backward[rows1], t.judged[rows0], t.judged_back[rows1])
    return Pair(pair.first.take(rows0), pair.second.take(rows1), truth, pair.size)


def tolerance_curve(errors: NDArray[Any], tolerances: Sequence[float] = TOLERANCES) -> list[float]:
    """Share of matches with an error up to each tolerance (Fig. 3)."""
    if not len(errors):
        return [0.0] * len(tolerances)
    return [float((errors <= tolerance).mean()) for tolerance in tolerances]


def tabulate(runs: Sequence[Run], categories: dict[str, list[str]]) -> list[dict[str, Any]]:
    """One row for each category and method, over the test sequences of all seeds."""
    rows = []
    for category in [*categories, OVERALL]:

        def within(name: str, category: str = category) -> bool:
            return category == OVERALL or category in categories_of(name, categories)

        for method in runs[0]:
            by_seed = [
                [score for name in run[method] if within(name) for score in run[method][name]]
                for run in runs
            ]
            scores = [score for found in by_seed for score in found]
            if not scores:
                continue
            errors = [[score.errors for score in found] for found in by_seed]
            means = [float(np.concatenate(found).mean()) if found else None for found in errors]
            every = np.concatenate([score.errors for score in scores])
            rows.append({
                "category": category, "method": method,
                "published": PUBLISHED.get(method, {}).get(category), **summarize(scores),
                "tolerances": list(TOLERANCES), "within_tolerance": tolerance_curve(every),
                "mean_error_per_seed": means,
            })  # fmt: skip
    return rows


def page(result: dict[str, Any]) -> str:
    """Mean error and F1 by category, with the published values."""
    rows = result["rows"]
    categories = list(dict.fromkeys(row["category"] for row in rows))
    cells = {(row["method"], row["category"]): row for row in rows}
    parts = ["# Table 7: the paper's arrangement by scene category", origin(result)]
    for name, title in (("mean_error", "Mean error, pixels"), ("f1", "F1 within 3 pixels")):
        lines = []
        for method in dict.fromkeys(row["method"] for row in rows):
            found = [cells.get((method, category)) for category in categories]
            lines.append([method, *("" if r is None else f"{r[name]:.3f}" for r in found)])
            known = ["" if r is None or not r["published"] else r["published"] for r in found]
            if name == "mean_error" and any(known):
                texts = [f"{value:.2f}" if value else "" for value in known]
                lines.append([f"{method}, published on TartanAir", *texts])
        parts += [f"## {title}", markdown(["method", *categories], lines)]
    return "\n\n".join(parts) + "\n"


def tolerance_figure(rows: list[dict[str, Any]], path: Path) -> None:
    """Precision against tolerance, one panel a category: the paper's Fig. 3."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.use("Agg")
    categories = list(dict.fromkeys(row["category"] for row in rows))
    figure = Figure(figsize=(3.2 * len(categories), 3.2), layout="constrained")
    for place, category in enumerate(categories):
        axes = figure.add_subplot(1, len(categories), place + 1)
        for row in rows:
            if row["category"] == category:
                axes.plot(row["tolerances"], row["within_tolerance"], label=row["method"])
        axes.set(title=category, xlabel="tolerance, pixels", ylim=(0, 1))
        axes.grid(alpha=0.3)
        if not place:
            axes.set_ylabel("share of matches")
            axes.legend(fontsize=7, loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main(
    folder: Annotated[Path | None, typer.Argument()] = None,
    seeds: int = 2,
    categories: Path | None = None,
    steps: int = 100,
    apart: int = 1,
    each: int = 5,
    frames: int = 8,
    picture: Path | None = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Table 7: mean matching error by scene category, GAT and FGN, beside the published values.

    On TartanAir in FOLDER, or on EACH rendered sequences of a category. --categories is a JSON file
    from categories to patterns of ENV/LEVEL/P###; --picture gets the tolerance curves of Fig. 3.
    """
    evidence = provenance()
    quiet_threads()
    how = Table7(apart=apart, steps=steps)
    with complaints(), progress(as_json) as shown, TemporaryDirectory() as place:
        patterns = read_categories(categories)
        task = shown.add_task("rendering", total=seeds)
        report = lambda what: shown.update(task, description=what)  # noqa: E731
        if folder is None:
            write_sequences(Path(place), each, frames)
        data = load_pairs(sequences(folder or Path(place)), how, report)
        ours = Matcher.pretrained(points=how.points)
        runs = []
        for seed in range(seeds):
            runs.append(run_seed(data, how, seed, ours, report))
            shown.advance(task)
    rows = tabulate(runs, patterns)
    if picture is not None:
        tolerance_figure(rows, picture)
    about = {"data": "rendered" if folder is None else folder.name, "sequences": len(data)}
    publish(page, as_json, out, seeds, **evidence, **about, config=asdict(how), rows=rows)


if __name__ == "__main__":
    typer.run(main)

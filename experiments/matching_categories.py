"""Scores by scene category: the rows, the page and the figure of the paper's Table 7 and Fig. 3."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.apps.matching.evaluate import Score, summarize
from evergraph.evaluate.significance import paired_difference
from experiments.cells import markdown
from experiments.matching_results import origin

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


PAIRED = (
    ("fgn", "gat"), ("fgn-shared", "gat"), ("fgn", "nearest neighbor"),
    ("fgn-shared", "nearest neighbor"), ("gat", "nearest neighbor"),
)  # fmt: skip
"""Methods whose difference is told, the first minus the second."""


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
            errors = [[score.possible for score in found] for found in by_seed]
            means = [float(np.concatenate(found).mean()) if found else None for found in errors]
            every = np.concatenate([score.possible for score in scores])
            rows.append({
                "category": category, "method": method,
                "published": PUBLISHED.get(method, {}).get(category), **summarize(scores),
                "tolerances": list(TOLERANCES), "within_tolerance": tolerance_curve(every),
                "possible_error_per_seed": means,
            })  # fmt: skip
    return rows


def differences(runs: Sequence[Run], categories: dict[str, list[str]]) -> list[dict[str, Any]]:
    """By category and two methods: their errors on the same test sequences, with an interval."""
    rows = []
    for category in [*categories, OVERALL]:
        for first, second in PAIRED:
            errors = [
                [
                    np.concatenate([score.possible for score in run[m][name]]).mean()
                    for m in (first, second)
                ]
                for run in runs
                for name in run[first]
                if category == OVERALL or category in categories_of(name, categories)
            ]
            if errors:
                found = paired_difference(*np.transpose(errors))
                rows.append(
                    {"category": category, "first": first, "second": second, **asdict(found)}
                )
    return rows


TABLES = (
    ("possible_error", "Mean error, pixels, of matches that can exist"),
    ("mean_error", "Mean error, pixels, hidden points and points without a partner included"),
    ("f1", "F1 within 3 pixels"),
)


def page(result: dict[str, Any]) -> str:
    """Errors and F1 by category, with the published values, and paired differences."""
    rows = result["cells"]
    categories = list(dict.fromkeys(row["category"] for row in rows))
    cells = {(row["method"], row["category"]): row for row in rows}
    parts = ["# Table 7: the paper's arrangement by scene category", origin(result)]
    share = ["share", *(f"{cells['oracle', c]['possible_share']:.3f}" for c in categories)]
    parts += ["## Points with a partner", markdown(["", *categories], [share])]
    for name, title in TABLES:
        lines = []
        for method in dict.fromkeys(row["method"] for row in rows):
            found = [cells.get((method, category)) for category in categories]
            lines.append([method, *("" if r is None else f"{r[name]:.3f}" for r in found)])
            known = ["" if r is None or not r["published"] else r["published"] for r in found]
            if name == TABLES[0][0] and any(known):
                texts = [f"{value:.2f}" if value else "" for value in known]
                lines.append([f"{method}, published on TartanAir", *texts])
        parts += [f"## {title}", markdown(["method", *categories], lines)]
    lines = [
        [row["category"], f"{row['first']} - {row['second']}", f"{row['mean']:+.3f}",
         f"{row['low']:+.3f} to {row['high']:+.3f}", str(row["pairs"])]
        for row in result["differences"]
    ]  # fmt: skip
    columns = ["category", "methods", "difference", "95 %", "sequences"]
    parts += ["## Differences of the first table, by test sequence", markdown(columns, lines)]
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

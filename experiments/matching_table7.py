"""The paper's Table 7 and Fig. 3: FGN against GAT in the paper's arrangement, by category."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from evergraph.apps.matching.baselines import nearest_neighbor
from evergraph.apps.matching.evaluate import Match, Score, judge, summarize
from evergraph.apps.matching.matcher import Matcher
from evergraph.apps.matching.paper import (
    PAPER_KINDS,
    PaperArrangement,
    PaperNetwork,
    fit_paper,
)
from evergraph.apps.matching.sources import SCENES, SURFACES, photograph
from evergraph.apps.matching.tartanair import Sequence as Frames
from evergraph.apps.matching.tartanair import sequence_pairs
from evergraph.apps.matching.truth import Pair
from experiments.matching_render import CATEGORIES, sequence, write_sequence

Report = Callable[[str], None]
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
    """Sizes of the comparison.

    Attributes:
        apart: frames between the two of a pair.
        width: of the images in pixels.
        points: of each image; half of them, the strongest, in training.
        steps: pairs to train on.
        rates: learning rates to choose from on validation sequences.
        share: of the sequences that are trained on; a quarter of those is for validation.
        most: pairs of a sequence at the most.
    """

    apart: int = 1
    width: int = 320
    points: int = 256
    steps: int = 100
    rates: tuple[float, ...] = (1e-4, 1e-3)
    share: float = 0.8
    most: int = 50

    def plain(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self)


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


def render_sequences(
    root: Path,
    each: int,
    frames: int,
    seed: int = 0,
    width: int = 320,
    done: Callable[[], None] = lambda: None,
) -> None:
    """Write rendered sequences of every category in TartanAir's layout."""
    pictures = [photograph(name) for name in (*SCENES, *SURFACES)]
    rng = np.random.default_rng(seed)
    for name, category in CATEGORIES.items():
        for number in range(each):
            chosen = [pictures[i] for i in rng.choice(len(pictures), 5, replace=False)]
            shown = sequence(category, chosen, frames, int(rng.integers(1 << 30)), width)
            write_sequence(root / name / "Easy" / f"P{number:03}", shown)
            done()


def load_pairs(sequences: Sequence[Frames], how: Table7, report: Report) -> dict[str, list[Pair]]:
    """The pairs of every sequence."""
    out = {}
    for one in sequences:
        report(f"reading {one.name}")
        stride = max((len(one) - how.apart) // how.most, 1)
        found = sequence_pairs(one, how.apart, how.width, how.points, stride=stride)
        out[one.name] = list(found)
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
) -> dict[str, dict[str, list[Score]]]:
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


def _train(kind: str, pairs: list[Pair], watch: list[Pair], how: Table7, seed: int) -> Match:
    """The network of the learning rate with the least mean error on validation pairs."""
    best: tuple[float, Match] | None = None
    for rate in how.rates:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            network = PaperNetwork(kind, pairs[0].first.descriptors.shape[1])  # type: ignore[arg-type]
        fit_paper(network, pairs, how.steps, rate, seed)
        match = Matcher(PaperArrangement(network)).match_pair
        error = summarize([judge(pair, match(pair)) for pair in watch])["mean_error"]
        if best is None or error < best[0]:
            best = (error, match)
    assert best is not None
    return best[1]


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


def tabulate(
    runs: Sequence[dict[str, dict[str, list[Score]]]], categories: dict[str, list[str]]
) -> list[dict[str, Any]]:
    """One row for each category and method, over the test sequences of all seeds."""
    rows = []
    for category in [*categories, OVERALL]:
        for method in runs[0]:
            scores = list(_scores(runs, method, category, categories))
            if not scores:
                continue
            errors = np.concatenate([score.errors for score in scores])
            rows.append({
                "category": category,
                "method": method,
                "published": PUBLISHED.get(method, {}).get(category),
                **summarize(scores),
                "tolerances": list(TOLERANCES),
                "within_tolerance": tolerance_curve(errors),
                "mean_error_per_seed": _per_seed(runs, method, category, categories),
            })  # fmt: skip
    return rows


def _scores(
    runs: Sequence[dict[str, dict[str, list[Score]]]],
    method: str,
    category: str,
    categories: dict[str, list[str]],
) -> Iterator[Score]:
    for run in runs:
        for name, scores in run[method].items():
            if category == OVERALL or category in categories_of(name, categories):
                yield from scores


def _per_seed(
    runs: Sequence[dict[str, dict[str, list[Score]]]],
    method: str,
    category: str,
    categories: dict[str, list[str]],
) -> list[float | None]:
    out: list[float | None] = []
    for run in runs:
        scores = list(_scores([run], method, category, categories))
        errors = [score.errors for score in scores]
        out.append(float(np.concatenate(errors).mean()) if errors else None)
    return out

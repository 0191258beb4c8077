"""The paper's Table 7 and Fig. 3: FGN against GAT in the paper's arrangement, by category.

Mean error of the 150 most confident matches of points that can be matched: those whose true place
has a point within 3 pixels. Beside it the same with hidden points and points without a partner,
which the paper counts too; F1; an oracle that knows the nearest true point; nearest neighbors; and
our candidate graph. The published values are of the whole TartanAir with learned points and
descriptors: on anything else compare the rows with each other, not with them.
`python -m experiments.matching_table7 [TARTANAIR] --out results/matching_table7.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import typer

from evergraph.apps.matching.baselines import nearest_neighbor, oracle, settled
from evergraph.apps.matching.evaluate import Match, Score, judge
from evergraph.apps.matching.matcher import Matcher
from evergraph.apps.matching.tartanair import Sequence as Frames
from evergraph.apps.matching.tartanair import sequence_pairs, sequences
from evergraph.apps.matching.truth import Pair
from evergraph.cli.console import AsJson, Out, complaints, progress
from evergraph.cli.match import quiet_threads
from evergraph.evaluate.evidence import provenance
from experiments.matching_categories import (
    Run,
    differences,
    page,
    read_categories,
    tabulate,
    tolerance_figure,
)
from experiments.matching_paper import PAPER_KINDS, Plateau, converge
from experiments.matching_results import publish, resumed
from experiments.matching_scenes import write_sequences

Report = Callable[[str], None]
Curves = dict[str, list[tuple[float, float]]]  # rate and validation error by network and round


@dataclass(frozen=True)
class Table7:
    """Sizes of the comparison."""

    apart: int = 1  # frames between the two of a pair
    width: int = 320  # of the images in pixels
    points: int = 800  # of each image; half of them, the strongest, in training
    share: float = 0.8  # of sequences to train on; a quarter of those is for validation
    most: int = 50  # pairs of a sequence
    each: int = 15  # rendered sequences of a category
    frames: int = 3  # of each of those
    training: Plateau = field(default_factory=Plateau)


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

    Environments take turns, so that all have sequences in each part if they have enough. Seeds
    that follow each other test on other sequences, until every sequence was tested on.
    """
    if len(names) < 3:
        raise ValueError(f"a comparison needs at least 3 sequences, got {len(names)}")
    test = min(max(round(len(names) * (1 - share)), 1), len(names) - 2)
    valid = min(max((len(names) - test) // 4, 1), len(names) - test - 1)
    again, fold = divmod(seed, len(names) // test)
    turns: dict[str, int] = {}
    ranked = []
    for name in np.random.default_rng(again).permutation(sorted(names)).tolist():
        environment = name.split("/")[0]
        turns[environment] = turns.get(environment, -1) + 1
        ranked.append((turns[environment], name))
    order = [name for _, name in sorted(ranked, key=lambda item: item[0])]
    order = order[fold * test :] + order[: fold * test]
    return order[test + valid :], order[test : test + valid], order[:test]


def run_seed(
    data: dict[str, list[Pair]], how: Table7, seed: int, ours: Matcher, report: Report
) -> tuple[Run, Curves]:
    """The scores of every pair of the test sequences: by method, then by sequence."""
    train, valid, test = split_sequences(list(data), how.share, seed)
    small = [_strongest(pair, how.points // 2) for name in train for pair in data[name]]
    watch = [pair for name in valid for pair in data[name]]
    methods: dict[str, Match] = {
        "oracle": oracle,
        "nearest neighbor": nearest_neighbor,
        "mutual nearest neighbor": settled()["mutual nearest neighbor"],
    }
    curves: Curves = {}
    for kind in PAPER_KINDS:
        report(f"seed {seed}: training {kind}")
        network, curves[kind] = converge(kind, small, watch, how.training, seed)
        methods[kind] = network.match
    methods["ours, candidate graph"] = ours.match_pair
    report(f"seed {seed}: testing")
    run = {
        method: {name: [judge(pair, match(pair)) for pair in data[name]] for name in test}
        for method, match in methods.items()
    }
    return run, curves


def _strongest(pair: Pair, count: int) -> Pair:
    """The same pair with fewer points, which detectors give strongest first."""
    rows0, rows1 = (np.arange(min(count, len(side))) for side in (pair.first, pair.second))
    t = pair.truth
    truth = type(t)(t.forward[rows0], t.backward[rows1], t.judged[rows0], t.judged_back[rows1])
    return Pair(pair.first.take(rows0), pair.second.take(rows1), truth, pair.size)


def plain(score: Score) -> dict[str, Any]:
    """A score as JSON has it."""
    values = vars(score).items()
    return {name: v.round(4).tolist() if isinstance(v, np.ndarray) else v for name, v in values}


def read_run(scores: dict[str, dict[str, list[dict[str, Any]]]]) -> Run:
    """The scores of one seed from its file."""

    def read(one: dict[str, Any]) -> Score:
        return Score(**{**one, **{name: np.array(one[name]) for name in ("errors", "possible")}})

    return {
        method: {name: [read(one) for one in found] for name, found in by_name.items()}
        for method, by_name in scores.items()
    }


def all_pairs(folder: Path | None, how: Table7, report: Report) -> dict[str, list[Pair]]:
    """The pairs of a folder, or of sequences that are rendered."""
    with TemporaryDirectory() as place:
        if folder is None:
            report("rendering")
            write_sequences(Path(place), how.each, how.frames, how.width)
        return load_pairs(sequences(folder or Path(place)), how, report)


def one_seed(
    data: dict[str, list[Pair]], how: Table7, seed: int, ours: Matcher, report: Report
) -> dict[str, Any]:
    """What is written for one seed: sequences, scores and the course of training."""
    run, curves = run_seed(data, how, seed, ours, report)
    scores = {
        method: {name: [plain(score) for score in found] for name, found in by_name.items()}
        for method, by_name in run.items()
    }
    return {"sequences": len(data), "scores": scores, "curves": curves}


def main(
    folder: Annotated[Path | None, typer.Argument()] = None,
    seeds: int = 5,
    categories: Path | None = None,
    steps: int = 50,
    rounds: int = 40,
    apart: int = 1,
    each: int = 15,
    frames: int = 3,
    points: int = 800,
    picture: Path | None = None,
    work: Path = Path("out/table7"),
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Table 7: mean matching error by scene category, GAT and FGN, beside the published values.

    On TartanAir in FOLDER, or on EACH rendered sequences of a category; five seeds test on every
    sequence once. --categories is a JSON file
    from categories to patterns of ENV/LEVEL/P###; --picture gets the tolerance curves of Fig. 3.
    Finished seeds stay in the --work folder, from which a run resumes. Training ends by itself;
    --steps are those between two looks at validation pairs, --rounds the most of these.
    """
    evidence = provenance()
    quiet_threads()
    how = Table7(
        apart=apart, points=points, each=each, frames=frames,
        training=Plateau(steps, most=rounds),
    )  # fmt: skip
    data = "rendered" if folder is None else folder.name
    with complaints(), progress(as_json) as shown:
        patterns = read_categories(categories)
        task = shown.add_task("rendering", total=seeds)
        report = lambda what: shown.update(task, description=what)  # noqa: E731
        ours = Matcher.pretrained(points=how.points)
        config = {"data": data, **asdict(how)}
        parts = []
        pairs = cache(lambda: all_pairs(folder, how, report))
        for seed in range(seeds):

            def make(seed: int = seed) -> dict[str, Any]:
                return one_seed(pairs(), how, seed, ours, report)

            parts.append(resumed(work / f"seed_{seed}.json", config, evidence, make))
            shown.advance(task)
    runs = [read_run(part["scores"]) for part in parts]
    rows = tabulate(runs, patterns)
    if picture is not None:
        tolerance_figure(rows, picture)
    body = {"cells": rows, "differences": differences(runs, patterns)}
    training = [part["curves"] for part in parts]
    evidence = {key: parts[-1][key] for key in evidence}
    publish(page, as_json, out, seeds, **evidence, sequences=parts[0]["sequences"],
            config=config, training=training, **body)  # fmt: skip


if __name__ == "__main__":
    typer.run(main)

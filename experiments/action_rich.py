"""Closed forms on rich features beside what a practitioner would pick.

`python -m experiments.action_rich`. The windows are those of `experiments.action`. All methods
choose their settings in the same way, by leaving people of the training part out in turn, or in the
paper's split thirds in time of what each of them did; no window that is tested on is looked at. A
seed moves the training windows. Pieces are saved one by one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
import typer
from torch import Tensor

from evergraph.apps.action.choice import CANDIDATES, People, choose
from evergraph.apps.action.network import signals
from evergraph.apps.action.recognizer import Recognizer
from evergraph.apps.action.recording import Recordings
from evergraph.apps.action.rich import CLOSED, RichFeatures, Settings
from evergraph.apps.action.search import (
    Discriminants,
    Part,
    Table,
    encoder_of,
    parts_of_people,
    parts_of_time,
    search,
)
from evergraph.apps.action.sources import load
from evergraph.apps.action.splits import split_in_time
from evergraph.apps.action.teaching import RecognizerConfig
from evergraph.apps.action.windows import Windows, cut
from evergraph.cli.console import DataRoot, Out, complaints, use_threads, write
from evergraph.evaluate.evidence import provenance
from evergraph.evaluate.metrics import maximum_backward_forgetting
from evergraph.evaluate.run import SCHEMA
from experiments import window_features as other
from experiments.action import dsads
from experiments.action_cells import PAIRS, left_out
from experiments.action_rich_tables import document, summarized
from experiments.action_runs import Config

WINDOWS = Config()
TREES, RIDGE = "ExtraTrees-rich", "MiniRocket-style ridge"
TIME = PAIRS  # the number of the paper's split in time, after the pairs of people
SHIFT = 40  # samples that a seed moves the training windows by
PLAIN = Settings(graph=0.0, gravity=0.0, mean=0.0)
PLAIN_STRENGTHS = tuple({"strength": one} for one in (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2))
"""LDA-rich: the features and the analysis of a practitioner, with more strengths to choose from."""
SEARCHES: dict[str, Any] = {
    "rich": ((Settings(graph=0.0),),),
    "rich-graph": ((Settings(),),),
    "LDA-rich": ((PLAIN,), (PLAIN_STRENGTHS,)),
}
"""What is searched: settings to begin with, and the steps from there."""
WITHOUT: dict[str, dict[str, Any]] = {
    "no turned copies": {"turn": 0.0},
    "people not told apart": {"between": 1.0, "persons": False},
    "no gravity, no mean": {"gravity": 0.0, "mean": 0.0},
    "all blocks alike": dict.fromkeys(("correlations", "graph", "gravity", "mean"), 1.0),
}
"""What is taken from the settings of `rich-graph`, all else left as it is."""


class Split(NamedTuple):
    """Recordings to learn from, and windows of both parts with their persons."""

    data: Recordings
    train: Windows
    test: Windows
    person: Tensor
    tested: Tensor
    people: tuple[str, ...]  # their names
    parts: list[Part]  # of the training windows, left out in turn to choose settings


def split_of(data: Recordings, number: int, seed: int = 0) -> Split:
    """The windows of a pair of people left out, or of the paper's split in time."""
    if number == TIME:
        early, late = split_in_time(data)
    else:
        gone = left_out(data, number)
        early, late = data.without(gone), data.of(gone)
    rate, people = data.layout.rate, list(data.subjects)
    moved = tuple(one.part(SHIFT * seed, len(one), rate) for one in early.recordings)
    early = replace(early, recordings=moved)
    train = cut(moved, data.activities, WINDOWS.length, WINDOWS.stride)
    test = cut(late.recordings, data.activities, WINDOWS.length, WINDOWS.test_stride)
    person, tested = (
        torch.tensor([people.index(one.subject) for one in part.recordings])[windows.source]
        for part, windows in ((early, train), (late, test))
    )
    parts = parts_of_time(train, person) if number == TIME else parts_of_people(person)
    return Split(early, train, test, person, tested, data.subjects, parts)


def tables(split: Split, tried: list[Settings]) -> tuple[Table, Tensor]:
    """Features of training windows, and those of test windows in their scale."""
    layout = split.data.layout
    encoder: RichFeatures = encoder_of(layout, split.train, tried)
    table = Table.of(encoder, split.train, layout, {one.turn for one in tried})
    return table, encoder.scaled(split.test.x)


def trials_of(data: Recordings, number: int, kind: str) -> list[dict[str, Any]]:
    """What settings are worth on parts of the training windows that are left out in turn."""
    split = split_of(data, number)
    given = split.train, split.person, split.data.layout, split.parts
    made = search(*given, *SEARCHES[kind])
    return [{"kind": kind, "settings": asdict(one), "left_out": known} for one, known in made]


def chosen_of(trials: list[dict[str, Any]]) -> dict[str, Any]:
    """For each method the best of its trials; what is shipped is the better of the closed forms."""
    ranked = sorted(trials, key=lambda trial: -trial["left_out"])
    found = {name: next(one for one in ranked if one["kind"] == name) for name in SEARCHES}
    found["shipped"] = max((found["rich"], found["rich-graph"]), key=lambda one: one["left_out"])
    whole = found["rich-graph"]["settings"]
    for name, changes in WITHOUT.items():
        if changes.items() - whole.items():
            settings = {**whole, **changes}
            found[f"rich-graph, {name}"] = {"kind": name, "settings": settings, "left_out": None}
    return found


def closed_rows(data: Recordings, number: int, seed: int, chosen: Any) -> Iterator[dict[str, Any]]:
    """The closed forms on one split, all from the same sums."""
    split = split_of(data, number, seed)
    mine = {name: one for name, one in chosen.items() if name not in (TREES, RIDGE)}
    settings = {name: Settings(**one["settings"]) for name, one in mine.items()}
    table, test = tables(split, list(settings.values()))
    solver = Discriminants(table, split.person, torch.arange(len(split.train)))
    found: dict[Settings, tuple[Tensor, float]] = {}
    for name, one in settings.items():
        start = time.process_time()
        told, seconds = found.get(one) or (solver.predict(one, test), time.process_time() - start)
        found[one] = told, seconds
        yield row(split, name, number, seed, told, time.process_time() - seconds)


def trees_row(data: Recordings, number: int, seed: int, known: dict[str, Any]) -> dict[str, Any]:
    """ExtraTrees on rich features; what a tree looks at was found with seed 0."""
    split, start = split_of(data, number, seed), time.process_time()
    table, test = tables(split, [PLAIN])
    rows = other.Rows(table.rows, split.train.target, split.parts)
    if TREES not in known:
        found = other.best_trees(rows)
        known[TREES] = {"settings": dict(zip(("most", "leaf"), found[0], strict=True)),
                        "left_out": found[1]}  # fmt: skip
    setting = list(known[TREES]["settings"].values())
    made = other.trees(rows, test, setting, seed, other.TREES)
    return row(split, TREES, number, seed, made, start)


def ridge_row(data: Recordings, number: int, seed: int, known: dict[str, Any]) -> dict[str, Any]:
    """A ridge on convolutions in the manner of MiniRocket; its strength was found with seed 0."""
    split, start = split_of(data, number, seed), time.process_time()
    deviation = encoder_deviation(split)
    parts = [signals(part.x) / deviation for part in (split.train, split.test)]
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(parts[0])))
    example = parts[0][order[: other.SAMPLE]]
    x, test = (other.convolved(part, example, seed) for part in parts)
    rows = other.Rows(x, split.train.target, split.parts)
    if RIDGE not in known:
        strength, left_out = other.best_ridge(rows)
        known[RIDGE] = {"settings": {"strength": strength}, "left_out": left_out}
    found = other.ridge(rows)(test, known[RIDGE]["settings"]["strength"])
    return row(split, RIDGE, number, seed, found, start)


def encoder_deviation(split: Split) -> Tensor:
    """The deviation of each signal in the training windows, `(S C, 1)`."""
    made = RichFeatures(split.data.layout, split.train.x.shape[-1])
    made.scale.update(split.train.x)
    return made.deviation.flatten().unsqueeze(1)


def shipped_row(data: Recordings, number: int, every: bool) -> dict[str, Any]:
    """The program's own way: `choose` on the training part, then learn all of it, exactly."""
    split, start = split_of(data, number), time.process_time()
    config = RecognizerConfig("rich-graph", WINDOWS.length, WINDOWS.stride)
    people: People = "known" if number == TIME else "new"
    choice = choose(split.data, config, CANDIDATES if every else CLOSED, people=people)
    config = replace(config, model=choice.model, settings=choice.settings)
    recognizer = Recognizer(data.layout, data.activities, config)
    recognizer.learn(split.data.recordings, choice.passes)
    recognizer.calibration = choice.calibration
    found = recognizer.probabilities(split.test.x).argmax(-1)
    name = "as shipped, FGN compared" if every else "as shipped"
    picked = {
        "picked": choice.model, "accuracy_held_back": choice.accuracy, "left_out": choice.left_out,
        "settings": asdict(choice.settings), "held_back": choice.held_back,
    }  # fmt: skip
    return {**row(split, name, number, 0, found, start), **picked}


def stream_rows(data: Recordings, chosen: Any) -> Iterator[dict[str, Any]]:
    """Forgetting in one pass, class by class and in the order of the paper: solved after each task.

    A task is a person, whose activities come one after the other, or an activity.
    """
    split = split_of(data, TIME)
    settings = {n: Settings(**chosen[n]["settings"]) for n in ("shipped", "LDA-rich")}
    table, test = tables(split, list(settings.values()))
    truth = split.test.target
    for order, task in (("lifelong", split.person), ("class", split.train.target)):
        history: dict[str, list[list[float]]] = {name: [] for name in settings}
        start = time.process_time()
        for last in task.unique().tolist():
            rows = (task <= last).nonzero()[:, 0]
            solver = Discriminants(table, split.person, rows)
            for name, one in settings.items():
                found = solver.predict(one, test)
                recall = [
                    float((found == k)[truth == k].double().mean())
                    for k in range(len(data.activities))
                ]
                history[name].append(recall)
        for name, recalls in history.items():
            lost = maximum_backward_forgetting(np.array(recalls))
            made = row(split, name, TIME, 0, solver.predict(settings[name], test), start)
            yield {**made, "table": order, "forgetting": float(lost.mean())}


def row(
    split: Split, method: str, number: int, seed: int, found: Tensor, start: float
) -> dict[str, Any]:
    """What a method has of all test windows, and of each person."""
    right = (found == split.test.target).double()
    tested = split.tested.unique().tolist()
    people = {split.people[p]: float(right[split.tested == p].mean()) for p in tested}
    return {
        "table": "regular" if number == TIME else "subjects", "method": method, "pair": number,
        "seed": seed, "accuracy": float(right.mean()), "people": people, "windows": len(right),
        "cpu_seconds": time.process_time() - start,
    }  # fmt: skip


# -- pieces ---------------------------------------------------------------------------------


def pieces(seeds: int) -> list[str]:
    """All that is run: what, the number of the split, the seed; important ones first."""
    splits = range(PAIRS + 1)
    plan = [f"search {n} 0 {kind}" for n, kind in product(splits, SEARCHES)]
    plan += [f"closed {n} {s}" for s, n in product(range(seeds), splits)]
    plan += [f"stream {TIME} 0"]
    plan += [f"{kind} {n} 0" for kind, n in product(("trees", "ridge", "shipped"), splits)]
    more = product(range(1, seeds), ("trees", "ridge"), splits)
    plan += [f"{kind} {n} {s}" for s, kind, n in more]
    return plan + [f"compared {n} 0" for n in splits]


def run_piece(data: Recordings, piece: str, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Make one piece; `settings` of a split come with its first piece and are kept."""
    kind, *numbers = piece.split()
    number, seed = map(int, numbers[:2])
    mine = settings.setdefault(str(number), {"trials": []})
    if kind == "search":
        mine["trials"] += trials_of(data, number, numbers[2])
        if {one["kind"] for one in mine["trials"]} == set(SEARCHES):
            mine["closed"] = {**mine.get("closed", {}), **chosen_of(mine["trials"])}
        return []
    if kind == "closed":
        return list(closed_rows(data, number, seed, mine["closed"]))
    if kind in ("trees", "ridge"):
        make = trees_row if kind == "trees" else ridge_row
        return [make(data, number, seed, mine["closed"])]
    if kind == "stream":
        return list(stream_rows(data, mine["closed"]))
    return [shipped_row(data, number, kind == "compared")]


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    data: Annotated[str, typer.Option(help="Recordings; by default DSADS in --data-root.")] = "",
    seeds: Annotated[int, typer.Option(min=1, help="Draws of training windows.")] = 5,
    minutes: Annotated[float, typer.Option(help="Begin no piece after so many minutes.")] = 60,
    only: Annotated[str, typer.Option(help="Pieces that begin with this.")] = "",
    data_root: DataRoot = None,
    out: Out = Path("out/action_rich.json"),
) -> None:
    """Compare closed forms with other methods on rich features and convolutions.

    Pieces that --out holds are not made again. A .md with all tables is written beside it.
    """
    evidence, start = provenance(), time.monotonic()
    use_threads(1)
    with complaints():
        recordings = load(data or dsads(data_root))
        assert out is not None
        saved: dict[str, Any] = {"schema": SCHEMA, "settings": {}, "cells": [], "done": {}}
        if out.exists():
            saved = json.loads(out.read_text())
        for piece in pieces(seeds):
            late = time.monotonic() - start > 60 * minutes
            if piece in saved["done"] or late or not piece.startswith(only):
                continue
            saved["cells"] += run_piece(recordings, piece, saved["settings"])
            saved["done"][piece] = evidence["commit"]
            config = {**asdict(WINDOWS), "seeds": seeds, "shift": SHIFT}
            summary = summarized(saved["cells"])
            write({**saved, "config": config, "summary": summary, **evidence}, out)
            typer.echo(f"{piece}: {time.monotonic() - start:.0f} s")
    text = document(saved["cells"], saved["settings"])
    out.with_suffix(".md").write_text(text)
    typer.echo(text)


if __name__ == "__main__":
    app()

"""The settings of networks for `experiments.action`, searched on validation windows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from itertools import combinations, product
from pathlib import Path
from statistics import fmean
from typing import Any

from evergraph.apps.action.recording import Recordings
from evergraph.cli.console import write
from evergraph.evaluate.run import SCHEMA
from experiments.action_cells import MODELS, PAIRS, REPLAY, UNSEEN, Report, cells, left_out
from experiments.action_runs import Config, compute, prepare

RATES = (1e-3, 2e-3, 4e-3)
Trial = Mapping[str, Any]

# Where rates are searched, and with how many seeds: shuffled windows, and the stream.
SEARCHES = {
    "regular": (Config(epochs=1, validation=True), 1),
    "lifelong": (Config(scenario="paper", validation=True, **REPLAY), 2),
}


def search(
    data: Recordings, table: str, report: Report, known: Iterable[Trial] = ()
) -> Iterator[dict[str, Any]]:
    """Try the same learning rates for every network of a table on validation windows.

    Those are the last eighth of the training part, after one pass over the rest. The test part is
    never looked at. Trials that are known are not made again.
    """
    done = {(trial["model"], trial["lr"], trial.get("seed", 0)) for trial in known}
    config, seeds = SEARCHES[table]
    ready = prepare(config, data)
    models = [cell.config.model for cell in cells((table,)) if cell.config.model in MODELS]
    for model, lr, seed in product(models, RATES, range(seeds)):
        if (model, lr, seed) not in done:
            follow = partial(report, f"{model}, lr {lr}")
            found = compute(replace(config, model=model, lr=lr), data, seed, follow, ready)
            accuracy = found["accuracy_mean"]
            yield {"model": model, "lr": lr, "seed": seed, "validation_accuracy": accuracy}


def best(
    trials: Iterable[Trial], of: Callable[[Mapping[str, Any]], Any], *names: str
) -> dict[Any, dict[str, Any]]:
    """For each group `of` trials the settings of these names with the best mean accuracy."""
    found: dict[Any, dict[tuple[Any, ...], list[float]]] = {}
    for trial in trials:
        tried = found.setdefault(of(trial), {})
        settings = tuple(trial[name] for name in names)
        tried.setdefault(settings, []).append(trial["validation_accuracy"])
    chosen = {key: max(tried, key=lambda one: fmean(tried[one])) for key, tried in found.items()}
    return {key: dict(zip(names, values, strict=True)) for key, values in chosen.items()}


def search_subjects(
    data: Recordings, report: Report, known: Iterable[Trial] = ()
) -> Iterator[dict[str, Any]]:
    """Try rates for people left out, with and without augmentation of the training windows.

    Every network learns without two pairs of people. How well it knows one of them is a trial for
    the other, which is not looked at: three trials for each pair. Known ones are not made again.
    """
    done = {(t["model"], (*t["left_out"], *t["tested_on"]), t["lr"], t["augment"]) for t in known}
    for one, two in combinations([left_out(data, number) for number in range(PAIRS)], 2):
        base = Config(split="subjects", left_out=one + two)
        ready = prepare(base, data)
        for model, lr, augment in product(UNSEEN, RATES, (False, True)):
            if (model, one + two, lr, augment) in done and (model, two + one, lr, augment) in done:
                continue
            follow = partial(report, f"{model}, lr {lr}, without {' '.join(one + two)}")
            config = replace(base, model=model, lr=lr, augment=augment)
            found = compute(config, data, 0, follow, ready)
            last = found["runs"][0]["matrix"][-1]
            for pair, other, accuracy in zip((two, one), (one, two), last, strict=True):
                yield {
                    "model": model, "left_out": list(pair), "tested_on": list(other), "lr": lr,
                    "augment": augment, "validation_accuracy": accuracy,
                }  # fmt: skip


def best_rates(trials: Iterable[Trial]) -> dict[str, float]:
    """For each network of a search the best rate."""
    return {name: one["lr"] for name, one in best(trials, lambda t: t["model"], "lr").items()}


def best_for_subjects(trials: Iterable[Trial]) -> dict[tuple[str, ...], dict[str, Any]]:
    """For each network and pair, `(model, *pair)`, the best rate and augmentation."""
    return best(trials, lambda t: (t["model"], *t["left_out"]), "lr", "augment")


def searched(
    path: Path, names: tuple[str, ...], data: Recordings, evidence: dict[str, Any], report: Report
) -> dict[str, Any]:
    """What the search found, as `cells` takes it; trials are written to the file one by one."""
    whole: dict[str, Any] = {"schema": SCHEMA, "searches": {}}
    if path.exists():
        whole = json.loads(path.read_text())
    found = whole["searches"].setdefault("action", {})

    def trials(part: str, config: Config, make: Callable[..., Iterable[Trial]]) -> list[Any]:
        part_of = found.setdefault(part, {**evidence, "trials": []})
        known: list[Any] = part_of["trials"]
        for trial in make(report=report, known=list(known)):
            known.append({**trial, "commit": evidence["commit"]})
            part_of["config"] = asdict(config)
            write(whole, path)
        return known

    def rates(table: str) -> dict[str, float]:
        return best_rates(trials(table, SEARCHES[table][0], partial(search, data, table)))

    settings: dict[str, Any] = {"rates": rates("regular")}
    if {"lifelong", "class"} & set(names):
        settings["stream_rates"] = rates("lifelong")
    if "subjects" in names:
        made = trials("subjects", Config(split="subjects"), partial(search_subjects, data))
        settings["of_pairs"] = best_for_subjects(made)
    return settings

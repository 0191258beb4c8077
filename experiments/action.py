"""The paper's tables of action recognition: `python -m experiments.action`.

A cell is a network, a split, a scenario and a method over several seeds: what
`evergraph.evaluate.run` returns, and the table it belongs to. Every run is saved, so that a job
that was stopped can be resumed.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import combinations, product
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
import typer
from torch import Tensor

from evergraph.apps.action.network import network, signals
from evergraph.apps.action.recording import Recordings
from evergraph.apps.action.sources import load
from evergraph.apps.action.windows import Scenario, Windows, cut, join, schedule, split_in_time
from evergraph.checks import check_one_of
from evergraph.cli.console import AsJson, DataRoot, Out, complaints, progress, use_threads, write
from evergraph.evaluate.evidence import provenance
from evergraph.evaluate.metrics import maximum_backward_forgetting
from evergraph.evaluate.run import SCHEMA, Record, run, summarize
from evergraph.extras import require
from evergraph.learn.learner import Learner, Method, Predictor
from evergraph.learn.memory import Reservoir
from evergraph.learn.methods import Analytic, Finetune, Replay
from evergraph.learn.training import Training
from evergraph.nn.fgn import FGN
from evergraph.stream.batch import Batch, concatenate
from evergraph.stream.continuum import Continuum
from experiments import action_figures

DSADS = Path("dsads") / "dsads_int16.npz"
TABLES = tuple(action_figures.TITLES)
MODELS = ("fgn", "gat", "gcn", "appnp", "gat-plain", "mlp", "cnn")
UNSEEN = ("fgn", "cnn", "gat")
CLASSICAL = ("trees", "ridge")
ABLATION = ("fgn-identity", "fgn-one-hop", "fgn-uniform")
PAIRS = 4
RATES = (1e-3, 2e-3, 4e-3)
# Streams bring one activity for a while: few steps on new batches, many on memory.
REPLAY: dict[str, Any] = {"method": "replay", "batch_size": 200, "replay_batches": 48}

Report = Callable[[str, int, int], None]  # what is run, the windows seen, all windows
Trial = Mapping[str, Any]


@dataclass(frozen=True)
class Config:
    """What to run: a network, or `trees` and `ridge`, which see statistics of windows.

    `split` is the paper's, in time, or by the subjects `left_out`; `validation` takes the test
    windows of the split in time from the training part. Length and strides are in samples, see
    `cut`; `epochs` is for regular learning, which is `finetune` on shuffled windows, and
    `strength` for the ridge. The average of the parameters follows every gradient step.
    """

    model: str = "fgn"
    split: Literal["time", "subjects"] = "time"
    left_out: tuple[str, ...] = ()
    scenario: Scenario = "regular"
    method: str = "finetune"
    memory: int = 5000
    length: int = 50
    stride: int = 200
    test_stride: int = 100
    batch_size: int = 50
    epochs: int = 2
    replay_batches: int = 1
    replay_batch_size: int = 50
    lr: float = 2e-3
    averaging: float = 0.95
    augment: bool = False
    strength: float = 1e-4
    validation: bool = False


# Where rates are searched, and with how many seeds: shuffled windows, and the stream.
SEARCHES = {
    "regular": (Config(epochs=1, validation=True), 1),
    "lifelong": (Config(scenario="paper", validation=True, **REPLAY), 2),
}


# -- one run --------------------------------------------------------------------------------


def divide(config: Config, data: Recordings) -> tuple[Recordings, Recordings]:
    """The recordings to train and to test on."""
    if config.split == "subjects":
        if not config.left_out:
            raise ValueError("a split by subjects needs left_out, the subjects to test on")
        return data.without(config.left_out), data.of(config.left_out)
    train, test = split_in_time(data)
    return split_in_time(train, share=0.875) if config.validation else (train, test)


class Prepared(NamedTuple):
    """Training recordings and windows, those followed by the test windows, and whose these are."""

    data: Recordings
    train: Windows
    windows: Windows
    subjects: tuple[str, ...]


def prepare(config: Config, data: Recordings) -> Prepared:
    """Split the recordings and cut their windows."""
    early, late = divide(config, data)
    train, test = (
        cut(part.recordings, data.activities, config.length, stride)
        for part, stride in ((early, config.stride), (late, config.test_stride))
    )
    subjects = tuple(late.recordings[n].subject for n in test.source.tolist())
    return Prepared(early, train, join(train, test), subjects)


def build(
    config: Config, data: Recordings, ready: Prepared, seed: int
) -> tuple[Continuum, Learner]:
    """The stream and the learner of a seed; the scale of signals is that of training windows."""
    train, windows = ready.train, ready.windows
    order = schedule(config.scenario, train, ready.data, config.batch_size, config.epochs, seed)
    test = torch.arange(len(train), len(windows))
    groups: list[Tensor] = [test]
    names: tuple[str, ...] = ("all",)
    if config.scenario == "class":
        names = order.names
        labels = [data.activities.index(name) for name in names]
        groups = [test[windows.target[test] == label] for label in labels]
    elif config.split == "subjects":
        pairs = [config.left_out[i : i + 2] for i in range(0, len(config.left_out), 2)]
        mine = [[subject in pair for subject in ready.subjects] for pair in pairs]
        groups, names = [test[torch.tensor(m)] for m in mine], tuple(map(" ".join, pairs))
    if config.model in CLASSICAL:
        windows = replace(windows, x=statistics_items(windows.x, len(train)))
        method: Method = Trees(seed=seed)
        if config.model == "ridge":
            method = Analytic(strength=config.strength, blocks=("x",))
        empty = FGN(windows.x.shape[-1], layer="transform", channels=(), message="none")
        learner = Learner(empty, method, seed=seed, outliers="pass")
    else:
        learner = network_learner(config, data, train, seed)
    return Continuum(windows, order, test, groups, names), learner


def network_learner(config: Config, data: Recordings, train: Windows, seed: int) -> Learner:
    """A network with its method, memory and training."""
    check_one_of("method", config.method, ("finetune", "replay"))
    model: Any = network(config.model, data.layout, config.length // 2, seed, config.augment)
    model.encoder.update(train.x)
    training = Training(
        optimizer="adam", lr=config.lr, steps=1, replay_batches=config.replay_batches,
        replay_batch_size=config.replay_batch_size, averaging=config.averaging, average_steps=True,
    )  # fmt: skip
    memory = Reservoir(config.memory, seed=seed) if config.method == "replay" else None
    method = Finetune() if memory is None else Replay()
    return Learner(model, method, memory, training, seed, outliers="pass")


def window_statistics(x: Tensor) -> Tensor:
    """Six statistics of every signal of windows `(B, 2 S, C, F)`: `(B, 6 S C)`.

    Example:
        >>> window_statistics(torch.rand(3, 10, 9, 25)).shape
        torch.Size([3, 270])
    """
    y = signals(x)
    change = y.diff(dim=-1).abs()
    of_values = (y.mean(-1), y.std(-1, correction=0), y.amin(-1), y.amax(-1))
    return torch.cat([*of_values, change.mean(-1), change.amax(-1)], dim=1)


def statistics_items(x: Tensor, train: int) -> Tensor:
    """Statistics of windows, scaled by those of the first `train`, as items `(B, 1, D + 1)`.

    The analytic method brings items to unit length; next to a large constant this leaves their
    size as it is, and the constant is what a regression needs for its offset.
    """
    found = window_statistics(x)
    mean, deviation = found[:train].mean(0), found[:train].std(0, correction=0)
    scaled = ((found - mean) / deviation.masked_fill(deviation < 1e-6, 1.0)).clamp(-10, 10)
    constant = scaled.new_full((len(scaled), 1), 10 * math.sqrt(scaled.shape[1]))
    return torch.cat([scaled, constant], dim=1).unsqueeze(1)


@dataclass
class Trees(Method):
    """ExtraTrees on all items so far, fitted anew when a prediction is asked for."""

    lazy: ClassVar[bool] = True
    labels_only: ClassVar[bool] = True
    seed: int = 0
    items: list[Batch] = field(default_factory=list, repr=False)
    forest: Any = field(default=None, repr=False)

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Keep the batch."""
        self.items.append(batch)
        self.forest = None

    @property
    def ready(self) -> bool:
        """Whether the trees know all items."""
        return self.forest is not None

    def prepare(self, learner: Learner) -> None:
        """Fit the trees, in an order that does not depend on the stream."""
        every = concatenate(self.items)
        every = every.select(every.node.argsort())
        trees = require("sklearn.ensemble", "action").ExtraTreesClassifier
        forest = trees(n_estimators=200, random_state=self.seed)
        self.forest = forest.fit(_flat(every), every.target.numpy())

    def predictor(self, learner: Learner) -> Predictor:
        """The share of trees for each class."""
        forest = self.forest
        columns = [forest.classes_.tolist().index(label) for label in learner.classes]
        return lambda batch: torch.from_numpy(forest.predict_proba(_flat(batch))[:, columns])


def _flat(batch: Batch) -> Any:
    assert isinstance(batch.x, Tensor)
    return batch.x.flatten(1).numpy()


def compute(
    config: Config,
    data: Recordings,
    seed: int = 0,
    report: Callable[[int, int], None] = lambda seen, total: None,
    ready: Prepared | None = None,
) -> dict[str, Any]:
    """One run: what `run` returns, the confusion matrix, and the CPU time of a prediction."""
    ready = ready or prepare(config, data)
    total = len(ready.train) * (config.epochs if config.scenario == "regular" else 1)
    made: list[tuple[Continuum, Learner]] = []

    def make(number: int) -> tuple[Continuum, Learner]:
        made.append(build(config, data, ready, number))
        return made[0]

    result = run(make, [seed], asdict(config), report=lambda _, seen, last: report(seen, total))
    stream, learner = made[0]
    confusion = np.zeros((len(data.activities), len(data.activities)), dtype=int)
    seconds = 0.0
    for batch in stream.test():
        start = time.process_time()
        found = learner.predict(batch)
        seconds += time.process_time() - start
        np.add.at(confusion, (batch.target.numpy(), found.numpy()), 1)
    milliseconds = seconds * 1e3 / int(confusion.sum())
    return {**result, "confusion": confusion.tolist(), "ms_per_window": milliseconds}


# -- the cells of the tables ----------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """One line of a table: a configuration and its runs, seeds or pairs of subjects left out.

    `of_pairs` holds settings of their own for such pairs, see `search_subjects`.
    """

    table: str
    config: Config
    runs: int
    of_pairs: Mapping[tuple[str, ...], Mapping[str, Any]] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """A name that no other cell has."""
        memory = f" {self.config.memory}" if self.table == "class" else ""
        return f"{self.table} {self.config.model} {self.config.method}{memory}"

    def config_of(self, number: int, data: Recordings) -> tuple[Config, int]:
        """The configuration and the seed of a run."""
        if self.config.split == "time":
            return self.config, number
        pair = left_out(data, number)
        return replace(self.config, left_out=pair, **self.of_pairs.get(pair, {})), 0


def left_out(data: Recordings, number: int) -> tuple[str, ...]:
    """The pair of subjects that a run of the split by subjects tests on."""
    return tuple(data.subjects[2 * number : 2 * number + 2])


def cells(
    tables: tuple[str, ...] = TABLES,
    seeds: int = 5,
    rates: Mapping[str, float] | None = None,
    stream_rates: Mapping[str, float] | None = None,
    of_pairs: Mapping[tuple[str, ...], Mapping[str, Any]] | None = None,
    **changes: Any,
) -> list[Cell]:
    """All cells of some tables, with that many runs each.

    `rates` and `stream_rates` are of `best_rates` (parts of FGN take FGN's), `of_pairs` is of
    `best_for_subjects`; `changes` are other values for `Config`.
    """
    unknown = set(tables) - set(TABLES)
    if unknown:
        raise ValueError(f"tables are {', '.join(TABLES)}, got {', '.join(sorted(unknown))}")
    made: list[Cell] = []

    def add(table: str, model: str, runs: int, **settings: Any) -> None:
        if table in tables:
            searched = (rates if "scenario" not in settings else stream_rates) or {}
            lr = searched.get(model.split("-")[0] if model in ABLATION else model)
            chosen = {**({} if lr is None else {"lr": lr}), **settings, **changes}
            pairs = {key[1:]: own for key, own in (of_pairs or {}).items() if key[0] == model}
            made.append(Cell(table, Config(model=model, **chosen), runs, pairs))

    for model in MODELS:
        add("regular", model, seeds)
        if not model.endswith("plain"):
            add("lifelong", model, seeds, scenario="paper", **REPLAY)
    add("regular", "trees", seeds, method="batch", epochs=1)
    for table, scenario in (("regular", "regular"), ("lifelong", "paper"), ("class", "class")):
        add(table, "ridge", 1, scenario=scenario, method="analytic", epochs=1)
    for model in ABLATION:
        add("ablation", model, seeds)
    for memory in (5000, 500):
        add("class", "fgn", min(seeds, 3), scenario="class", memory=memory, **REPLAY)
    add("subjects", "trees", PAIRS, split="subjects", method="batch", epochs=1)
    add("subjects", "ridge", PAIRS, split="subjects", method="analytic", epochs=1)
    for model in UNSEEN:
        add("subjects", model, PAIRS, split="subjects")
    return made


def read_runs(path: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """All runs of this format in a file; a half-written last line is left out."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        with suppress(json.JSONDecodeError):
            entry = json.loads(line)
            if entry.get("schema") == SCHEMA:
                found[entry["key"], entry["number"]] = entry
    return found


def fill(
    plan: list[Cell], data: Recordings, path: Path, evidence: dict[str, Any], report: Report
) -> Iterator[dict[str, Any]]:
    """Make all runs that are missing: first run of every cell, then the second, and so on."""
    known = read_runs(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.read_text().endswith("\n"):
        path.write_text(path.read_text() + "\n")  # killed while writing
    ready: dict[tuple[object, ...], Prepared] = {}
    for number in range(max(cell.runs for cell in plan)):
        for cell in plan:
            if number >= cell.runs or (cell.key, number) in known:
                continue
            config, seed = cell.config_of(number, data)
            shape = (config.split, config.left_out, config.length, config.stride)
            if shape not in ready:  # of pairs left out, one is kept at a time
                kept = {} if config.left_out else ready
                ready = {**kept, shape: prepare(config, data)}
            follow = partial(report, f"{cell.key}, run {number + 1} of {cell.runs}")
            found = compute(config, data, seed, follow, ready[shape])
            entry = {
                "schema": SCHEMA, "key": cell.key, "number": number, "seed": seed,
                "config": asdict(config), "record": found["runs"][0],
                **{name: found[name] for name in ("confusion", "ms_per_window")}, **evidence,
            }  # fmt: skip
            with path.open("a") as file:
                file.write(json.dumps(entry) + "\n")
            yield entry


def collect(plan: list[Cell], path: Path) -> list[dict[str, Any]]:
    """One summary for every cell that has runs."""
    known, out = read_runs(path), []
    for cell in plan:
        entries = [known[cell.key, n] for n in range(cell.runs) if (cell.key, n) in known]
        if not entries:
            continue
        records = [Record(**entry["record"]) for entry in entries]
        counts = [np.array(entry["confusion"]) for entry in entries]
        recall, precision = (
            np.mean([np.diagonal(c) / np.maximum(c.sum(axis), 1) for c in counts], axis=0).tolist()
            for axis in (1, 0)
        )
        forgetting = [
            maximum_backward_forgetting(np.array([list(one.values()) for one in r.class_history]))
            for r in records
        ]
        streamed = cell.config.scenario != "regular"
        commits = sorted({str(entry["commit"]) for entry in entries})
        summary = {
            "table": cell.table,
            **summarize(entries[0]["config"], records),
            "class_forgetting_mean": float(np.mean(forgetting)) if streamed else None,
            "recall": recall,
            "precision": precision,
            "confusion": np.sum(counts, axis=0).tolist(),
            "ms_per_window": median(entry["ms_per_window"] for entry in entries),
            "commit": commits[0] if len(commits) == 1 else commits,
        }
        if cell.config.split == "subjects":
            summary["left_out"] = [entry["config"]["left_out"] for entry in entries]
        out.append(summary)
    return out


# -- the search on validation windows -------------------------------------------------------


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


# -- the command ----------------------------------------------------------------------------

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    data: Annotated[str, typer.Option(help="Recordings; by default DSADS in --data-root.")] = "",
    tables: Annotated[str, typer.Option(help=f"Which: {', '.join(TABLES)}.")] = "regular,lifelong",
    seeds: Annotated[int, typer.Option(min=1, help="How many runs of each cell.")] = 5,
    runs: Annotated[Path, typer.Option(help="Runs so far.")] = Path("out/action_runs.jsonl"),
    search: Annotated[Path | None, typer.Option(help="Settings found so far.")] = None,
    pictures: Annotated[Path | None, typer.Option(help="Folder for the pictures.")] = None,
    only_show: Annotated[bool, typer.Option(help="Make no runs, show those at hand.")] = False,
    data_root: DataRoot = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Rerun Tables 5, 6 and 9 (forgetting, precision, running time) beside the published values.

    The paper's WARD is not available everywhere, so the default is DSADS: five sensors too, but
    19 activities. FGN, GAT, GCN, APPNP, MLP, a CNN, ExtraTrees and a ridge regression are run on
    the same windows. Runs in --runs are not made again. Settings that --search does not hold are
    searched first and written there. --out gets one JSON cell per line, and a .md beside it.
    """
    evidence = provenance()
    use_threads(1)
    with complaints(), progress(as_json) as shown:
        recordings = load(data or dsads(data_root))
        task = shown.add_task("", total=None)

        def report(name: str, seen: int, total: int) -> None:
            shown.update(task, description=name, completed=seen, total=total)

        names = tuple(part.strip() for part in tables.split(","))
        settings = searched(search, names, recordings, evidence, report) if search else {}
        plan = cells(names, seeds, **settings)
        if not only_show:
            every = shown.add_task("all runs", total=sum(cell.runs for cell in plan))
            for _ in fill(plan, recordings, runs, evidence, report):
                shown.advance(every)
        found = collect(plan, runs)
        if not found:
            raise ValueError(f"{runs} holds none of these runs; leave out --only-show to make them")
    text = action_figures.document(found, recordings.activities, recordings.name)
    if out is not None:
        write({"schema": SCHEMA, "cells": found}, out)
        out.with_suffix(".md").write_text(text)
    if pictures is not None:
        action_figures.draw(found, recordings.activities, pictures)
    typer.echo(json.dumps(found, indent=1) if as_json else text)


def dsads(data_root: Path | None) -> str:
    """Where DSADS is."""
    if data_root is None or not (data_root / DSADS).is_file():
        raise ValueError(
            f"DSADS was not found: name a folder that holds {DSADS} with --data-root (or "
            "EVERGRAPH_DATA), or recordings with --data"
        )
    return str(data_root / DSADS)


if __name__ == "__main__":
    app()

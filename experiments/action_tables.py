"""The tables of the paper and ours: which cells there are, and how they are filled step by step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations, product
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.action_experiment import (
    Config,
    Prepared,
    Record,
    predictions,
    prepare,
    run,
    summarize,
)
from evergraph.apps.action.recording import Recordings

MODELS = ("fgn", "gat", "gcn", "appnp", "gat-plain", "mlp", "cnn")
UNSEEN = ("fgn", "cnn", "gat")
PAIRS = 4
ABLATION = ("fgn-identity", "fgn-one-hop", "fgn-uniform")
# Streams bring one activity for a while: few steps on new batches, many on memory.
REPLAY: dict[str, Any] = {"method": "replay", "batch_size": 200, "replay_batches": 48}
RATES = (1e-3, 2e-3, 4e-3)
# Where rates are searched, and with how many seeds: shuffled windows, and the stream.
SEARCHES = {
    "regular": (Config(epochs=1, validation=True), 1),
    "lifelong": (Config(stream="paper", validation=True, **REPLAY), 2),
}
TABLES = ("regular", "lifelong", "subjects", "class", "ablation")

# Published for WARD (Tables 5, 6 and 9): precision, forgetting in %, milliseconds.
PAPER: dict[str, dict[str, float]] = {
    "mlp": {"regular": 0.645, "ms": 3.51},
    "gcn": {"regular": 0.881, "lifelong": 0.864, "forgetting": 0.0285, "ms": 5.38},
    "appnp": {"regular": 0.942, "lifelong": 0.898, "forgetting": 0.0196, "ms": 5.36},
    "gat": {"regular": 0.911, "lifelong": 0.826, "forgetting": 0.0202, "ms": 5.48},
    "fgn": {"regular": 0.954, "lifelong": 0.914, "forgetting": 0.0136, "ms": 5.76},
}


@dataclass(frozen=True)
class Cell:
    """One line of a table.

    Attributes:
        table: one of `TABLES`.
        config: what to run.
        runs: how many: seeds, or pairs of subjects left out.
        of_pairs: settings of their own for pairs left out; see `search_subjects`.
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
    """All cells of some tables.

    Args:
        tables: some of `TABLES`.
        seeds: runs of each cell.
        rates: the learning rate of each network, see `best_rates`; parts of FGN take FGN's.
        stream_rates: the same for streams.
        of_pairs: for each network and pair of subjects, see `best_for_subjects`.
        changes: other values for `Config`.
    """
    unknown = set(tables) - set(TABLES)
    if unknown:
        raise ValueError(f"tables are {', '.join(TABLES)}, got {', '.join(sorted(unknown))}")
    made: list[Cell] = []

    def add(table: str, model: str, runs: int, **settings: Any) -> None:
        if table in tables:
            searched = (rates if "stream" not in settings else stream_rates) or {}
            lr = searched.get(model.split("-")[0] if model in ABLATION else model)
            chosen = {**({} if lr is None else {"lr": lr}), **settings, **changes}
            pairs = {key[1:]: own for key, own in (of_pairs or {}).items() if key[0] == model}
            made.append(Cell(table, Config(model=model, **chosen), runs, pairs))

    for model in MODELS:
        add("regular", model, seeds)
        if not model.endswith("plain"):
            add("lifelong", model, seeds, stream="paper", **REPLAY)
    add("regular", "trees", seeds, method="batch")
    for table, stream in (("regular", "regular"), ("lifelong", "paper"), ("class", "class")):
        add(table, "ridge", 1, stream=stream, method="analytic", epochs=1)
    for model in ABLATION:
        add("ablation", model, seeds)
    for memory in (5000, 500):
        add("class", "fgn", min(seeds, 3), stream="class", memory=memory, **REPLAY)
    add("subjects", "trees", PAIRS, split="subjects", method="batch")
    add("subjects", "ridge", PAIRS, split="subjects", method="analytic", epochs=1)
    for model in UNSEEN:
        add("subjects", model, PAIRS, split="subjects")
    return made


def search(
    data: Recordings,
    table: str,
    report: Callable[[str, int, int], None],
    known: Iterable[Mapping[str, Any]] = (),
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
            follow = _named(report, f"{model}, lr {lr}")
            record, _ = run(replace(config, model=model, lr=lr), data, seed, follow, ready)
            yield {"model": model, "lr": lr, "seed": seed, "validation_accuracy": record.accuracy}


def best_rates(trials: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """For each network of a search the rate with the highest mean validation accuracy."""
    found: dict[str, dict[float, list[float]]] = {}
    for trial in trials:
        rates = found.setdefault(trial["model"], {})
        rates.setdefault(trial["lr"], []).append(trial["validation_accuracy"])
    return {model: max(rates, key=lambda lr: fmean(rates[lr])) for model, rates in found.items()}


def search_subjects(
    data: Recordings,
    report: Callable[[str, int, int], None],
    known: Iterable[Mapping[str, Any]] = (),
) -> Iterator[dict[str, Any]]:
    """Try rates for people left out, with and without disturbing the training windows.

    Every network learns without two pairs of people. How well it knows one of them is a trial for
    the other, which is not looked at: three trials for each pair. Known ones are not made again.
    """
    done = {(t["model"], (*t["left_out"], *t["tested_on"]), t["lr"], t["disturb"]) for t in known}
    pairs = [left_out(data, number) for number in range(PAIRS)]
    windows = {pair: prepare(Config(split="subjects", left_out=pair), data).test for pair in pairs}
    for one, two in combinations(pairs, 2):
        base = Config(split="subjects", left_out=one + two)
        ready = prepare(base, data)
        for model, lr, disturb in product(UNSEEN, RATES, (False, True)):
            if (model, one + two, lr, disturb) in done and (model, two + one, lr, disturb) in done:
                continue
            follow = _named(report, f"{model}, lr {lr}, without {' '.join(one + two)}")
            config = replace(base, model=model, lr=lr, disturb=disturb)
            _, learner = run(config, data, 0, follow, ready)
            assert learner is not None
            for pair, other in ((one, two), (two, one)):
                right = predictions(learner, windows[other].x) == windows[other].target
                yield {
                    "model": model, "left_out": list(pair), "tested_on": list(other), "lr": lr,
                    "disturb": disturb, "validation_accuracy": float(right.double().mean()),
                }  # fmt: skip


def best_for_subjects(trials: Iterable[Mapping[str, Any]]) -> dict[tuple[str, ...], dict[str, Any]]:
    """For each network and pair, `(model, *pair)`, the rate and augmentation with the best mean."""
    found: dict[tuple[str, ...], dict[tuple[float, bool], list[float]]] = {}
    for trial in trials:
        settings = found.setdefault((trial["model"], *trial["left_out"]), {})
        values = settings.setdefault((trial["lr"], trial["disturb"]), [])
        values.append(trial["validation_accuracy"])
    best = {key: max(tried, key=lambda one: fmean(tried[one])) for key, tried in found.items()}
    return {key: {"lr": lr, "disturb": disturb} for key, (lr, disturb) in best.items()}


def _named(report: Callable[[str, int, int], None], name: str) -> Callable[[int, int, float], None]:
    def follow(seen: int, total: int, accuracy: float) -> None:
        report(name, seen, total)

    return follow


@dataclass
class Ledger:
    """Runs that have been made, one JSON line each, so that a stopped job goes on.

    Attributes:
        path: the file.
    """

    path: Path

    def read(self) -> dict[tuple[str, int], dict[str, Any]]:
        """All runs so far; a half-written last line is left out."""
        found = {}
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                try:
                    entry = json.loads(line)
                except json.JSONDecodeError:
                    continue
                found[entry["key"], entry["number"]] = entry
        return found

    def add(self, entry: dict[str, Any]) -> None:
        """Write down a run."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")


def fill(
    plan: list[Cell],
    data: Recordings,
    ledger: Ledger,
    evidence: dict[str, Any],
    report: Callable[[str, int, int], None],
) -> Iterator[dict[str, Any]]:
    """Make all runs that are missing: first run of every cell, then the second, and so on.

    Args:
        plan: the cells.
        data: the recordings.
        ledger: where runs are written down.
        evidence: commit and versions, for each run.
        report: called with what is run, the windows seen and all windows.
    """
    known = ledger.read()
    ready: dict[tuple[object, ...], Prepared] = {}
    for number in range(max(cell.runs for cell in plan)):
        for cell in plan:
            if number >= cell.runs or (cell.key, number) in known:
                continue
            config, seed = cell.config_of(number, data)
            follow = _named(report, f"{cell.key}, run {number + 1} of {cell.runs}")
            shape = (config.split, config.left_out, config.length, config.stride)
            if shape not in ready:
                ready = (
                    {shape: prepare(config, data)}
                    if config.left_out
                    else {**ready, shape: prepare(config, data)}
                )
            record, _ = run(config, data, seed, follow, ready[shape])
            entry = {
                "key": cell.key, "number": number, "seed": seed, "config": asdict(config),
                "record": asdict(record), **evidence,
            }  # fmt: skip
            ledger.add(entry)
            yield entry


def collect(plan: list[Cell], ledger: Ledger) -> list[dict[str, Any]]:
    """One summary for every cell that has runs."""
    known = ledger.read()
    out = []
    for cell in plan:
        entries = [known[cell.key, n] for n in range(cell.runs) if (cell.key, n) in known]
        if not entries:
            continue
        records = [Record(**entry["record"]) for entry in entries]
        summary = summarize(cell.config, records, [entry["seed"] for entry in entries])
        configs = [entry["config"] for entry in entries]
        summary["config"] = configs[0]
        if cell.config.split == "subjects":
            summary["left_out"] = [config["left_out"] for config in configs]
        commits = sorted({str(entry["commit"]) for entry in entries})
        out.append(
            {"table": cell.table, **summary, "commit": commits[0] if len(commits) == 1 else commits}
        )
    return out

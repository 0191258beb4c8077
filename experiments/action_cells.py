"""The cells of the tables of `experiments.action`, their runs and summaries."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from evergraph.apps.action.recording import Recordings
from evergraph.evaluate.metrics import maximum_backward_forgetting
from evergraph.evaluate.run import SCHEMA, Record, summarize
from experiments import action_figures
from experiments.action_runs import Config, Prepared, compute, prepare

TABLES = tuple(action_figures.TITLES)
MODELS = ("fgn", "gat", "gcn", "appnp", "gat-plain", "mlp", "cnn")
UNSEEN = ("fgn", "cnn", "gat")
ABLATION = ("fgn-identity", "fgn-one-hop", "fgn-uniform")
PAIRS = 4
# Streams bring one activity for a while: few steps on new batches, many on memory.
REPLAY: dict[str, Any] = {"method": "replay", "batch_size": 200, "replay_batches": 48}

Report = Callable[[str, int, int], None]  # what is run, the windows seen, all windows


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

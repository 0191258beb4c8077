"""Closed forms on rich features of windows: `python -m experiments.action_rich`.

The windows are those of `experiments.action`. With people left out, settings are those that did
best on other people, never looked at the ones tested on. Pieces are saved one by one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import combinations, product
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import Tensor

from evergraph.apps.action.network import signals
from evergraph.apps.action.recording import Recordings
from evergraph.apps.action.rich import STRENGTH, RichFeatures
from evergraph.apps.action.rich import WEIGHTS as SHIPPED
from evergraph.apps.action.sources import load
from evergraph.apps.action.windows import as_batch
from evergraph.cli.console import DataRoot, Out, complaints, use_threads, write
from evergraph.evaluate.evidence import provenance
from evergraph.evaluate.run import SCHEMA
from evergraph.extras import require
from evergraph.learn.learner import Learner
from evergraph.learn.methods import Analytic
from evergraph.nn.fgn import FGN
from evergraph.stream.batch import Batch
from experiments.action import PAIRS, Config, Prepared, dsads, left_out, prepare
from experiments.cells import markdown

STRENGTHS = (0.2, 0.6, 1.8)
WEIGHTS = (0.25, 1.0)  # of correlations
SHARES = (0.0, 0.25, 0.5)  # weights of the graph
RIDGE = 0.1  # strength of the ridge on convolutions, for each window; not searched
DRAWS = 5  # of training windows in the ablation

Setting = dict[str, float]
LDA_RICH = [{"correlations": 1.0, "graph": 0.0, "strength": s} for s in STRENGTHS]
RICH = [
    {"correlations": c, "graph": g, "strength": s}
    for c, g, s in product(WEIGHTS, SHARES, STRENGTHS)
]
CLOSED: dict[str, list[Setting]] = {
    "rich": RICH,
    "rich without graph": [one for one in RICH if not one["graph"]],
    "LDA-rich": LDA_RICH,
}
"""Closed forms, and the settings that are compared for each on people held back."""
AS_SHIPPED: Setting = {
    "correlations": SHIPPED["correlations"], "graph": SHIPPED["graph"], "strength": STRENGTH,
}  # fmt: skip
FIXED: dict[str, Setting] = {
    "rich-graph, as shipped": AS_SHIPPED,
    "rich, as shipped": {**AS_SHIPPED, "graph": 0.0},
    "LDA-rich, same strength": {**AS_SHIPPED, "correlations": 1.0, "graph": 0.0},
}
"""Settings that are not searched, the first two of them as the program has them."""


@dataclass(frozen=True)
class Table:
    """Features of training and test windows of one split, before blocks are weighted."""

    train: Tensor
    test: Tensor
    target: Tensor
    truth: Tensor
    block: Mapping[str, Tensor]  # which columns belong to it
    raw: tuple[Tensor, Tensor]  # standardized signals

    def weight(self, setting: Setting) -> Tensor:
        """The weight of each feature."""
        weight = torch.ones(self.train.shape[1])
        for name in ("correlations", "graph"):
            weight[self.block[name]] = setting[name]
        return weight

    def weighted(self, setting: Setting) -> tuple[Tensor, Tensor]:
        """Features with the weights of a setting; blocks of weight 0 are left out."""
        weight = self.weight(setting)
        kept = weight > 0
        return self.train[:, kept] * weight[kept], self.test[:, kept] * weight[kept]


def table(ready: Prepared, data: Recordings, config: Config) -> Table:
    """Compute the features of all windows; scales are those of the training windows."""
    count, windows = len(ready.train), ready.windows
    ones = {"correlations": 1.0, "graph": 1.0}
    encoder = RichFeatures(data.layout, config.length // 2, ones)
    encoder.update(windows.x[:count])
    features = encoder(windows.x)[:, 0, :-1]
    sizes = encoder.sizes
    ends = dict(zip(sizes, np.cumsum(list(sizes.values())), strict=True))
    block = {name: torch.arange(ends[name] - sizes[name], ends[name]) for name in sizes}
    y = signals(windows.x)
    scaled = (y - encoder.mean.view(1, -1, 1)) / encoder.deviation.view(1, -1, 1)
    parts = features[:count], features[count:], windows.target[:count], windows.target[count:]
    return Table(*parts, block, (scaled[:count], scaled[count:]))


def items(x: Tensor, y: Tensor | None = None) -> Batch:
    """Rows as items of the closed form, with a constant that keeps their size."""
    constant = x.new_full((len(x), 1), 10 * x.shape[1] ** 0.5)
    return as_batch(torch.cat([x, constant], 1).unsqueeze(1), y)


def closed(train: Tensor, target: Tensor, strength: float, order: Tensor | None = None) -> Learner:
    """The library's exact closed form, after one pass in some order."""
    model = FGN(train.shape[1] + 1, layer="transform", channels=(), message="none")
    learner = Learner(model, Analytic("lda", strength, blocks=("x",)), outliers="pass")
    order = torch.arange(len(train)) if order is None else order
    for part in order.split(500):
        learner.observe(items(train[part], target[part]))
    return learner


class Discriminant:
    """What `closed` solves, in floating point, for many settings on the same rows."""

    def __init__(self, found: Table, rows: Tensor | None = None) -> None:
        rows = torch.arange(len(found.train)) if rows is None else rows
        x, y = found.train[rows].double(), found.target[rows]
        self.found, self.classes = found, y.unique()
        self.counts = torch.stack([(y == c).sum() for c in self.classes])
        self.means = torch.stack([x[y == c].mean(0) for c in self.classes])
        rest = x - self.means[torch.searchsorted(self.classes, y)]
        self.within = rest.T @ rest / (len(x) - len(self.classes))

    def right(self, setting: Setting) -> Tensor:
        """Which test windows are predicted right."""
        weight = self.found.weight(setting).double()
        kept = weight > 0
        weight = weight[kept]
        left = self.within[kept][:, kept] * weight[:, None] * weight
        left += setting["strength"] * left.diagonal().mean() * torch.eye(len(weight))
        means = self.means[:, kept] * weight
        solved = torch.cholesky_solve(means.T, torch.linalg.cholesky(left))
        offset = (self.counts / self.counts.sum()).log() - 0.5 * (means.T * solved).sum(0)
        scores = (self.found.test[:, kept] * weight) @ solved + offset
        right: Tensor = self.classes[scores.argmax(1)] == self.found.truth
        return right


def accuracy_of(learner: Learner, x: Tensor, y: Tensor) -> Tensor:
    """Which rows are predicted right, `(N,)`."""
    return torch.cat([learner.predict(items(part)) for part in x.split(500)]) == y


# -- other methods on the same windows ----------------------------------------------------------


def trees(found: Table, seed: int) -> Tensor:
    """ExtraTrees on the rich features without the graph."""
    x, test = found.weighted({"correlations": 1.0, "graph": 0.0})
    forest = require("sklearn.ensemble", "action").ExtraTreesClassifier
    made = forest(n_estimators=200, random_state=seed).fit(x.numpy(), found.target.numpy())
    return torch.from_numpy(made.predict(test.numpy())) == found.truth


def convolved(y: Tensor, seed: int, example: Tensor) -> Tensor:
    """Shares of positive values of many fixed convolutions, after MiniRocket, `(B, 1260)`.

    The 84 kernels of length 9 with three weights of 2 and six of -1, at five dilations, each on the
    sum of a random few of the signals `(B, S C, T)`; thresholds are quartiles on `example`.
    """
    rng = np.random.default_rng(seed)
    columns = []
    for dilation, places in product((1, 2, 3, 4, 6), combinations(range(9), 3)):
        kernel = torch.full((1, 1, 9), -1.0)
        kernel[..., list(places)] = 2
        chosen = torch.from_numpy(rng.choice(y.shape[1], int(2 ** rng.uniform(0, 3.3)), False))
        sample, values = (
            torch.nn.functional.conv1d(
                part[:, chosen].sum(1, keepdim=True),
                kernel,
                padding=4 * dilation,
                dilation=dilation,
            )[:, 0]
            for part in (example, y)
        )
        limits = torch.quantile(sample.flatten(), torch.tensor([0.25, 0.5, 0.75]))
        columns += [(values > limit).float().mean(1) for limit in limits]
    return torch.stack(columns, 1)


def convolution_ridge(found: Table, seed: int) -> Tensor:
    """Ridge regression on `convolved`."""
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(found.train))[:64])
    parts = [convolved(y, seed, found.raw[0][order]) for y in found.raw]
    spread, mean = torch.std_mean(parts[0], 0)
    x, test = ((part - mean) / spread.clamp(min=1e-6) for part in parts)
    goal = torch.nn.functional.one_hot(found.target).float()
    gram, right = x.T @ x, x.T @ (goal - goal.mean(0))
    weight = torch.linalg.solve(gram + RIDGE * len(x) * torch.eye(x.shape[1]), right)
    right = (test @ weight + goal.mean(0)).argmax(1) == found.truth
    assert isinstance(right, Tensor)
    return right


DRAWN: dict[str, Callable[[Table, int], Tensor]] = {
    "ExtraTrees-rich": trees,
    "convolution ridge": convolution_ridge,
}
"""Methods that draw random numbers, from windows and a seed to what is predicted right."""


# -- pieces -------------------------------------------------------------------------------------


def people_config(data: Recordings, numbers: tuple[int, ...]) -> Config:
    """The windows without some pairs of people."""
    gone = tuple(name for n in numbers for name in left_out(data, n))
    return Config(split="subjects", left_out=gone, stride=200)


def search_piece(data: Recordings, pair: tuple[int, int]) -> list[dict[str, Any]]:
    """Learn without two pairs of people; how well each is known is a trial for the other."""
    config = people_config(data, pair)
    ready = prepare(config, data)
    found = table(ready, data, config)
    groups = [torch.tensor([s in left_out(data, n) for s in ready.subjects]) for n in pair]
    solver = Discriminant(found)
    tried = [(setting, solver.right(setting)) for setting in RICH]
    return [
        {
            "setting": setting, "for": pair[1 - side], "tested_on": pair[side],
            "validation_accuracy": float(right[groups[side]].float().mean()),
        }
        for setting, right in tried
        for side in (0, 1)
    ]  # fmt: skip


def best(trials: list[dict[str, Any]], number: int, among: list[Setting]) -> Setting:
    """The setting with the best mean accuracy on people held back for a pair."""
    mine = [t for t in trials if t["for"] == number]

    def mean(one: Setting) -> float:
        return fmean(t["validation_accuracy"] for t in mine if t["setting"] == one)

    return max(among, key=mean)


def people_piece(
    data: Recordings, number: int, trials: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """The closed forms on one pair of people left out."""
    config = people_config(data, (number,))
    found = table(prepare(config, data), data, config)
    for method, among in CLOSED.items():
        setting, start = best(trials, number, among), time.process_time()
        x, test = found.weighted(setting)
        learner = closed(x, found.target, setting["strength"])
        right = accuracy_of(learner, test, found.truth)
        yield _row("subjects", method, number, 0, right, start, setting)


def fixed_piece(data: Recordings, number: int) -> Iterator[dict[str, Any]]:
    """The settings that are not searched, on one pair of people left out."""
    config = people_config(data, (number,))
    found = table(prepare(config, data), data, config)
    solver = Discriminant(found)
    for method, setting in FIXED.items():
        start = time.process_time()
        right = solver.right(setting)
        yield _row("subjects", method, number, 0, right, start, setting)


def drawn_piece(data: Recordings, number: int, seed: int, method: str) -> dict[str, Any]:
    """A method with a seed on one pair of people left out."""
    config = people_config(data, (number,))
    found, start = table(prepare(config, data), data, config), time.process_time()
    return _row("subjects", method, number, seed, DRAWN[method](found, seed), start, {})


def ablation_piece(
    data: Recordings, number: int, trials: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """With and without the graph on the same draws of half of all windows at stride 100."""
    config = replace(people_config(data, (number,)), stride=100)
    found = table(prepare(config, data), data, config)
    with_graph = [one for one in RICH if one["graph"]]
    without = CLOSED["rich without graph"]
    for seed in range(DRAWS):
        rng = np.random.default_rng(seed)
        drawn = torch.from_numpy(rng.permutation(len(found.train))[: len(found.train) // 2])
        solver = Discriminant(found, drawn)
        for method, among in (("with graph", with_graph), ("without graph", without)):
            setting, start = best(trials, number, among), time.process_time()
            right = solver.right(setting)
            yield _row("ablation", method, number, seed, right, start, setting)


def time_piece(data: Recordings, trials: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The paper's split in time: settings as for the first pair, in three orders of the stream."""
    config = Config()
    ready = prepare(config, data)
    found = table(ready, data, config)
    rng = torch.Generator().manual_seed(0)
    orders = {
        "regular": torch.randperm(len(found.train), generator=rng),
        "lifelong": torch.arange(len(found.train)),
        "class": found.target.argsort(stable=True),
    }
    for name, order in orders.items():
        for method, among in CLOSED.items() if name == "regular" else [("rich", RICH)]:
            setting, start = best(trials, 0, among), time.process_time()
            x, test = found.weighted(setting)
            learner = closed(x, found.target, setting["strength"], order)
            right = accuracy_of(learner, test, found.truth)
            sums = learner.method.sums  # type: ignore[attr-defined]
            yield _row(name, method, 0, 0, right, start, setting) | {"digest": sums.digest()}
    start = time.process_time()
    yield _row("regular", "ExtraTrees-rich", 0, 0, trees(found, 0), start, {})


def _row(
    name: str, method: str, number: int, seed: int, right: Tensor, start: float, setting: Any
) -> dict[str, Any]:
    return {
        "table": name, "method": method, "pair": number, "seed": seed, "setting": setting,
        "accuracy": float(right.float().mean()), "windows": len(right),
        "cpu_seconds": time.process_time() - start,
    }  # fmt: skip


# -- the command ----------------------------------------------------------------------------------


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean accuracy of each method by table, and the paired difference that the graph makes."""
    found: dict[str, Any] = {}
    for name, method in dict.fromkeys((r["table"], r["method"]) for r in rows):
        mine = [r for r in rows if (r["table"], r["method"]) == (name, method)]
        pairs = sorted({r["pair"] for r in mine})
        by_pair = [fmean(r["accuracy"] for r in mine if r["pair"] == p) for p in pairs]
        found.setdefault(name, {})[method] = {
            "accuracy": fmean(by_pair), "by_pair": by_pair, "runs": len(mine),
            "cpu_seconds": fmean(r["cpu_seconds"] for r in mine),
        }  # fmt: skip
    place = {(r["method"], r["pair"], r["seed"]): r for r in rows if r["table"] == "ablation"}
    gains = [
        row["accuracy"] - place["without graph", pair, seed]["accuracy"]
        for (method, pair, seed), row in place.items()
        if method == "with graph" and ("without graph", pair, seed) in place
    ]
    if len(gains) > 1:
        half = 1.96 * stdev(gains) / len(gains) ** 0.5
        found["graph"] = {
            "gain": fmean(gains),
            "interval": [fmean(gains) - half, fmean(gains) + half],
        }
        found["graph"] |= {"gains": gains, "better": sum(g > 0 for g in gains), "of": len(gains)}
    return found


def document(found: dict[str, Any]) -> str:
    """All tables in one Markdown text."""
    text = ["# Action recognition: closed forms on rich features of windows"]
    head = ["method", "accuracy", "by pair of people", "runs", "CPU s of a run"]
    for name in ("subjects", "regular", "lifelong", "class", "ablation"):
        if name in found:
            body = [
                [method, f"{one['accuracy']:.4f}", " ".join(f"{a:.3f}" for a in one["by_pair"]),
                 str(one["runs"]), f"{one['cpu_seconds']:.1f}"]
                for method, one in found[name].items()
            ]  # fmt: skip
            text.append(f"## {name}\n\n{markdown(head, body)}")
    if "graph" in found:
        graph = found["graph"]
        low, high = graph["interval"]
        text.append(
            f"The graph's share, paired over pairs of people and draws of training windows: "
            f"{100 * graph['gain']:+.2f} points ({100 * low:+.2f} to {100 * high:+.2f}, normal "
            f"95 % interval over the runs), better in {graph['better']} of {graph['of']}."
        )
    return "\n\n".join(text) + "\n"


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    data: Annotated[str, typer.Option(help="Recordings; by default DSADS in --data-root.")] = "",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of methods that draw numbers.")] = 5,
    pieces: Annotated[int, typer.Option(help="Pieces to make in this call; 0: show.")] = 1000,
    data_root: DataRoot = None,
    out: Out = Path("out/action_rich.json"),
) -> None:
    """Compare closed forms on rich features, with people left out and in the paper's split.

    Pieces that --out holds are not made again.
    """
    evidence = provenance()
    use_threads(1)
    with complaints():
        recordings = load(data or dsads(data_root))
        assert out is not None
        saved: dict[str, Any] = {"schema": SCHEMA, "trials": [], "cells": [], "done": []}
        if out.exists():
            saved = json.loads(out.read_text())
        plan = [f"fixed {n}" for n in range(PAIRS)]
        plan += [f"{n} 0 ExtraTrees-rich" for n in range(PAIRS)]
        plan += [f"search {a} {b}" for a, b in combinations(range(PAIRS), 2)]
        plan += [f"people {n}" for n in range(PAIRS)] + ["time 0"]
        plan += [f"ablation {n}" for n in range(PAIRS)]
        for seed, method, number in product(range(seeds), DRAWN, range(PAIRS)):
            plan.append(f"{number} {seed} {method}")
        plan = list(dict.fromkeys(plan))
        for piece in [one for one in plan if one not in saved["done"]][:pieces]:
            kind, *words = piece.split(maxsplit=2)
            trials = saved["trials"]
            if kind == "search":
                trials += search_piece(recordings, (int(words[0]), int(words[1])))
            elif kind == "fixed":
                saved["cells"] += fixed_piece(recordings, int(words[0]))
            elif kind == "people":
                saved["cells"] += people_piece(recordings, int(words[0]), trials)
            elif kind == "ablation":
                saved["cells"] += ablation_piece(recordings, int(words[0]), trials)
            elif kind == "time":
                saved["cells"] += time_piece(recordings, trials)
            else:
                saved["cells"].append(drawn_piece(recordings, int(kind), int(words[0]), words[1]))
            saved["done"].append(piece)
            found = summary(saved["cells"])
            config = {"windows": asdict(Config()), "seeds": seeds, "draws": DRAWS}
            write({**saved, "config": config, "summary": found, **evidence}, out)
            typer.echo(piece)
    text = document(summary(saved["cells"]))
    out.with_suffix(".md").write_text(text)
    typer.echo(text)


if __name__ == "__main__":
    app()

"""Domain after domain: ACM, Citation and DBLP in all six orders.

Run it with `python -m experiments.league.domains`.
The classes are the same in every domain, the words and the links are not. What a closed form knows
depends on which domains it has seen and not on their order, so that it is solved once for each set
of domains; networks with replay see all six orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations, permutations
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from evergraph.cli.console import DataRoot, complaints, progress, use_threads, write
from evergraph.evaluate.config import Config, build
from evergraph.evaluate.evidence import provenance
from evergraph.evaluate.metrics import average_accuracy, maximum_forgetting
from evergraph.evaluate.significance import paired_difference
from evergraph.graph.dataset import Dataset
from evergraph.stream.schedule import Schedule, by_class
from experiments.cells import Folder, page
from experiments.league.graphs import DOMAINS, Split, read, split
from experiments.league.lines import Cell, Lines, complete
from experiments.league.models import BATCH, MODELS
from experiments.league.views import Seen, Views

NAME = "citation-domains"
ORDERS = tuple(permutations(range(3)))
SETS = tuple(part for size in (1, 2, 3) for part in combinations(range(3), size))
FIXED = (
    "feature-graph kernel", "closed form, x + m + Âx", "ridge on m", "SLDA on x + m",
    "frozen random GNN + LDA", "RanPAC on x‖m", "logistic regression on x‖m",
)  # fmt: skip
REPLAYED = {"FGN + replay": "fgn", "GCN + replay": "gcn", "SAGE + replay": "sage"}


def draw(data: Dataset, number: int) -> Split:
    """Training, validation and test nodes of every domain, each as if it were a graph by itself."""
    domain, labels = data.graph.domain, data.graph.labels
    assert domain is not None
    assert labels is not None
    parts, none = [], torch.zeros(0, dtype=torch.int64)
    for one in range(3):
        mine = replace(data.graph, labels=torch.where(domain == one, labels, -1))
        parts.append(split(replace(data, graph=mine, train=none, test=none), number))
    train, validation, test = (
        torch.cat(some)
        for some in zip(*((p.data.train, p.validation, p.test) for p in parts), strict=True)
    )
    fresh = replace(data, train=train, test=torch.cat([test, validation]))
    return Split(fresh, validation, test, number)


def by_domain(drawn: Split, classes: np.ndarray[Any, Any]) -> dict[str, list[float]]:
    """Accuracy on the validation and on the test nodes of each domain."""
    nodes, tested = drawn.data.test, len(drawn.test)
    domain, right = drawn.data.graph.domain, (drawn.labels[nodes].numpy() == classes)
    assert domain is not None
    place = domain[nodes].numpy()
    out = {}
    for name, part in (("test", slice(0, tested)), ("validation", slice(tested, None))):
        out[name] = [float(right[part][place[part] == one].mean()) for one in range(3)]
    return out


def known(name: str, drawn: Split, views: Views, domains: tuple[int, ...]) -> Cell:
    """What a closed form that has seen some domains knows of all; settings by their validation."""
    domain = drawn.data.graph.domain
    assert domain is not None
    train = drawn.data.train
    mine = train[torch.isin(domain[train], torch.tensor(domains))]
    seen = Seen(views, replace(drawn, data=replace(drawn.data, train=mine)))
    found, kept = MODELS[name].predict(seen, "any", MODELS[name].candidates)
    trials = [by_domain(drawn, classes) for classes in found]
    best = max(trials, key=lambda trial: np.mean([trial["validation"][one] for one in domains]))
    return {"test": best["test"], "bytes": kept}


def replayed(name: str, drawn: Split, order: Sequence[int]) -> Cell:
    """A network with replay and default settings after each domain of an order."""
    config = Config("league", "data", REPLAYED[name], batch_size=BATCH)
    stream, learner = build(config, drawn.data, drawn.number)
    domain, rng = drawn.data.graph.domain, np.random.default_rng(drawn.number)
    assert domain is not None
    groups = by_class(drawn.data.train, domain, rng, order)
    stream = replace(stream, schedule=Schedule.from_groups(groups, BATCH))
    matrix, kept = [], 0
    for batch in stream:
        learner.observe(batch)
        if stream.schedule.ends_task(learner.position - 1):
            classes = torch.cat([learner.predict(part) for part in stream.test()]).numpy()
            matrix.append(by_domain(drawn, classes)["test"])
        assert learner.memory is not None
        kept = max(kept, learner.memory.nbytes)
    return {"matrix": matrix, "bytes": kept}


def matrices(cells: Sequence[Cell]) -> dict[str, dict[tuple[int, ...], dict[int, Any]]]:
    """By model, order and split: accuracy on each domain after each, in the order of coming."""
    found: dict[tuple[str, int, tuple[int, ...]], Cell] = {
        (cell["model"], cell["split"], tuple(cell["domains"])): cell for cell in cells
    }
    out: dict[str, dict[tuple[int, ...], dict[int, Any]]] = {}
    for name, order in ((name, order) for name in (*FIXED, *REPLAYED) for order in ORDERS):
        for number in sorted({number for one, number, _ in found if one == name}):
            if name in REPLAYED:
                cell = found.get((name, number, order))
                rows = None if cell is None else cell["matrix"]
            else:
                sets = [tuple(sorted(order[: size + 1])) for size in range(3)]
                parts = [found.get((name, number, part)) for part in sets]
                rows = None if None in parts else [part["test"] for part in parts if part]
            if rows is not None:
                matrix = np.array(rows)[:, list(order)]
                out.setdefault(name, {}).setdefault(order, {})[number] = matrix
    return out


def summarize(cells: Sequence[Cell]) -> list[Cell]:
    """One row for each model: accuracy on all domains at the end, and forgetting."""
    rows = []
    for name, orders in matrices(cells).items():
        if len(orders) < len(ORDERS):
            continue
        common = sorted(set.intersection(*(set(found) for found in orders.values())))
        final = {o: [average_accuracy(found[n]) for n in common] for o, found in orders.items()}
        lost = [maximum_forgetting(found[n]) for found in orders.values() for n in common]
        rows.append({
            "model": name,
            "splits": common,
            "accuracy": float(np.mean([*final.values()])),
            "per_split": np.mean([*final.values()], axis=0).tolist(),
            "by_order": {
                " → ".join(DOMAINS[one] for one in order): float(np.mean(values))
                for order, values in final.items()
            },
            "forgetting": float(np.mean(lost)),
            "bytes": max(cell["bytes"] for cell in cells if cell["model"] == name),
        })  # fmt: skip
    return sorted(rows, key=lambda row: -row["accuracy"])


def publish(cells: Sequence[Cell], folder: Path) -> None:
    """Write `league_domains.json` and its page."""
    rows = summarize(cells)
    commits = sorted({str(cell["commit"]) for cell in cells})
    write({"schema": 2, "cells": rows, "commits": commits}, folder / "league_domains.json")
    best = rows[0] if rows else None
    shown = []
    for row in rows:
        assert best is not None
        both = [n for n in row["splits"] if n in best["splits"]]
        first, second = (
            [one["per_split"][one["splits"].index(n)] for n in both] for one in (best, row)
        )
        above = paired_difference(first, second) if both else None
        reach = (
            ""
            if above is None or row is best
            else (f"{100 * above.mean:+.1f} [{100 * above.low:+.1f}, {100 * above.high:+.1f}]")
        )
        orders = list(row["by_order"].values())
        shown.append([
            row["model"], f"{100 * row['accuracy']:.1f}", reach,
            f"{100 * min(orders):.1f} to {100 * max(orders):.1f}", f"{100 * row['forgetting']:.1f}",
            f"{row['bytes'] / 2**20:.1f}", str(len(row["splits"])),
        ])  # fmt: skip
    columns = (
        "model", "accuracy at the end", "best above, points", "over the six orders",
        "forgetting, points", "MB kept", "splits",
    )  # fmt: skip
    note = (
        "Percent, mean over the test nodes of ACM, Citation and DBLP after all three have come, "
        "then over six orders and all splits; forgetting is the best minus the last accuracy of a "
        "domain. Logistic regression is trained regularly on all that has come."
    )
    page(folder / "league_domains.md", "Domain after domain", columns, shown, note)


def domains(
    splits: Annotated[int, typer.Option(min=1, help="Draws of nodes.")] = 10,
    models: Annotated[str, typer.Option(help="Separated by semicolons.")] = ";".join(
        (*FIXED, *REPLAYED)
    ),
    minutes: Annotated[float, typer.Option(help="Begin no cell after so many minutes.")] = 1e6,
    cells: Annotated[Path, typer.Option(help="Finished cells.")] = Path("out/domains.jsonl"),
    results: Folder = Path("results"),
    data_root: DataRoot = None,
) -> None:
    """Learn three domains one after the other, in all orders; call it again to resume."""
    use_threads(1)

    @cache
    def drawn(number: int) -> Split:
        return draw(read(NAME, data_root), number)

    @cache
    def views() -> Views:
        return Views(read(NAME, data_root).graph)

    def compute(key: Cell) -> Cell:
        name, number, some = key["model"], key["split"], tuple(key["domains"])
        if name in REPLAYED:
            return {**replayed(name, drawn(number), some), **provenance()}
        return {**known(name, drawn(number), views(), some), **provenance()}

    chosen = models.split(";")
    wanted = [
        {"model": name, "split": number, "domains": list(some)}
        for number in range(splits)
        for name in chosen
        for some in (ORDERS if name in REPLAYED else SETS)
    ]
    with complaints("What is done is kept: call it again to continue."), progress(False) as shown:
        task = shown.add_task("cells", total=len(wanted))
        for _ in complete(Lines(cells), wanted, compute, minutes):
            shown.update(task, advance=1)
        publish(Lines(cells).cells(), results)


if __name__ == "__main__":
    typer.run(domains)

"""The league's tables: accuracy by graph, ranks and their test, wins and losses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from evergraph.cli.console import write
from evergraph.evaluate.figures import rank_diagram
from evergraph.evaluate.significance import alike, compare, outcomes, paired_difference
from experiments.cells import markdown
from experiments.league import parts
from experiments.league.graphs import GRAPHS
from experiments.league.models import MODELS, ORDERS
from experiments.league.ranking import Cell, Table, chosen, table

SCHEMA = 2  # of results/league.json
OURS = parts.KERNEL  # whom the others are compared with
RANKED = [name for name in MODELS if parts.PARTS.get(name) in (None, parts.CLOSED)]


def tested(found: Table) -> dict[str, Any]:
    """Ranks, Friedman and Nemenyi over the graphs, and each model beside ours."""
    out = compare(found.models, found.means())
    ours = found.models.index(OURS) if OURS in found.models else 0
    out["beside"] = found.models[ours]
    means, plain = found.means(), found.means("default")
    for row in out["models"]:
        column = found.models.index(row["model"])
        over = paired_difference(means[:, ours], means[:, column])
        pairs = [[scores[:, i] for scores in found.tuned.values()] for i in (ours, column)]
        row["default_mean"] = float(plain[:, column].mean())
        row["ours_above"] = {"mean": over.mean, "low": over.low, "high": over.high}
        row["wins_ties_losses_of_ours"] = outcomes(*pairs)
    return out


def costs(cells: Sequence[Cell]) -> dict[str, dict[str, float]]:
    """Median CPU seconds of one candidate, and the most bytes kept, by model."""
    out = {}
    ordered = sorted(cells, key=lambda cell: str(cell["model"]))
    for name, group in groupby(ordered, lambda cell: str(cell["model"])):
        mine = list(group)
        each = [cell["cpu_seconds"] / len(cell["trials"]) for cell in mine]
        kept = max(cell["bytes"] for cell in mine)
        out[name] = {"cpu_seconds": float(np.median(each)), "bytes": kept}
    return out


def views(cells: Sequence[Cell]) -> dict[str, Table]:
    """All tables that have at least three models and two graphs."""
    cheap = [name for name in RANKED if MODELS[name].orders == ("any",)]
    wanted = {"any order": (cheap, "any")}
    wanted |= {f"{order} order, with networks": (RANKED, order) for order in ORDERS}
    found = {title: table(cells, *what) for title, what in wanted.items()}
    only = found["any order"].models  # a table without any network says nothing new
    return {
        title: one
        for title, one in found.items()
        if min(len(one.splits), len(one.models) - 1) > 1
        and (title == "any order" or one.models != only)
    }


def publish(cells: Sequence[Cell], folder: Path, figures: Path | None = None) -> None:
    """Write `league.json` and `league.md` of finished cells."""
    out: dict[str, Any] = {"schema": SCHEMA, "costs": costs(cells), "tables": {}}
    pages = ["# The league", *_finished(cells)]
    for title, found in views(cells).items():
        made = tested(found)
        out["tables"][title] = {
            **made,
            "splits": found.splits,
            "columns": found.models,
            "accuracy": {graph: scores.round(4).tolist() for graph, scores in found.tuned.items()},
            "default_accuracy": {
                graph: scores.round(4).tolist() for graph, scores in found.default.items()
            },
        }
        pages += _page(title, found, made, out["costs"])
        if figures is not None:
            ranks = {row["model"]: row["rank"] for row in made["models"]}
            cd = made["critical_difference"]
            path = figures / f"league_{title.split()[0]}.png"
            rank_diagram(ranks, cd, alike(list(ranks.values()), cd), path)
    out["ablation"], out["defaults"] = parts.ablation(cells), parts.defaults(cells)
    pages += parts.sections(out["ablation"], out["defaults"])
    out["commits"] = sorted({str(cell["commit"]) for cell in cells})
    out["versions"] = cells[0]["versions"] if cells else {}
    out["cells"] = [_compact(cell) for cell in sorted(cells, key=_place)]
    folder.mkdir(parents=True, exist_ok=True)
    write(out, folder / "league.json")
    (folder / "league.md").write_text("\n\n".join(pages) + "\n")


def _place(cell: Cell) -> tuple[int, int, str, int]:
    models = list(MODELS)
    return (
        GRAPHS.index(cell["graph"]), models.index(cell["model"]), cell["order"], cell["split"]
    )  # fmt: skip


def _compact(cell: Cell) -> Cell:
    """What is published of a cell: the default, what was chosen, and what it cost."""
    best = chosen(cell)
    names = ("graph", "model", "order", "split", "cpu_seconds", "bytes", "commit")
    accuracies = {
        f"{which}_{part}": round(trial[part], 4)
        for which, trial in (("default", cell["trials"][0]), ("tuned", best))
        for part in ("validation", "test", "balanced")
    }
    kept = {name: cell[name] for name in names}
    return {**kept, **accuracies, "settings": best["settings"], "candidates": len(cell["trials"])}


def _finished(cells: Sequence[Cell]) -> list[str]:
    """How many cells each model has, so that nobody takes a part for the whole."""
    rows = []
    for name, order in ((one, order) for one in MODELS for order in MODELS[one].orders):
        mine = [c["graph"] for c in cells if (c["model"], c["order"]) == (name, order)]
        if not mine:
            continue
        counts = Counter(mine)
        least = str(min(counts.values())) if len(counts) == len(GRAPHS) else ""
        rows.append([name, order, str(len(counts)), str(len(mine)), least])
    columns = ("model", "order", "graphs", "cells", f"splits of all {len(GRAPHS)} graphs")
    text = "The tables below hold the splits that all of their models have. Finished so far:"
    return [text, markdown(columns, rows)]


def _page(title: str, found: Table, made: dict[str, Any], spent: dict[str, Any]) -> list[str]:
    """The sections of one table: ranks, then accuracy by graph."""
    rows = []
    for row in made["models"]:
        above = row["ours_above"]
        name, cost = row["model"], spent[row["model"]]
        own = name == made["beside"]
        rows.append([
            name, MODELS[name].kind, f"{row['rank']:.2f}", f"{row['mean']:.4f}",
            f"{row['default_mean']:.4f}",
            "" if own else f"{100 * above['mean']:+.1f} [{100 * above['low']:+.1f}, "
            f"{100 * above['high']:+.1f}]",
            "" if own else " / ".join(map(str, row["wins_ties_losses_of_ours"])),
            f"{cost['cpu_seconds']:.1f}", f"{cost['bytes'] / 2**20:.1f}",
        ])  # fmt: skip
    columns = (
        "model", "kind", "mean rank", "accuracy", "with defaults", "ours above, points",
        "ours wins / ties / loses", "CPU s", "MB kept",
    )  # fmt: skip
    test, counts = made["friedman"], sorted({len(n) for n in found.splits.values()})
    about = (
        f"{made['blocks']} graphs, {' or '.join(map(str, counts))} splits of each; Friedman "
        f"{test['statistic']:.1f}, p = {test['p']:.1g}; the critical difference of ranks "
        f"(Nemenyi, .05) is {made['critical_difference']:.2f}. Ours is {made['beside']}."
    )
    names = [row["model"] for row in made["models"]]
    places = [found.models.index(name) for name in names]
    by_graph = []
    for graph, scores in found.tuned.items():
        means = scores.mean(0)[places]
        cells = [f"**{100 * v:.1f}**" if v == means.max() else f"{100 * v:.1f}" for v in means]
        by_graph.append([f"{graph} ({len(scores)})", *cells])
    return [
        f"## {title.capitalize()}", about, markdown(columns, rows),
        "Accuracy on test nodes in percent, chosen on validation nodes; in brackets the splits.",
        markdown(["graph", *names], by_graph),
    ]  # fmt: skip

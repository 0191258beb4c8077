"""What parts are worth and what defaults cost: tables of finished cells beside the ranking."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from evergraph.evaluate.significance import Difference, outcomes, paired_difference
from experiments.cells import markdown
from experiments.league.graphs import GRAPHS
from experiments.league.models import CHANGES, INSTEAD, MODELS
from experiments.league.ranking import Cell, table

KERNEL, CLOSED, FGN = "feature-graph kernel", "closed form, x + m + Âx", "FGN + replay"
PARTS = {
    "kernel, no products": KERNEL,
    "kernel, no roots": KERNEL,
    "kernel, not raised": KERNEL,
    "kernel, nothing together": KERNEL,
    "kernel, hops alike": KERNEL,
    "closed form, x + m": CLOSED,
    "ridge on m": CLOSED,
    "ridge on x": CLOSED,
    **{f"FGN, {name} + replay": FGN for name in (*CHANGES, *INSTEAD)},
}
"""Models that leave something out, and the whole that they are compared with."""
HALVES = GRAPHS[0::2], GRAPHS[1::2]


def ablation(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Each part beside its whole, paired over the graphs that both have."""
    rows = []
    wanted = ((p, whole, order) for p, whole in PARTS.items() for order in MODELS[p].orders)
    for part, whole, order in wanted:
        found = table(cells, (part, whole), order)
        if len(found.models) < 2 or not found.splits:
            continue
        means, scores = found.means(), found.tuned.values()
        rows.append({
            "part": part,
            "whole": whole,
            "order": order,
            "graphs": len(found.splits),
            "splits": sum(map(len, found.splits.values())),
            **_points(paired_difference(means[:, 0], means[:, 1])),
            "wins_ties_losses": outcomes([s[:, 0] for s in scores], [s[:, 1] for s in scores]),
        })  # fmt: skip
    return rows


def defaults(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """What fixed settings lose to tuned ones: those that ship, and those of the other graphs.

    For each half of the graphs, the candidate with the best mean validation accuracy on the other
    half stands for a rule that was not chosen on the graphs on which it is reported.
    """
    rows = []
    for name in MODELS:
        for order in MODELS[name].orders:
            mine = [c for c in cells if (c["model"], c["order"]) == (name, order)]
            if len(MODELS[name].candidates) > 1 and all(_among(mine, half) for half in HALVES):
                rows.append({"model": name, "order": order, **_lost(mine)})
    return rows


def _lost(cells: Sequence[Cell]) -> dict[str, Any]:
    shipped, ruled = [], []
    for half, other in (HALVES, HALVES[::-1]):
        rule = _best(_among(cells, other))
        for graph in dict.fromkeys(c["graph"] for c in _among(cells, half)):
            trials = [c["trials"] for c in cells if c["graph"] == graph]
            tuned = np.mean([max(t, key=lambda one: one["validation"])["test"] for t in trials])
            shipped.append(np.mean([t[0]["test"] for t in trials]) - tuned)
            ruled.append(np.mean([_of(t, rule)["test"] for t in trials]) - tuned)
    found = {"shipped": shipped, "rule": ruled}
    zero = np.zeros(len(shipped))
    lost = {name: _points(paired_difference(some, zero)) for name, some in found.items()}
    return {"graphs": len(shipped), "rules": [_best(_among(cells, h)) for h in HALVES], **lost}


def _among(cells: Sequence[Cell], graphs: Sequence[str]) -> list[Cell]:
    return [cell for cell in cells if cell["graph"] in graphs]


def _best(cells: Sequence[Cell]) -> dict[str, Any]:
    """The settings with the best validation accuracy, averaged over splits, then over graphs."""
    found: dict[str, dict[str, list[float]]] = {}
    for cell in cells:
        for trial in cell["trials"]:
            key = json.dumps(trial["settings"], sort_keys=True)
            found.setdefault(key, {}).setdefault(cell["graph"], []).append(trial["validation"])
    means = {key: np.mean([np.mean(v) for v in graphs.values()]) for key, graphs in found.items()}
    best: dict[str, Any] = json.loads(max(means, key=lambda key: means[key]))
    return best


def _of(trials: Sequence[Cell], settings: dict[str, Any]) -> Cell:
    """The trial of some settings; JSON knows no tuples."""
    wanted = json.dumps(settings, sort_keys=True)
    return next(t for t in trials if json.dumps(t["settings"], sort_keys=True) == wanted)


def _points(found: Difference) -> dict[str, float]:
    return {"mean": found.mean, "low": found.low, "high": found.high}


def sections(parts: Sequence[dict[str, Any]], lost: Sequence[dict[str, Any]]) -> list[str]:
    """Both as Markdown."""
    first = [
        [row["part"], row["whole"], row["order"], f"{row['graphs']} ({row['splits']})", _shown(row),
         " / ".join(map(str, row["wins_ties_losses"]))]
        for row in parts
    ]  # fmt: skip
    second = [
        [row["model"], row["order"], str(row["graphs"]), _shown(row["shipped"]),
         _shown(row["rule"]), "; ".join(json.dumps(rule) for rule in row["rules"])]
        for row in lost
    ]  # fmt: skip
    return [
        "## What parts are worth",
        "Part minus whole in points, paired over graphs (in brackets splits), with 95 % intervals; "
        "wins, ties and losses of the part by graph.",
        markdown(("part", "whole", "order", "graphs", "points", "wins / ties / loses"), first),
        "## What fixed settings lose",
        "Against settings tuned on validation nodes, in points over graphs: those that ship, and "
        "one candidate chosen on the validation nodes of the other half of the graphs.",
        markdown(("model", "order", "graphs", "shipped", "rule", "rules of both halves"), second),
    ]


def _shown(row: dict[str, float]) -> str:
    return f"{100 * row['mean']:+.2f} [{100 * row['low']:+.2f}, {100 * row['high']:+.2f}]"

"""Tables of `experiments.action_rich`: means, people, and paired differences with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean, stdev
from typing import Any

from evergraph.evaluate.significance import paired_difference
from experiments.cells import markdown

Row = Mapping[str, Any]
TITLES = {
    "subjects": "Two people left out, four pairs",
    "regular": "The paper's split, in any order",
    "lifelong": "The paper's split, one person after the other: accuracy and forgetting",
    "class": "The paper's split, class by class: accuracy and forgetting",
}
SHIPPED = "shipped"
GRAPH = "rich-graph", "rich"  # the pair that the graph's share is told by


def runs_of(rows: Iterable[Row], method: str) -> dict[tuple[int, int], Row]:
    """What a method did with each pair of people and seed."""
    return {
        (one["pair"], one["seed"]): one
        for one in rows
        if one["table"] == "subjects" and one["method"] == method
    }


def differences(rows: Sequence[Row], first: str, second: str) -> dict[str, Any]:
    """First minus second on the runs of both, paired over people (means of seeds) and over runs."""
    mine, theirs = runs_of(rows, first), runs_of(rows, second)
    both = sorted(set(mine) & set(theirs))
    if not both:
        return {}
    people: dict[str, list[tuple[float, float]]] = {}
    for run in both:
        for name, accuracy in mine[run]["people"].items():
            people.setdefault(name, []).append((accuracy, theirs[run]["people"][name]))
    means = [tuple(map(fmean, zip(*pairs, strict=True))) for pairs in people.values()]
    runs = [(mine[run]["accuracy"], theirs[run]["accuracy"]) for run in both]
    found = {}
    for name, pairs in (("people", means), ("runs", runs)):
        one, other = zip(*pairs, strict=True)
        better = sum(a > b for a, b in pairs)
        found[name] = {**asdict(paired_difference(one, other)), "better": better}
    return found


def summarized(rows: Sequence[Row]) -> dict[str, Any]:
    """Each method of each table, and what the shipped choice and the graph are ahead by."""
    found: dict[str, Any] = {}
    for table, method in dict.fromkeys((one["table"], one["method"]) for one in rows):
        mine = [one for one in rows if (one["table"], one["method"]) == (table, method)]
        pairs = sorted({one["pair"] for one in mine})
        by_pair = [fmean(one["accuracy"] for one in mine if one["pair"] == p) for p in pairs]
        seeds = sorted({one["seed"] for one in mine})
        by_seed = [fmean(one["accuracy"] for one in mine if one["seed"] == s) for s in seeds]
        found.setdefault(table, {})[method] = {
            "accuracy": fmean(by_pair), "by_pair": by_pair, "seeds": len(seeds),
            "sd_over_seeds": stdev(by_seed) if len(seeds) > 1 else None,
            "forgetting": next((one["forgetting"] for one in mine if "forgetting" in one), None),
            "cpu_seconds": fmean(one["cpu_seconds"] for one in mine),
        }  # fmt: skip
    others = [name for name in found.get("subjects", {}) if name != SHIPPED]
    found["shipped_minus"] = {name: differences(rows, SHIPPED, name) for name in others}
    found["graph"] = differences(rows, *GRAPH)
    return found


def document(rows: Sequence[Row], settings: Mapping[str, Any]) -> str:
    """All tables in one Markdown text."""
    found, text = summarized(rows), ["# Action recognition: closed forms beside other methods"]
    for table, title in TITLES.items():
        if table in found:
            text.append(f"## {title}\n\n{_table(found[table], table)}")
    if found["shipped_minus"]:
        body = [
            [name, *(_interval(one.get(unit)) for unit in ("people", "runs"))]
            for name, one in found["shipped_minus"].items()
        ]
        head = ["shipped minus", "over people", "over pairs and seeds"]
        text.append(f"## Paired differences, in points\n\n{markdown(head, body)}")
        graph = found["graph"]
        text.append(
            "The feature graph's share, `rich-graph` minus `rich`, each with settings of its own: "
            f"{_interval(graph.get('people'))} over people, {_interval(graph.get('runs'))} over "
            "pairs and seeds. Seeds of one pair share people, so that the second interval is too "
            "narrow; the first is the one to go by."
        )
    body = [
        [number, name, _known(one["left_out"]), _short(one["settings"])]
        for number, of in settings.items()
        for name, one in of.get("closed", {}).items()
    ]
    head = ["split", "method", "left out of training", "settings"]
    text.append(f"## What was chosen\n\n{markdown(head, body)}")
    return "\n\n".join(text) + "\n"


def _table(of: Mapping[str, Any], table: str) -> str:
    head = ["method", "accuracy", "sd over seeds", "seeds", "CPU s of a run"]
    head.insert(2, "by pair of people" if table == "subjects" else "forgetting")
    body = []
    for method, one in sorted(of.items(), key=lambda item: -item[1]["accuracy"]):
        sd, lost = one["sd_over_seeds"], one["forgetting"]
        third = " ".join(f"{a:.3f}" for a in one["by_pair"])
        if table != "subjects":
            third = "" if lost is None else f"{100 * lost:.2f} %"
        body.append([
            method, f"{one['accuracy']:.4f}", third, "" if sd is None else f"{sd:.4f}",
            str(one["seeds"]), f"{one['cpu_seconds']:.1f}",
        ])  # fmt: skip
    return markdown(head, body)


def _interval(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    return (
        f"{100 * found['mean']:+.2f} ({100 * found['low']:+.2f} to {100 * found['high']:+.2f}), "
        f"better in {found['better']} of {found['pairs']}"
    )


def _known(left_out: float | None) -> str:
    return "" if left_out is None else f"{left_out:.4f}"


def _short(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())

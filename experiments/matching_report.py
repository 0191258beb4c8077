"""Results of feature matching as Markdown."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]


def compare_markdown(result: Row) -> str:
    """One table a test, best F1 in bold."""
    lines = ["# Feature matching: networks and baselines", "", _origin(result), ""]
    cells = result["cells"]
    for test in dict.fromkeys(cell["test"] for cell in cells):
        mine = [cell for cell in cells if cell["test"] == test]
        honest = [cell["f1"] for cell in mine if "itself" not in cell["method"]]
        lines += [
            f"## {test[0].upper()}{test[1:]}",
            "",
            "| method | precision | recall | F1 | ± sd | mean error, px | training, CPU s |",
            "|---|---|---|---|---|---|---|",
        ]
        for cell in mine:
            f1 = f"{cell['f1']:.3f}"
            shown = f"**{f1}**" if cell["f1"] == max(honest) else f1
            numbers = [f"{cell[name]:.3f}" for name in ("precision", "recall")]
            numbers += [shown, f"{cell['f1_sd']:.3f}", f"{cell['mean_error']:.2f}"]
            lines.append(_line(cell["method"], *numbers, f"{cell['train_seconds']:.0f}"))
        lines.append("")
    return "\n".join(lines)


def table7_markdown(result: Row) -> str:
    """Mean error, F1 and pose AUC by category."""
    rows = result["rows"]
    categories = list(dict.fromkeys(row["category"] for row in rows))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    cells = {(row["method"], row["category"]): row for row in rows}
    lines = ["# Table 7: the paper's arrangement by scene category", "", _origin(result), ""]
    for name, title in (("mean_error", "Mean error, pixels"), ("f1", "F1 within 3 pixels")):
        lines += [f"## {title}", "", _line("method", *categories), _rule(len(categories))]
        for method in methods:
            found = [cells.get((method, category)) for category in categories]
            lines.append(_line(method, *("" if r is None else f"{r[name]:.3f}" for r in found)))
            published = [None if r is None else r["published"] for r in found]
            if name == "mean_error" and any(published):
                texts = ("" if value is None else f"{value:.2f}" for value in published)
                lines.append(_line(f"{method}, published on TartanAir", *texts))
        lines.append("")
    return "\n".join(lines)


def stream_markdown(result: Row) -> str:
    """F1 and forgetting by method."""
    lines = ["# One pass over four scene domains", "", _origin(result), ""]
    lines += [_line("method", "F1", "± sd", "forgetting", "± sd", "memory, MB"), _rule(5)]
    for row in result["rows"]:
        names = ("f1", "f1_sd", "forgetting", "forgetting_sd")
        numbers = [f"{row[name]:.3f}" for name in names]
        lines.append(_line(row["method"], *numbers, f"{row['memory_bytes'] / 1e6:.1f}"))
    return "\n".join([*lines, ""])


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(columns: int) -> str:
    return "|" + "---|" * (columns + 1)


def _origin(result: Row) -> str:
    seeds = len(result["seeds"])
    return f"{seeds} seeds, commit `{result['commit']}`; every number is in the JSON beside."

"""The figure of precision against tolerance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

mpl.use("Agg")


def tolerance_curves(rows: list[dict[str, Any]], path: Path) -> None:
    """Precision against tolerance, one panel a category: the paper's Fig. 3."""
    categories = list(dict.fromkeys(row["category"] for row in rows))
    figure = Figure(figsize=(3.2 * len(categories), 3.2), layout="constrained")
    for place, category in enumerate(categories):
        axes = figure.add_subplot(1, len(categories), place + 1)
        for row in rows:
            if row["category"] == category:
                axes.plot(row["tolerances"], row["within_tolerance"], label=row["method"])
        axes.set(title=category, xlabel="tolerance, pixels", ylim=(0, 1))
        axes.grid(alpha=0.3)
        if not place:
            axes.set_ylabel("share of matches")
            axes.legend(fontsize=7, loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)

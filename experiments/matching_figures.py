"""Pictures of matches, and of how precision grows with tolerance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

mpl.use("Agg")
Array = NDArray[Any]


def draw_matches(
    image0: Array,
    image1: Array,
    keypoints0: Array,
    keypoints1: Array,
    confidence: Array,
    path: Path,
) -> None:
    """Two color images side by side, with lines from red (unsure) to green (sure).

    `keypoints0` and `keypoints1` are the two ends of each match, `(M, 2)`.
    """
    height = max(image0.shape[0], image1.shape[0])
    shift = image0.shape[1]
    canvas = np.zeros((height, shift + image1.shape[1], 3), np.uint8)
    canvas[: image0.shape[0], :shift] = image0
    canvas[: image1.shape[0], shift:] = image1
    for (x0, y0), (x1, y1), sure in zip(keypoints0, keypoints1, confidence, strict=True):
        ends = (round(float(x0)), round(float(y0))), (round(float(x1)) + shift, round(float(y1)))
        color = (0, int(255 * sure), int(255 * (1 - sure)))
        cv2.line(canvas, *ends, color, 1, cv2.LINE_AA)
        for end in ends:
            cv2.circle(canvas, end, 2, color, -1, cv2.LINE_AA)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not cv2.imwrite(str(path), canvas):
        raise ValueError(f"cannot write a picture to {path}; use a name that ends in .png")


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

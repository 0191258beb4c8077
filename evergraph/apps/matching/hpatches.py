"""HPatches' layout: folders `i_*` (light) and `v_*` (view) with images 1 to 6 and `H_1_k`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from evergraph.apps.matching.features import Detector, detect
from evergraph.apps.matching.images import SUFFIXES, Image, read_image
from evergraph.apps.matching.truth import Pair, homography_pair

Array = NDArray[Any]


def scenes(root: Path | str) -> list[Path]:
    """The scene folders below a folder, by name."""
    found = sorted(path.parent for path in Path(root).rglob("H_1_2"))
    if not found:
        raise ValueError(f"expected HPatches' layout, folders with 1.ppm and H_1_2, in {root}")
    return found


def read_homography(path: Path) -> Array:
    """Nine numbers, row by row."""
    try:
        values = np.array([float(word) for word in path.read_text().split()])
    except ValueError:
        values = np.zeros(0)
    if values.size != 9 or not np.isfinite(values).all() or values[8] == 0:
        raise ValueError(f"{path} must hold the 9 numbers of a homography, got {values.size}")
    return np.asarray(values.reshape(3, 3) / values[8])


def scene_pairs(
    scene: Path, short_side: int = 480, points: int = 512, detector: Detector = "sift"
) -> Iterator[Pair]:
    """Image 1 with every other that has a homography, scaled to this short side."""
    reference, scale = _read(scene, 1, short_side)
    first = detect(reference, detector, points)
    size = (reference.shape[1], reference.shape[0])
    for path in sorted(scene.glob("H_1_*")):
        number = int(path.name.rpartition("_")[2])
        image, other = _read(scene, number, short_side)
        homography = other @ read_homography(path) @ np.linalg.inv(scale)
        second = detect(image, detector, points)
        yield homography_pair(first, second, homography, size, f"{scene.name}/1-{number}")


def _read(scene: Path, number: int, short_side: int) -> tuple[Image, Array]:
    """An image scaled down, and the scaling as a matrix."""
    paths = [scene / f"{number}{suffix}" for suffix in SUFFIXES]
    path = next((p for p in paths if p.is_file()), paths[0])
    image = read_image(path)
    scale = min(short_side / min(image.shape[:2]), 1.0)
    if scale < 1:
        image = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    return image, np.diag([scale, scale, 1.0])

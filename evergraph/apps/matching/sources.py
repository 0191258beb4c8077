"""Folders that pairs come from, whatever their layout: HPatches, TartanAir, or plain images."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from evergraph.apps.matching.features import Detector, ImageFeatures, detect
from evergraph.apps.matching.homography import Views, pairs
from evergraph.apps.matching.hpatches import scene_pairs, scenes
from evergraph.apps.matching.images import list_images, read_image
from evergraph.apps.matching.tartanair import (
    frame_pair,
    read_sequence,
    sequence_pairs,
    sequences,
    shrink,
)
from evergraph.apps.matching.truth import Pair, unknown_pair

Layout = Literal["hpatches", "tartanair", "images"]


def layout_of(folder: Path) -> Layout:
    """What a folder holds."""
    if not folder.is_dir():
        raise ValueError(f"expected a folder, got {folder}")
    if next(folder.rglob("H_1_2"), None) is not None:
        return "hpatches"
    if next(folder.rglob("pose_left.txt"), None) is not None:
        return "tartanair"
    return "images"


def judged_pairs(
    folder: Path, count: int, apart: int = 1, points: int = 512, detector: Detector = "sift"
) -> list[Pair]:
    """Pairs with their truth to judge a matcher on; homographies of plain images."""
    layout = layout_of(folder)
    found: Iterator[Pair]
    if layout == "hpatches":
        found = (p for s in scenes(folder) for p in scene_pairs(s, 480, points, detector))
    elif layout == "tartanair":
        found = (
            p for s in sequences(folder) for p in sequence_pairs(s, apart, 640, points, detector)
        )
    else:
        images = [read_image(path) for path in list_images(folder)]
        views = Views(size=(640, 480), points=points, detector=detector)
        found = pairs(images, count, 0, views)
    out = [pair for _, pair in zip(range(count), found, strict=False)]
    if not out:
        raise ValueError(f"expected at least two images that belong together in {folder}")
    return out


def video_pairs(
    folder: Path, width: int, points: int, detector: Detector = "sift"
) -> Iterator[Pair]:
    """Every frame with the one before, with its truth where depth and poses are there."""
    if (folder / "pose_left.txt").is_file():
        found = read_sequence(folder)
        before = None
        for number in range(len(found)):
            frame = found.frame(number, width, points, detector)
            if before is not None:
                yield frame_pair(before, frame, found.images[number].name)
            before = frame
        return
    last: ImageFeatures | None = None
    for path in list_images(folder):
        image = shrink(read_image(path), width)
        now = detect(image, detector, points)
        if last is not None:
            yield unknown_pair(last, now, (image.shape[1], image.shape[0]), path.name)
        last = now


def video_length(folder: Path) -> int:
    """How many pairs a video has."""
    inner = folder / "image_left" if (folder / "pose_left.txt").is_file() else folder
    return max(len(list_images(inner)) - 1, 0)

"""Where pairs come from: bundled photographs, HPatches, Oxford, TartanAir, pair lists, images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from evergraph.apps.matching.features import Detector, ImageFeatures, detect
from evergraph.apps.matching.homography import Views, pairs
from evergraph.apps.matching.images import SUFFIXES, Image, list_images, read_image, shrink
from evergraph.apps.matching.tartanair import read_sequence, sequence_pairs, sequences
from evergraph.apps.matching.truth import Pair, homography_pair, unknown_pair
from evergraph.extras import require

cv2 = require("cv2", "matching")

Array = NDArray[Any]
Layout = Literal["hpatches", "oxford", "tartanair", "list", "images"]
PLANAR: dict[Layout, tuple[str, str]] = {
    "hpatches": ("H_1_{}", "{}"),
    "oxford": ("H1to{}p", "img{}"),
}
"""How layouts with true homographies from image 1 to image k name their files."""
TRUTH: dict[Layout, str] = {
    "hpatches": "the homographies H_1_k of HPatches",
    "oxford": "the homographies H1tokp of Oxford's affine sets",
    "tartanair": "depth and poses of TartanAir",
    "list": "the relative poses of a list of pairs: epipolar lines, no true points",
    "images": "random homographies, since the folder holds plain images",
}
"""Where the truth of each layout comes from."""
SCENES = (
    "astronaut.png", "camera.png", "chelsea.png", "china.jpg", "coffee.png", "flower.jpg",
    "rocket.jpg",
)  # fmt: skip
"""Photographs of people, animals, objects and places in scikit-image and scikit-learn."""
SURFACES = (
    "brick.png", "coins.png", "grass.png", "gravel.png", "hubble_deep_field.jpg", "ihc.png",
    "moon.png", "page.png", "retina.jpg", "text.png",
)  # fmt: skip
"""Textures, documents, and images of microscopes, telescopes and scanners."""


# -- photographs of scikit-image and scikit-learn -----------------------------------------------


@dataclass(frozen=True)
class Split:
    """Bundled photographs: scenes and surfaces to learn from, and some of each to test on."""

    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]
    surfaces: tuple[str, ...]


def split(seed: int) -> Split:
    """Random split: 3 scenes and 2 surfaces for testing, 2 and 1 for validation, the rest."""
    rng = np.random.default_rng(seed)
    scenes, surfaces = (rng.permutation(names).tolist() for names in (SCENES, SURFACES))
    return Split(
        train=(*scenes[5:], *surfaces[3:]),
        validation=(*scenes[3:5], surfaces[2]),
        test=tuple(scenes[:3]),
        surfaces=tuple(surfaces[:2]),
    )


def photograph(name: str) -> Image:
    """Read a bundled photograph from the installed packages."""
    for package, folder in (("skimage", "data"), ("sklearn", "datasets/images")):
        spec = find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            path = Path(spec.submodule_search_locations[0]) / folder / name
            if path.is_file():
                return read_image(path)
    raise ValueError(
        f"no picture {name!r} in scikit-image or scikit-learn; install them with "
        "`pip install 'evergraph[matching]'`, or give a folder of images"
    )


# -- HPatches and Oxford: folders with images 1 to 6 and homographies from the first ------------


def planar_scenes(folder: Path, layout: Layout) -> list[Path]:
    """The folders below that hold homographies of a layout, sorted."""
    found = folder.rglob(PLANAR[layout][0].format("[0-9]*"))
    return sorted({path.parent for path in found})


def planar_pairs(
    scene: Path,
    short_side: int = 480,
    points: int = 512,
    detector: Detector = "sift",
    layout: Layout = "hpatches",
) -> Iterator[Pair]:
    """Pair image 1 with every image that has a homography, scaled down to `short_side`."""
    matrix, name = PLANAR[layout]
    image, scale = _read_scaled(scene, name.format(1), short_side)
    first, size = detect(image, detector, points), (image.shape[1], image.shape[0])
    before, _, after = matrix.partition("{}")
    for path in sorted(scene.glob(matrix.format("[0-9]*"))):
        number = path.name.removeprefix(before).removesuffix(after)
        image, other = _read_scaled(scene, name.format(number), short_side)
        homography = other @ read_homography(path) @ np.linalg.inv(scale)
        second = detect(image, detector, points)
        yield homography_pair(first, second, homography, size, f"{scene.name}/1-{number}")


def read_homography(path: Path) -> Array:
    """Read a homography `(3, 3)` from nine numbers, row by row."""
    try:
        values = np.array([float(word) for word in path.read_text().split()])
    except ValueError:
        values = np.zeros(0)
    if values.size != 9 or not np.isfinite(values).all() or not np.linalg.det(values.reshape(3, 3)):
        raise ValueError(
            f"{path} must hold the 9 numbers of an invertible homography, got {values.size}"
        )
    return np.asarray(values.reshape(3, 3))


def _read_scaled(
    scene: Path, name: str, short_side: int, whole: bool = False
) -> tuple[Image, Array]:
    """An image scaled down, and the scaling as a homography; names have no suffix, or are whole."""
    paths = [scene / f"{name}{suffix}" for suffix in (("",) if whole else SUFFIXES)]
    image = read_image(next(filter(Path.is_file, paths), paths[0]))
    scale = min(short_side / min(image.shape[:2]), 1.0)
    if scale < 1:
        image = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    return image, np.diag([scale, scale, 1.0])


# -- lists of pairs with poses, as for MegaDepth and ScanNet ------------------------------------


def pair_lists(folder: Path) -> list[Path]:
    """The text files below a folder whose first line names two images with cameras and a pose."""
    return [path for path in sorted(folder.rglob("*.txt")) if _posed(_first_line(path)) is not None]


def _first_line(path: Path) -> list[str]:
    with path.open(errors="replace") as file:
        return next((words for line in file if (words := line[:4000].split())), [])


def _posed(words: list[str]) -> tuple[Array, Array, Array] | None:
    """Both cameras and the motion of a line; None if it is no line of a pair list.

    `name0 name1 K0 K1 R t` with 9, 9, 9 and 3 numbers (glue-factory), or
    `name0 name1 rotation0 rotation1 K0 K1 T` with a motion of 16 numbers (SuperGlue).
    """
    motion = np.eye(4)
    try:
        values = np.array([float(word) for word in words[2:]])
    except ValueError:
        return None
    if len(values) == 36 and not values[:2].any():
        values, motion = values[2:], values[20:].reshape(4, 4)
    elif len(values) == 30:
        motion[:3] = np.c_[values[18:27].reshape(3, 3), values[27:]]
    else:
        return None
    found = values[:9].reshape(3, 3), values[9:18].reshape(3, 3), motion
    sound = all(np.isfinite(part).all() and np.linalg.det(part) for part in found)
    return found if sound else None


def listed_pairs(
    path: Path, short_side: int = 480, points: int = 512, detector: Detector = "sift"
) -> Iterator[Pair]:
    """The pairs of a list, with cameras and motion; images are beside it, scaled down."""
    with path.open() as file:
        for number, line in enumerate(file, start=1):
            if not (words := line.split()):
                continue
            posed = _posed(words)
            if posed is None:
                raise ValueError(
                    f"line {number} of {path} must be name0 name1 K0 K1 R t (32 words) or name0 "
                    f"name1 0 0 K0 K1 T (38 words) with invertible K and T, got "
                    f"{len(words)} words; "
                    "images that have to be turned first are not supported"
                )
            sides, cameras = [], []
            for name, camera in zip(words[:2], posed[:2], strict=True):
                image, scale = _read_scaled(path.parent, name, short_side, whole=True)
                sides.append((detect(image, detector, points), image.shape[1::-1]))
                cameras.append(scale @ camera)
            (first, size), (second, _) = sides
            pair = unknown_pair(first, second, size, f"{path.name}:{number}")
            yield replace(pair, motion=posed[2], cameras=(cameras[0], cameras[1]))


# -- folders of any layout ----------------------------------------------------------------------


def layout_of(folder: Path) -> Layout:
    """Detect the layout of a folder."""
    if not folder.is_dir():
        raise ValueError(f"expected a folder, got {folder}")
    for layout in PLANAR:
        if planar_scenes(folder, layout):
            return layout
    if next(folder.rglob("pose_left.txt"), None) is not None:
        return "tartanair"
    return "list" if pair_lists(folder) else "images"


def judged_pairs(
    folder: Path, count: int, apart: int = 1, points: int = 512, detector: Detector = "sift"
) -> list[Pair]:
    """At most `count` pairs with ground truth; plain images are warped by random homographies."""
    layout = layout_of(folder)
    found: Iterator[Pair]
    if layout in PLANAR:
        found = chain.from_iterable(
            planar_pairs(one, 480, points, detector, layout)
            for one in planar_scenes(folder, layout)
        )
    elif layout == "tartanair":
        found = chain.from_iterable(
            sequence_pairs(one, apart, 640, points, detector) for one in sequences(folder)
        )
    elif layout == "list":
        found = chain.from_iterable(
            listed_pairs(one, 480, points, detector) for one in pair_lists(folder)
        )
    else:
        images = [read_image(path) for path in list_images(folder)]
        found = pairs(images, count, 0, Views((640, 480), points, detector=detector))
    out = list(islice(found, count))
    if not out:
        raise ValueError(f"expected at least two images that belong together in {folder}")
    return out


def video_pairs(
    folder: Path, width: int, points: int, detector: Detector = "sift"
) -> Iterator[Pair]:
    """Pair every frame with the one before; with ground truth where depth and poses exist."""
    if (folder / "pose_left.txt").is_file():
        yield from sequence_pairs(read_sequence(folder), 1, width, points, detector)
        return
    last: ImageFeatures | None = None
    for path in list_images(folder):
        image = shrink(read_image(path), width)
        now = detect(image, detector, points)
        if last is not None:
            yield unknown_pair(last, now, (image.shape[1], image.shape[0]), path.name)
        last = now


def video_length(folder: Path) -> int:
    """Number of pairs of `video_pairs`."""
    inner = folder / "image_left" if (folder / "pose_left.txt").is_file() else folder
    return max(len(list_images(inner)) - 1, 0)

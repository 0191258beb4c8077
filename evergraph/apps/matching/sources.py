"""Where pairs come from: bundled photographs, HPatches, Oxford, TartanAir, plain images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
Layout = Literal["hpatches", "oxford", "tartanair", "images"]
PLANAR: dict[Layout, tuple[str, str]] = {
    "hpatches": ("H_1_{}", "{}"),
    "oxford": ("H1to{}p", "img{}"),
}
"""How layouts with true homographies from image 1 to image k name their files."""
TRUTH: dict[Layout, str] = {
    "hpatches": "the homographies H_1_k of HPatches",
    "oxford": "the homographies H1tokp of Oxford's affine sets",
    "tartanair": "depth and poses of TartanAir",
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


def _read_scaled(scene: Path, name: str, short_side: int) -> tuple[Image, Array]:
    """An image scaled down, and the scaling as a homography."""
    paths = [scene / f"{name}{suffix}" for suffix in SUFFIXES]
    image = read_image(next(filter(Path.is_file, paths), paths[0]))
    scale = min(short_side / min(image.shape[:2]), 1.0)
    if scale < 1:
        image = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    return image, np.diag([scale, scale, 1.0])


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
    return "images"


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

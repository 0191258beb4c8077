"""Synthetic pairs: two random homographies of a photograph, with photometric augmentation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.apps.matching.features import Detector, ImageFeatures, detect
from evergraph.apps.matching.images import Image, to_gray
from evergraph.apps.matching.truth import Pair, homography_pair
from evergraph.extras import require

cv2 = require("cv2", "matching")

Array = NDArray[Any]
Random = np.random.Generator
TRIES = 20  # random draws before giving up


@dataclass(frozen=True)
class Views:
    """How pairs are sampled from a photograph."""

    size: tuple[int, int] = (320, 240)  # width and height of both views in pixels
    points: int = 256  # maximum number of keypoints per view
    difficulty: float = 0.7  # in [0, 1), how far corners may move into the photograph
    angle: float = 45.0  # maximum rotation in degrees, multiplied by the difficulty
    noise: float = 1.0  # strength of the photometric augmentation; 0 turns it off
    spin: float = 0.0  # maximum turn of a view about its middle in degrees, in addition
    tilt: float = 0.0  # maximum tilt of it, about any axis in the image
    matches: int = 12  # minimum number of true matches; pairs with fewer are sampled again
    detector: Detector = "sift"

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0 <= self.difficulty < 1:
            raise ValueError(f"difficulty must lie in [0, 1), got {self.difficulty}")
        if min(self.size) < 16:
            raise ValueError(f"size must be at least 16 pixels each way, got {self.size}")
        if not 0 <= self.tilt < 90:
            raise ValueError(f"tilt must lie in [0, 90) degrees, got {self.tilt}")


WIDE = Views(difficulty=0.8, spin=180.0, tilt=40.0)
"""Views from everywhere: turned by any angle, tilted; two of them may be 80 degrees apart."""


def pairs(
    images: Sequence[Image],
    count: int,
    seed: int,
    views: Views = Views(),  # noqa: B008
) -> Iterator[Pair]:
    """Yield `count` random pairs, taking the photographs in turn."""
    if not images:
        raise ValueError("expected at least one image to make pairs of, got none")
    rng = np.random.default_rng(seed)
    ready = [fit(to_gray(image), views.size) for image in images]
    failed = made = 0
    while made < count:
        number = (made + failed) % len(ready)
        for _ in range(TRIES):
            both = (_random_view(ready[number], rng, views) for _ in range(2))
            if (pair := _pair_of(both, views, f"image {number}")) is not None:
                break
        if pair is not None:
            made += 1
            yield pair
            continue
        failed += 1
        if failed > 4 * len(ready) + made:
            raise ValueError(
                f"the images have too little structure: {failed} of {failed + made} tries "
                f"gave fewer than {views.matches} true matches; use other images"
            )


def fit(image: Image, size: tuple[int, int]) -> Image:
    """Scale a photograph to at most 800 pixels, but to at least 1.3 times the view size."""
    height, width = image.shape[:2]
    scale = min(800 / max(height, width), 1.0)
    scale = max(scale, 1.3 * size[0] / width, 1.3 * size[1] / height)
    interpolation = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    return np.asarray(cv2.resize(image, None, fx=scale, fy=scale, interpolation=interpolation))


def random_homography(shape: tuple[int, ...], rng: Random, views: Views) -> Array:
    """Homography from a random convex quadrangle in a photograph to a view, `(3, 3)`."""
    height, width = shape[:2]
    whole = np.array([width, height], float)
    unit = np.array([[0, 0], [0, 1], [1, 1], [1, 0]], float)
    inner = 0.5 + (unit - 0.5) * (1 - views.difficulty)
    corners = unit
    for _ in range(TRIES):
        corners = (unit + rng.uniform(size=(4, 2)) * (inner - unit)) * whole
        if _convex(corners, 0.01 * width * height):
            break
    corners = corners - corners.mean(0) + whole / 2
    limit = np.deg2rad(views.angle * views.difficulty)
    for angle in rng.uniform(-limit, limit, TRIES):
        turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        turned = (corners - whole / 2) @ turn + whole / 2
        if (turned >= 0).all() and (turned < whole).all():
            corners = turned
            break
    low, high = -corners.min(0), whole - corners.max(0)
    shift = low + rng.uniform(size=2) * (high - low)
    corners = corners + shift * views.difficulty
    target = unit * np.array(views.size, float)
    matrix = cv2.getPerspectiveTransform(corners.astype(np.float32), target.astype(np.float32))
    return np.asarray(matrix, np.float64)


def turned_view(
    size: tuple[int, int],
    tilt: float = 0.0,
    axis: float = 0.0,
    turn: float = 0.0,
    zoom: float = 1.0,
) -> Array:
    """Homography of a view `(3, 3)` when its camera moves around what it looks at.

    The camera, with a focal length of the width, is tilted by so many degrees about an axis in
    the image, turned about its own, and moved closer by the factor `zoom`. The middle stays.

    Example:
        >>> turned_view((320, 240), turn=90).round(6) @ [160, 120, 1]
        array([160., 120.,   1.])
    """
    width, height = size
    camera = np.array([[width, 0, width / 2], [0, width, height / 2], [0, 0, 1.0]])
    about, lean, roll = np.deg2rad([axis, tilt, turn])
    direction = np.array([np.cos(about), np.sin(about), 0.0])
    moved = cv2.Rodrigues(np.array([0, 0, roll]))[0] @ cv2.Rodrigues(lean * direction)[0]
    moved[:, 2] = [0, 0, 1 / zoom]  # the plane at distance 1
    return np.asarray(camera @ moved @ np.linalg.inv(camera) * zoom)


def _convex(corners: Array, least: float) -> bool:
    side = np.roll(corners, -1, 0) - corners
    after = np.roll(side, -1, 0)
    cross = side[:, 0] * after[:, 1] - side[:, 1] * after[:, 0]
    return bool((cross > least).all() or (cross < -least).all())


def _random_view(image: Image, rng: Random, views: Views) -> tuple[ImageFeatures, Array]:
    """Features of a view, and the homography from the photograph to it."""
    matrix = random_homography(image.shape, rng, views)
    if views.spin or views.tilt:
        tilt, axis, turn = rng.uniform(-1, 1, 3) * [views.tilt, 180, views.spin]
        matrix = turned_view(views.size, tilt, axis, turn) @ matrix
    warped = cv2.warpPerspective(image, matrix, views.size, flags=cv2.INTER_AREA)
    return detect(photometric(warped, rng, views.noise), views.detector, views.points), matrix


def _pair_of(both: Iterable[tuple[ImageFeatures, Array]], views: Views, name: str) -> Pair | None:
    """The pair of two views of one photograph; None if it has too few true matches."""
    (first, to_first), (second, to_second) = both
    homography = to_second @ np.linalg.inv(to_first)
    pair = homography_pair(first, second, homography, views.size, name)
    return pair if int((pair.true_matches >= 0).sum()) >= views.matches else None


def album_pairs(
    images: Sequence[Image],
    count: int,
    seed: int,
    views: Views = Views(),  # noqa: B008
) -> list[Pair]:
    """Training pairs from few views of each photograph, each used in many pairs.

    Detection takes most of the time, and n views give n (n - 1) ordered pairs. Every other view
    has a random lower difficulty, so that small motions occur too.
    """
    rng = np.random.default_rng(seed)
    each = -(-count // max(len(images), 1))
    num_views = max(int(np.ceil(np.sqrt(3 * each))), 4)  # about a third of the pairs is used
    out: list[Pair] = []
    for number, image in enumerate(images):
        ready = fit(to_gray(image), views.size)
        levels = [views.difficulty * (rng.uniform() if i % 2 else 1.0) for i in range(num_views)]
        album = [_random_view(ready, rng, replace(views, difficulty=level)) for level in levels]
        both = list(permutations(album, 2))
        tried = (_pair_of(both[i], views, f"image {number}") for i in rng.permutation(len(both)))
        out += islice((pair for pair in tried if pair is not None), each)
    if not out:
        raise ValueError(
            f"the images have too little structure: no two views of {len(images)} images share "
            f"{views.matches} true matches; use other images"
        )
    return [out[i] for i in rng.permutation(len(out))[:count]]


def photometric(image: Image, rng: Random, strength: float = 1.0) -> Image:
    """Augment a gray image: contrast, gamma, shadow, blur, noise and JPEG, each at random."""
    if strength == 0:
        return image
    out = image.astype(np.float32) / 255
    if rng.random() < 0.8:
        gain, offset = rng.uniform(-0.5, 0.5), rng.uniform(-0.25, 0.25)
        out = np.clip((out - 0.5) * (1 + gain * strength) + 0.5 + offset * strength, 0, 1)
    if rng.random() < 0.5:
        out = out ** rng.uniform(1 / (1 + 0.6 * strength), 1 + 0.6 * strength)
    if rng.random() < 0.3:
        out = out * _shadow(out.shape, rng, strength)
    if rng.random() < 0.4:
        out = cv2.GaussianBlur(out, (0, 0), 0.3 + rng.uniform(0, 1.2) * strength)
    if rng.random() < 0.2:
        out = cv2.filter2D(out, -1, _motion_blur(rng))
    if rng.random() < 0.5:
        out = out + rng.normal(0, rng.uniform(0, 0.04 * strength), out.shape)
    eight = (np.clip(out, 0, 1) * 255).astype(np.uint8)
    if rng.random() < 0.3:
        quality = [cv2.IMWRITE_JPEG_QUALITY, int(rng.integers(20, 90))]
        coded = cv2.imencode(".jpg", eight, quality)[1]
        return np.asarray(cv2.imdecode(coded, cv2.IMREAD_GRAYSCALE))
    return np.asarray(eight)


def _shadow(shape: tuple[int, ...], rng: Random, strength: float) -> Array:
    height, width = shape
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    across, down = rng.uniform(0, width), rng.uniform(0, height)
    radius = rng.uniform(0.12, 0.6) * width
    depth = min(rng.uniform(0.2, 0.7) * strength, 0.95)
    distance = (x - across) ** 2 + (y - down) ** 2
    return np.asarray(1 - depth * np.exp(-distance / (2 * radius**2)), np.float32)


def _motion_blur(rng: Random) -> Array:
    """A kernel of sum 1: a line in a random direction."""
    size = int(rng.integers(3, 9))
    line = np.zeros((size, size), np.float32)
    line[size // 2] = 1
    turn = cv2.getRotationMatrix2D(((size - 1) / 2,) * 2, rng.uniform(0, 180), 1)
    line = cv2.warpAffine(line, turn, (size, size))
    return np.asarray(line / line.sum())

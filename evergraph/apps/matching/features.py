"""Images and their features: reading and drawing, keypoints and descriptors of SIFT and ORB."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evergraph.extras import require

cv2 = require("cv2", "matching")

Array = NDArray[Any]
Image = NDArray[Any]
Detector = Literal["sift", "orb"]
SUFFIXES = (".png", ".jpg", ".jpeg", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp")
CELL = 3  # pixels; only the strongest keypoint of each cell is kept
ORB_SURPLUS = 4  # keypoints that ORB detects for each one kept


def read_image(path: Path | str) -> Image:
    """Read an image as stored: gray, BGR or BGRA, 8 or 16 bits per channel."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"image must be a file that exists, got {path}")
    data = np.frombuffer(path.read_bytes(), np.uint8)
    with _silent_stderr():
        image = cv2.imdecode(data, cv2.IMREAD_UNCHANGED) if data.size else None
    if image is None:
        raise ValueError(
            f"image must be readable by OpenCV ({', '.join(SUFFIXES)}), got {path}; "
            "the file is empty, truncated or no picture"
        )
    return np.asarray(image)


def list_images(folder: Path | str) -> list[Path]:
    """Paths of the images directly in a folder, sorted by name."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"expected a folder of images, got {folder}")
    found = sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES)
    if not found:
        raise ValueError(f"expected images ({', '.join(SUFFIXES)}) in {folder}, found none")
    return found


def to_gray(image: Image) -> NDArray[np.uint8]:
    """Convert an image with 1, 3 (BGR) or 4 (BGRA) channels of any real type to 8-bit gray.

    16-bit values are divided by 257; floats are taken as 0..1, or as 0..255 if any exceeds 1.
    Alpha is dropped.

    Example:
        >>> to_gray(np.full((2, 2), 65535, np.uint16)).tolist()
        [[255, 255], [255, 255]]
    """
    image = np.asarray(image)
    if image.ndim == 3 and image.shape[2] == 1:
        image = image[..., 0]
    if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] not in (3, 4)):
        raise ValueError(
            "image must have shape (height, width) or (height, width, 1, 3 or 4), got "
            f"{image.shape}"
        )
    if 0 in image.shape:
        raise ValueError(f"image must have at least one pixel, got shape {image.shape}")
    image = _to_uint8(image)
    if image.ndim == 3:
        code = cv2.COLOR_BGRA2GRAY if image.shape[2] == 4 else cv2.COLOR_BGR2GRAY
        image = cv2.cvtColor(image, code)
    return np.ascontiguousarray(image)


def to_color(image: Image) -> NDArray[np.uint8]:
    """Convert the same kinds of images to 8-bit BGR."""
    if image.ndim == 3 and image.shape[2] in (3, 4):
        return np.ascontiguousarray(_to_uint8(image)[..., :3])
    return np.asarray(cv2.cvtColor(to_gray(image), cv2.COLOR_GRAY2BGR))


def shrink(image: Image, width: int) -> Image:
    """Scale an image down to this width; a narrower image is returned as it is."""
    scale = width / image.shape[1]
    if scale >= 1:
        return image
    size = (width, round(image.shape[0] * scale))
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA))


def draw_matches(images: Sequence[Image], ends: Sequence[Array], shade: Array, path: Path) -> None:
    """Write two BGR images side by side with a line per match.

    The two ends are `(M, 2)` each; shades `(M,)` go from red (0) to green (1).
    """
    offset = images[0].shape[1]
    height = max(image.shape[0] for image in images)
    canvas = np.zeros((height, offset + images[1].shape[1], 3), np.uint8)
    for image, start in zip(images, (0, offset), strict=True):
        canvas[: image.shape[0], start : start + image.shape[1]] = image
    begin, end = (np.rint(part).astype(int) for part in (ends[0], ends[1] + [offset, 0]))
    for p, *line in zip(shade, begin.tolist(), end.tolist(), strict=True):
        color = (0, int(255 * p), int(255 * (1 - p)))
        cv2.line(canvas, *line, color, 1, cv2.LINE_AA)
        for point in line:
            cv2.circle(canvas, point, 2, color, -1, cv2.LINE_AA)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not cv2.imwrite(str(path), canvas):
        raise ValueError(f"cannot write an image to {path}; use a name that ends in .png")


@dataclass(frozen=True)
class ImageFeatures:
    """The N keypoints of an image with their descriptors, strongest first.

    Attributes:
        keypoints: `(N, 2)` float32, x and y in pixels.
        descriptors: `(N, D)` float32, rows of unit length or zero.
        scales: `(N,)` float32, diameter of the described region in pixels; 1 if unknown.
        orientations: `(N,)` float32, radians from the x axis to the y axis; 0 if unknown.
    """

    keypoints: Array
    descriptors: Array
    scales: Array
    orientations: Array

    def __len__(self) -> int:
        return len(self.keypoints)

    def take(self, index: Array) -> ImageFeatures:
        """Select keypoints by index."""
        parts = (self.keypoints, self.descriptors, self.scales, self.orientations)
        return ImageFeatures(*(part[index] for part in parts))


def features(
    keypoints: ArrayLike,
    descriptors: ArrayLike,
    scales: ArrayLike | None = None,
    orientations: ArrayLike | None = None,
) -> ImageFeatures:
    """Validate the output of any detector and normalize its descriptors.

    Example:
        >>> features([[3.0, 4.0]], [[0.0, 2.0]]).descriptors
        array([[0., 1.]], dtype=float32)
    """
    points = np.asarray(keypoints, np.float32)
    points = points.reshape(0, 2) if points.size == 0 else points
    count = len(points)
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError(f"keypoints must have shape (N, 2), got {points.shape}")
    table = np.asarray(descriptors, np.float32)
    table = table.reshape(0, table.shape[-1] if table.ndim == 2 else 0) if not count else table
    if table.ndim != 2 or len(table) != count:
        raise ValueError(f"descriptors must have shape ({count}, D), got {table.shape}")
    vectors = {}
    for name, given, default in (("scales", scales, 1.0), ("orientations", orientations, 0.0)):
        one = np.full(count, default) if given is None else np.asarray(given)
        if one.shape != (count,):
            raise ValueError(f"{name} must have shape ({count},), got {one.shape}")
        vectors[name] = one.astype(np.float32)
    if count and not vectors["scales"].min() > 0:
        raise ValueError(f"scales must be positive, got {vectors['scales'].min()}")
    for name, part in (("keypoints", points), ("descriptors", table), *vectors.items()):
        if not np.isfinite(part).all():
            row = int(np.argwhere(~np.isfinite(part))[0][0])
            raise ValueError(f"{name} must be finite, got {part[row]} at point {row}")
    length = np.linalg.norm(table, axis=1, keepdims=True)
    table = np.asarray(table / np.maximum(length, 1e-12), np.float32)
    return ImageFeatures(points, table, **vectors)


def detect(image: Image, detector: Detector = "sift", points: int = 512) -> ImageFeatures:
    """Detect the strongest keypoints of an image and compute their descriptors.

    SIFT descriptors are returned as RootSIFT (square root of the L1-normalized histogram), ORB's
    bits as ±1, both of unit length, so that the inner product is the cosine similarity. An image
    without texture gives no keypoints.
    """
    if points < 1:
        raise ValueError(f"points must be at least 1, got {points}")
    gray = to_gray(image)
    if detector not in ("sift", "orb"):
        raise ValueError(f"detector must be sift or orb, got {detector!r}")
    extractor = _extractor(detector, 0 if detector == "sift" else points)
    found = _strongest(extractor.detect(gray, None), points) if min(gray.shape) > 1 else []
    if found:
        found, table = extractor.compute(gray, found)
    if not found:
        none, width = np.zeros(0, np.float32), 128 if detector == "sift" else 256
        return ImageFeatures(none.reshape(0, 2), none.reshape(0, width), none, none)
    return ImageFeatures(
        np.array([p.pt for p in found], np.float32),
        _unit_rows(table, detector),
        np.array([p.size for p in found], np.float32),
        np.deg2rad(np.array([p.angle for p in found], np.float32)),
    )


def canonical_order(found: ImageFeatures) -> Array:
    """Indices that sort the keypoints, whatever order they come in."""
    keys = [found.orientations, found.scales, found.keypoints[:, 1], found.keypoints[:, 0]]
    order = np.lexsort(keys)
    table = np.stack(keys)[:, order]
    if len(found) > 1 and (table[:, 1:] == table[:, :-1]).all(0).any():  # ties
        order = np.lexsort([*found.descriptors.T[::-1], *keys])
    return order


def _to_uint8(image: Image) -> NDArray[np.uint8]:
    if image.dtype == np.uint8:
        return image
    if image.dtype == bool:
        return image.astype(np.uint8) * 255
    if image.dtype == np.uint16:
        return (image // 257).astype(np.uint8)
    if not np.issubdtype(image.dtype, np.floating):
        raise ValueError(f"image must hold bytes, 16-bit numbers or floats, got {image.dtype}")
    if not np.isfinite(image).all():
        raise ValueError("image must be finite, got NaN or infinity")
    scale = 255.0 if float(image.max()) <= 1 else 1.0
    return np.clip(np.rint(image * scale), 0, 255).astype(np.uint8)


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Hide what OpenCV's decoders write to standard error; our own message says more."""
    kept = os.dup(2)
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@cache
def _extractor(detector: Detector, points: int) -> Any:
    if detector == "sift":
        return cv2.SIFT_create(nfeatures=0, contrastThreshold=0.005, edgeThreshold=20)
    return cv2.ORB_create(nfeatures=points * ORB_SURPLUS, fastThreshold=7)


def _strongest(found: Sequence[Any], points: int) -> list[Any]:
    """The strongest keypoints, at most one per cell."""
    kept: dict[tuple[int, int], Any] = {}
    for point in sorted(found, key=lambda p: (-p.response, p.pt, p.size, p.angle)):
        kept.setdefault((int(point.pt[0] // CELL), int(point.pt[1] // CELL)), point)
        if len(kept) == points:
            break
    return list(kept.values())


def _unit_rows(table: Array, detector: Detector) -> Array:
    """RootSIFT, or the bits of ORB as ±1, in rows of length 1."""
    if detector == "sift":
        share = table / np.maximum(table.sum(1, keepdims=True), 1e-8)
        return np.asarray(np.sqrt(share), np.float32)
    bits = np.unpackbits(table, axis=1).astype(np.float32)
    return (2 * bits - 1) / np.float32(np.sqrt(bits.shape[1]))

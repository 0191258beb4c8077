"""Image files and arrays: reading, conversion to 8-bit gray or color, drawing matches."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.extras import require

cv2 = require("cv2", "matching")

Array = NDArray[Any]
Image = NDArray[Any]
SUFFIXES = (".png", ".jpg", ".jpeg", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp")


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
    image = np.asarray(image)
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


def draw_matches(
    image0: Image,
    image1: Image,
    keypoints0: Array,
    keypoints1: Array,
    confidence: Array,
    path: Path,
) -> None:
    """Write two BGR images side by side with a line per match.

    Args:
        image0: first image.
        image1: second image.
        keypoints0: `(M, 2)`, end of each match in the first image.
        keypoints1: `(M, 2)`, end of each match in the second image.
        confidence: `(M,)` in 0..1, drawn from red (0) to green (1).
        path: file to write.
    """
    height = max(image0.shape[0], image1.shape[0])
    offset = image0.shape[1]
    canvas = np.zeros((height, offset + image1.shape[1], 3), np.uint8)
    canvas[: image0.shape[0], :offset] = image0
    canvas[: image1.shape[0], offset:] = image1
    for (x0, y0), (x1, y1), p in zip(keypoints0, keypoints1, confidence, strict=True):
        ends = (round(float(x0)), round(float(y0))), (round(float(x1)) + offset, round(float(y1)))
        color = (0, int(255 * p), int(255 * (1 - p)))
        cv2.line(canvas, *ends, color, 1, cv2.LINE_AA)
        for end in ends:
            cv2.circle(canvas, end, 2, color, -1, cv2.LINE_AA)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not cv2.imwrite(str(path), canvas):
        raise ValueError(f"cannot write an image to {path}; use a name that ends in .png")


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
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)

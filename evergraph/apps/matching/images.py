"""Images in: any file or array that holds a picture becomes 8-bit gray."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Image = NDArray[Any]
SUFFIXES = (".png", ".jpg", ".jpeg", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp")


def read_image(path: Path | str) -> Image:
    """Read a picture as it is stored: gray, color (blue first) or with alpha, 8 or 16 bits."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"image must be a file that exists, got {path}")
    data = np.frombuffer(path.read_bytes(), np.uint8)
    with _silence():
        image = cv2.imdecode(data, cv2.IMREAD_UNCHANGED) if data.size else None
    if image is None:
        raise ValueError(
            f"image must be readable by OpenCV ({', '.join(SUFFIXES)}), got {path}; "
            "the file is empty, truncated or no picture"
        )
    return np.asarray(image)


def list_images(folder: Path | str) -> list[Path]:
    """The pictures directly in a folder, by name."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"expected a folder of images, got {folder}")
    found = sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES)
    if not found:
        raise ValueError(f"expected images ({', '.join(SUFFIXES)}) in {folder}, found none")
    return found


def to_gray(image: Image) -> NDArray[np.uint8]:
    """One 8-bit channel of an image with 1, 3 (blue first) or 4 channels of any real type.

    16 bits become 8 by dividing by 257; floats are taken as 0..1, or as 0..255 if they exceed 1.
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
    eight = _eight_bits(image)
    if eight.ndim == 3:
        code = cv2.COLOR_BGRA2GRAY if eight.shape[2] == 4 else cv2.COLOR_BGR2GRAY
        eight = cv2.cvtColor(eight, code)
    return np.ascontiguousarray(eight)


def to_color(image: Image) -> NDArray[np.uint8]:
    """Three 8-bit channels of the same kinds of images, to draw on."""
    image = np.asarray(image)
    if image.ndim == 3 and image.shape[2] in (3, 4):
        return np.ascontiguousarray(_eight_bits(image)[..., :3])
    return np.asarray(cv2.cvtColor(to_gray(image), cv2.COLOR_GRAY2BGR))


def _eight_bits(image: Image) -> NDArray[np.uint8]:
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


class _silence:  # noqa: N801 - used as a word
    """Keep the decoder's own complaints off standard error: ours say more."""

    def __enter__(self) -> None:
        self.kept = os.dup(2)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        os.close(null)

    def __exit__(self, *_: object) -> None:
        os.dup2(self.kept, 2)
        os.close(self.kept)

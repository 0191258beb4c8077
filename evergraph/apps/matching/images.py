"""Image files and arrays: read with a limit on pixels, convert, scale down, draw matches."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.extras import require

cv2 = require("cv2", "matching")

Array = NDArray[Any]
Image = NDArray[Any]
SUFFIXES = (".png", ".jpg", ".jpeg", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp")
MAX_PIXELS = 100_000_000  # of an image; checked before memory is allocated for them
LINES = 80  # of a picture; more would hide it
SKY_BLUE, VERMILION = (233, 180, 86), (0, 94, 213)  # BGR; they differ for color-blind eyes too
MAX_BYTES = 8 * MAX_PIXELS + 2**20  # of a file: four channels of 16 bits, uncompressed
PNG = b"\x89PNG\r\n\x1a\n"
PNM = re.compile(rb"P[1-6](?:\s|#.*\n)+(\d+)(?:\s|#.*\n)+(\d+)\s")


def read_image(path: Path | str) -> Image:
    """Read an image as stored: gray, BGR or BGRA, 8 or 16 bits per channel.

    Nothing is decoded unless the header names a size of at most `MAX_PIXELS`.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"image must be a file that exists, got {path}")
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(
            f"image file must have at most {MAX_BYTES:,} bytes, got {path.stat().st_size:,} in "
            f"{path}; scale the image down first"
        )
    data = path.read_bytes()
    size = header_size(data)
    if size is not None and size[0] * size[1] > MAX_PIXELS:
        raise ValueError(
            f"image must have at most {MAX_PIXELS:,} pixels, got {size[0]:,} × {size[1]:,} in the "
            f"header of {path}; scale the image down first"
        )
    image = None
    if size is not None and min(size) > 0:
        try:
            coded = np.frombuffer(_without_profile(data), np.uint8)
            image = cv2.imdecode(coded, cv2.IMREAD_UNCHANGED)
        except (cv2.error, struct.error):
            image = None
    if image is None:
        raise ValueError(
            f"image must be readable by OpenCV ({', '.join(SUFFIXES)}), got {path}; "
            "the file is empty, truncated or no picture; save it again in one of these formats"
        )
    return np.asarray(image)


def header_size(data: bytes) -> tuple[int, int] | None:
    """Width and height from the header of a PNG, JPEG, PNM, BMP, TIFF or WebP file, else None.

    Example:
        >>> header_size(b"P5 640 480 255 ...")
        (640, 480)
    """
    try:
        if data[:8] == PNG:
            return _numbers(">II", data, 16)
        if data[:2] == b"\xff\xd8":
            return _jpeg_size(data)
        if data[:2] == b"BM":
            small = struct.unpack_from("<I", data, 14)[0] == 12
            width, height = _numbers("<HH" if small else "<ii", data, 18)
            return width, abs(height)  # negative if the rows go from top to bottom
        if data[:4] in (b"II*\0", b"MM\0*"):
            return _tiff_size(data)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _webp_size(data)
        found = PNM.match(data)
        return None if found is None else (int(found[1]), int(found[2]))
    except (struct.error, KeyError):  # the header is cut off
        return None


def _numbers(layout: str, data: bytes, place: int) -> tuple[int, int]:
    first, second = struct.unpack_from(layout, data, place)
    return first, second


def _without_profile(data: bytes) -> bytes:
    """A whole PNG without its color profile, which is not used; libpng prints warnings of some."""
    if data[:8] != PNG:
        return data
    kind, place, kept = b"", 8, [PNG]
    while kind != b"IEND":
        length, kind = struct.unpack_from(">I4s", data, place)
        chunk = data[place : place + length + 12]
        if len(chunk) < length + 12:
            raise struct.error(f"chunk {kind!r} is cut off")
        if kind != b"iCCP":
            kept.append(chunk)
        place += len(chunk)
    return b"".join(kept)


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """From the first start of a frame; the segments before it are skipped."""
    place = 2
    while True:
        mark, kind, length = struct.unpack_from(">BBH", data, place)
        if mark == 0xFF and 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            height, width = _numbers(">HH", data, place + 5)
            return width, height
        place += 1 if mark != 0xFF or kind == 0xFF else 2 + length


def _tiff_size(data: bytes) -> tuple[int, int]:
    """From the first directory: tags 256 and 257, of 16 or 32 bits."""
    order = "<" if data[:1] == b"I" else ">"
    start = struct.unpack_from(f"{order}I", data, 4)[0]
    tags = {}
    for number in range(struct.unpack_from(f"{order}H", data, start)[0]):
        place = start + 2 + 12 * number
        tag, kind = struct.unpack_from(f"{order}HH", data, place)
        tags[tag] = struct.unpack_from(f"{order}{'H' if kind == 3 else 'I'}", data, place + 8)[0]
    return tags[256], tags[257]


def _webp_size(data: bytes) -> tuple[int, int]:
    """From the first chunk: lossy, lossless or extended."""
    kind = data[12:16]
    if kind == b"VP8 ":
        width, height = _numbers("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L":
        bits = struct.unpack_from("<I", data, 21)[0]
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    low, high = struct.unpack_from("<HB", data, 24), struct.unpack_from("<HB", data, 27)
    return low[0] + (low[1] << 16) + 1, high[0] + (high[1] << 16) + 1


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
    """Write two BGR images side by side with a dot at each end of a match.

    The two ends are `(M, 2)` each; shades `(M,)` go from vermilion (0) to sky blue (1), which
    color-blind eyes tell apart. At most `LINES` matches, evenly chosen, have a line.
    """
    offset = images[0].shape[1]
    height = max(image.shape[0] for image in images)
    canvas = np.zeros((height, offset + images[1].shape[1], 3), np.uint8)
    for image, start in zip(images, (0, offset), strict=True):
        canvas[: image.shape[0], start : start + image.shape[1]] = image
    begin, end = (np.rint(part).astype(int) for part in (ends[0], ends[1] + [offset, 0]))
    every = -(-len(shade) // LINES)
    shade = np.asarray(shade, dtype=float)
    colors = np.outer(1 - shade, VERMILION) + np.outer(shade, SKY_BLUE)
    matches = zip(colors.tolist(), begin.tolist(), end.tolist(), strict=True)
    for number, (color, *line) in enumerate(matches):
        if number % every == 0:
            cv2.line(canvas, *line, color, 1, cv2.LINE_AA)
        for point in line:
            cv2.circle(canvas, point, 2, color, -1, cv2.LINE_AA)
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

"""The TartanAir layout: sequences of images with depth maps and camera poses.

`ENV/{Easy,Hard}/P###/` holds `image_left/000000_left.png`, `depth_left/000000_left_depth.npy`
(meters along the optical axis; very large for the sky) and `pose_left.txt` (one line per frame:
`tx ty tz qx qy qz qw`, camera to world, x forward, y right, z down). The focal length is half the
image width.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from evergraph.apps.matching.features import Detector, ImageFeatures, detect
from evergraph.apps.matching.images import read_image, shrink
from evergraph.apps.matching.truth import Pair, Truth

Array = NDArray[Any]
SKY = 1000.0  # meters; points beyond are not judged
HIDDEN = 0.05  # a point is occluded if the depth map is closer by this share
OPTICAL = np.array([[0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1]], float)
"""Rotation from x forward, y right, z down to x right, y down, z forward."""


@dataclass(frozen=True)
class Frame:
    """Features of a frame with its depth map and camera pose."""

    features: ImageFeatures
    depth: Array  # (H, W), meters along the optical axis; NaN where unknown
    pose: Array  # (4, 4), camera to world
    size: tuple[int, int]  # width and height of the image that the keypoints refer to


@dataclass(frozen=True)
class Sequence:
    """Image, depth map and pose `(4, 4)` (camera to world) of the frames of `ENV/LEVEL/P###`."""

    name: str
    images: tuple[Path, ...]
    depths: tuple[Path, ...]
    poses: Array

    def __len__(self) -> int:
        return len(self.images)

    def frame(
        self, number: int, width: int = 320, points: int = 256, detector: Detector = "sift"
    ) -> Frame:
        """Read a frame and detect keypoints in its image, scaled down to `width`."""
        image = shrink(read_image(self.images[number]), width)
        depth, size = read_depth(self.depths[number]), (image.shape[1], image.shape[0])
        return Frame(detect(image, detector, points), depth, self.poses[number], size)


def sequences(root: Path | str) -> list[Sequence]:
    """All sequences in a folder (or the folder itself, if it is one), sorted by path."""
    found = sorted(path.parent for path in Path(root).rglob("pose_left.txt"))
    if not found:
        raise ValueError(
            f"expected TartanAir's layout, ENV/LEVEL/P###/pose_left.txt, in {root}; found none"
        )
    return [read_sequence(folder) for folder in found]


def read_sequence(folder: Path) -> Sequence:
    """List the files of one sequence; every frame needs an image, a depth map and a pose."""
    images = tuple(sorted((folder / "image_left").glob("*_left.png")))
    if not images:
        raise ValueError(f"expected images named 000000_left.png in {folder / 'image_left'}")
    depths = tuple(folder / "depth_left" / f"{image.stem}_depth.npy" for image in images)
    for depth in depths:
        if not depth.is_file():
            raise ValueError(f"expected a depth map for every image, {depth} is missing")
    poses = read_poses(folder / "pose_left.txt", len(images))
    return Sequence("/".join(folder.parts[-3:]), images, depths, poses)


def read_poses(path: Path, frames: int) -> Array:
    """Read camera-to-world matrices `(frames, 4, 4)`."""
    lines = [line.split() for line in path.read_text().splitlines() if line.strip()]
    if len(lines) != frames:
        raise ValueError(
            f"{path} must have one line for each of the {frames} images, got {len(lines)} lines"
        )
    out = np.tile(np.eye(4), (frames, 1, 1))
    for number, line in enumerate(lines):
        try:
            values = np.array([float(word) for word in line])
        except ValueError:
            values = np.zeros(0)
        length = float(np.linalg.norm(values[3:])) if len(values) == 7 else 0.0
        if not np.isfinite(values).all() or not 0.9 < length < 1.1:
            raise ValueError(
                f"line {number + 1} of {path} must be tx ty tz qx qy qz qw with a quaternion of "
                f"length 1, got {' '.join(line)!r}"
            )
        out[number, :3, :3] = Rotation.from_quat(values[3:]).as_matrix()
        out[number, :3, 3] = values[:3]
    return out


def read_depth(path: Path) -> Array:
    """Read a depth map in meters; values that are not positive become NaN."""
    try:
        depth = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{path} must be a depth map saved by NumPy, got {error}") from error
    if depth.ndim != 2:
        raise ValueError(f"{path} must hold one depth per pixel, got shape {depth.shape}")
    with np.errstate(invalid="ignore"):
        return np.where(depth > 0, depth, np.nan).astype(np.float32)


def sample(depth: Array, points: Array, size: tuple[int, int]) -> Array:
    """Depth at points of an image of this size, by nearest pixel; NaN outside."""
    scale = np.array([depth.shape[1] / size[0], depth.shape[0] / size[1]])
    with np.errstate(invalid="ignore"):
        place = np.floor((points + 0.5) * scale)
        inside = (place >= 0).all(1) & (place < np.array(depth.shape[::-1])).all(1)
    out = np.full(len(points), np.nan)
    column, row = place[inside].astype(int).T
    out[inside] = depth[row, column]
    return out


def project(
    points: Array, depth: Array, pose: Array, other: Array, size: tuple[int, int]
) -> tuple[Array, Array]:
    """Project points `(N, 2)` with known depth into another camera.

    Returns positions `(N, 2)` and depths `(N,)` there; NaN if unknown or behind the camera.
    """
    focal, center = size[0] / 2, np.array(size) / 2
    rays = np.concatenate([np.ones((len(points), 1)), (points - center) / focal], 1)
    world = (rays * depth[:, None]) @ pose[:3, :3].T + pose[:3, 3]
    local = (world - other[:3, 3]) @ other[:3, :3]
    with np.errstate(invalid="ignore"):
        ahead = np.where(local[:, :1] > 1e-6, local[:, :1], np.nan)
    return local[:, 1:] / ahead * focal + center, ahead[:, 0]


def locate(frame: Frame, other: Frame) -> tuple[Array, Array]:
    """Positions of a frame's keypoints in another frame `(N, 2)`, and their visibility `(N,)`.

    A keypoint is not visible if it is outside of the image, occluded, sky, or of unknown depth.
    """
    points = frame.features.keypoints.astype(np.float64)
    depth = sample(frame.depth, points, frame.size)
    place, far = project(points, depth, frame.pose, other.pose, frame.size)
    there = sample(other.depth, place, other.size)
    with np.errstate(invalid="ignore"):
        visible = (depth < SKY) & (far <= there * (1 + HIDDEN) + 0.01)
    return place, visible


def frame_pair(first: Frame, second: Frame, name: str = "") -> Pair:
    """A pair of frames with ground truth from depth and poses."""
    (forward, seen), (backward, seen_back) = locate(first, second), locate(second, first)
    truth = Truth(forward, backward, seen, seen_back)
    motion = OPTICAL @ np.linalg.inv(second.pose) @ first.pose @ OPTICAL.T
    return Pair(first.features, second.features, truth, first.size, motion=motion, name=name)


def sequence_pairs(
    sequence: Sequence,
    apart: int = 1,
    width: int = 320,
    points: int = 256,
    detector: Detector = "sift",
    stride: int = 1,
) -> Iterator[Pair]:
    """Pair every `stride`-th frame with the one `apart` frames later."""
    kept: dict[int, Frame] = {}  # frames that a later pair may need again
    for start in range(0, len(sequence) - apart, stride):
        kept = {number: frame for number, frame in kept.items() if number >= start}
        for number in (start, start + apart):
            if number not in kept:
                kept[number] = sequence.frame(number, width, points, detector)
        yield frame_pair(kept[start], kept[start + apart], f"{sequence.name}:{start}")

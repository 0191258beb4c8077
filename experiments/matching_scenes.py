"""Scenes with known geometry: rendered 3-D scenes in TartanAir's layout.

World and camera axes: x forward, y right, z down. Run `python -m experiments.matching_scenes OUT`
to write rendered sequences for `evergraph match train`, `evaluate` and `video`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from evergraph.apps.matching.features import Detector, detect
from evergraph.apps.matching.images import Image, to_color
from evergraph.apps.matching.sources import SCENES, SURFACES, photograph
from evergraph.apps.matching.tartanair import Frame, frame_pair
from evergraph.apps.matching.truth import Pair
from evergraph.extras import require

cv2 = require("cv2", "matching")

Array = NDArray[Any]
Random = np.random.Generator
FAR = 10000.0  # depth of the sky, as TartanAir has it
NEAR = 0.05


@dataclass(frozen=True)
class Category:
    """Settings of the sequences of a category."""

    open: bool = False  # a street with buildings under the sky, or a room with boxes
    light: float = 1.0  # factor of the brightness
    noise: float = 3.0  # standard deviation of the image noise, in gray levels
    motion: float = 1.0  # strength of the camera motion


CATEGORIES = {
    "indoor": Category(),
    "outdoor": Category(open=True),
    "dark": Category(light=0.25, noise=2.0),
    "hard": Category(motion=2.0),
}
HARSH = {
    **CATEGORIES,
    "dark": Category(light=0.12, noise=5.0),
    "hard": Category(motion=3.0),
}
"""Categories of which few points can be matched at all, for matchers that may say no."""


@dataclass(frozen=True)
class Rectangle:
    """A textured parallelogram: a corner, two sides, and a pyramid of textures."""

    corner: Array
    across: Array
    down: Array
    textures: tuple[Image, ...]


def sequence(
    category: Category, textures: Sequence[Image], frames: int, seed: int, width: int = 320
) -> list[tuple[Image, Array, Array]]:
    """Render a random sequence: image, depth and pose `(4, 4)` (camera to world) of each frame."""
    if frames < 2:
        raise ValueError(f"frames must be at least 2, got {frames}")
    if not textures:
        raise ValueError("expected at least one texture to render with, got none")
    rng = np.random.default_rng(seed)
    pyramids = [_pyramid(to_color(texture)) for texture in textures]
    scene = town(rng, pyramids) if category.open else room(rng, pyramids)
    out = []
    for pose in trajectory(rng, frames, category.motion):
        image, depth = render(scene, pose, width)
        out.append((_expose(image, category, rng), depth, pose))
    return out


def rendered_pairs(
    category: Category,
    textures: Sequence[Image],
    frames: int,
    seed: int,
    apart: int,
    points: int = 256,
    name: str = "",
    detector: Detector = "sift",
) -> list[Pair]:
    """Pairs of frames of one sequence, so many frames apart."""
    seen = [
        Frame(detect(image, detector, points), depth, pose, (image.shape[1], image.shape[0]))
        for image, depth, pose in sequence(category, textures, frames, seed)
    ]
    both = zip(seen, seen[apart:], strict=False)
    return [frame_pair(a, b, f"{name}:{start}") for start, (a, b) in enumerate(both)]


def pieces(picture: Image) -> list[Image]:
    """The four quarters of a picture, and these mirrored.

    Faces that show the same cannot be told apart by what they look like; of pieces there are so
    many that few faces of a scene share one.
    """
    high, wide = (side // 2 for side in picture.shape[:2])
    rows, columns = (slice(high), slice(high, 2 * high)), (slice(wide), slice(wide, 2 * wide))
    quarters = [picture[row, column] for row in rows for column in columns]
    return [np.ascontiguousarray(one) for part in quarters for one in (part, part[:, ::-1])]


def room(rng: Random, textures: list[tuple[Image, ...]]) -> list[Rectangle]:
    """A room of 12 × 10 × 5 meters with boxes on the floor and in the air."""
    scene = box(np.array([0.0, 0.0, -1.5]), np.array([12.0, 10.0, 5.0]), 0.0, textures, rng)
    for _ in range(6):
        size = rng.uniform(0.6, 2.0, 3)
        place = [rng.uniform(1, 5), rng.uniform(-4, 4), 1 - size[2] / 2 - rng.uniform(0, 1.5)]
        scene += box(np.array(place), size, rng.uniform(0, 3), textures, rng)
    return scene


def town(rng: Random, textures: list[tuple[Image, ...]]) -> list[Rectangle]:
    """Textured ground with houses on both sides of a street, under an empty sky."""
    scene = []
    for x in range(-10, 50, 10):
        for y in range(-20, 20, 10):
            corner, across, down = np.array([[x, y, 1.0], [10.0, 0, 0], [0, 10.0, 0]])
            texture = textures[rng.integers(len(textures))]
            scene.append(Rectangle(corner, across, down, texture))
    for number in range(12):
        size = np.array([rng.uniform(3, 6), rng.uniform(3, 6), rng.uniform(3, 8)])
        side = 1 if number % 2 else -1
        place = [4.0 * (number // 2) + rng.uniform(0, 2), side * rng.uniform(5, 9), 1 - size[2] / 2]
        scene += box(np.array(place), size, rng.uniform(-0.2, 0.2), textures, rng)
    return scene


def box(
    middle: Array, size: Array, yaw: float, textures: list[tuple[Image, ...]], rng: Random
) -> list[Rectangle]:
    """The six faces of a box with random textures."""
    turn, sides = rotation(yaw, 0.0, 0.0), np.diag(size)
    faces = []
    for axis in range(3):
        for sign in (-0.5, 0.5):
            across, down = sides[(axis + 1) % 3], sides[(axis + 2) % 3]
            corner = turn @ (sign * sides[axis] - across / 2 - down / 2) + middle
            chosen = textures[rng.integers(len(textures))]
            faces.append(Rectangle(corner, turn @ across, turn @ down, chosen))
    return faces


def rotation(yaw: float, pitch: float, roll: float) -> Array:
    """Rotation matrix `R_z(yaw) R_y(pitch) R_x(roll)`."""
    a, b, c = np.cos([yaw, pitch, roll])
    p, q, r = np.sin([yaw, pitch, roll])
    about_z = np.array([[a, -p, 0], [p, a, 0], [0, 0, 1]])
    about_y = np.array([[b, 0, q], [0, 1, 0], [-q, 0, b]])
    about_x = np.array([[1, 0, 0], [0, c, -r], [0, r, c]])
    return np.asarray(about_z @ about_y @ about_x)


def trajectory(rng: Random, frames: int, motion: float) -> list[Array]:
    """Smooth random poses; the motion per frame does not depend on the number of frames."""
    time = np.arange(frames) / 12.0

    def wave(size: float) -> Array:
        total = np.zeros(frames)
        for order in range(1, 4):
            phase, strength = rng.uniform(0, 2 * np.pi), rng.normal()
            total += strength * np.sin(2 * np.pi * order * time + phase) / order
        return np.asarray(size * motion**0.5 * total)

    if motion > 1:
        time = time * motion**0.5
    place = np.stack([-3 + wave(0.35), wave(0.5), -0.5 + wave(0.18)], 1)
    angles = np.stack([wave(0.18), wave(0.08), wave(0.08)], 1)
    poses = []
    for position, angle in zip(place, angles, strict=True):
        pose = np.eye(4)
        pose[:3, :3] = rotation(*angle)
        pose[:3, 3] = position
        poses.append(pose)
    return poses


def render(scene: list[Rectangle], pose: Array, width: int = 320) -> tuple[Image, Array]:
    """Color `(H, W, 3)` and depth `(H, W)` of a scene; height is 3/4 of the width."""
    height = width * 3 // 4
    focal = width / 2
    row, column = np.mgrid[0:height, 0:width]
    sight = np.stack([np.ones_like(row), (column - width / 2) / focal, (row - height / 2) / focal])
    rays = pose[:3, :3] @ sight.reshape(3, -1)
    depth = np.full(height * width, np.inf)
    color = np.full((height * width, 3), 200, np.uint8)
    color[:, 0] = 235  # a pale sky
    for face in scene:
        _draw(face, rays, pose[:3, 3], depth, color)
    depth[~np.isfinite(depth)] = FAR
    return color.reshape(height, width, 3), depth.reshape(height, width).astype(np.float32)


def _draw(face: Rectangle, rays: Array, eye: Array, depth: Array, color: Image) -> None:
    """Draw a rectangle where it is closer than the depth buffer."""
    normal = np.cross(face.across, face.down)
    slope = normal @ rays
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = float(normal @ (face.corner - eye)) / slope
        hit = np.flatnonzero((distance > NEAR) & (distance < depth))
    place = rays[:, hit] * distance[hit] + (eye - face.corner)[:, None]
    u = face.across @ place / (face.across @ face.across)
    v = face.down @ place / (face.down @ face.down)
    inside = (u >= 0) & (u <= 1) & (v >= 0) & (v <= 1)
    hit, u, v = hit[inside], u[inside], v[inside]
    if not len(hit):
        return
    texture = face.textures[_level(face.textures, u, v)]
    high, wide = texture.shape[:2]
    x, y = ((t * (n - 1)).astype(np.float32)[:, None] for t, n in ((u, wide), (v, high)))
    for part in range(0, len(hit), 30000):  # remap takes images of at most 32767 rows
        rows = slice(part, part + 30000)
        color[hit[rows]] = cv2.remap(texture, x[rows], y[rows], cv2.INTER_LINEAR)[:, 0]
    depth[hit] = distance[hit]


def _level(textures: tuple[Image, ...], u: Array, v: Array) -> int:
    """The pyramid level at which a pixel of the view covers about one texel."""
    seen = max(float(np.ptp(u) * np.ptp(v)), 1e-9)
    high, wide = textures[0].shape[:2]
    footprint = seen * high * wide / len(u)
    return int(np.clip(round(0.5 * np.log2(max(footprint, 1.0))), 0, len(textures) - 1))


def _pyramid(texture: Image, levels: int = 5) -> tuple[Image, ...]:
    out = [texture]
    while len(out) < levels and min(out[-1].shape[:2]) > 16:
        out.append(cv2.pyrDown(out[-1]))
    return tuple(out)


def _expose(image: Image, category: Category, rng: Random) -> Image:
    """Apply random brightness and noise."""
    light = category.light * rng.uniform(0.85, 1.1)
    noisy = image * light + rng.normal(0, category.noise, image.shape)
    return np.clip(noisy, 0, 255).astype(np.uint8)


def write_sequence(folder: Path | str, frames: list[tuple[Image, Array, Array]]) -> None:
    """Write frames in TartanAir's layout; the folder is one `P###`."""
    folder = Path(folder)
    for name in ("image_left", "depth_left"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    lines = []
    for number, (image, depth, pose) in enumerate(frames):
        cv2.imwrite(str(folder / "image_left" / f"{number:06}_left.png"), image)
        np.save(folder / "depth_left" / f"{number:06}_left_depth.npy", depth)
        turn = Rotation.from_matrix(pose[:3, :3]).as_quat(canonical=True)
        lines.append(" ".join(f"{value:.9g}" for value in (*pose[:3, 3], *turn)))
    (folder / "pose_left.txt").write_text("\n".join(lines) + "\n")


def write_sequences(
    out: Path, sequences: int = 2, frames: int = 12, width: int = 320, seed: int = 0
) -> None:
    """Render indoor, outdoor, dark and hard scenes as TartanAir: OUT/CATEGORY/Easy/P###."""
    textures = [piece for name in (*SCENES, *SURFACES) for piece in pieces(photograph(name))]
    rng = np.random.default_rng(seed)
    for name, category in CATEGORIES.items():
        for number in range(sequences):
            shown = sequence(category, textures, frames, int(rng.integers(1 << 30)), width)
            write_sequence(out / name / "Easy" / f"P{number:03}", shown)


if __name__ == "__main__":
    typer.run(write_sequences)

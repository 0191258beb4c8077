"""The pictures that come with scikit-image and scikit-learn, and how seeds split them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from evergraph.apps.matching.images import Image, read_image

SCENES = (
    "astronaut.png", "camera.png", "chelsea.png", "china.jpg", "coffee.png", "flower.jpg",
    "rocket.jpg",
)  # fmt: skip
"""Photographs of people, animals, things and places; the motorcycle is kept for stereo."""
SURFACES = (
    "brick.png", "coins.png", "grass.png", "gravel.png", "hubble_deep_field.jpg", "ihc.png",
    "moon.png", "page.png", "retina.jpg", "text.png",
)  # fmt: skip
"""Textures, documents, and what microscopes, telescopes and scanners see."""


@dataclass(frozen=True)
class Split:
    """Names of pictures for each purpose; none has two.

    Attributes:
        train: to learn from, scenes and surfaces.
        validation: to choose thresholds and settings, scenes and surfaces.
        test: scenes.
        surfaces: to test on what is unlike a photograph.
    """

    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]
    surfaces: tuple[str, ...]


def split(seed: int) -> Split:
    """A random split: 3 scenes and 2 surfaces to test, 2 and 1 to choose settings, the rest."""
    rng = np.random.default_rng(seed)
    scenes, surfaces = (rng.permutation(names).tolist() for names in (SCENES, SURFACES))
    return Split(
        train=(*scenes[5:], *surfaces[3:]),
        validation=(*scenes[3:5], surfaces[2]),
        test=tuple(scenes[:3]),
        surfaces=tuple(surfaces[:2]),
    )


def photograph(name: str) -> Image:
    """Read a picture by its name from the installed packages."""
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

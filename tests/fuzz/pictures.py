"""Images: damaged files, and arrays of any type, shape and content."""

import tempfile
from functools import cache
from pathlib import Path

import cv2
import numpy as np
from hypothesis import strategies as st

from evergraph.apps.matching.features import detect
from evergraph.apps.matching.images import read_image
from tests.fuzz.batches import usual
from tests.fuzz.files import SCRATCH
from tests.fuzz.invariants import refusal
from tests.fuzz.states import damage, damages

TYPES = ("uint8", "uint16", "float32", "float64", "int32", "bool", "complex64", "object", "int8")
SHAPES = ((24, 32), (24, 32, 1), (24, 32, 3), (24, 32, 4), (24, 32, 2), (0, 5), (1, 1), (5,), ())
SPECIAL = (np.nan, np.inf, -np.inf, -1.0, 1e300, 256.0, 0.5)


@cache
def encoded(suffix):
    noise = np.random.default_rng(0).integers(0, 255, (24, 32, 3), dtype=np.uint8)
    return cv2.imencode(suffix, noise)[1].tobytes()


@st.composite
def arrays(draw):
    shape = draw(usual(st.just((24, 32)), st.sampled_from(SHAPES)))
    kind = draw(usual(st.just("uint8"), st.sampled_from(TYPES)))
    made = np.random.default_rng(draw(st.integers(0, 5))).uniform(0, 255, shape)
    if made.size and draw(usual(st.just(False), st.just(True))):
        made.flat[made.size // 2] = draw(st.sampled_from(SPECIAL))
    with np.errstate(all="ignore"):
        return made.astype(kind)


def pictures():
    """A file, or an array."""
    suffixes = st.sampled_from((".png", ".jpg", ".bmp", ".tiff", ".webp", ".ppm"))
    return st.one_of(st.tuples(suffixes, st.none() | damages()), arrays())


def trial(case):
    """Keypoints are found and finite, or the image is refused in the package's own words."""
    images = []
    if isinstance(case, tuple):
        suffix, change = case
        content = encoded(suffix) if change is None else damage(encoded(suffix), change)
        with tempfile.TemporaryDirectory(dir=SCRATCH) as name:
            path = Path(name) / f"image{suffix}"
            path.write_bytes(content)
            if refusal(lambda: images.append(read_image(path))) is not None:
                return "refused"
    found = []
    image = images[0] if images else case
    if image is not case and image.size > 10**6:
        return "large"  # a damaged header
    if refusal(lambda: found.append(detect(image, points=50))) is not None:
        return "refused"
    assert np.isfinite(found[0].keypoints).all()
    assert np.isfinite(found[0].descriptors).all()
    return "detected"

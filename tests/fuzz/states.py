"""Checkpoints and model folders: damaged bytes, and false content with a right checksum."""

import copy
import tempfile
import warnings
from functools import cache
from pathlib import Path

import torch
from hypothesis import strategies as st

from evergraph.apps.action.recognizer import Recognizer
from evergraph.apps.action.recording import generate
from evergraph.apps.action.teaching import RecognizerConfig
from evergraph.learn.checkpoint import read_checkpoint, write_checkpoint
from tests.fuzz.batches import WAYS, _made, good
from tests.fuzz.files import SCRATCH
from tests.fuzz.invariants import assert_finite, assert_finite_output, refusal

VALUES = (
    None, True, False, 0, -1, 1, 2**31, 2**70, 0.5, float("nan"), float("inf"), "", "x", [], {},
    [1, -1], [0, 0], {"a": 1}, "0" * 50, [[1]],
)  # fmt: skip
TENSORS = (
    "nan", "negative", "huge", "shape", "flat", "empty", "type", "integers", "swap", "missing",
    "renamed", "more",
)  # fmt: skip


@st.composite
def damages(draw):
    """What is done to the bytes of a file."""
    kind = draw(st.sampled_from(("flip", "cut", "zero", "insert", "header")))
    return kind, draw(st.floats(0, 1, exclude_max=True)), draw(st.integers(0, 255))


def damage(content, case):
    kind, where, value = case
    place = int(where * len(content))
    if kind == "header":
        place = int(where * min(len(content), 400))
    changed = bytearray(content)
    if kind == "cut":
        return bytes(changed[:place])
    if kind == "insert":
        return bytes(changed[:place] + bytes([value]) + changed[place:])
    if kind == "zero":
        changed[place : place + value] = bytes(min(value, len(content) - place))
    else:
        changed[place] ^= value or 1
    return bytes(changed)


@st.composite
def forgeries(draw):
    """Changes of the content of a checkpoint: of tensors and of values."""
    tensor = st.tuples(
        st.sampled_from(TENSORS),
        st.floats(0, 1, exclude_max=True),
        st.floats(0, 1, exclude_max=True),
    )
    value = st.tuples(
        st.just("value"), st.floats(0, 1, exclude_max=True), st.sampled_from(range(len(VALUES)))
    )
    return draw(st.lists(st.one_of(tensor, value), min_size=1, max_size=2))


def forge(tensors, values, changes):
    """Apply changes; a place is a share of all names in their order."""
    for kind, where, other in changes:
        if kind == "value":
            paths = list(_places(values))
            owner, key = paths[int(where * len(paths))]
            owner[key] = copy.deepcopy(VALUES[other])
        elif tensors:
            names = sorted(tensors)
            name, second = (names[int(share * len(names))] for share in (where, other))
            _forge_tensor(tensors, kind, name, second)


def _forge_tensor(tensors, kind, name, second):
    old = tensors[name]
    floating = old.is_floating_point()
    if kind == "swap":
        tensors[name], tensors[second] = tensors[second], old
    elif kind == "missing":
        del tensors[name]
    elif kind == "renamed":
        tensors[f"{name}x"] = tensors.pop(name)
    elif kind == "more":
        tensors[f"{second}.more"] = old.clone()
    elif kind == "type":
        tensors[name] = old.to(torch.float64 if old.dtype == torch.float32 else torch.float32)
    elif kind == "integers":
        tensors[name] = old.to(torch.int64)
    elif kind == "shape":
        tensors[name] = torch.cat([old.reshape(-1), old.reshape(-1)])
    elif kind == "flat":
        tensors[name] = old.reshape(1, -1)
    elif kind == "empty":
        tensors[name] = old.reshape(-1)[:0]
    else:
        fresh = old.clone().reshape(-1)
        if len(fresh):
            number = {"nan": float("nan") if floating else 0, "negative": -7, "huge": 1e18}[kind]
            limit = torch.finfo if floating else torch.iinfo
            if old.dtype != torch.bool:
                number = min(number, limit(old.dtype).max) if kind == "huge" else number
                fresh[len(fresh) // 2] = max(number, 0) if old.dtype == torch.uint8 else number
        tensors[name] = fresh.reshape(old.shape)


def _places(values):
    """Every entry of nested values, as its owner and key."""
    items = values.items() if isinstance(values, dict) else enumerate(values)
    for key, value in list(items):
        if key == "configuration":
            continue
        yield values, key
        if isinstance(value, dict | list):
            yield from _places(value)


@st.composite
def states(draw):
    """A way of learning, and what is wrong with its checkpoint."""
    way = draw(st.sampled_from(sorted(WAYS)))
    return way, draw(st.one_of(damages(), forgeries(), forgeries()))


@cache
def whole(way):
    """The bytes and the content of a good checkpoint."""
    _made.cache_clear()
    with tempfile.TemporaryDirectory(dir=SCRATCH) as name:
        path = Path(name) / "c"
        learner = copy.deepcopy(_made(way, False))
        learner.observe(good(False))
        learner.save(path)
        return path.read_bytes(), *read_checkpoint(path)


def put(path, original, change):
    """Write a checkpoint with something wrong in it."""
    content, tensors, values = original
    if isinstance(change, tuple):
        path.write_bytes(damage(content, change))
        return
    tensors, values = dict(tensors), copy.deepcopy(values)
    forge(tensors, values, change)
    path.unlink(missing_ok=True)
    write_checkpoint(path, tensors, values)


def trial(case):
    """A checkpoint is loaded and the learner works, or it is refused and nothing changes."""
    way, change = case
    learner = copy.deepcopy(_made(way, False))
    before = learner.digest()
    with tempfile.TemporaryDirectory(dir=SCRATCH) as name:
        path = Path(name) / "c"
        put(path, whole(way), change)
        error = refusal(lambda: learner.load(path))
    if error is not None:
        assert learner.digest() == before, "it was refused, but the state has changed"
        return "refused"
    assert_finite(learner)
    if refusal(lambda: learner.observe(good(False))) is not None:
        return "loaded, then refused"
    assert_finite(learner)
    assert_finite_output(learner, good(False))
    return "loaded"


@cache
def model_folder():
    """The file of a small recognizer: bytes and content."""
    data = generate()
    recognizer = Recognizer(data.layout, data.activities, RecognizerConfig(memory=5))
    with tempfile.TemporaryDirectory(dir=SCRATCH) as name:
        recognizer.save(Path(name))
        (path,) = [p for p in Path(name).iterdir() if p.is_file()]
        return path.name, (path.read_bytes(), *read_checkpoint(path))


def folders():
    """What is wrong with the file of a model folder."""
    return st.one_of(damages(), forgeries())


def folder_trial(change):
    """A model folder is loaded, or refused in the package's own words."""
    file, original = model_folder()
    with tempfile.TemporaryDirectory(dir=SCRATCH) as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        put(Path(name) / file, original, change)
        loaded = []
        if refusal(lambda: loaded.append(Recognizer.load(Path(name)))) is not None:
            return "refused"
    assert_finite(loaded[0].learner)
    return "loaded"

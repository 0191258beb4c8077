"""The files of a model folder, and the settings in model.json."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from evergraph import __version__
from evergraph.checks import check_one_of
from evergraph.datasets.schema import Schema
from evergraph.feature_graph.fixed_point import Blocks
from evergraph.graph.database import FileError
from evergraph.graph.store import Store
from evergraph.learn.checkpoint import write_file

VERSION = 1
GRAPH, SETTINGS, LEARNER = "graph.sqlite", "model.json", "learner.safetensors"
NETWORK = "network.safetensors"
LearnerName = Literal["exact", "network", "both"]
LEARNERS: tuple[str, ...] = get_args(LearnerName)
UnknownEnds = Literal["wait", "drop", "error"]
UNFINISHED = ".unfinished"  # in a folder that `train` is making


@dataclass(frozen=True)
class Settings:
    """What a model is made with.

    Attributes:
        hops: K, how far a node looks.
        cap: how many neighbors count, those with the smallest keys; None for all.
        directed: whether an edge counts from source to target only.
        linear, max_width, landmarks: see `Blocks`.
        held_out: labelled nodes that choose and calibrate, see `ExactLearner`.
        learner: who tells classes and probabilities: the `exact` closed form, the `network`, or
            the mean of `both`.
        memory: items that the network remembers at the most.
        unknown_ends: edges to nodes that are not there `wait` for them, are `drop`ped, or are an
            `error`. Only edges that wait make the model independent of the order of events.

    Example:
        >>> Settings(hops=1, cap=50).learner
        'exact'
        >>> Settings(hops=0)
        Traceback (most recent call last):
        ValueError: hops must be an integer of at least 1, got 0
    """

    hops: int = 2
    cap: int | None = None
    directed: bool = False
    linear: tuple[str, ...] = Blocks.linear
    max_width: int = Blocks.max_width
    landmarks: int = Blocks.landmarks
    held_out: int = 400
    learner: LearnerName = "exact"
    memory: int = 500
    unknown_ends: UnknownEnds = "wait"

    def __post_init__(self) -> None:
        """Reject what is unknown."""
        check_one_of("learner", self.learner, LEARNERS)
        check_one_of("unknown_ends", self.unknown_ends, get_args(UnknownEnds))
        least = {"hops": 1, "cap": 1, "memory": 1, "max_width": 0, "landmarks": 0, "held_out": 0}
        for name, lowest in least.items():
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not (whole and value >= lowest) and not (name == "cap" and value is None):
                raise ValueError(f"{name} must be an integer of at least {lowest}, got {value!r}")
        if not isinstance(self.directed, bool):
            raise ValueError(f"directed must be true or false, got {self.directed!r}")
        _ = self.blocks  # which must exist

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Settings:
        """Settings from what JSON can hold; an error names those that are known."""
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                raise ValueError(f"settings must be among {', '.join(known)}, got {name!r}")
        linear = values.get("linear", cls.linear)
        if isinstance(linear, str):
            raise ValueError(f'linear must be a list of blocks, such as ["x"], got {linear!r}')
        return cls(**{**values, "linear": tuple(linear)})

    @property
    def blocks(self) -> Blocks:
        """What rows are made of."""
        return Blocks(self.linear, self.max_width, self.landmarks)


def read_settings(path: Path) -> Settings:
    """The settings of a model folder; an error if it is none, or of another version."""
    try:
        values = json.loads((path / SETTINGS).read_text())
        if values["version"] != VERSION:
            raise ValueError(f"version {VERSION} is known, got {values['version']}")
        return Settings.from_mapping(values["settings"])
    except OSError as error:
        raise ValueError(
            f"{path} is no model folder ({error.strerror or error}); make one with train"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path / SETTINGS} cannot be read ({error}); restore it") from error


def write_settings(path: Path, schema: Schema, settings: Settings, classes: Sequence[str]) -> None:
    """Write model.json as a whole; statistics are in the store, with what they are made of."""
    values = {
        "version": VERSION,
        "evergraph": __version__,
        "settings": asdict(settings),
        "classes": list(classes),
        "columns": [{"name": column.name, "kind": column.kind} for column in schema.columns],
    }
    write_file(path / SETTINGS, json.dumps(values, indent=1).encode())


def check_new(path: Path) -> None:
    """Refuse a path that holds something, other than what a killed `train` has left."""
    held = {file.name for file in path.iterdir()} if path.is_dir() else {path.name}
    if path.exists() and held and (SETTINGS in held or UNFINISHED not in held):
        raise ValueError(f"{path} is there already: move it, or choose another path")


@contextmanager
def new_folder(path: Path) -> Iterator[None]:
    """Make a folder, and take it away again if the block fails; a mark tells what was killed."""
    there, mark = path.exists(), path / UNFINISHED
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(
            f"cannot make {path} ({error.strerror}); free some space, or choose another path"
        ) from error
    if mark.exists() and (path / GRAPH).exists():
        with suppress(FileError):  # damaged: it goes anyway
            Store(path / GRAPH).close()  # an error if it is being made right now
    try:
        mark.touch()
        _empty(path)
        yield
        mark.unlink()
    except BaseException:
        with suppress(OSError):
            _empty(path)
            mark.unlink(missing_ok=True)
            if not there:
                path.rmdir()
        raise


def _empty(path: Path) -> None:
    """Remove the files of an unfinished model."""
    for file in path.iterdir():
        if file.name.removeprefix(".").startswith((GRAPH, SETTINGS, LEARNER, NETWORK)):
            file.unlink()

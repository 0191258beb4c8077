"""The folder of a cluster: its settings, a folder for each shard, and the change under way."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evergraph import __version__
from evergraph.datasets.events import Event
from evergraph.learn.checkpoint import write_file
from evergraph.model.folder import Settings

VERSION = 1
ABOUT, PENDING = "cluster.json", "pending.json"
MOST = 256  # shards


@dataclass(frozen=True)
class Plan:
    """What a cluster is made with, and whether its `train` has ended.

    Attributes:
        shards: how many parts the graph has.
        settings: of the model.
        ready: whether all tables are in it.
    """

    shards: int
    settings: Settings
    ready: bool = False

    def __post_init__(self) -> None:
        """Refuse what a cluster cannot do."""
        if not (isinstance(self.shards, int) and 1 <= self.shards <= MOST):
            raise ValueError(f"shards must be an integer from 1 to {MOST}, got {self.shards!r}")
        if self.settings.learner != "exact":
            raise ValueError(
                f"a cluster learns with learner='exact', got {self.settings.learner!r}: a network "
                "depends on the order of events; learn one with "
                "`evergraph run --engine ray --ranks N`"
            )
        if self.settings.hops > 2:
            raise ValueError(f"hops must be 1 or 2 on a cluster, got {self.settings.hops}")

    def folders(self, path: Path) -> list[Path]:
        """Where the shards are."""
        return [path / f"shard-{place}" for place in range(self.shards)]

    def write(self, path: Path) -> None:
        """Write it to the folder."""
        path.mkdir(parents=True, exist_ok=True)
        values = {
            "version": VERSION, "evergraph": __version__, "shards": self.shards,
            "settings": asdict(self.settings), "ready": self.ready,
        }  # fmt: skip
        write_file(path / ABOUT, json.dumps(values, indent=1).encode())

    @classmethod
    def read(cls, path: Path) -> Plan:
        """Read it from the folder."""
        try:
            values = json.loads((path / ABOUT).read_text())
            if values["version"] != VERSION:
                raise ValueError(f"version {VERSION} is known, got {values['version']}")
            settings = Settings.from_mapping(values["settings"])
            return cls(values["shards"], settings, values["ready"])
        except OSError as error:
            raise ValueError(
                f"{path} is no folder of a cluster ({error.strerror or error}); make one with "
                "train --engine ray"
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path / ABOUT} cannot be read ({error}); restore it") from error


@dataclass(frozen=True)
class Change:
    """A numbered change of all shards, which is written down before it begins.

    Attributes:
        number: changes are counted from 1, loads included.
        events: that are known to be good.
        refit: kinds of columns to fit to the nodes as they are; None for events.
    """

    number: int
    events: Sequence[Event] = ()
    refit: str | None = None

    def write(self, path: Path) -> None:
        """Write it to the folder of the cluster."""
        values: dict[str, Any] = {"number": self.number, "refit": self.refit}
        values["events"] = [
            {**event._asdict(), "cells": dict(event.cells)} for event in self.events
        ]
        write_file(path / PENDING, json.dumps(values).encode())

    @classmethod
    def read(cls, path: Path) -> Change | None:
        """The change that was under way, None if there was none."""
        if not (path / PENDING).exists():
            return None
        values = json.loads((path / PENDING).read_text())
        events = [Event(**event) for event in values["events"]]
        return cls(values["number"], events, values["refit"])

    @staticmethod
    def done(path: Path) -> None:
        """Nothing is under way any more."""
        (path / PENDING).unlink(missing_ok=True)

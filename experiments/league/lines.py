"""Finished cells of a long experiment, one JSON a line; a line that was cut short is left out."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Cell = dict[str, Any]


@dataclass(frozen=True)
class Lines:
    """A file that only grows, and survives being killed."""

    path: Path

    def cells(self) -> list[Cell]:
        """All finished cells."""
        found = []
        for line in self.path.read_text().splitlines() if self.path.exists() else []:
            with suppress(json.JSONDecodeError):
                found.append(json.loads(line))
        return found

    def open(self) -> None:
        """Make the folder, and let a line that was cut short stay by itself."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists() and not self.path.read_bytes().endswith(b"\n"):
            with self.path.open("a") as file:
                file.write("\n")

    def add(self, cell: Cell) -> None:
        """Append a cell."""
        with self.path.open("a") as file:
            file.write(json.dumps(cell) + "\n")


def complete(
    lines: Lines, wanted: Sequence[Cell], compute: Callable[[Cell], Cell], minutes: float
) -> Iterator[Cell]:
    """Compute the cells whose keys are not there yet, until so many minutes have passed."""
    lines.open()
    cells, until = lines.cells(), time.monotonic() + 60 * minutes
    for key in wanted:
        if any(all(cell.get(k) == v for k, v in key.items()) for cell in cells):
            continue
        if time.monotonic() > until:
            return
        made = {**key, **compute(key)}
        lines.add(made)
        yield made

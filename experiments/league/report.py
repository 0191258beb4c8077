"""The league's tables: accuracy by graph, ranks and their test, wins and losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def publish(cells: list[dict[str, Any]], folder: Path) -> None:
    """Write `league.json` and `league.md` of finished cells."""

"""Where `train` finds its tables: in a folder, or under the name of a data set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def tables_of(data: str, root: Path | None, say: Callable[[str], None]) -> tuple[Any, Any]:
    """The nodes and the edges of a folder or of a data set."""
    from evergraph.datasets import load
    from evergraph.datasets.objects import dataset_tables

    if Path(data).is_dir():
        return _file(Path(data), "nodes"), _file(Path(data), "edges", optional=True)
    return dataset_tables(load(data, root, progress=lambda what, _: say(what)))


def _file(folder: Path, name: str, optional: bool = False) -> Path | None:
    """The one file of a folder that holds a table."""
    from evergraph.datasets.tables import FORMATS, format_of

    files = sorted(path for path in folder.glob(f"{name}.*") if format_of(path))
    if len(files) == 1:
        return files[0]
    if optional and not files:
        return None
    known = ", ".join(f"{name}{ending}" for ending in FORMATS)
    got = ", ".join(path.name for path in files) or "none"
    raise ValueError(f"{folder} must have one of {known}, got {got}")

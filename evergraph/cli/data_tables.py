"""Where `train` finds its tables: in a folder, or under the name of a data set."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any


def tables_of(data: str, root: Path | None, say: Callable[[str], None]) -> tuple[Any, Any]:
    """The nodes and the edges of a folder or of a data set."""
    from evergraph.datasets import load
    from evergraph.datasets.folder import table_file
    from evergraph.datasets.objects import dataset_tables

    if Path(data).is_dir():
        nodes, edges = table_file(Path(data), "nodes"), None
        with suppress(FileNotFoundError):  # a graph without edges
            edges = table_file(Path(data), "edges")
        return nodes, edges
    return dataset_tables(load(data, root, progress=lambda what, _: say(what)))

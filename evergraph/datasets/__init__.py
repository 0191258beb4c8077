"""Data sets: readers of published layouts and of own data, and `load`, which finds them by name.

A published data set is looked for in the user's data root (an argument, or EVERGRAPH_DATA), in
the cache, on the web and in a wheel; `generated` and `generated-arxiv` need none of these, and a
path is read as the user's own folder of `nodes` and `edges`.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from evergraph.datasets.catalog import SOURCES, Source
from evergraph.datasets.convert import from_networkx, from_pyg
from evergraph.datasets.fetch import (
    DatasetCorrupt,
    DatasetNotFound,
    Progress,
    cache_folder,
    find,
    obtain,
)
from evergraph.datasets.folder import from_tables, read_folder
from evergraph.datasets.formats import read_linqs, read_npz, read_ogb, read_time_stream
from evergraph.datasets.generate import PRESETS, Growth, generate
from evergraph.datasets.planetoid import read_planetoid
from evergraph.graph.dataset import Dataset, split_by_class
from evergraph.graph.graph import Graph

__all__ = [
    "NAMES",
    "Available",
    "Dataset",
    "DatasetCorrupt",
    "DatasetNotFound",
    "Growth",
    "Progress",
    "available",
    "cache_folder",
    "from_networkx",
    "from_pyg",
    "from_tables",
    "generate",
    "load",
    "read_folder",
]

_GENERATED = {"generated": "citation", "generated-arxiv": "arxiv"}

NAMES: tuple[str, ...] = (*SOURCES, *_GENERATED)
"""Every name that `load` knows."""

Split = Literal["own", "planetoid", "random"]
State = Literal["present", "fetchable", "missing", "generated"]


def load(
    name: str | Path,
    root: str | Path | None = None,
    *,
    split: Split = "own",
    directed: bool | None = None,
    seed: int = 0,
    fetch: bool = True,
    verify: bool = True,
    cache: str | Path | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Load a data set by name, or the user's own from a folder.

    Args:
        name: one of `NAMES`, or a path to a folder with `nodes` and `edges`.
        root: the user's folder of data sets; by default what EVERGRAPH_DATA names.
        split: `own` is the paper's for Cora, Citeseer and Pubmed, the published one for
            ogbn-arxiv, time streams and npz files with masks (number `seed` of them), the column
            `split` of a folder, and else random; `planetoid` is the public one of the
            Planetoid files; `random` draws 60 % of each class for training and 20 % for testing.
        directed: overrides whether neighbors count in one direction only.
        seed: of the generator and of random splits.
        fetch: whether the network may be used.
        verify: whether files are compared with their checksums, where these are known, and the
            numbers of nodes, features and classes with the published ones.
        cache: where fetched files are kept; by default the user's cache folder.
        progress: called while something is fetched.

    Raises:
        DatasetNotFound: if no source has it; says what was tried.
        DatasetCorrupt: if a file is truncated, altered or that of another data set.

    Example:
        >>> dataset = load("generated")
        >>> dataset.graph.num_nodes, len(dataset.train), len(dataset.test)
        (2000, 1201, 400)
    """
    if split not in ("own", "planetoid", "random"):
        raise ValueError(f"split must be own, planetoid or random, got {split!r}")
    source = SOURCES.get(name) if isinstance(name, str) else None
    if split == "planetoid" and (source is None or source.format != "planetoid"):
        known = ", ".join(key for key, other in SOURCES.items() if other.format == "planetoid")
        raise ValueError(f"split='planetoid' exists for {known}, got {str(name)!r}")
    if name in _GENERATED:
        dataset = generate(_GENERATED[str(name)], seed, str(name))
    elif source is not None:
        place = obtain(source, root, cache, fetch=fetch, verify=verify, progress=progress)
        dataset = _read(source, place, split, seed)
        if verify:
            _check_counts(source, dataset.graph, place)
    else:
        dataset = read_folder(_own_folder(name), directed=bool(directed), seed=seed)
    if split == "random":
        train, test = split_by_class(dataset.graph.labels, seed=seed)
        dataset = replace(dataset, train=train, test=test)
    if directed is not None and directed != dataset.graph.directed:
        dataset = replace(dataset, graph=replace(dataset.graph, directed=directed))
    return dataset


def _read(source: Source, folder: Path, split: Split, seed: int) -> Dataset:
    match source.format:
        case "linqs":
            return read_linqs(folder)
        case "ogb":
            return read_ogb(folder)
        case "time-stream":
            return read_time_stream(folder, source.name)
        case "npz":
            return read_npz(folder / source.files[0], source.name, seed)
        case "planetoid":
            return read_planetoid(
                folder, source.name, "planetoid" if split == "planetoid" else "paper"
            )


def _check_counts(source: Source, graph: Graph, folder: Path) -> None:
    """Refuse the files of another data set, also where no checksum is known."""
    found = (graph.num_nodes, graph.num_features, graph.num_classes)
    published = (source.nodes, source.features, source.classes)
    if found != published:
        wanted, got = (
            "{:,} nodes, {:,} features and {:,} classes".format(*counts)
            for counts in (published, found)
        )
        raise DatasetCorrupt(
            f"{folder} must hold {source.name!r} as published, {wanted}, but holds {got}; put the "
            "published files there, or pass verify=False if the change is yours"
        )


def _own_folder(name: str | Path) -> Path:
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if isinstance(name, Path) or os.sep in name:
        raise DatasetNotFound(f"{folder} is not a folder; it must hold nodes and edges")
    close = difflib.get_close_matches(name, NAMES, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise DatasetNotFound(
        f"a data set must be one of {', '.join(NAMES)}, or a folder with nodes and edges, got "
        f"{name!r}{hint}"
    )


@dataclass(frozen=True)
class Available:
    """One line of the list of data sets, with its counts as published.

    Attributes:
        name: what `load` calls it.
        state: `missing` if it cannot be fetched, or fetching is turned off.
        where: the folder if it is present, else where it can come from.
    """

    name: str
    state: State
    where: str
    nodes: int
    edges: int
    features: int
    classes: int


def available(
    root: str | Path | None = None, cache: str | Path | None = None, *, fetch: bool = True
) -> list[Available]:
    """All data sets with their state; does not use the network.

    Example:
        >>> [entry.name for entry in available() if entry.state == "generated"]
        ['generated', 'generated-arxiv']
    """
    entries = []
    for one in SOURCES.values():
        folder = find(one, root, cache)
        state: State = "fetchable" if fetch and one.how else "missing"
        where = one.how or f"to be put in <root>/{one.folder}"
        if folder is not None:
            state, where = "present", str(folder)
        counts = one.nodes, one.edges, one.features, one.classes
        entries.append(Available(one.name, state, where, *counts))
    for name, preset in _GENERATED.items():
        grown = PRESETS[preset]
        edges = round(grown.nodes * grown.citations)
        counts = grown.nodes, edges, grown.features, grown.classes
        entries.append(Available(name, "generated", "no files needed", *counts))
    return entries

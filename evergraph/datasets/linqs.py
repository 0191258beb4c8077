"""Cora as LINQS published it, the form that the paper's numbers were made on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from evergraph.graph.dataset import Dataset, encode_labels, sparse_rows
from evergraph.graph.graph import Graph

# The paper trains on the nodes 0-139 and 500-1499 and tests on 200-499 (Appendix A: "a little
# different from their original settings", as no validation set is needed).
_TRAIN = (*range(140), *range(500, 1500))
_TEST = range(200, 500)


def read_linqs(folder: Path, name: str = "cora") -> Dataset:
    """Read `<name>.content` (id, words, class) and `<name>.cites` (cited id, citing id).

    Nodes are numbered as in the file and classes by their sorted names. An edge goes from the
    citing paper to the one it cites; the graph is undirected, as in the paper.
    """
    content = folder / f"{name}.content"
    number, row, column, class_of, width = _read_content(content)
    if len(number) < _TRAIN[-1] + 1:
        raise ValueError(
            f"the paper's split needs at least {_TRAIN[-1] + 1} nodes, but {content} has "
            f"{len(number)}"
        )
    labels, class_names = encode_labels(class_of)
    graph = Graph(
        features=sparse_rows(row, column, 1.0, (len(number), width)),
        edges=torch.from_numpy(_read_cites(folder / f"{name}.cites", number)),
        labels=labels,
        class_names=class_names,
        name=name,
    )
    return Dataset(graph, torch.tensor(_TRAIN), torch.tensor(_TEST), name, str(folder))


def _read_content(
    path: Path,
) -> tuple[dict[str, int], np.ndarray, np.ndarray, list[str], int]:
    number: dict[str, int] = {}
    class_of: list[str] = []
    columns: list[np.ndarray] = []
    width = None
    for line, text in enumerate(path.read_text().splitlines(), start=1):
        node, *words, label = text.split("\t") if "\t" in text else ("", "")
        width = len(words) if width is None else width
        if not words or len(words) != width:
            raise ValueError(
                f"{path}, line {line}: expected an id, {width or 'some'} words and a class "
                f"between tabs, got {len(words)} words"
            )
        if node in number:
            raise ValueError(f"{path}, line {line}: an id must be unique, got {node} again")
        flags = np.array(words)
        if not np.isin(flags, ("0", "1")).all():
            wrong = flags[~np.isin(flags, ("0", "1"))][0]
            raise ValueError(f"{path}, line {line}: a word must be 0 or 1, got {wrong}")
        number[node] = len(number)
        class_of.append(label)
        columns.append(np.flatnonzero(flags == "1"))
    row = np.repeat(np.arange(len(columns)), [len(part) for part in columns])
    column = np.concatenate(columns) if columns else np.empty(0, dtype=np.int64)
    return number, row, column, class_of, width or 0


def _read_cites(path: Path, number: dict[str, int]) -> np.ndarray:
    edges = []
    for line, text in enumerate(path.read_text().splitlines(), start=1):
        pair = text.split()
        if len(pair) != 2:
            raise ValueError(f"{path}, line {line}: expected two ids, got {text!r}")
        for node in pair:
            if node not in number:
                raise ValueError(f"{path}, line {line}: paper {node} is not in the content file")
        cited, citing = pair
        edges.append((number[citing], number[cited]))
    return np.array(edges, dtype=np.int64).reshape(-1, 2).T.copy()

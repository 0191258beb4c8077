"""Accuracies of models on the splits that all of them have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.league.graphs import GRAPHS

Cell = dict[str, Any]
Key = tuple[str, str, int]  # graph, model, split


@dataclass(frozen=True)
class Table:
    """Accuracies of some models on the splits that all of them have.

    Attributes:
        models: in the order of the columns.
        splits: the numbers of the splits, by graph.
        tuned: by graph, `(splits, models)` with the settings chosen on validation nodes.
        default: the same with the settings that a user gets.
    """

    models: tuple[str, ...]
    splits: dict[str, list[int]]
    tuned: dict[str, np.ndarray[Any, Any]]
    default: dict[str, np.ndarray[Any, Any]]

    def means(self, which: str = "tuned") -> np.ndarray[Any, Any]:
        """Mean accuracy, `(graphs, models)`."""
        found: dict[str, Any] = getattr(self, which)
        return np.array([found[graph].mean(0) for graph in self.splits])


def chosen(cell: Cell) -> Cell:
    """The trial with the best validation accuracy; of equals the first, the default before all.

    Example:
        >>> chosen({"trials": [{"validation": 0.5, "test": 1}, {"validation": 0.5, "test": 2}]})
        {'validation': 0.5, 'test': 1}
    """
    best: Cell = max(cell["trials"], key=lambda trial: trial["validation"])
    return best


def table(cells: Sequence[Cell], models: Sequence[str], order: str) -> Table:
    """The models that have cells in an order (those that read no order have them in all)."""
    found: dict[Key, Cell] = {
        (cell["graph"], cell["model"], cell["split"]): cell
        for cell in cells
        if cell["order"] in (order, "any")
    }
    present = tuple(name for name in models if any(key[1] == name for key in found))
    splits = {}
    for graph in GRAPHS:
        numbers = [{n for g, name, n in found if (g, name) == (graph, one)} for one in present]
        if numbers and (common := sorted(set.intersection(*numbers))):
            splits[graph] = common

    def values(pick: Callable[[Cell], Cell]) -> dict[str, Any]:
        return {
            graph: np.array(
                [[pick(found[graph, name, n])["test"] for name in present] for n in numbers]
            )
            for graph, numbers in splits.items()
        }

    return Table(present, splits, values(chosen), values(lambda cell: cell["trials"][0]))

"""A model folder with the verbs of scikit-learn: fit, partial_fit, predict, predict_proba."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any
from weakref import finalize

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from evergraph.datasets.events import Event
from evergraph.datasets.tables import read_tables
from evergraph.model.folder import Settings
from evergraph.model.model import Model
from evergraph.model.tables import Tables


class GraphClassifier:
    """A classifier of the nodes of a graph that grows.

    X is a table, as `read_tables` takes it, or an array `(n, F)`. Its column `id` names the nodes;
    without it, they are numbered in the order in which they come. y holds their classes, None where
    they are unknown. Edges are a table of `source` and `target`.

    Args:
        path: the model folder; None for one that ends with this object.
        settings: of the model.

    Attributes:
        model_: the model, for all other verbs.

    Example:
        >>> edges = {"source": [0], "target": [2]}
        >>> classifier = GraphClassifier().fit([[20.0], [50.0]] * 30, ["young", "old"] * 30, edges)
        >>> classifier.predict([[49.0], [21.0]]).tolist()
        ['old', 'young']
        >>> classifier.partial_fit([[3.0]] * 30, ["child"] * 30).classes_.tolist()
        ['child', 'old', 'young']
        >>> classifier.model_.close()
    """

    model_: Model

    def __init__(
        self,
        path: Path | str | None = None,
        settings: Settings = Settings(),  # noqa: B008
    ) -> None:
        self.path, self.settings = path, settings

    def fit(self, X: Any, y: Sequence[Any] | None = None, edges: Any = None) -> GraphClassifier:
        """Train a new model; a folder that was given must not be there yet."""
        self._values: dict[str, Any] = {}  # classes as y had them, by their names
        self._numbered = 0
        table = self._table(X, y)
        place = self.path
        if place is None:
            place = Path(mkdtemp()) / "model"
            finalize(self, rmtree, place.parent, ignore_errors=True)
        self.model_ = Model.train(place, table, edges, settings=self.settings)
        return self

    def partial_fit(
        self,
        X: Any,
        y: Sequence[Any] | None = None,
        edges: Any = None,
    ) -> GraphClassifier:
        """Add nodes or replace them, with labels and edges, all or none; statistics stay."""
        if not hasattr(self, "model_"):
            return self.fit(X, y, edges)
        tables = Tables.read(self._table(X, y), edges, id="id")
        if any(part.splits is not None for part in tables.nodes):
            raise ValueError("a column split belongs to fit, got one in partial_fit; drop it")
        events = [
            Event("node", 0, id=node, cells=cells, label=label, time=time)
            for part in tables.nodes
            for node, cells, label, time in part.records()
        ]
        events += [
            Event("edge", 0, source=source, target=target, weight=weight, time=time)
            for part in tables.edges
            for source, target, weight, time in part.records()
        ]
        self.model_.learn(events)
        return self

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes, in the order of `predict_proba`: that of their names."""
        return np.array([self._values.get(name, name) for name in self.model_.classes])

    def predict(self, X: Any, edges: Any = None) -> NDArray[Any]:
        """The classes of nodes: a list of ids, or new nodes, which are not stored."""
        found = self.model_.predict(_asked(X), edges)
        return np.array([self._values.get(one.label, one.label) for one in found])

    def predict_proba(self, X: Any, edges: Any = None) -> NDArray[np.float64]:
        """Probabilities `(n, K)` of the classes, in the order of `classes_`."""
        return self.model_.predict_proba(_asked(X), edges)

    def score(self, X: Any, y: Sequence[Any], edges: Any = None) -> float:
        """The share of nodes whose class is predicted right."""
        return float(np.mean(self.predict(X, edges) == np.asarray(y)))

    def _table(self, X: Any, y: Sequence[Any] | None) -> Any:
        """A table of nodes with their ids and labels."""
        table = _columns(X)
        if y is not None:
            if "label" in table.column_names:
                raise ValueError("classes come as y or as a column label, got both; drop one")
            if len(y) != table.num_rows:
                raise ValueError(f"y must have a class per row, {table.num_rows}, got {len(y)}")
            table = table.append_column("label", pa.array(list(map(self._name, y)), pa.string()))
        if "id" not in table.column_names:
            ids = range(self._numbered, self._numbered + table.num_rows)
            self._numbered += table.num_rows
            table = table.append_column("id", pa.array(ids, pa.int64()))
        return table

    def _name(self, value: Any) -> str | None:
        value = value.item() if hasattr(value, "item") else value
        if value is None or value != value:
            return None
        self._values[str(value)] = value
        return str(value)


def _columns(X: Any) -> pa.Table:
    """One table of all that `read_tables` takes, or of an array."""
    if isinstance(X, np.ndarray) or (isinstance(X, list | tuple) and np.ndim(X) > 1):
        X = {"x": np.asarray(X, dtype=np.float64).tolist()}
    return pa.concat_tables([chunk.table for chunk in read_tables(X)])


def _asked(X: Any) -> Any:
    """Ids as they are, anything else as a table with ids."""
    if isinstance(X, list | tuple | np.ndarray) and np.ndim(X) == 1:
        return X.tolist() if isinstance(X, np.ndarray) else X
    table = _columns(X)
    if "id" in table.column_names:
        return table
    ids = [f"row {number}" for number in range(table.num_rows)]
    return table.append_column("id", pa.array(ids, pa.string()))

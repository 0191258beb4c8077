"""What a learner asks of the items of its stream, and how it takes them in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from evergraph.feature_graph import condense
from evergraph.feature_graph.neighborhoods import Condenser
from evergraph.graph.neighbors import Features, Linked
from evergraph.graph.rows import SparseRows
from evergraph.learn.checkpoint import whole
from evergraph.learn.gate import Gate, Outliers, largest
from evergraph.learn.transaction import State
from evergraph.nn.model import Requires
from evergraph.stream.batch import Batch
from evergraph.stream.source import Pack, gathered

LARGEST = 1e12  # features beyond this are surely a mistake
LAYOUTS = ("dense features", "sparse rows")


class Intake:
    """Checks items, condenses them, and keeps outliers out.

    Args:
        requires: what the model asks of its items.
        outliers: see `Gate`.

    Attributes:
        width: the shape of an item's features, which the first batch sets.
        sparse: whether features are sparse rows, which the first batch sets.
        gate: what is usual, by column; all of them together if features are sparse.
    """

    def __init__(self, requires: Requires, outliers: Outliers) -> None:
        self.requires, self.gate = requires, Gate(outliers)
        self.width: tuple[int, ...] | None = None
        self.sparse: bool | None = None

    def check(self, batch: Batch) -> float | None:
        """Refuse what cannot be predicted: no batch, or items that the model cannot read.

        Returns:
            the size of the largest feature, if that is known.
        """
        if not isinstance(batch, Batch):
            raise TypeError(
                f"a learner takes a Batch, as a Continuum gives them, got {type(batch).__name__}; "
                "loop over a stream, or use evaluate"
            )
        width = self._fixed(batch)
        if self.width is not None and width != self.width:
            raise ValueError(
                f"items must keep the shape {self.width} that the stream began with, got {width}"
            )
        return self.requires.check(batch)

    def check_to_learn(self, batch: Batch) -> None:
        """Refuse also features with gradients, of another layout, or of an impossible size."""
        known = self.check(batch)
        if not len(batch):
            raise ValueError("a batch to learn from must hold at least one item, got none")
        sparse = isinstance(batch.x, SparseRows)
        if self.sparse is not None and sparse != self.sparse:
            raise ValueError(
                f"items must stay {LAYOUTS[self.sparse]}, as the stream began, got "
                f"{LAYOUTS[sparse]}"
            )
        for features in _features(batch):
            values = features.values if isinstance(features, SparseRows) else features
            if values.requires_grad:
                raise ValueError("features to learn from must not require gradients; detach them")
            size = largest(values) if known is None else known
            if size > LARGEST:
                raise ValueError(
                    f"features must be at most {LARGEST:g} in size, got {size:g}; scale them"
                )

    def packing(self) -> Pack:
        """How a stream stores neighbors for this learner: condensed, where that is lossless."""
        return Condenser(self.requires.hops) if self.requires.condensable else gathered

    def condensed(self, batch: Batch) -> Batch:
        """The same items with one neighbor per plane in place of all, where that is lossless."""
        if not self.requires.condensable or isinstance(batch.neighbors, Linked):
            return batch
        rows = len(batch) * batch.nodes_per_item
        neighbors = condense(batch.neighbors, rows, self.requires.hops)
        return batch if neighbors is batch.neighbors else replace(batch, neighbors=neighbors)

    def admit(self, batch: Batch) -> Batch:
        """The batch as it is learned: without outliers."""
        if not len(batch):  # another rank has the items
            return batch
        self.width, self.sparse = self.layout(batch)
        features = _features(batch)
        columns = tuple(map(_columns, features))
        _, known = vars(batch).get("checked", (None, None))  # unless it has been condensed since
        passed = self.gate(*columns, size=known)
        if all(new is old for new, old in zip(passed, columns, strict=True)):  # none clipped
            return batch
        x, *around = (
            replace(old, values=new.flatten()) if isinstance(old, SparseRows) else new.view_as(old)
            for old, new in zip(features, passed, strict=True)
        )
        neighbors = batch.neighbors
        if around and not isinstance(neighbors, Linked):
            neighbors = neighbors.with_features(around[0])
        return replace(batch, x=x, neighbors=neighbors)

    def state(self) -> State:
        """All that is needed to resume: tensors, and what JSON can hold."""
        tensors, values = self.gate.state()
        return tensors, {"width": self.width, "sparse": self.sparse, "gate": values}

    def load_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Resume from a state."""
        self.gate.load_state(tensors, values["gate"])
        width, sparse = values["width"], values["sparse"]
        if sparse not in (None, True, False):
            raise ValueError(f"sparse must be true, false or null, got {sparse!r}")
        self.width, self.sparse = None if width is None else tuple(map(whole, width)), sparse

    def layout(self, batch: Batch) -> tuple[tuple[int, ...], bool]:
        """What the first batch sets for all: the shape of an item, whether rows are sparse."""
        return self._fixed(batch), isinstance(batch.x, SparseRows)

    def _fixed(self, batch: Batch) -> tuple[int, ...]:
        """What no item may change: its shape, without the number of nodes if that may be any."""
        return batch.width[-2:] if self.requires.nodes == 0 else batch.width


def _features(batch: Batch) -> tuple[Features, ...]:
    """The features of items and, if they are stored with them, of their neighbors."""
    around = () if isinstance(batch.neighbors, Linked) else (batch.neighbors.features,)
    return batch.x, *around


def _columns(features: Features) -> Tensor:
    """Values `(N, F)`; of sparse rows `(N, 1)`, since their columns are of one kind."""
    if isinstance(features, SparseRows):
        return features.values.unsqueeze(1)
    return features.reshape(-1, features.shape[-1])

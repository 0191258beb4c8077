"""What a model is to a learner: a body, a head that grows, and what it asks of its items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from evergraph.graph.neighbors import Features, check_items
from evergraph.graph.rows import SparseRows
from evergraph.nn.heads import Head
from evergraph.stream.batch import Batch


@dataclass(frozen=True)
class Requires:
    """What a model asks of its items; what is None may be anything.

    Attributes:
        hops: K, how many hops of neighbors it looks at.
        condensable: whether (x, m) may be stored in place of x and its neighbors.
        shape: C and F.
        nodes: S, the nodes of an item; 0 stands for any number of them.
        edge_components: W, the length of a vector edge weight.

    Example:
        >>> from evergraph import FGN
        >>> model = FGN(500)
        >>> model.requires.hops, model.requires.shape
        (1, (1, 500))
    """

    hops: int = 1
    condensable: bool = False
    shape: tuple[int, int] | None = None
    nodes: int | None = None
    edge_components: int | None = None

    def check(self, batch: Batch) -> None:
        """Raise a ValueError that names the item, or the shape, that the model cannot read."""
        check_items(batch.x, batch.neighbors, self.hops)
        given = (len(batch), *batch.width)
        if self.shape is not None and given[-2:] != self.shape:
            raise ValueError(
                f"x must have shape {self._leading}, {self.shape[0]}, {self.shape[1]}) for this "
                f"model, got {given}"
            )
        if self.nodes is not None:
            several = len(given) == 4
            if several != (self.nodes != 1) or (self.nodes > 1 and given[1] != self.nodes):
                raise ValueError(
                    f"items must have {self.nodes or 'several'} nodes each, x of shape "
                    f"{self._leading}, C, F), for this model, got {given}"
                )
            if isinstance(batch.x, SparseRows) and self.nodes not in (1, 2):
                raise ValueError(f"sub-graphs must be dense, got sparse rows of shape {given}")
        components = batch.neighbors.edge_components
        if self.edge_components not in (None, components):
            raise ValueError(
                f"edge weights must have {self.edge_components} components for this model, got "
                f"{components}; set edge_components"
            )

    @property
    def _leading(self) -> str:
        return "(B" if self.nodes in (None, 1) else f"(B, {self.nodes or 'S'}"


class Encoder(Protocol):
    """From the features of an item as they come to the nodes that layers see.

    One that changes the number of nodes says how many it takes in a further attribute, `in_nodes`.
    """

    in_shape: tuple[int, int]  # C and F of what it takes

    def __call__(self, features: Features) -> Tensor:
        """Map `(*, C, F)`, or sparse rows, to dense nodes `(*, D, G)` of the network's type."""
        ...


class Model(Protocol):
    """What a learner asks of a network: a body and a head, of which only the head grows."""

    @property
    def requires(self) -> Requires:
        """What it asks of its items."""
        ...

    head: Head

    def __call__(self, batch: Batch) -> Tensor:
        """Outputs, `(B, K)`."""
        ...

"""FGN with something else in place of Â, all else the same: what the feature graph itself is worth.

`identity`: a feature node collects itself. `mean`: in the first layer it collects the mean of the
neighbors, the m of Â, and itself in later ones. `product`: Â without sgnroot, the normalized
`x mᵀ + m xᵀ`. Computed in plain torch, on the support of the items where they are sparse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from evergraph.feature_graph import Normalization, Packed, Support, SupportGraph
from evergraph.feature_graph.equations import divisors
from evergraph.feature_graph.support import support_mean
from evergraph.nn.fgn import FGN
from evergraph.nn.heads import Head
from evergraph.nn.model import Requires
from evergraph.stream.batch import Batch

Instead = Literal["identity", "mean", "product"]


@dataclass(frozen=True)
class Replaced:
    """What the nodes of a batch collect; a message graph, see `evergraph.nn.messages`.

    Attributes:
        instead: what stands in place of Â.
        nodes: x, `(*, 1, F)` or `(1, N)` on a support.
        mean: of the neighbors, `(*, P, F)` or `(P, N)`.
        normalization: of the product.
        support: what lies where, if items are sparse.
    """

    instead: Instead
    nodes: Tensor
    mean: Tensor
    normalization: Normalization
    support: Support | None

    def across_channels(self) -> Replaced:
        """The same for deeper layers."""
        return self

    def propagate(self, z: Tensor) -> Tensor:
        """Map z, `(*, C, F)` or `(C, N)`, to as many channels for each plane."""
        if self.instead == "mean" and z is self.nodes:
            return self.mean
        shape = (*z.shape[:-2], self.mean.shape[-2], *z.shape[-2:])
        z = z.unsqueeze(-3).expand(shape)
        return (self._product(z) if self.instead == "product" else z).flatten(-3, -2)

    def _product(self, z: Tensor) -> Tensor:
        x, m = self.nodes.unsqueeze(-3), self.mean.unsqueeze(-2)
        degree = x.abs() * self._total(m.abs()) + m.abs() * self._total(x.abs())
        left, right = divisors(degree, degree, self.normalization)
        z = z / right
        return (x * self._total(m * z) + m * self._total(x * z)) / left

    def _total(self, values: Tensor) -> Tensor:
        """For each node the sum over those of its item."""
        if self.support is None:
            return values.sum(-1, keepdim=True)
        return self.support.spread(self.support.total(values))


class WithInstead(nn.Module):
    """A network of broadcast layers with something else in place of Â.

    Example:
        >>> from evergraph.datasets import generate
        >>> from evergraph.stream import node_continuum
        >>> batch = next(iter(node_continuum(generate())))
        >>> WithInstead(FGN(500, 3), "identity")(batch).shape
        torch.Size([10, 3])
    """

    def __init__(self, network: FGN, instead: Instead) -> None:
        super().__init__()
        self.network: Any = network
        self.instead: Instead = instead

    @property
    def head(self) -> Head:
        """That of the network."""
        head: Head = self.network.head
        return head

    @property
    def requires(self) -> Requires:
        """What the network asks of its items."""
        requires: Requires = self.network.requires
        return requires

    def forward(self, batch: Batch) -> Tensor:
        """Outputs of the items of a batch, `(B, K)`."""
        network = self.network
        x, layout, nodes = network._laid_out(batch)
        assert isinstance(layout, Packed)
        graph = network.graph(x, layout.neighbors.features, layout, 0)
        sparse = isinstance(graph, SupportGraph)
        if sparse:
            mean = support_mean(graph.support, graph.neighbors, layout.hops)
        else:
            mean = layout.mean(graph.neighbors.features, layout.weight).squeeze(-2)
        mean = mean.to(graph.nodes.dtype)
        parts = graph.nodes, mean, network.normalization, graph.support if sparse else None
        found = network._body(Replaced(self.instead, *parts), x, None, layout, nodes)
        out: Tensor = network.head(*found)
        return out

    def extra_repr(self) -> str:
        """What stands in place of Â, and the settings of the network."""
        return f"instead={self.instead}, {self.network.extra_repr()}"

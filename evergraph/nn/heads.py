"""What reads the feature nodes of an item: the only part of a network that grows."""

from __future__ import annotations

from typing import Literal, Protocol, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad
from torch.nn.functional import normalize as unit_length

from evergraph.feature_graph import Support
from evergraph.nn.attention import uniform

HeadName = Literal["items", "pairs", "embedding"]
HEADS: tuple[str, ...] = get_args(HeadName)


class Head(Protocol):
    """From feature nodes to outputs."""

    @property
    def outputs(self) -> int:
        """How many outputs there are."""
        ...

    def __call__(self, y: Tensor, absent: Tensor, support: Support | None = None) -> Tensor:
        """Outputs of items, from y `(*, C, F)`; or `(C, N)` on a support."""
        ...

    def grow(self, outputs: int) -> None:
        """Make room for more outputs; the old ones stay as they are."""
        ...


class Readout(nn.Module):
    """A linear map of all feature nodes of an item.

    `out = Σ_f W_f (y_f - absent) + b`: features that are not there add nothing, so that the cost
    follows those that are. As long as `absent` stays, this is the plain linear layer with another
    bias; `centered=False` is that plain layer, and adds absent times the column sums.

    Args:
        channels: C.
        features: F.
        outputs: K; more can be added later.
        nodes: S, if the nodes of an item have fixed places (such as sensors on a body) and are
            read side by side; None takes their mean.
        centered: measure from the absent value.
        sparse_gradient: let `FGN` give the weight a sparse gradient where it runs compiled, so
            that a step costs the same for any F; for optimizers that accept it, such as SGD.
        pooled: read the mean and the largest of the features of a channel in place of all of
            them, as for signals in which something may happen at any time.
    """

    def __init__(
        self,
        channels: int,
        features: int,
        outputs: int,
        nodes: int | None = 1,
        centered: bool = True,
        sparse_gradient: bool = False,
        pooled: bool = False,
    ) -> None:
        super().__init__()
        if sparse_gradient and not centered:
            raise ValueError("sparse_gradient needs centered=True: column sums touch every weight")
        channels, features = (2 * channels, 1) if pooled else (channels, features)
        channels = channels * (nodes or 1)
        self.weight = nn.Parameter(
            uniform(channels * features, outputs).view(features, channels, -1)
        )
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.nodes, self.centered, self.sparse_gradient = nodes, centered, sparse_gradient
        self.pooled = pooled

    @property
    def outputs(self) -> int:
        """K."""
        return self.bias.shape[0]

    def forward(self, y: Tensor, absent: Tensor, support: Support | None = None) -> Tensor:
        """`(B, K)` of y `(B, C, F)` or `(B, S, C, F)`, or of `(C, N)` on a support."""
        if support is None:
            if self.centered:
                y = y - absent.unsqueeze(-1)
            if self.pooled:
                y = torch.cat([y.mean(-1, keepdim=True), y.amax(-1, keepdim=True)], dim=-2)
            if y.dim() == 4:
                y = y.mean(1) if self.nodes is None else y.flatten(1, 2)
            rows = self.weight.permute(2, 1, 0).flatten(1)
            return linear(y.flatten(1), rows, self.bias)
        rows = self.weight[support.feature]
        terms = torch.einsum("cn,nck->kn", y - absent.unsqueeze(-1), rows)
        logits = support.total(terms).T
        if not self.centered:
            logits = logits + absent @ self.weight.sum(0)
        return logits + self.bias

    def grow(self, outputs: int) -> None:
        """Make room for more outputs; the new ones start at zero."""
        more = outputs - self.outputs
        if more > 0:
            self.weight = nn.Parameter(pad(self.weight.detach(), (0, more)))
            self.bias = nn.Parameter(pad(self.bias.detach(), (0, more)))

    def extra_repr(self) -> str:
        """What the shapes of the parameters do not tell."""
        return f"nodes={self.nodes}, centered={self.centered}, pooled={self.pooled}"


class PairReadout(nn.Module):
    """A linear map of what two nodes have in common and how they differ: for edges.

    Reads `[u ⊙ v, |u - v|]` of the two nodes of an item, which does not depend on their order.

    Args:
        channels: C.
        features: F.
        outputs: K; more can be added later.
    """

    def __init__(self, channels: int, features: int, outputs: int) -> None:
        super().__init__()
        self.linear = Readout(2 * channels, features, outputs, centered=False)

    @property
    def outputs(self) -> int:
        """K."""
        return self.linear.outputs

    def forward(self, y: Tensor, absent: Tensor, support: Support | None = None) -> Tensor:
        """`(B, K)` of y `(B, 2, C, F)`, or of the nodes of pairs on a support."""
        y = y - absent.unsqueeze(-1)
        if support is not None:
            y = support.to_dense(y).unflatten(0, (-1, 2))
        first, second = y.unbind(1)
        both = torch.cat([first * second, (first - second).abs()], dim=-2)
        out: Tensor = self.linear(both, both.new_zeros(both.shape[-2]))
        return out

    def grow(self, outputs: int) -> None:
        """Make room for more outputs; the new ones start at zero."""
        self.linear.grow(outputs)


class Embedding(nn.Module):
    """The nodes themselves, brought to unit length: for problems that compare them."""

    outputs = 0

    def forward(self, y: Tensor, absent: Tensor, support: Support | None = None) -> Tensor:
        """`(*, C * F)` of y `(*, C, F)`, or of the nodes on a support."""
        if support is not None:
            y = support.to_dense(y, absent)
        return unit_length(y.flatten(-2), dim=-1)

    def grow(self, outputs: int) -> None:
        """An embedding has no outputs that could grow."""


def make_head(
    name: HeadName,
    shape: tuple[int, int],
    outputs: int,
    nodes: int | None,
    centered: bool,
    sparse_gradient: bool,
    pooled: bool,
) -> Head:
    """The head of a name for nodes of a shape `(C, F)`."""
    if name == "pairs":
        return PairReadout(*shape, outputs)
    if name == "embedding":
        return Embedding()
    return Readout(*shape, outputs, nodes, centered, sparse_gradient, pooled)

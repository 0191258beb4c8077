"""The feature graph network (FGN): layers of Section 4.3 and a head for the problem at hand."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize as unit_length

from evergraph.nn.blocks import BroadcastBlock, Readout, TransformBlock
from evergraph.feature_graph import (
    FeatureGraph,
    Features,
    Neighbors,
    Normalization,
    SupportGraph,
)
from evergraph.feature_graph.build import build, check, fixed_support
from evergraph.feature_graph.fused import Network, broadcast_network
from evergraph.feature_graph.support import Arrays
from evergraph.nn.layers import FeatureAttention, FeatureTransform
from evergraph.graph.rows import SparseRows

Problem = Literal["node", "subgraph", "edge"]

PRESETS: dict[str, dict[str, Any]] = {
    # Sec. 5: two broadcast layers for Cora, Citeseer and Pubmed
    "citation": {"channels": (10, 10)},
    # Sec. 5: two concatenating transform layers for ogbn-arxiv; 21,872 parameters, as published
    "arxiv": {"channels": (4, 32), "features": (16, 1), "concatenate": True, "directed": True},
}


class FGN(nn.Module):
    """A network on feature graphs: every node is classified from its own small graph.

    Without `features`, layers broadcast (Eq. 7) on one feature graph of the raw features. With
    `features`, they transform (Eq. 8), and every layer makes its feature graph anew from the
    transformed nodes and neighbors. Batch normalization, softsign and dropout follow each layer.

    Args:
        num_features: F of the input.
        num_classes: number of logits; for `edge` problems the size of the embedding compared.
        in_channels: C of the input.
        channels: C after each layer.
        features: F after each layer; None keeps F (broadcast layers).
        concatenate: layers keep the unpropagated features beside the propagated ones.
        attention: learn the edge weights (Eq. 9) in place of given ones.
        hops: K, the hops of neighbors to use.
        edge_components: W, the length of a vector edge weight.
        directed: leave out the transposed term of Eq. (4). The features of a node and of its
            neighbors may interact both ways even where an edge has a direction.
        normalization: of the adjacency, see `feature_graph.normalize`.
        dropout: rate after each layer.
        gain: of batch normalization, see `blocks.FeatureNorm`.
        problem: `node` gives logits `(B, K)` for x `(B, C, F)`; `subgraph` gives `(B, K)` for
            x `(B, S, C, F)`; `edge` scores pairs of nodes.
        nodes: S, if the nodes of a sub-graph have fixed places (such as sensors on a body) and
            are read side by side; None takes their mean.
        centered, sparse_gradient: see `blocks.Readout`.

    Example:
        >>> model = FGN(num_features=6, num_classes=3)
        >>> neighbors = Neighbors(torch.rand(5, 1, 6), owner=torch.tensor([0, 0, 0, 1, 1]))
        >>> model(torch.rand(2, 1, 6), neighbors).shape
        torch.Size([2, 3])
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        in_channels: int = 1,
        channels: tuple[int, ...] = (10, 10),
        features: tuple[int, ...] | None = None,
        concatenate: bool = False,
        attention: bool = False,
        hops: int = 1,
        edge_components: int = 1,
        directed: bool = False,
        normalization: Normalization = "symmetric",
        dropout: float = 0.0,
        gain: float = 1.0,
        problem: Problem = "node",
        nodes: int | None = None,
        centered: bool = True,
        sparse_gradient: bool = False,
    ) -> None:
        super().__init__()
        if features is not None and len(features) != len(channels):
            raise ValueError(
                f"features must name one F per layer, got {len(features)} for "
                f"{len(channels)} layers"
            )
        self.num_features, self.in_channels = num_features, in_channels
        self.hops, self.directed, self.normalization = hops, directed, normalization
        self.problem, self.nodes, self.edge_components = problem, nodes, edge_components
        self.dropout, self.gain = dropout, gain
        planes = hops * (1 if attention else edge_components)
        sizes = [num_features, *(features or [num_features] * len(channels))]
        depths = [in_channels, *channels]
        self.blocks = nn.ModuleList()
        self.attentions = nn.ModuleList()
        for layer, (c, d, f, g) in enumerate(
            zip(depths, depths[1:], sizes, sizes[1:], strict=False)
        ):
            if features is None:
                shared = planes if layer == 0 else planes * in_channels
                self.blocks.append(BroadcastBlock(c, d, shared, dropout, concatenate, gain))
            else:
                transform = FeatureTransform(c, f, d, g, concatenate, planes)
                self.blocks.append(TransformBlock(transform, dropout, gain))
            if attention and (features is not None or layer == 0):
                self.attentions.append(FeatureAttention(c, f))
        self.transforms = features is not None
        places = nodes if problem == "subgraph" and nodes else 1
        self.readout = Readout(
            places * depths[-1], sizes[-1], num_classes, centered, sparse_gradient
        )
        if problem == "edge":
            self.scale = nn.Parameter(torch.tensor(math.log(10.0)))
            self.bias = nn.Parameter(torch.zeros(()))

    @classmethod
    def preset(cls, name: str, num_features: int, num_classes: int, **changes: Any) -> FGN:
        """A configuration of the paper: `citation` or `arxiv`, with changes if you like.

        Example:
            >>> model = FGN.preset("arxiv", num_features=128, num_classes=40)
            >>> sum(p.numel() for p in model.parameters())
            21872
        """
        if name not in PRESETS:
            raise ValueError(f"preset must be one of {', '.join(PRESETS)}, got {name!r}")
        return cls(num_features, num_classes, **{**PRESETS[name], **changes})

    @property
    def condensable(self) -> bool:
        """Whether (x, m) is all that this network sees of an item: fixed weights, Eq. (7)."""
        return not self.transforms and not self.attentions

    def grow(self, num_classes: int) -> None:
        """Make room for more classes; the logits of the old ones stay."""
        self.readout.grow(num_classes)

    def forward(self, x: Features, neighbors: Neighbors, pairs: Tensor | None = None) -> Tensor:
        """Logits of a batch.

        Args:
            x: `(B, C, F)` or B sparse rows; `(B, S, C, F)` for sub-graphs.
            neighbors: packed neighbors; an owner is a row of x with its leading axes flattened.
            pairs: `(2, E)` rows of x to compare, for `edge` problems only.

        Returns:
            `(B, num_classes)`; for `edge` problems one logit per pair, `(E,)`.
        """
        if (self.problem == "edge") != (pairs is not None):
            given = None if pairs is None else tuple(pairs.shape)
            raise ValueError(
                "pairs go with problem='edge' and with no other, got "
                f"{given} with problem={self.problem!r}"
            )
        self.check(x, neighbors)
        logits = self._logits(x, neighbors)
        if pairs is None:
            return logits
        unit = unit_length(logits, dim=-1)
        cosine = (unit[pairs[0]] * unit[pairs[1]]).sum(-1)
        return self.scale.exp() * cosine + self.bias

    def embed(self, x: Features, neighbors: Neighbors) -> Tensor:
        """What the layers make of the feature nodes, dense: `(*, C, F)` of the last layer."""
        self.check(x, neighbors)
        graph = self._graph(x, neighbors, 0)
        y, absent = self._encode(graph)
        if graph.support is None or self.transforms:
            return y
        return graph.support.to_dense(y, absent)

    def _logits(self, x: Features, neighbors: Neighbors) -> Tensor:
        out: Tensor
        if not (self.transforms or self.attentions or self.directed):
            settings = self.hops, self.normalization, self.readout.weight.dtype
            found = fixed_support(x, neighbors, *settings)
            if found is not None:
                return self._fused(found)
        graph = self._graph(x, neighbors, 0)
        if isinstance(graph, SupportGraph) and graph.compiled and not self.transforms:
            return self._fused(graph.arrays, graph.hat)
        y, absent = self._encode(graph)
        if self.problem == "subgraph":
            y = y.flatten(-3, -2) if self.nodes else y.mean(-3)
            absent = absent.repeat(self.nodes) if self.nodes else absent
        out = self.readout(y, absent, None if self.transforms else graph.support)
        return out

    def _encode(self, graph: FeatureGraph) -> tuple[Tensor, Tensor]:
        """Feature nodes after the last layer and the value of absent ones."""
        if self.transforms:
            for layer, block in enumerate(self.blocks):
                y, neighbors, absent = block(graph)
                if layer + 1 < len(self.blocks):
                    graph = self._graph(y, neighbors, layer + 1)
            return y, absent
        y, absent = graph.nodes, None
        for block in self.blocks:
            y, absent = block(y, graph, absent)
            graph = graph.across_channels()
        return y, absent

    def _fused(self, graph: Arrays, hat: Tensor | None = None) -> Tensor:
        """All layers and the classifier in one operator: the same numbers as one by one."""
        layers: list[Tensor] = []
        for block in self.blocks:
            assert isinstance(block, BroadcastBlock)
            norm, rate = block.norm, block.dropout
            layers += [block.layer.weight, *norm.affine, norm.running_mean, norm.running_var]
        readout = self.readout
        network = Network(
            readout.centered,
            readout.sparse_gradient,
            rate if self.training else 0.0,
            norm.momentum,
            norm.eps,
            (len(graph.ptr) - 1) * self.num_features,
            self.training,
        )
        return broadcast_network(network, graph, hat, (readout.weight, readout.bias), layers)

    def _graph(self, x: Features, neighbors: Neighbors, layer: int) -> FeatureGraph:
        if self.attentions:
            neighbors = neighbors.with_weight(self.attentions[layer](x, neighbors, self.hops))
        dtype = self.readout.weight.dtype
        return build(x, neighbors, self.hops, self.directed, self.normalization, dtype)

    def extra_repr(self) -> str:
        """What the shapes of the parameters do not tell."""
        names = (
            "in_channels", "hops", "edge_components", "directed", "normalization", "dropout",
            "gain", "problem", "nodes",
        )  # fmt: skip
        shown = [f"{name}={getattr(self, name)}" for name in names]
        return ", ".join([*shown, f"centered={self.readout.centered}"])

    def check(self, x: Features, neighbors: Neighbors) -> None:
        """Raise a ValueError that names the item, or the shape, that this network cannot read."""
        check(x, neighbors, self.hops)
        sparse = isinstance(x, SparseRows)
        shape = (len(x), 1, x.num_features) if isinstance(x, SparseRows) else tuple(x.shape)
        leading = ("B", "S") if self.problem == "subgraph" else ("B",)
        expected = f"({', '.join(leading)}, {self.in_channels}, {self.num_features})"
        if shape[-2:] != (self.in_channels, self.num_features) or len(shape) != len(leading) + 2:
            raise ValueError(f"x must have shape {expected} for this model, got {shape}")
        if self.problem == "subgraph" and (sparse or self.nodes not in (None, shape[1])):
            raise ValueError(f"sub-graphs must be dense with {self.nodes} nodes each, got {shape}")
        if not self.attentions and neighbors.edge_components != self.edge_components:
            raise ValueError(
                f"edge weights must have {self.edge_components} components for this model, got "
                f"{neighbors.edge_components}; set edge_components"
            )

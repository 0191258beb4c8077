"""The feature graph network (FGN): layers of Section 4.3 between an encoder and a head."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from evergraph.checks import check_one_of
from evergraph.feature_graph import (
    Neighborhoods,
    Normalization,
    Packed,
    Places,
    Support,
    SupportGraph,
    Table,
)
from evergraph.feature_graph.build import Form, build, fixed_support
from evergraph.graph.neighbors import Features, Linked, Neighbors, as_dense
from evergraph.graph.rows import SparseRows
from evergraph.nn.attention import Attention, FeatureAttention
from evergraph.nn.blocks import (
    LAYERS,
    Activation,
    BlockValues,
    Layer,
    Norm,
    fused_outputs,
    node_shapes,
)
from evergraph.nn.heads import HEADS, HeadName, Readout, make_head
from evergraph.nn.layers import Graph
from evergraph.nn.messages import MESSAGES, Message, SparseGraph, message_graph
from evergraph.nn.model import Requires
from evergraph.stream.batch import Batch

PRESETS: dict[str, dict[str, Any]] = {
    # Sec. 5: two broadcast layers for Cora, Citeseer and Pubmed
    "citation": {"channels": (10, 10)},
    # Sec. 5: two concatenating transform layers for ogbn-arxiv; 21,872 parameters, as published
    "arxiv": {"channels": (4, 32), "features": (16, 1), "concatenate": True, "directed": True},
}


class FGN(nn.Module):
    """A network on feature graphs: every node is judged from its own small graph.

    One class for nodes, sub-graphs and edges. `layer` says what a layer is:

    - `broadcast` (Eq. 7) mixes channels on one feature graph of the input;
    - `transform` (Eq. 8) maps features by any matrix, and every layer makes its feature graph anew
      from the transformed nodes and neighbors;
    - `convolution` is a transform whose matrix is a band, followed by pooling, for signals;
    - `residual` adds what a small network makes of the message, on one feature graph.

    Args:
        num_features: F of the nodes, after the encoder if there is one.
        num_outputs: number of outputs; the head grows as more are met.
        in_channels: C of the nodes.
        layer: see above; `transform` if `features` is given, `convolution` if `kernels` is.
        channels: C after each layer.
        features: F after each layer; None keeps F.
        kernels: reach of W in each convolution.
        message: what a node collects: `feature-graph` is `Â x`; `shared` has one Â for all nodes
            of an item; `mean`, `identity` and `none` are what it is measured against.
        message_scale: factors in residual layers, of the input of V and of the message.
        concatenate: layers keep the uncollected features beside the collected ones.
        residual: share of the input that a transform keeps; W then begins as the identity.
        attention: learn the edge weights: `softmax` (Eq. 9) or `gate`.
        scaled_attention: see `FeatureAttention`.
        places: who neighbors whom inside an item, `(P, S, S)`; None takes the items' neighbors.
        hops: K, the hops of neighbors to use.
        edge_components: W, the length of a vector edge weight.
        directed: leave out the transposed term of Eq. (4). The features of a node and of its
            neighbors may interact both ways even where an edge has a direction.
        normalization: of the adjacency, see `feature_graph.normalize`.
        norm, activation: after each transform or convolution.
        dropout: rate after each layer.
        gain: of batch normalization, see `nn.norm.FeatureNorm`.
        teleport: share of a node's own features when all are mixed at the end (APPNP); 1 does not.
        head: `items` reads all nodes of an item, `pairs` compares two, `embedding` returns them.
        nodes: S, if the nodes of an item have fixed places and are read side by side; None takes
            their mean.
        encoder: see `nn.model.Encoder`.
        centered, sparse_gradient, pooled: see `nn.heads.Readout`; pooled needs dense features.
            Convolutions before a pooled head have zeros beyond the ends, and the last one does not
            pool, as is usual for signals.

    Example:
        >>> from evergraph.stream import node_continuum
        >>> from evergraph.datasets import generate
        >>> batch = next(iter(node_continuum(generate())))
        >>> FGN(num_features=500, num_outputs=3)(batch).shape
        torch.Size([10, 3])
    """

    trusting = False  # whether a learner has checked the items that come

    def __init__(
        self,
        num_features: int,
        num_outputs: int = 0,
        *,
        in_channels: int = 1,
        layer: Layer | None = None,
        channels: tuple[int, ...] = (10, 10),
        features: tuple[int, ...] | None = None,
        kernels: tuple[int, ...] | None = None,
        message: Message = "feature-graph",
        message_scale: tuple[float, float] = (1.0, 1.0),
        concatenate: bool = False,
        residual: float = 0.0,
        attention: Attention | None = None,
        scaled_attention: bool = False,
        places: Tensor | None = None,
        hops: int = 1,
        edge_components: int = 1,
        directed: bool = False,
        normalization: Normalization = "symmetric",
        norm: Norm = "batch",
        activation: Activation = "softsign",
        dropout: float = 0.0,
        gain: float = 1.0,
        teleport: float = 1.0,
        head: HeadName = "items",
        nodes: int | None = 1,
        encoder: nn.Module | None = None,
        centered: bool = True,
        sparse_gradient: bool = False,
        pooled: bool = False,
    ) -> None:
        super().__init__()
        inferred = "transform" if features else "convolution" if kernels else "broadcast"
        layer = layer or cast(Layer, inferred)
        check_one_of("layer", layer, LAYERS)
        check_one_of("message", message, MESSAGES)
        check_one_of("head", head, HEADS)
        if layer == "broadcast" and message != "feature-graph":
            raise ValueError(
                f"broadcast layers collect from a feature graph, got message {message!r}; use "
                "layer='transform'"
            )
        if pooled and (layer == "broadcast" or head != "items"):
            raise ValueError(
                f"pooled reads dense features of items, got layer {layer!r} and head {head!r}"
            )
        self.layer, self.message, self.hops = layer, message, hops
        self.in_shape = (in_channels, num_features)
        self.directed, self.normalization = directed, normalization
        self.edge_components, self.teleport, self.nodes = edge_components, teleport, nodes
        self.dropout, self.gain, self.head_name = dropout, gain, head
        self.places = None if places is None else Places(places)
        self.encoder: Any = encoder
        self.options = {  # what neither an attribute nor the shape of a parameter tells
            "message_scale": message_scale, "residual": residual, "attention": attention,
            "scaled_attention": scaled_attention, "norm": norm, "activation": activation,
            "centered": centered, "places": None if places is None else places.int().tolist(),
        }  # fmt: skip
        planes = hops * edge_components if places is None else len(places)
        self.planes = 0 if message == "none" else planes
        shapes = node_shapes(self.in_shape, layer, channels, features, kernels, pooled)
        values = BlockValues(
            layer, self.planes, message_scale, concatenate, residual, norm, activation, dropout,
            gain, kernels, pooled,
        )  # fmt: skip
        self.blocks = nn.ModuleList(values.block(shapes, n) for n in range(len(channels)))
        self.attentions = nn.ModuleList()
        if attention and message not in ("none", "identity"):
            several = layer in ("transform", "convolution") or message == "mean"
            for shape in shapes[: len(channels) if several else 1]:
                self.attentions.append(FeatureAttention(*shape, attention, scaled=scaled_attention))
        width = in_channels * num_features
        projects = layer == "residual" and message == "feature-graph"
        self.project = nn.Linear(width, width) if projects else None
        options = (centered, sparse_gradient, pooled)
        self.head: Any = make_head(head, shapes[-1], num_outputs, nodes, *options)

    @classmethod
    def preset(cls, name: str, num_features: int, num_outputs: int, **changes: Any) -> FGN:
        """A configuration of the paper: `citation` or `arxiv`, with changes if you like.

        Example:
            >>> model = FGN.preset("arxiv", num_features=128, num_outputs=40)
            >>> sum(p.numel() for p in model.parameters())
            21872
        """
        check_one_of("preset", name, PRESETS)
        return cls(num_features, num_outputs, **{**PRESETS[name], **changes})

    @property
    def requires(self) -> Requires:
        """(x, m) is all that is seen of an item if weights are fixed and neighbors not kept."""
        alone = self.layer == "broadcast" or len(self.blocks) == 1 or self.message == "none"
        fixed = not self.attentions and self.places is None and self.encoder is None
        nodes = 2 if self.head_name == "pairs" else (self.nodes or 0)
        return Requires(
            self.hops,
            condensable=alone and fixed and self.teleport == 1,
            shape=self.in_shape if self.encoder is None else self.encoder.in_shape,
            nodes=getattr(self.encoder, "in_nodes", nodes),
            edge_components=self.edge_components,
        )

    def forward(self, batch: Batch) -> Tensor:
        """Outputs of the items of a batch, `(B, K)`."""
        return self.run(*self._laid_out(batch))

    def _laid_out(self, batch: Batch) -> tuple[Features, Neighborhoods, int]:
        """The nodes of a batch that can be read, who neighbors whom, and how many rows an item."""
        if not self.trusting:
            self.requires.check(batch)
        x, nodes = batch.x, batch.nodes_per_item
        if self.places is not None:
            return x, self.places, 1
        if isinstance(batch.neighbors, Linked):
            return x, Table(batch.neighbors), 1
        if self.layer == "convolution" and len(self.blocks) > 1:
            raise ValueError(
                "convolutions do not map packed neighbors, which a second layer needs, got "
                f"{len(self.blocks)} layers; give places, link the items, or use layer='transform'"
            )
        if isinstance(x, Tensor) and x.dim() == 4:
            x = x.flatten(0, 1)
        return x, Packed(batch.neighbors, len(batch) * nodes, self.hops), nodes

    def run(self, x: Features, layout: Neighborhoods, nodes: int = 1) -> Tensor:
        """The same for nodes in any layout of neighbors; every `nodes` rows are one item."""
        alone = nodes == 1 and self.layer == "broadcast" and isinstance(self.head, Readout)
        if alone and isinstance(layout, Packed) and not (self.attentions or self.directed):
            settings = self.hops, self.normalization, self.head.weight.dtype
            fixed = fixed_support(x, layout.neighbors, *settings) if not self.encoder else None
            if fixed is not None:
                return fused_outputs(self.blocks, self.head, fixed)
        x, around = self._encoded(x, layout)
        graph = self.graph(x, around, layout, 0)
        if alone and isinstance(graph, SupportGraph) and graph.compiled:
            return fused_outputs(self.blocks, self.head, graph.arrays, graph.hat)
        out: Tensor = self.head(*self._body(graph, x, around, layout, nodes))
        return out

    def embed(self, batch: Batch) -> Tensor:
        """What the layers make of the feature nodes, dense: `(*, C, F)` of the last layer."""
        x, layout, nodes = self._laid_out(batch)
        x, around = self._encoded(x, layout)
        graph = self.graph(x, around, layout, 0)
        y, absent, support = self._body(graph, x, around, layout, nodes)
        return y if support is None else support.to_dense(y, absent)

    def _encoded(self, x: Features, layout: Neighborhoods) -> tuple[Features, Features]:
        """The nodes that the first layer sees, and their neighbors."""
        around: Features = layout.neighbors.features if isinstance(layout, Packed) else x
        own = self._nodes(x)
        return own, own if around is x else self._nodes(around)

    def _nodes(self, x: Features) -> Features:
        if self.encoder is not None:
            encoded: Tensor = self.encoder(x)
            return encoded
        if self.layer == "residual":
            x = as_dense(x)
        elif self.message == "feature-graph" or isinstance(x, SparseRows):
            return x
        return x.to(next(self.parameters()).dtype)

    def _body(
        self, graph: Any, x: Features, around: Any, layout: Neighborhoods, nodes: int
    ) -> tuple[Tensor, Tensor, Support | None]:
        """The feature nodes after the last layer, the value of absent ones, and their support."""
        y: Any = graph.nodes
        absent: Any = None
        support = graph.support
        if self.layer == "broadcast":
            for block in self.blocks:
                y, absent = block(y, graph, absent)
                graph = graph.across_channels()
        elif self.layer == "residual":
            y = x
            for number, block in enumerate(self.blocks):
                if number and len(self.attentions) > 1:
                    graph = self.graph(x, around, layout, number)
                y = block(y, graph)
            absent = y.new_zeros(y.shape[-2])
        else:
            if not len(self.blocks):  # a linear map of the nodes themselves
                y = as_dense(y).to(next(self.parameters()).dtype)
                absent = y.new_zeros(y.shape[-2])
            for number, block in enumerate(self.blocks):
                if number:
                    graph = self.graph(y, around, layout, number)
                last = number + 1 == len(self.blocks) and self.teleport == 1
                kept = around if isinstance(layout, Packed) and not last else None
                y, after, absent = block(graph, kept)
                around = y if after is None else after
            support = None
        if self.teleport < 1:
            y = torch.lerp(layout.mean(around, layout.weight).mean(-3), y, self.teleport)
        if nodes > 1:
            if support is not None:
                y, support = support.to_dense(y, absent), None
            y = y.unflatten(0, (-1, nodes))
        return y, absent, support

    def graph(
        self, x: Features, around: Features, layout: Neighborhoods, layer: int
    ) -> Graph | SparseGraph:
        """What the nodes of a layer collect from: Eqs. (4)-(6), or what stands in their place."""
        weight = layout.weight
        if self.attentions:
            attention = self.attentions[min(layer, len(self.attentions) - 1)]
            weight = attention(x, around, layout)
        if self.message == "feature-graph" and isinstance(layout, Packed) and not self.project:
            n = layout.neighbors
            neighbors = Neighbors(around, n.owner, n.hop, weight)
            dtype = next(self.blocks.parameters()).dtype
            settings = self.hops, self.directed, self.normalization, dtype
            form: Form = "dense" if self.layer == "convolution" else "auto"
            return build(x, neighbors, *settings, form)
        if self.project is not None:
            own = self._projected(x)
            x, around = own, own if around is x else self._projected(around)
        summed = self.message == "mean" and bool(self.attentions)  # attention adds up to one
        options = self.planes, self.normalization, summed
        return message_graph(self.message, x, around, layout, weight, *options)

    def _projected(self, x: Any) -> Tensor:
        assert self.project is not None
        out: Tensor = self.project(x.flatten(-2))
        return out.view_as(x)

    def extra_repr(self) -> str:
        """What the shapes of the parameters do not tell."""
        names = (
            "layer", "message", "in_shape", "hops", "edge_components", "directed", "normalization",
            "dropout", "gain", "teleport", "head_name", "nodes",
        )  # fmt: skip
        told = {name: getattr(self, name) for name in names} | self.options
        return ", ".join(f"{name}={value}" for name, value in told.items())

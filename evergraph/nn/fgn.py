"""The feature graph network (FGN): layers of Section 4.3 between an encoder and a head."""

from __future__ import annotations

from typing import Any, Literal, Protocol, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from evergraph.feature_graph import (
    FeatureGraph,
    Neighborhoods,
    Normalization,
    Packed,
    Places,
    SupportGraph,
    Table,
)
from evergraph.feature_graph.build import build, fixed_support
from evergraph.feature_graph.fused import Network, broadcast_network
from evergraph.feature_graph.lean import LeanGraph
from evergraph.feature_graph.support import Arrays
from evergraph.graph.neighbors import Features, Linked, Neighbors
from evergraph.graph.rows import SparseRows
from evergraph.nn.attention import Attention, FeatureAttention
from evergraph.nn.blocks import (
    ACTIVATIONS,
    NORMS,
    Activation,
    BroadcastBlock,
    Norm,
    ResidualBlock,
    TransformBlock,
    initial_identity,
)
from evergraph.nn.heads import Embedding, Head, PairReadout, Readout
from evergraph.nn.layers import FeatureBroadcast, FeatureConvolution, FeatureTransform, Graph
from evergraph.nn.messages import MESSAGES, IdentityGraph, MeanGraph, Message, SharedGraph
from evergraph.nn.model import Requires
from evergraph.stream.batch import Batch

Layer = Literal["broadcast", "transform", "convolution", "residual"]
LAYERS: tuple[str, ...] = get_args(Layer)
HeadName = Literal["items", "pairs", "embedding"]
HEADS: tuple[str, ...] = get_args(HeadName)

PRESETS: dict[str, dict[str, Any]] = {
    # Sec. 5: two broadcast layers for Cora, Citeseer and Pubmed
    "citation": {"channels": (10, 10)},
    # Sec. 5: two concatenating transform layers for ogbn-arxiv; 21,872 parameters, as published
    "arxiv": {"channels": (4, 32), "features": (16, 1), "concatenate": True, "directed": True},
}


class Encoder(Protocol):
    """From the features of an item as they come to the nodes that layers see."""

    in_shape: tuple[int, int]  # C and F of what it takes

    def __call__(self, features: Features) -> Tensor:
        """Map `(*, C, F)`, or sparse rows, to dense nodes `(*, D, G)`."""
        ...


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
        message_scale: of what residual layers collect.
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
        encoder: see `Encoder`.
        centered, sparse_gradient: see `nn.heads.Readout`.

    Example:
        >>> from evergraph.stream import node_continuum
        >>> from evergraph.datasets import generate
        >>> batch = next(iter(node_continuum(generate())))
        >>> FGN(num_features=500, num_outputs=3)(batch).shape
        torch.Size([10, 3])
    """

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
        message_scale: float = 1.0,
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
    ) -> None:
        super().__init__()
        inferred = "transform" if features else "convolution" if kernels else "broadcast"
        layer = layer or inferred  # type: ignore[assignment]
        for name, value, known in (
            ("layer", layer, LAYERS),
            ("message", message, MESSAGES),
            ("norm", norm, NORMS),
            ("activation", activation, ACTIVATIONS),
            ("head", head, HEADS),
        ):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
        for name, sizes in (("features", features), ("kernels", kernels)):
            if sizes is not None and len(sizes) != len(channels):
                raise ValueError(
                    f"{name} must name one number per layer, got {len(sizes)} for "
                    f"{len(channels)} layers"
                )
        if layer == "broadcast" and message != "feature-graph":
            raise ValueError(
                f"broadcast layers collect from a feature graph, got message {message!r}; use "
                "layer='transform'"
            )
        self.layer, self.message, self.hops = layer, message, hops
        self.in_shape = (in_channels, num_features)
        self.directed, self.normalization = directed, normalization
        self.edge_components, self.teleport, self.nodes = edge_components, teleport, nodes
        self.dropout, self.gain, self.head_name = dropout, gain, head
        self.places = None if places is None else Places(places)
        self.encoder = encoder
        learned = attention if message not in ("none", "identity") else None
        planes = hops * (1 if attention else edge_components)
        planes = len(places) if places is not None else planes
        self.planes = 0 if message == "none" else planes
        self.blocks, self.attentions = nn.ModuleList(), nn.ModuleList()
        self.project: nn.Linear | None = None
        if layer == "residual":
            if message == "feature-graph":
                self.project = nn.Linear(in_channels * num_features, in_channels * num_features)
            for _ in channels:
                self.blocks.append(
                    ResidualBlock(*self.in_shape, message != "none", message_scale)
                )
            shapes = [self.in_shape] * (len(channels) + 1)
        else:
            if kernels is not None:
                features = tuple(num_features >> (n + 1) for n in range(len(channels)))
            widths = features or (num_features,) * len(channels)
            shapes = [self.in_shape, *zip(channels, widths, strict=True)]
            if min(f for _, f in shapes) < 1:
                raise ValueError(f"{len(channels)} layers need more than {num_features} features")
            for number in range(len(channels)):
                (c, f), (d, g) = shapes[number], shapes[number + 1]
                block: nn.Module
                if layer == "broadcast":
                    # after the first layer every adjacency acts on every channel
                    acting = self.planes * (in_channels if number else 1)
                    block = BroadcastBlock(
                        FeatureBroadcast(c, d, acting, concatenate), dropout, gain
                    )
                else:
                    kernel = None if kernels is None else kernels[number]
                    w = _transform((c, f), (d, g), kernel, concatenate, self.planes, residual)
                    last = number + 1 == len(channels)
                    kind = "none" if residual and last else activation
                    block = TransformBlock(
                        w, d, norm, kind, dropout, gain, kernels is not None, residual
                    )
                self.blocks.append(block)
        if learned:
            several = layer in ("transform", "convolution") or message == "mean"
            for shape in shapes[: len(channels) if several else 1]:
                self.attentions.append(FeatureAttention(*shape, learned, scaled=scaled_attention))
        self.head: Any = _head(head, shapes[-1], num_outputs, nodes, centered, sparse_gradient)

    @classmethod
    def preset(cls, name: str, num_features: int, num_outputs: int, **changes: Any) -> FGN:
        """A configuration of the paper: `citation` or `arxiv`, with changes if you like.

        Example:
            >>> model = FGN.preset("arxiv", num_features=128, num_outputs=40)
            >>> sum(p.numel() for p in model.parameters())
            21872
        """
        if name not in PRESETS:
            raise ValueError(f"preset must be one of {', '.join(PRESETS)}, got {name!r}")
        return cls(num_features, num_outputs, **{**PRESETS[name], **changes})

    @property
    def requires(self) -> Requires:
        """(x, m) is all that is seen of an item if weights are fixed and neighbors not kept."""
        alone = self.layer == "broadcast" or len(self.blocks) == 1 or self.message == "none"
        linear = isinstance(self.encoder, Projection) or self.encoder is None
        fixed = not self.attentions and self.places is None
        nodes = 2 if self.head_name == "pairs" else (self.nodes or 0)
        return Requires(
            self.hops,
            condensable=alone and fixed and linear and self.teleport == 1,
            shape=self.in_shape if self.encoder is None else self.encoder.in_shape,
            nodes=nodes,
            edge_components=None if self.attentions else self.edge_components,
        )

    def forward(self, batch: Batch) -> Tensor:
        """Outputs of the items of a batch, `(B, K)`."""
        self.requires.check(batch)
        x = batch.x
        if self.places is not None:
            return self.run(x, self.places)
        if isinstance(batch.neighbors, Linked):
            return self.run(x, Table(batch.neighbors))
        rows = len(batch) * batch.nodes_per_item
        if isinstance(x, Tensor) and x.dim() == 4:
            x = x.flatten(0, 1)
        layout = Packed(batch.neighbors, rows, self.hops)
        return self.run(x, layout, batch.nodes_per_item)

    def run(self, x: Features, layout: Neighborhoods, nodes: int = 1) -> Tensor:
        """The same for nodes in any layout of neighbors; every `nodes` rows are one item."""
        fixed = self._fixed(x, layout)
        if fixed is not None:
            return self._fused(fixed)
        graph, y, absent = self._body(x, layout)
        if isinstance(graph, SupportGraph) and y is None:
            return self._fused(graph.arrays, graph.hat)
        support = None if self.layer == "transform" else graph.support
        assert y is not None
        if nodes > 1 and support is None:
            y = y.unflatten(0, (-1, nodes))
        out: Tensor = self.head(y, absent, support)
        return out

    def _body(self, x: Features, layout: Neighborhoods) -> tuple[Graph, Tensor | None, Tensor]:
        """The last graph, the feature nodes after the last layer and the value of absent ones."""
        packed = layout.neighbors.features if isinstance(layout, Packed) else None
        around: Features = x if packed is None else packed
        if self.encoder is not None:
            x = self.encoder(x)
            around = x if packed is None else self.encoder(packed)
        graph = self.graph(x, around, layout, 0)
        y, absent = graph.nodes, torch.zeros(self.in_shape[0])
        if self.layer == "residual":
            assert isinstance(x, Tensor)
            y = x  # which the graph has projected
            for number, block in enumerate(self.blocks):
                if number and len(self.attentions) > 1:
                    graph = self.graph(x, around, layout, number)
                y = block(y, graph)
            return graph, y, y.new_zeros(y.shape[-2])
        if self.layer == "broadcast":
            if isinstance(graph, SupportGraph) and graph.compiled and self._fusible:
                return graph, None, absent
            return graph, *self._broadcast(graph)
        for number, block in enumerate(self.blocks):
            last = number + 1 == len(self.blocks) and self.teleport == 1
            kept = None if packed is None or last else around
            y, after, absent = block(graph, kept)
            around = y if after is None else after
            if number + 1 < len(self.blocks):
                graph = self.graph(y, around, layout, number + 1)
        if self.teleport < 1:
            mixed = layout.mean(around, None)[..., 0, :, :]
            y = torch.lerp(mixed, y, self.teleport)
        return graph, y, absent

    def _broadcast(self, graph: Any) -> tuple[Tensor, Tensor]:
        y, absent = graph.nodes, None
        for block in self.blocks:
            y, absent = block(y, graph, absent)
            graph = graph.across_channels()
        return y, absent

    def embed(self, batch: Batch) -> Tensor:
        """What the layers make of the feature nodes, dense: `(*, C, F)` of the last layer."""
        self.requires.check(batch)
        assert isinstance(batch.neighbors, Neighbors)
        layout = self.places or Packed(batch.neighbors, len(batch), self.hops)
        graph, y, absent = self._body(batch.x, layout)
        if y is None:
            y, absent = self._broadcast(graph)
        if graph.support is None or self.layer == "transform":
            return y
        return graph.support.to_dense(y, absent)

    def graph(self, x: Features, around: Features, layout: Neighborhoods, layer: int) -> Graph:
        """What the nodes of a layer collect from: Eqs. (4)-(6), or what stands in their place."""
        if self.message in ("identity", "none"):
            assert isinstance(x, Tensor)
            return IdentityGraph(x, self.planes)
        weight = layout.weight
        if self.attentions:
            attention = self.attentions[min(layer, len(self.attentions) - 1)]
            weight = attention(x, around, layout)
        if self.message == "feature-graph" and isinstance(layout, Packed) and not self.project:
            n = layout.neighbors
            neighbors = Neighbors(around, n.owner, n.hop, weight)
            dtype = next(self.blocks.parameters()).dtype
            return build(x, neighbors, self.hops, self.directed, self.normalization, dtype)
        assert isinstance(x, Tensor)
        assert isinstance(around, Tensor)
        if self.project is not None:
            own = self._projected(x)
            around = own if around is x else self._projected(around)
            x = own
        summed = self.message == "mean" and bool(self.attentions)  # attention adds up to one
        mean = layout.mean(around, weight, total=summed)
        if self.message == "feature-graph":
            return LeanGraph(x, mean, self.normalization)
        return SharedGraph(x, mean) if self.message == "shared" else MeanGraph(x, mean)

    def _projected(self, x: Tensor) -> Tensor:
        assert self.project is not None
        out: Tensor = self.project(x.flatten(-2)).unflatten(-1, self.in_shape)
        return out

    # -- the compiled path ------------------------------------------------------------------

    @property
    def _fusible(self) -> bool:
        """Whether all layers and the head can run as one compiled operator on a support."""
        return self.layer == "broadcast" and isinstance(self.head, Readout)

    def _fixed(self, x: Features, layout: Neighborhoods) -> Arrays | None:
        """The support form of a batch with fixed edge weights, if that is the cheapest."""
        if not self._fusible or self.attentions or self.directed or self.encoder is not None:
            return None
        if not isinstance(layout, Packed):
            return None
        settings = self.hops, self.normalization, self.head.weight.dtype
        return fixed_support(x, layout.neighbors, *settings)

    def _fused(self, graph: Arrays, hat: Tensor | None = None) -> Tensor:
        """All layers and the head in one operator: the same numbers as one by one."""
        layers: list[Tensor] = []
        for block in self.blocks:
            assert isinstance(block, BroadcastBlock)
            norm = block.norm
            layers += [block.layer.weight, *norm.affine, norm.running_mean, norm.running_var]
        head = self.head
        network = Network(
            head.centered,
            head.sparse_gradient,
            self.dropout if self.training else 0.0,
            norm.momentum,
            norm.eps,
            (len(graph.ptr) - 1) * self.in_shape[1],
            self.training,
        )
        return broadcast_network(network, graph, hat, (head.weight, head.bias), layers)

    def extra_repr(self) -> str:
        """What the shapes of the parameters do not tell."""
        names = (
            "layer", "message", "in_shape", "hops", "edge_components", "directed", "normalization",
            "dropout", "gain", "teleport", "head_name", "nodes",
        )  # fmt: skip
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)


class Projection(nn.Module):
    """`x W` of dense features or sparse rows, as one channel: an encoder for bags of words.

    Args:
        num_features: C · F of the input.
        width: of the result, `(N, 1, width)`.
        channels: C of the input.
    """

    def __init__(self, num_features: int, width: int, channels: int = 1) -> None:
        super().__init__()
        self.in_shape = (channels, num_features // channels)
        self.weight = nn.Parameter(torch.empty(num_features, width))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, features: Features) -> Tensor:
        """Map N rows to `(N, 1, width)`."""
        if isinstance(features, SparseRows):
            values, index = features.values.to(self.weight.dtype), features.indices.long()
            start = features.indptr[:-1].long()
            out = embedding_bag(index, self.weight, start, mode="sum", per_sample_weights=values)
            return out.unsqueeze(1)
        flat = features.flatten(-2).to(self.weight.dtype)
        return (flat @ self.weight).unsqueeze(-2)


def _transform(
    before: tuple[int, int],
    after: tuple[int, int],
    kernel: int | None,
    concatenate: bool,
    planes: int,
    residual: float,
) -> FeatureTransform | FeatureConvolution:
    if kernel is not None:
        return FeatureConvolution(before[0], after[0], kernel, concatenate, planes)
    layer = FeatureTransform(*before, *after, concatenate, planes, bias=residual > 0)
    if residual:
        initial_identity(layer)
    return layer


def _head(
    name: str,
    shape: tuple[int, int],
    outputs: int,
    nodes: int | None,
    centered: bool,
    sparse_gradient: bool,
) -> Head:
    if name == "pairs":
        return PairReadout(*shape, outputs)
    if name == "embedding":
        return Embedding()
    return Readout(*shape, outputs, nodes, centered, sparse_gradient)

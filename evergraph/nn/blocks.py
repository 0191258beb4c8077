"""A layer with what stands around it in a network: normalization, activation, dropout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, leaky_relu, relu, softsign

from evergraph.checks import check_one_of
from evergraph.feature_graph import FeatureGraph
from evergraph.feature_graph.fused import Network, broadcast_network
from evergraph.feature_graph.support import Arrays
from evergraph.graph.neighbors import Features
from evergraph.graph.rows import SparseRows
from evergraph.nn.heads import Readout
from evergraph.nn.layers import FeatureBroadcast, FeatureConvolution, FeatureTransform, Graph
from evergraph.nn.messages import MeanGraph, SparseGraph
from evergraph.nn.norm import FeatureNorm
from evergraph.noise import dropout

Activation = Literal["softsign", "relu", "leaky_relu", "none"]
ACTIVATIONS: tuple[str, ...] = get_args(Activation)
Layer = Literal["broadcast", "transform", "convolution", "residual"]
LAYERS: tuple[str, ...] = get_args(Layer)
Norm = Literal["batch", "layer", "none"]
NORMS: tuple[str, ...] = get_args(Norm)


class BroadcastBlock(nn.Module):
    """`dropout(softsign(batch_norm(Â x W)))`: Eq. (7) as the paper uses it.

    A dropped node looks like an absent one, so that dropout costs nothing where nothing is.
    """

    def __init__(self, layer: FeatureBroadcast, dropout: float = 0.0, gain: float = 1.0) -> None:
        super().__init__()
        self.layer, self.dropout = layer, dropout
        self.norm = FeatureNorm(layer.weight.shape[1], gain)

    def forward(
        self, x: Tensor, graph: FeatureGraph, absent: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Map x `(*, C, F)` to `(*, D, F)`; takes and returns the value of absent nodes."""
        nodes = None if graph.support is None else graph.support.num_nodes
        collected = self.layer.collect(x, graph, absent)
        y, absent = self.norm.softsign(collected, nodes, mixing=self.layer.weight)
        if self.training and self.dropout:
            base = absent.unsqueeze(-1)
            y = base + dropout(y - base, self.dropout)
        return y, absent


class TransformBlock(nn.Module):
    """`dropout(σ(pool(norm(W Â x))))`, for nodes and, if they are packed, neighbors: Eq. (8).

    Args:
        layer: W as a matrix or as a band.
        norm: `batch` over items and features, `layer` within an item, or `none`.
        activation: σ.
        dropout: rate.
        gain: of batch normalization, see `FeatureNorm`.
        pool: keep the larger of each two neighboring features, so that F becomes F // 2.
        residual: the share of the input in the output, which is left out of σ's argument if 0.
    """

    def __init__(
        self,
        layer: FeatureTransform | FeatureConvolution,
        channels: int,
        norm: Norm = "batch",
        activation: Activation = "softsign",
        dropout: float = 0.0,
        gain: float = 1.0,
        pool: bool = False,
        residual: float = 0.0,
    ) -> None:
        super().__init__()
        self.layer, self.activation, self.dropout = layer, activation, dropout
        self.pool, self.residual, self.layer_norm = pool, residual, norm == "layer"
        self.norm = FeatureNorm(channels, gain) if norm == "batch" else None

    def forward(
        self, graph: Graph | SparseGraph, around: Features | None = None
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """The new nodes, their new packed neighbors if there are, and the absent value `(C,)`."""
        if around is None:
            own = self.layer(graph)
            before = None if isinstance(graph.nodes, SparseRows) else graph.nodes
            y, absent = self._finish(own, before)
            return y, None, absent
        assert isinstance(self.layer, FeatureTransform)
        if isinstance(graph, FeatureGraph):
            own, after = self.layer.with_neighbors(graph)
        else:
            own, after = self.layer(graph), self.layer.alone(around)
        items = own.reshape(-1, *own.shape[-2:])
        together, absent = self._finish(torch.cat([items, after]))
        return together[: len(items)].view_as(own), together[len(items) :], absent

    def _finish(self, z: Tensor, before: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if self.residual and before is not None:
            z = torch.lerp(z, before, self.residual)
        if self.norm is not None and self.activation == "softsign" and not self.pool:
            y, absent = self.norm.softsign(z)
            base = absent.unsqueeze(-1)
            y = base + dropout(y - base, self.dropout, self.training) if self.dropout else y
            return y, absent
        if self.norm is not None:
            z = self.norm.present(z)
        if self.layer_norm:
            z = layer_norm(z, z.shape[-2:])
        if self.pool:
            even = z[..., : z.shape[-1] // 2 * 2]
            z = torch.maximum(even[..., ::2], even[..., 1::2])
        y = dropout(activate(z, self.activation), self.dropout, self.training)
        return y, y.new_zeros(y.shape[-2])


class ResidualBlock(nn.Module):
    """`h' = h + update([h, V Â h])`: a small network takes in what a node collects.

    Args:
        channels, features: C and F of the nodes.
        message: whether anything is collected.
        scale: factors of the input of V and of the message.
    """

    def __init__(
        self, channels: int, features: int, message: bool, scale: tuple[float, float]
    ) -> None:
        super().__init__()
        width = channels * features
        self.scale = scale
        self.value = nn.Linear(width, width) if message else None
        self.update = nn.Sequential(
            nn.Linear(2 * width if message else width, 2 * width),
            nn.LayerNorm(2 * width),
            nn.ReLU(inplace=True),
            nn.Linear(2 * width, width),
        )

    def forward(self, h: Tensor, graph: Graph) -> Tensor:
        """Map h `(*, C, F)` to the same shape."""
        given = h.flatten(-2)
        if self.value is not None:
            if isinstance(graph, MeanGraph):  # V of the mean, where it costs least
                message = self._valued(graph.propagate(h))
            else:
                message = graph.propagate(self._valued(h))
            given = torch.cat([given, message.flatten(-2)], dim=-1)
        out: Tensor = self.update(given)
        return h + out.view_as(h)

    def _valued(self, z: Tensor) -> Tensor:
        """`after · V(before · z)`; a message is linear, so that its factor may come before it."""
        assert self.value is not None
        weight, bias, (before, after) = self.value.weight, self.value.bias, self.scale
        flat = z.reshape(-1, weight.shape[1])
        return torch.addmm(bias, flat, weight.T, beta=after, alpha=before * after).view_as(z)


def activate(z: Tensor, how: Activation) -> Tensor:
    """σ of a layer."""
    if how == "softsign":
        return softsign(z)
    if how == "relu":
        return relu(z)
    if how == "leaky_relu":
        return leaky_relu(z, 0.2)
    return z


def node_shapes(
    before: tuple[int, int],
    layer: Layer,
    channels: tuple[int, ...],
    features: tuple[int, ...] | None,
    kernels: tuple[int, ...] | None,
    pooled: bool = False,
) -> list[tuple[int, int]]:
    """C and F of the nodes before the first layer and after each."""
    for name, sizes in (("features", features), ("kernels", kernels)):
        if sizes is not None and len(sizes) != len(channels):
            raise ValueError(
                f"{name} must name one number per layer, got {len(sizes)} for "
                f"{len(channels)} layers"
            )
    if layer == "residual":
        return [before] * (len(channels) + 1)
    width = before[1]
    if kernels is not None:  # each pools two neighboring features into one, see BlockValues
        most = len(channels) - pooled
        features = tuple(width >> min(n + 1, most) for n in range(len(channels)))
    shapes = [before, *zip(channels, features or (width,) * len(channels), strict=True)]
    if min(f for _, f in shapes) < 1:
        raise ValueError(f"{len(channels)} layers need more than {width} features")
    return shapes


@dataclass(frozen=True)
class BlockValues:
    """What the blocks of a network have in common; see `FGN` for what the values mean."""

    layer: Layer
    planes: int
    message_scale: tuple[float, float]
    concatenate: bool
    residual: float
    norm: Norm
    activation: Activation
    dropout: float
    gain: float
    kernels: tuple[int, ...] | None
    pooled: bool = False  # the head pools all that is left, so that the last convolution does not

    def __post_init__(self) -> None:
        """Reject unknown names."""
        check_one_of("norm", self.norm, NORMS)
        check_one_of("activation", self.activation, ACTIVATIONS)

    def block(self, shapes: Sequence[tuple[int, int]], number: int) -> nn.Module:
        """The block of a layer, counted from 0."""
        (c, f), (d, g), dropout = shapes[number], shapes[number + 1], self.dropout
        if self.layer == "residual":
            return ResidualBlock(c, f, self.planes > 0, self.message_scale)
        if self.layer == "broadcast":  # after the first, every adjacency acts on every channel
            planes = self.planes * (shapes[0][0] if number else 1)
            return BroadcastBlock(
                FeatureBroadcast(c, d, planes, self.concatenate), dropout, self.gain
            )
        w: FeatureTransform | FeatureConvolution
        if self.kernels is not None:
            kernel, circular = self.kernels[number], not self.pooled
            w = FeatureConvolution(c, d, kernel, self.concatenate, self.planes, circular)
        else:
            bias = self.residual > 0
            w = FeatureTransform(c, f, d, g, self.concatenate, self.planes, bias)
            if bias:  # training starts from the features as they are
                with torch.no_grad():
                    w.weight.copy_(torch.eye(c * f).view_as(w.weight))
        last = number + 2 == len(shapes)
        activation = "none" if self.residual and last else self.activation
        pool = self.kernels is not None and not (self.pooled and last)
        return TransformBlock(w, d, self.norm, activation, dropout, self.gain, pool, self.residual)


def fused_outputs(
    blocks: Iterable[nn.Module], head: Readout, graph: Arrays, hat: Tensor | None = None
) -> Tensor:
    """Broadcast blocks and a readout on a support as one compiled operator.

    The same numbers as one by one; hat is the adjacency of the graph, if it wants a gradient.
    """
    layers: list[Tensor] = []
    for block in blocks:
        assert isinstance(block, BroadcastBlock)
        norm, dropout = block.norm, block.dropout
        layers += [block.layer.weight, *norm.affine, norm.running_mean, norm.running_var]
    nodes = (len(graph.ptr) - 1) * len(head.weight)
    network = Network(
        head.centered, head.sparse_gradient, dropout if norm.training else 0.0, norm.momentum,
        norm.eps, nodes, norm.training,
    )  # fmt: skip
    return broadcast_network(network, graph, hat, (head.weight, head.bias), layers)

"""Networks that tell true candidates from false ones: FGN, and MLP, GCN and GAT beside it.

An item is one candidate match with its neighbors, self-contained, so that learner, memories and
methods of this package apply as they are. All four networks share everything but the message:
`h_0 = e(x)`, `h_l = h_{l-1} + update_l([h_{l-1}, message_l])`, two logits from the last h.

| network | message_l |
|---|---|
| `mlp` | none, and no feature that neighbors had a part in |
| `gcn` | Σ w V_l e(y) / 4 |
| `gat` | Σ softmax(a_l·e(x) + b_l·e(y) + log w) V_l e(y), with LeakyReLU as in Eq. (9) |
| `fgn` | Â V_l h_{l-1} with one A = sgnroot(x mᵀ + m xᵀ), m = Σ g w y / n: Eqs. (4)-(7) |

Here w is the geometric weight of an edge. FGN's x and y are embeddings U e, and its gate g is a
sigmoid in place of Eq. (9)'s softmax: what counts is how many neighbors agree, and a softmax, like
any normalization of rows, erases exactly that.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag, leaky_relu

from evergraph.apps.matching.candidates import NAMES, NUM_FEATURES
from evergraph.apps.matching.kernels import symmetric_product
from evergraph.feature_graph import DenseGraph, Features, Neighbors, feature_graph
from evergraph.stream.batch import Batch

Kind = Literal["fgn", "gcn", "gat", "mlp"]
KINDS: tuple[str, ...] = get_args(Kind)
OWN = NAMES.index("support")  # features before this one are a candidate's own
FEW = 1e-3  # keeps the logarithm of a weight finite
TYPICAL = 4.0  # a sum of weights that is neither large nor small


class CandidateNetwork(nn.Module):
    """Scores candidates from their features and their neighbors'.

    Args:
        kind: `fgn`, `gcn`, `gat` or `mlp`.
        width: of the embedding, C · F.
        channels: C of the feature graph.
        layers: how many messages are taken in.

    Example:
        >>> neighbors = Neighbors(torch.rand(5, 1, 21), torch.tensor([0, 0, 0, 1, 1]))
        >>> CandidateNetwork("fgn")(torch.rand(2, 1, 21), neighbors).shape
        torch.Size([2, 2])
    """

    hops = 1
    condensable = False  # the gate looks at every neighbor

    def __init__(
        self, kind: Kind = "fgn", width: int = 32, channels: int = 4, layers: int = 2
    ) -> None:
        super().__init__()
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
        if width % channels:
            raise ValueError(f"width must be a multiple of channels, got {width} and {channels}")
        self.kind, self.shape = kind, (channels, width // channels)
        self.settings = {"kind": kind, "width": width, "channels": channels, "layers": layers}
        inputs = OWN if kind == "mlp" else NUM_FEATURES
        self.embed = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width))
        self.updates = nn.ModuleList(
            _update(width if kind == "mlp" else 2 * width, width) for _ in range(layers)
        )
        heads = {"fgn": 1, "gat": layers}.get(kind, 0)
        self.values = nn.ModuleList(
            nn.Linear(width, width) for _ in range(layers * (kind != "mlp"))
        )
        self.center = nn.ModuleList(nn.Linear(width, 1) for _ in range(heads))
        self.around = nn.ModuleList(nn.Linear(width, 1, bias=False) for _ in range(heads))
        if kind == "fgn":
            self.nodes = nn.Linear(width, width)
        self.readout = nn.Linear(width, 2)

    def grow(self, num_classes: int) -> None:
        """A candidate is false (0) or true (1): there will never be more."""
        if num_classes > 2:
            raise ValueError(f"candidates are false (0) or true (1), got {num_classes} classes")

    def forward(self, x: Features, neighbors: Neighbors) -> Tensor:
        """Logits `(B, 2)` of self-contained items: x `(B, 1, 21)` with packed neighbors."""
        assert isinstance(x, Tensor)
        assert isinstance(neighbors.features, Tensor)
        own = self._embed(x.squeeze(1))
        if self.kind == "mlp":
            return self._run(own, own, None, None)
        y = self._embed(neighbors.features.squeeze(1))
        index, weight = _padded(neighbors, len(own))
        return self._run(own, torch.cat([y, torch.zeros_like(y[:1])]), index, weight)

    def on_graph(self, features: Tensor, index: Tensor, weight: Tensor) -> Tensor:
        """The same of a whole graph `(E, 21)`: each neighbor is embedded once, not once a use."""
        own = self._embed(features)
        if self.kind == "mlp":
            return self._run(own, own, None, None)
        return self._run(own, own, index, weight)

    def _embed(self, features: Tensor) -> Tensor:
        out: Tensor = self.embed(features[:, :OWN] if self.kind == "mlp" else features)
        return out

    def _run(
        self, own: Tensor, table: Tensor, index: Tensor | None, weight: Tensor | None
    ) -> Tensor:
        """Own embeddings `(B, width)`, and those that index `(B, K)` finds neighbors in."""
        graph = None
        if self.kind == "fgn" and index is not None and weight is not None:
            graph = self._graph(own, table, index, weight)
        h = own
        for layer, update in enumerate(self.updates):
            if index is None or weight is None:
                h = h + update(h)
                continue
            if graph is not None:
                message = self._propagate(graph, self.values[layer](h))
            else:
                message = self._collect(layer, own, table, index, weight)
            h = h + update(torch.cat([h, message], -1))
        out: Tensor = self.readout(h)
        return out

    def _graph(
        self, own: Tensor, table: Tensor, index: Tensor, weight: Tensor
    ) -> DenseGraph | tuple[Tensor, Tensor]:
        """The feature graph of every candidate from the gated mean m of its neighbors.

        Without gradients the pair (x, m) is kept in its place: it says the same.
        """
        gate = torch.sigmoid(self._attend(0, own, table, index))
        nodes = self.nodes(table)
        share = gate * weight / index.shape[1]
        mean = embedding_bag(index, nodes, per_sample_weights=share, mode="sum")
        x = nodes if own is table else self.nodes(own)
        if not torch.is_grad_enabled():
            return x, mean
        one = Neighbors(mean.view(-1, *self.shape), torch.arange(len(own)))
        graph = feature_graph(x.view(-1, *self.shape), one, normalization="none", form="dense")
        assert isinstance(graph, DenseGraph)
        return graph

    def _propagate(self, graph: DenseGraph | tuple[Tensor, Tensor], z: Tensor) -> Tensor:
        if isinstance(graph, DenseGraph):
            out = graph.propagate(z.view(-1, *self.shape)).flatten(1)
        else:
            parts = (part.contiguous().view(-1, self.shape[1]).numpy() for part in (*graph, z))
            out = torch.from_numpy(symmetric_product(*parts)).view_as(z)
        return out / math.sqrt(self.shape[1])

    def _collect(
        self, layer: int, own: Tensor, table: Tensor, index: Tensor, weight: Tensor
    ) -> Tensor:
        """What GCN and GAT take from the neighbors."""
        if self.kind == "gcn":
            share = weight / TYPICAL
        else:
            score = self._attend(layer, own, table, index)
            share = (score + torch.log(weight + FEW)).softmax(1)
        value = self.values[layer](table)
        out: Tensor = embedding_bag(index, value, per_sample_weights=share, mode="sum")
        return out

    def _attend(self, head: int, own: Tensor, table: Tensor, index: Tensor) -> Tensor:
        """LeakyReLU(a · x + b · y) of Eq. (9) for all neighbors, `(B, K)`."""
        around = self.around[head](table).squeeze(-1)
        out: Tensor = leaky_relu(self.center[head](own) + around[index], 0.2)
        return out


def _update(inputs: int, width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, 2 * width),
        nn.LayerNorm(2 * width),
        nn.ReLU(),
        nn.Linear(2 * width, width),
    )


def _padded(neighbors: Neighbors, items: int) -> tuple[Tensor, Tensor]:
    """Packed neighbors as a table `(B, K)` of their rows, with weight 0 where there are fewer."""
    owner, count = neighbors.owner, len(neighbors)
    counts = torch.bincount(owner, minlength=items)
    slot = torch.arange(count) - (counts.cumsum(0) - counts)[owner]
    wide = max(int(counts.max()) if items else 0, 1)
    index = torch.full((items, wide), count)  # the row after the last, which is zero
    index[owner, slot] = torch.arange(count)
    given = torch.ones(count) if neighbors.weight is None else neighbors.weight
    weight = given.new_zeros(items, wide).index_put((owner, slot), given)
    return index, weight


def probability(logits: Tensor) -> Tensor:
    """The probability that a candidate is true."""
    return torch.sigmoid(logits[:, 1] - logits[:, 0])


def as_batch(features: Tensor, index: Tensor, weight: Tensor, target: Tensor) -> Batch:
    """Candidates with a label of 0 or 1 as self-contained items; the others are left out."""
    rows = torch.nonzero(target >= 0).squeeze(1)
    neighbors = Neighbors(
        features[index[rows].flatten()].unsqueeze(1),
        torch.arange(len(rows)).repeat_interleave(index.shape[1]),
        weight=weight[rows].flatten(),
    )
    nothing = torch.full((len(rows),), -1)
    return Batch(features[rows].unsqueeze(1), neighbors, target[rows], nothing, nothing)

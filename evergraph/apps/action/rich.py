"""Rich features of windows and their feature graphs, which a closed form reads.

Nothing here is learned by gradients: the features of a window are known as it comes, so that
linear discriminant analysis on them, `evergraph.learn.methods.Analytic`, learns windows in any
order with the same result, and forgets them again exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from zlib import crc32

import torch
from torch import Tensor, nn

from evergraph.apps.action import features
from evergraph.apps.action.network import Augmentation, Standardize, signals, triples
from evergraph.apps.action.recording import Layout
from evergraph.apps.action.windows import INSTANTS
from evergraph.nn.fgn import FGN
from evergraph.noise import draw_from

LIMIT = 8.0  # deviations to which features are clipped
CHUNK = 1000  # windows at a time
BLOCKS = ("moments", "spectrum", "correlations", "graph", "gravity", "mean")
CLOSED = ("rich", "rich-graph")
"""Closed forms by name; the first leaves out the feature graph."""


@dataclass(frozen=True)
class Settings:
    """How a closed form on rich features is solved; `search` finds it on what is left out.

    Attributes:
        moments: how much this block of features counts: shrinkage asks less of a larger weight;
            blocks of weight 0 are left out. The same for the other `BLOCKS`.
        strength: λ, the shrinkage of the covariance.
        between: how much differences between people count in it, see `Analytic`.
        persons: whether each person's way of doing an activity has a mean of its own: for people
            who are known. Then `between` is not read.
        turn: each window is learned a second time with each sensor turned by angles of this
            deviation in radians; 0: it is not.
    """

    moments: float = 1.0
    spectrum: float = 1.0
    correlations: float = 1.0
    graph: float = 1.0
    gravity: float = 1.0
    mean: float = 1.0
    strength: float = 0.6
    between: float = 1.0
    persons: bool = False
    turn: float = 0.0

    @property
    def weights(self) -> dict[str, float]:
        """Of the blocks that are read."""
        return {name: getattr(self, name) for name in BLOCKS if getattr(self, name)}

    def of(self, model: str) -> Settings:
        """The same without the feature graph, if the model is `rich`."""
        return replace(self, graph=0.0) if model == CLOSED[0] else self


class RichFeatures(nn.Module):
    """Fixed features of windows as items `(B, 1, D + 1)` of a closed form; an encoder of `FGN`.

    Signals are divided by the deviation of their sensor's quantity, features get mean 0 and
    deviation 1, both of the windows that `update` was given. The last feature is a constant, and
    so large that bringing items to unit length leaves the others as they are.

    Args:
        layout: sensors and channels.
        features: F, the samples of an instant.
        settings: weights of blocks; those of weight 0 are left out.

    Attributes:
        sizes: how many features each block has, in their order.
    """

    fixed = True  # nothing is learned by gradients, so that a closed form may stand on it
    center: Tensor
    spread: Tensor
    weight: Tensor

    def __init__(
        self,
        layout: Layout,
        features: int,
        settings: Settings = Settings(),  # noqa: B008
    ) -> None:
        super().__init__()
        self.axes = triples(layout.channels)
        self.blocks = tuple(settings.weights)
        self.scale = Standardize(*layout.shape, features)
        self.in_shape, self.in_nodes = self.scale.in_shape, self.scale.in_nodes
        example = torch.zeros(1, INSTANTS * layout.shape[0], layout.shape[1], features)
        self.sizes = {name: part.shape[1] for name, part in self._parts(example).items()}
        parts = [torch.full((self.sizes[name],), by) for name, by in settings.weights.items()]
        self.register_buffer("weight", torch.cat(parts))
        self.register_buffer("center", torch.zeros(len(self.weight)))
        self.register_buffer("spread", torch.ones(len(self.weight)))

    @property
    def mean(self) -> Tensor:
        """The mean of each signal, `(S, C)`, which stands in for one that is missing."""
        return self.scale.mean

    @property
    def deviation(self) -> Tensor:
        """The deviation of each signal, `(S, C)`."""
        return self.scale.deviation

    def update(self, x: Tensor) -> None:
        """Set the scale from windows `(B, 2 S, C, F)`, all at once."""
        if self.scale.count:
            raise ValueError(
                "the scale of rich features is set once, by the first recordings, because the "
                "closed form keeps sums of scaled features; train again for another scale"
            )
        self.scale.update(x)
        spread, self.center = torch.std_mean(self._raw(x), 0, correction=0)
        self.spread = spread.masked_fill(spread < 1e-6, 1.0)

    def _parts(self, x: Tensor) -> dict[str, Tensor]:
        """The features of each block, `(B, D)`."""
        sensors, channels = self.scale.mean.shape
        deviation = self.scale.deviation.clone()
        for three in self.axes:  # one for a vector, whose direction stays
            deviation[:, list(three)] = deviation[:, list(three)].mean(1, keepdim=True)
        y = signals(x).unflatten(1, (sensors, channels)) / deviation.unsqueeze(-1)
        every = features.with_magnitudes(y, self.axes)
        makers: dict[str, Callable[[], Tensor]] = {
            "moments": lambda: features.moments(every),
            "spectrum": lambda: features.spectrum(every),
            "correlations": lambda: features.correlations(every),
            "graph": lambda: features.graph(y),
            "gravity": lambda: features.gravity(y, self.axes),
            "mean": lambda: features.mean(y, self.axes),
        }
        return {name: makers[name]().flatten(1) for name in self.blocks}

    def _raw(self, x: Tensor) -> Tensor:
        parts = [torch.cat(list(self._parts(part).values()), 1) for part in x.split(CHUNK)]
        return torch.cat(parts)

    @torch.no_grad()
    def scaled(self, x: Tensor) -> Tensor:
        """Features of windows `(B, 2 S, C, F)` before they are weighted, `(B, D)`."""
        return ((self._raw(x) - self.center) / self.spread).clamp(-LIMIT, LIMIT)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Map windows `(B, 2 S, C, F)` to items `(B, 1, D + 1)`."""
        return as_items(self.scaled(x) * self.weight)


def as_items(rows: Tensor) -> Tensor:
    """Features `(B, D)` as items `(B, 1, D + 1)`, whose last number keeps the size of the others.

    A closed form brings items to unit length; next to a large constant this changes little.
    """
    constant = rows.new_full((len(rows), 1), 10 * math.sqrt(rows.shape[1]))
    return torch.cat([rows, constant], 1).unsqueeze(1)


def turned(x: Tensor, layout: Layout, angle: float) -> Tensor:
    """Windows `(B, 2 S, C, F)` as if each sensor had been turned on the body a little.

    The angles, of deviation `angle`, are drawn from the numbers of the window, so that the same
    window gives the same copy whenever it comes, and can be forgotten with it.

    Example:
        >>> layout = Layout(("arm",), ("acc_x", "acc_y", "acc_z"), 25.0)
        >>> x = torch.rand(3, 2, 3, 10)
        >>> torch.equal(turned(x, layout, 0.2)[1:], turned(x[1:], layout, 0.2))
        True
    """
    change = Augmentation(triples(layout.channels), angle, gain=0.0, loss=0.0)
    found = []
    for one in x:
        source = torch.Generator().manual_seed(crc32(one.contiguous().numpy().tobytes()))
        with draw_from(source):
            found.append(change(one.unsqueeze(0)))
    return torch.cat(found) if found else x


def rich_network(layout: Layout, features: int, settings: Settings = Settings()) -> FGN:  # noqa: B008
    """What a learner of `Analytic` reads its items from: rich features and no layers.

    Example:
        >>> layout = Layout(("arm", "leg"), ("acc_x", "acc_y", "acc_z"), 25.0)
        >>> rich_network(layout, 25).encoder(torch.rand(3, 4, 3, 25)).shape
        torch.Size([3, 1, 316])
    """
    encoder = RichFeatures(layout, features, settings)
    width = len(encoder.weight) + 1
    return FGN(width, layer="transform", channels=(), message="none", encoder=encoder)

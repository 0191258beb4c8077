"""Batch normalization of feature nodes that counts the nodes that are not there."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, softsign

from evergraph.feature_graph import ops


class FeatureNorm(nn.Module):
    """Batch normalization of feature nodes, per channel, over items and features.

    Nodes that are not present are zeros that nobody stored: they count in the mean and in the
    variance, and all get the same normalized value, which is returned beside the rest.

    Args:
        channels: C.
        gain: times scale and shift. Where few nodes are present, those are far from the mean, and
            softsign can hardly tell them apart; a small gain keeps them in its straight part.
        momentum: weight of the new batch in the running statistics.
        eps: added to the variance.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self, channels: int, gain: float = 1.0, momentum: float = 0.1, eps: float = 1e-5
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.gain = gain
        self.momentum = momentum
        self.eps = eps

    @property
    def affine(self) -> tuple[Tensor, Tensor]:
        """Scale and shift of the normalized nodes, `(C,)` each."""
        if self.gain == 1:
            return self.weight, self.bias
        return self.gain * self.weight, self.gain * self.bias

    def forward(self, z: Tensor, num_nodes: int | None = None) -> tuple[Tensor, Tensor]:
        """Normalize z `(*, C, F)` among `num_nodes` nodes; also returns absent, `(C,)`."""
        mean, var = self.running_mean, self.running_var
        if self.training:
            stored = _stored(z)
            count = stored if num_nodes is None else num_nodes
            axes = [axis for axis in range(z.dim()) if axis != z.dim() - 2]
            mean = z.sum(axes) / max(count, 1)
            square = (z - mean.unsqueeze(-1)).square().sum(axes)
            var = (square + (count - stored) * mean.square()) / max(count, 1)
            with torch.no_grad():
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(var * (count / max(count - 1, 1)), self.momentum)
        weight, bias = self.affine
        scale = weight * torch.rsqrt(var + self.eps)
        shift = bias - mean * scale
        return torch.addcmul(shift.unsqueeze(-1), z, scale.unsqueeze(-1)), shift

    def softsign(
        self, z: Tensor, num_nodes: int | None = None, mixing: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Softsign of the normalized z and of absent, compiled where that is possible.

        With `mixing (C, D)`, the channels of z are mapped before.
        """
        if z.numel() and ops.supports(z) and z.dtype == self.weight.dtype:
            count = _stored(z) if num_nodes is None else num_nodes
            running = self.running_mean, self.running_var
            statistics = ops.Statistics(*running, self.momentum, self.eps, count, self.training)
            return ops.norm_softsign(z, mixing, *self.affine, statistics)
        y, absent = self(z if mixing is None else mixing.T @ z, num_nodes)
        return softsign(y), softsign(absent)

    def present(self, z: Tensor) -> Tensor:
        """The same where every node is there, by torch's own operator: `(*, C, F)`."""
        parameters = (self.running_mean, self.running_var, *self.affine)
        items = z.reshape(-1, *z.shape[-2:])
        return batch_norm(items, *parameters, self.training, self.momentum, self.eps).view_as(z)


def _stored(z: Tensor) -> int:
    """How many nodes a channel of z `(*, C, F)` has."""
    return z.numel() // max(z.shape[-2], 1)

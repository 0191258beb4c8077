"""An outlier gate: values absurdly far from all that came before are clipped or refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from evergraph.checks import check_one_of
from evergraph.feature_graph.compiled.embedding import count_sizes
from evergraph.learn.checkpoint import whole
from evergraph.learn.transaction import State

Outliers = Literal["clip", "refuse", "pass"]

LOW, HIGH = -24, 40  # powers of two that are told apart; beyond them counts as at them
BINS = HIGH - LOW + 1
MARGIN = 3  # powers of two above the usual range that are still no outlier
FEWEST = 16  # values of a column that are needed to know its range
SAMPLE = 2048  # values of a batch that are counted, about: every n-th row
RARE = 0.2  # a larger share of a batch is a change of the data, not an outlier


class Gate:
    """Counts the sizes of values by column and power of two, and knows what is usual.

    The usual range of a column reaches to the power of two below which 99 % of its values lie
    (zeros apart), never counting its largest value. A value more than eight times beyond it is an
    outlier, if no more than a fifth of the column's values in the batch are: when many grow at
    once, the data have changed, and they pass. Of large batches every n-th row is counted. Ranges
    are worked out anew whenever the number of values has doubled, and when a value lies outside.

    Args:
        rule: `clip` outliers to the largest value that is none, `refuse` the batch, or let all
            values `pass`.

    Attributes:
        clipped: how many values were clipped so far.

    Example:
        >>> gate = Gate()
        >>> usual, = gate(torch.ones(50, 1))
        >>> gate(torch.tensor([[1000.0]])), gate.clipped
        ((tensor([[16.]]),), 1)
    """

    def __init__(self, rule: Outliers = "clip") -> None:
        check_one_of("outliers", rule, get_args(Outliers))
        self.rule, self.clipped = rule, 0
        self.counts = torch.zeros(0, BINS, dtype=torch.int64)  # values of each size, by column
        self.limit = torch.zeros(0, dtype=torch.float64)  # by column
        self.due = 0  # the number of values at which limits are worked out again

    def __repr__(self) -> str:
        return f"Gate({self.rule!r})"

    def __call__(
        self, values: Tensor, *around: Tensor, size: float | None = None
    ) -> tuple[Tensor, ...]:
        """Values `(N, columns)` as they may be learned; those around them are not counted.

        `size` is that of the largest of all values, if it is known.
        """
        parts = (values, *around)
        if self.rule == "pass":
            return parts
        before = self.counts
        every = max(values.numel() // SAMPLE, 1)
        self.counts = _counted(before, values, every)
        total = int(self.counts.sum())
        if total < self.due:
            usual = size is not None and size <= self.limit.min().item()
            if usual or all(_inside(part, self.limit) for part in parts):
                return parts
        self.limit, self.due = _limits(self.counts), 2 * total
        outliers = [_outliers(part, self.limit) for part in parts]
        found = sum(int(mask.sum()) for mask in outliers)
        if not found:
            return parts
        if self.rule == "refuse":
            raise ValueError(_refusal(parts, outliers, self.limit))
        self.clipped += found
        passed = tuple(
            torch.where(mask, part.sign() * self.limit.to(part.dtype), part)
            for part, mask in zip(parts, outliers, strict=True)
        )
        self.counts = _counted(before, passed[0], every)  # so that outliers hardly widen the range
        return passed

    def state(self) -> State:
        """All that is needed to resume: tensors, and what JSON can hold."""
        values = {name: getattr(self, name) for name in ("clipped", "due")}
        return {"counts": self.counts, "limit": self.limit}, values

    def load_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Resume from a state."""
        counts, limit = tensors["counts"], tensors["limit"]
        right = counts.dtype == torch.int64 and counts.shape == (len(limit), BINS)
        if not right or bool((counts < 0).any()):
            raise ValueError(f"an outlier gate keeps counts of {BINS} sizes by column")
        if limit.dtype != torch.float64 or not bool((limit > 0).all()):
            raise ValueError("an outlier gate keeps a positive limit for every column")
        self.counts, self.limit = counts, limit
        for name in ("clipped", "due"):
            setattr(self, name, whole(values[name]))


def _counted(counts: Tensor, values: Tensor, every: int) -> Tensor:
    """Counts with those of every n-th row of more values."""
    usual = values.dtype in (torch.float32, torch.float64)
    given = (values if usual else values.float()).detach().cpu().contiguous()
    kind, shift, bias = (np.uint32, 23, 126) if given.itemsize == 4 else (np.uint64, 52, 1022)
    found = counts.numpy().copy() if len(counts) else np.zeros((given.shape[1], BINS), np.int64)
    count_sizes(given.numpy().view(kind), every, shift, bias, LOW, found)
    return torch.from_numpy(found)


def _limits(counts: Tensor) -> Tensor:
    """The largest value of each column that is no outlier, `(columns,)`."""
    total = counts.sum(1, keepdim=True)
    usual = torch.minimum((0.99 * total).ceil().long(), total - 1)
    top = (counts.cumsum(1) < usual).sum(1) + LOW
    limit = torch.ldexp(torch.ones_like(top, dtype=torch.float64), top + MARGIN)
    return torch.where(total[:, 0] < FEWEST, torch.inf, limit)


def _inside(values: Tensor, limit: Tensor) -> bool:
    """Whether no value lies beyond the limit of its column."""
    if largest(values) <= limit.min().item():
        return True
    low, high = torch.aminmax(values, dim=0)
    return bool((torch.maximum(high, -low) <= limit).all())


def largest(values: Tensor) -> float:
    """The size of the largest value, 0 if there is none."""
    if not values.numel():
        return 0.0
    low, high = torch.aminmax(values)
    return max(-low.item(), high.item())


def _outliers(values: Tensor, limit: Tensor) -> Tensor:
    beyond = values.abs() > limit
    if not bool(beyond.any()):
        return beyond
    most = ((values != 0).sum(0) * RARE).clamp(min=1)
    return beyond & (beyond.sum(0) <= most)


def _refusal(parts: tuple[Tensor, ...], outliers: list[Tensor], limit: Tensor) -> str:
    values, mask = next((p, m) for p, m in zip(parts, outliers, strict=True) if m.any())
    row, column = mask.nonzero()[0].tolist()
    return (
        f"feature {column} must be at most {limit[column].item():g} in size, by what came before, "
        f"got {values[row, column].item():g}; correct it, or let outliers be clipped or passed"
    )

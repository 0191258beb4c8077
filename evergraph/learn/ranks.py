"""The processes that learn one model together, in step: what they send to each other."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """This process among all that learn together; alone by default.

    Several talk over the default group of `torch.distributed`, which torchrun or Ray starts; see
    `evergraph.cluster.launch`. All must make the same calls in the same order.

    Attributes:
        rank: the number of this process.
        size: how many there are.

    Example:
        >>> Ranks().gather("mine"), Ranks().is_first
        (['mine'], True)
    """

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes the files."""
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """The values of all, by rank."""
        found: list[Any] = [value]
        if self.size > 1:
            found *= self.size
            dist.all_gather_object(found, value)
        return found

    def add(self, tensor: Tensor) -> Tensor:
        """The sum over all, in place; the same bits everywhere."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def together(self, action: Callable[[], T], what: str) -> list[T]:
        """Do something on all; if it fails on one of them, it fails everywhere.

        Args:
            action: what to do.
            what: its name for the message where it did not fail.

        Returns:
            What it gave, by rank.
        """
        failed, result = None, None
        try:
            result = action()
        except Exception as error:
            failed = error
        told = None if failed is None else f"{type(failed).__name__}: {failed}"
        results: list[Any] = []
        for rank, (text, found) in enumerate(self.gather((told, result))):
            if failed is not None:
                raise failed
            if text is not None:
                raise ValueError(f"{what} must succeed on all ranks, but rank {rank} has {text}")
            results.append(found)
        return results

    def now(self) -> float:
        """Seconds on the clock of the first, so that all decide alike what is due."""
        found: float = self.gather(time.monotonic())[0]
        return found


ALONE = Ranks()

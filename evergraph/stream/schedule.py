"""Which items come when: the orders of a stream, as batches of item numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from evergraph.checks import check_positive

Scenario = Literal["regular", "data", "class", "time"]
SCENARIOS: tuple[str, ...] = get_args(Scenario)


@dataclass(frozen=True)
class Schedule:
    """Batches of item numbers, in the order in which they come.

    Attributes:
        batches: `(B,)` int64 each.
        tasks: the task of each batch; tasks never go back.
        names: what each task is called.
        epochs: how often an item comes.

    Example:
        >>> groups = {"cats": torch.arange(3), "dogs": torch.arange(3, 5)}
        >>> schedule = Schedule.from_groups(groups, batch_size=2)
        >>> [batch.tolist() for batch in schedule.batches]
        [[0, 1], [2], [3, 4]]
        >>> schedule.ends_task(1), schedule.members(1)
        (True, tensor([3, 4]))
    """

    batches: tuple[Tensor, ...]
    tasks: tuple[int, ...]
    names: tuple[str, ...]
    epochs: int = 1

    @classmethod
    def from_groups(
        cls, groups: Mapping[str, Tensor], batch_size: int, epochs: int = 1
    ) -> Schedule:
        """One task per group, cut into batches; the last batch of a task may be smaller.

        Example:
            >>> Schedule.from_groups({"a": torch.arange(5), "b": torch.arange(2)}, 3).tasks
            (0, 0, 1)
        """
        check_positive(batch_size=batch_size)
        full = {name: index for name, index in groups.items() if len(index)}
        cut = [(t, b) for t, index in enumerate(full.values()) for b in index.split(batch_size)]
        return cls(tuple(b for _, b in cut), tuple(t for t, _ in cut), tuple(full), epochs)

    def __len__(self) -> int:
        return len(self.batches)

    def ends_task(self, position: int) -> bool:
        """Whether the batch at this position is the last of its task."""
        last = position + 1 == len(self)
        return last or self.tasks[position + 1] != self.tasks[position]

    def members(self, task: int) -> Tensor:
        """The items of a task."""
        return torch.cat([b for b, t in zip(self.batches, self.tasks, strict=True) if t == task])


def shuffled(index: Tensor, rng: np.random.Generator, epochs: int = 1) -> Tensor:
    """The items in random order, `epochs` times over, each time in another order."""
    first = index[torch.from_numpy(rng.permutation(len(index)))]
    return torch.cat([first, *(shuffled(first, rng) for _ in range(epochs - 1))])


def by_class(
    index: Tensor,
    labels: Tensor,
    rng: np.random.Generator,
    order: Sequence[int] | None = None,
    classes_per_task: int = 1,
    epochs: int = 1,
) -> dict[str, Tensor]:
    """The items of one class, or of a few, after those of the other; see `OrderConfig`."""
    index = shuffled(index, rng)
    mine = labels[index]
    present = mine.unique().tolist()
    if order is not None and sorted(order) != present:
        raise ValueError(
            f"class_order must name each class of the training items once, {present}, "
            f"got {list(order)}"
        )
    chosen = list(present if order is None else order)
    groups = {}
    for start in range(0, len(chosen), classes_per_task):
        some = chosen[start : start + classes_per_task]
        members = index[torch.isin(mine, torch.tensor(some))]
        again = [members] + [shuffled(members, rng) for _ in range(epochs - 1)]
        groups[",".join(map(str, some))] = torch.cat(again)
    return groups


def in_parts(index: Tensor, parts: int) -> dict[str, Tensor]:
    """The items as they are, cut into tasks of equal size."""
    return {str(i): part for i, part in enumerate(index.tensor_split(parts))}


def blurred(
    groups: Mapping[str, Tensor], share: float, rng: np.random.Generator
) -> dict[str, Tensor]:
    """Groups of which a share of the items is dealt evenly to all groups ("blurry" streams)."""
    kept, moved = {}, []
    for name, index in groups.items():
        index = shuffled(index, rng)
        cut = int(len(index) * (1 - share))
        kept[name] = index[:cut]
        moved.append(index[cut:])
    dealt = shuffled(torch.cat(moved), rng).tensor_split(len(kept))
    return {
        name: shuffled(torch.cat([index, more]), rng)
        for (name, index), more in zip(kept.items(), dealt, strict=True)
    }


def blurred_at_boundaries(
    groups: Mapping[str, Tensor], width: int, rng: np.random.Generator
) -> Tensor:
    """Groups one after the other, mixed with the next over the last and first `width` items.

    At most a third of a group is mixed at each of its ends, so that its middle stays pure.

    Example:
        >>> groups = {"a": torch.arange(9), "b": torch.arange(9, 18)}
        >>> order = blurred_at_boundaries(groups, 2, np.random.default_rng(0))
        >>> order[:7].tolist(), sorted(order[7:11].tolist()), order[11:].tolist()
        ([0, 1, 2, 3, 4, 5, 6], [7, 8, 9, 10], [11, 12, 13, 14, 15, 16, 17])
    """
    order, start = torch.cat(list(groups.values())), 0
    sizes = list(map(len, groups.values()))
    for size, following in pairwise(sizes):
        start += size
        mixed = slice(start - min(width, size // 3), start + min(width, following // 3))
        order[mixed] = shuffled(order[mixed], rng)
    return order


def gaussian(
    groups: Mapping[str, Tensor], batch_size: int, sigma: float, rng: np.random.Generator
) -> Tensor:
    """Groups that rise and fall: each is likeliest around its own place in the stream.

    The place of a group is the middle of where it would be if groups followed each other. An item
    of batch b comes from group g with a chance in proportion to `exp(-(b - place)² / 2 σ²)`, while
    the group has items left; each item comes once.

    Args:
        groups: items by name.
        batch_size: of the stream, the unit of σ.
        sigma: σ in batches; the larger, the more groups overlap.
        rng: of the draws.
    """
    check_positive(batch_size=batch_size)
    if not sigma > 0:
        raise ValueError(f"sigma must be positive, got {sigma}")
    waiting = [shuffled(index, rng).tolist() for index in groups.values()]
    sizes = np.array([len(index) for index in waiting])
    places = (np.cumsum(sizes) - sizes / 2) / batch_size
    order: list[int] = []
    for position in range(int(sizes.sum())):
        distance = -((position // batch_size - places) ** 2) / (2 * sigma**2)
        distance[[not index for index in waiting]] = -np.inf
        weight = np.exp(distance - distance.max())
        order.append(waiting[rng.choice(len(waiting), p=weight / weight.sum())].pop())
    return torch.tensor(order, dtype=torch.int64)

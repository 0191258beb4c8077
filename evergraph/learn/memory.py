"""What is kept of the past: a bounded sample of the items that have passed, Eq. (10).

All memories count in items, in bytes, or both, and never exceed either. What they keep is
decided by the rule alone; the items themselves are self-contained.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from evergraph.graph.neighbors import check_items
from evergraph.learn.transaction import Restore, State, shallow
from evergraph.stream.batch import Batch, concatenate


@dataclass
class Slots:
    """Items in a list with a key for each, and the limits that they must keep.

    Attributes:
        capacity: items at the most, or None.
        capacity_bytes: bytes at the most, or None.
        items: batches of one.
        keys: one per item: a random key, or an age.
        nbytes: of all items.
    """

    capacity: int | None
    capacity_bytes: int | None
    items: list[Batch] = field(default_factory=list)
    keys: list[float] = field(default_factory=list)
    nbytes: int = 0

    def __post_init__(self) -> None:
        """Reject limits that keep nothing."""
        if self.capacity is None and self.capacity_bytes is None:
            raise ValueError("a memory needs a capacity in items or in bytes, got neither")
        for name in ("capacity", "capacity_bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")

    @property
    def full(self) -> bool:
        """Whether a limit is exceeded."""
        too_many = self.capacity is not None and len(self.items) > self.capacity
        return too_many or (self.capacity_bytes is not None and self.nbytes > self.capacity_bytes)

    def put(self, item: Batch, key: float) -> None:
        """Add an item, over the limits if need be; it must fit alone."""
        item = item.compact()
        self.check(item)
        self.items.append(item)
        self.keys.append(key)
        self.nbytes += item.nbytes

    def check(self, item: Batch) -> None:
        """Refuse an item that does not fit alone."""
        if self.capacity_bytes is not None and item.nbytes > self.capacity_bytes:
            raise ValueError(
                f"capacity_bytes must hold at least one item, got {self.capacity_bytes} for an "
                f"item of {item.nbytes} bytes"
            )

    def drop(self, position: int) -> float:
        """Take an item out and return its key."""
        self.nbytes -= self.items.pop(position).nbytes
        return self.keys.pop(position)

    def keep(self, positions: list[int]) -> None:
        """Keep these items, in their order."""
        self.items = [self.items[i] for i in positions]
        self.keys = [self.keys[i] for i in positions]
        self.nbytes = sum(item.nbytes for item in self.items)

    def tensors(self) -> dict[str, Tensor]:
        """The items as one batch, and their keys."""
        keys = {"keys": torch.tensor(self.keys, dtype=torch.float64)}
        return keys | (concatenate(self.items).tensors() if self.items else {})

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """The opposite of `tensors`."""
        keys, items = tensors["keys"].tolist(), []
        if keys:
            batch = Batch.from_tensors(tensors)
            check_items(batch.x, batch.neighbors, hops=2**31)
            items = [item.compact() for item in batch]
        if len(items) != len(keys) or not all(map(math.isfinite, keys)):
            raise ValueError(f"{len(items)} items need as many finite keys, got {len(keys)}")
        fresh = replace(self, items=items, keys=keys, nbytes=sum(i.nbytes for i in items))
        if fresh.full:
            raise ValueError(f"a memory of {self.capacity} items got {len(items)}")
        self.items, self.keys, self.nbytes = fresh.items, fresh.keys, fresh.nbytes


class Rule(Protocol):
    """Which items stay. What it remembers are its attributes, which must fit into JSON."""

    name: ClassVar[str]  # of the memory that has this rule
    labels_only: ClassVar[bool]  # whether items must have labels

    def add(self, slots: Slots, batch: Batch, rng: np.random.Generator) -> None:
        """Store what should be kept, and evict what is too much."""
        ...


class Memory:
    """A bounded sample of the stream.

    Make one with `Reservoir`, `ClassBalanced`, `AgeQuota` or `UniformEviction`, or with a rule of
    your own.

    Args:
        rule: which items stay.
        capacity: items at the most.
        capacity_bytes: bytes at the most.
        seed: of the random numbers that the rule gets.
    """

    def __init__(
        self,
        rule: Rule,
        capacity: int | None = None,
        capacity_bytes: int | None = None,
        seed: int = 0,
    ) -> None:
        self._rule = rule
        self._slots = Slots(capacity, capacity_bytes)
        self._rng = np.random.default_rng(seed)

    def __repr__(self) -> str:
        slots = self._slots
        return (
            f"{self._rule.name}(capacity={slots.capacity}, capacity_bytes={slots.capacity_bytes})"
        )

    def __len__(self) -> int:
        return len(self._slots.items)

    @property
    def items(self) -> list[Batch]:
        """What is kept, as batches of one."""
        return self._slots.items

    @property
    def nbytes(self) -> int:
        """How many bytes the kept items take."""
        return self._slots.nbytes

    def check(self, batch: Batch) -> None:
        """Refuse items that have no labels, or are too large for any slot."""
        if self._rule.labels_only and (batch.target.dim() > 1 or batch.target.is_floating_point()):
            raise ValueError(
                f"{self._rule.name} keeps classes in balance and needs labels, got targets of "
                f"{batch.target.dtype} with shape {tuple(batch.target.shape)}; use Reservoir"
            )
        limit = self._slots.capacity_bytes
        if limit is not None and batch.nbytes > limit:
            for item in batch:
                self._slots.check(item.compact())

    def add(self, batch: Batch) -> None:
        """Offer new items; some of the old ones may go. Items without a label (-1) do not enter."""
        known = batch.target >= 0
        if batch.target.dim() == 1 and not batch.target.is_floating_point() and not known.all():
            batch = batch.select(known.nonzero().squeeze(1))
        self._rule.add(self._slots, batch, self._rng)

    def savepoint(self) -> Restore:
        """A function that puts everything back as it is now."""
        rng = self._rng.bit_generator.state
        restore = shallow(self._slots), shallow(self._rule)

        def back() -> None:
            for part in restore:
                part()
            self._rng.bit_generator.state = rng

        return back

    def state(self) -> State:
        """All that is needed to resume: tensors, and what JSON can hold."""
        rng = dict(self._rng.bit_generator.state)
        return self._slots.tensors(), {"rng": rng, "rule": vars(self._rule)}

    def load_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Resume from a state."""
        rule = values["rule"]
        if {k: type(v) for k, v in rule.items()} != {
            k: type(v) for k, v in vars(self._rule).items()
        }:
            raise ValueError(f"{self._rule.name} does not remember {rule}")
        self._slots.load_tensors(tensors)
        self._rng.bit_generator.state = values["rng"]
        vars(self._rule).update(rule)


class _Smallest:
    """Keep the items with the smallest random keys."""

    name: ClassVar[str] = "Reservoir"
    labels_only: ClassVar[bool] = False

    def __init__(self) -> None:
        self.threshold = math.inf  # the smallest key that was ever evicted

    def add(self, slots: Slots, batch: Batch, rng: np.random.Generator) -> None:
        for position, key in enumerate(rng.random(len(batch)).tolist()):
            if key < self.threshold:
                slots.put(batch.select(torch.tensor([position])), key)
                while slots.full:
                    largest = max(range(len(slots.keys)), key=slots.keys.__getitem__)
                    self.threshold = slots.drop(largest)


def Reservoir(  # noqa: N802 - reads as the kind of memory it makes
    capacity: int | None = None, capacity_bytes: int | None = None, seed: int = 0
) -> Memory:
    """A memory that keeps every item of the stream with the same chance, Eq. (10).

    Each item draws a random key when it comes, and the memory holds the items with the smallest
    keys: with a capacity of M items, each of the t items so far is kept with probability M / t,
    which is what the paper's proposition asks for. Counted in bytes, it holds the longest run of
    smallest keys that fits, so that the order of the stream does not matter there either.

    Args:
        capacity: items at the most.
        capacity_bytes: bytes at the most.
        seed: of the keys.
    """
    return Memory(_Smallest(), capacity, capacity_bytes, seed)


class _SmallestOfEach:
    """Keep the items with the smallest random keys, as many of each class."""

    name: ClassVar[str] = "ClassBalanced"
    labels_only: ClassVar[bool] = True

    def __init__(self) -> None:
        self.thresholds: dict[str, float] = {}  # by label, as JSON wants it

    def add(self, slots: Slots, batch: Batch, rng: np.random.Generator) -> None:
        labels = batch.target.tolist()
        for position, key in enumerate(rng.random(len(batch)).tolist()):
            if key < self.thresholds.get(str(labels[position]), math.inf):
                slots.put(batch.select(torch.tensor([position])), key)
                while slots.full:
                    self._evict(slots)

    def _evict(self, slots: Slots) -> None:
        members: dict[int, list[int]] = {}
        for position, item in enumerate(slots.items):
            members.setdefault(int(item.target[0]), []).append(position)
        label = max(members, key=lambda k: (len(members[k]), k))
        largest = max(members[label], key=slots.keys.__getitem__)
        self.thresholds[str(label)] = slots.drop(largest)


def ClassBalanced(  # noqa: N802
    capacity: int | None = None, capacity_bytes: int | None = None, seed: int = 0
) -> Memory:
    """A reservoir for every class, with equal shares of the memory.

    When it is full, the class with the most items gives up the one with the largest key; a class
    with fewer items than its share leaves the rest to the others.

    Args:
        capacity: items at the most.
        capacity_bytes: bytes at the most.
        seed: of the keys.
    """
    return Memory(_SmallestOfEach(), capacity, capacity_bytes, seed)


class _EqualAges:
    """Keep as many items of each span of age."""

    name: ClassVar[str] = "AgeQuota"
    labels_only: ClassVar[bool] = False

    def __init__(self) -> None:
        self.seen = 0

    def add(self, slots: Slots, batch: Batch, rng: np.random.Generator) -> None:
        for item in batch:
            slots.put(item, float(self.seen))  # the key is the time of arrival
            self.seen += 1
        while slots.full:
            allowed = len(slots.items) - 1
            if slots.capacity is not None:
                allowed = min(allowed, slots.capacity)
            slots.keep(self._choose(np.array(slots.keys), allowed, rng))

    def _choose(
        self, arrived: np.ndarray[Any, Any], allowed: int, rng: np.random.Generator
    ) -> list[int]:
        ages = self.seen - 1 - arrived
        spans = len(ages) - allowed
        span = np.minimum((ages * spans / self.seen).astype(int), spans - 1)
        kept: list[int] = []
        for index in reversed(range(spans)):  # the oldest span has the highest key
            members = np.flatnonzero(span == index)
            quota = (allowed - len(kept)) // (index + 1)
            if len(members) > quota:
                members = rng.choice(members, quota, replace=False)
            kept += members.tolist()
        return sorted(kept)


def AgeQuota(  # noqa: N802
    capacity: int | None = None, capacity_bytes: int | None = None, seed: int = 0
) -> Memory:
    """What the official code does: equal shares for equal spans of age.

    When e items are too many, the past is cut into e spans of equal length; from the oldest to
    the newest, each keeps at most an equal share of what is left to keep. With batches of one
    there is a single span, and this becomes uniform eviction.

    Args:
        capacity: items at the most.
        capacity_bytes: bytes at the most.
        seed: of the draws.
    """
    return Memory(_EqualAges(), capacity, capacity_bytes, seed)


class _Random:
    """Store new items, evict random ones."""

    name: ClassVar[str] = "UniformEviction"
    labels_only: ClassVar[bool] = False

    def add(self, slots: Slots, batch: Batch, rng: np.random.Generator) -> None:
        for item in batch:
            slots.put(item, 0.0)
        while slots.full:
            slots.drop(int(rng.integers(len(slots.items))))


def UniformEviction(  # noqa: N802
    capacity: int | None = None, capacity_bytes: int | None = None, seed: int = 0
) -> Memory:
    """Store new items and evict random ones: forgets the early stream, as the paper points out.

    Args:
        capacity: items at the most.
        capacity_bytes: bytes at the most.
        seed: of the draws.
    """
    return Memory(_Random(), capacity, capacity_bytes, seed)


MEMORIES = {
    "reservoir": Reservoir,
    "class-balanced": ClassBalanced,
    "age-quota": AgeQuota,
    "uniform": UniformEviction,
}
"""Every memory by its name."""

"""What is kept of the past: a bounded sample of the items that have passed, Eq. (10).

All memories count in items, in bytes, or both, and never exceed either. What they keep is
decided by the rule alone; the items themselves are self-contained.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
from torch import Tensor

from evergraph.learn.slots import Items, Slots
from evergraph.learn.transaction import Restore, State, shallow
from evergraph.stream.batch import Batch


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

    Example:
        >>> from evergraph import Reservoir, node_continuum
        >>> from evergraph.datasets import Growth, generate
        >>> data = generate(Growth(nodes=60, classes=3, features=20))
        >>> memory = Reservoir(capacity=5)
        >>> for batch in node_continuum(data):
        ...     memory.add(batch)
        >>> memory, len(memory), memory.target.shape
        (Reservoir(capacity=5, capacity_bytes=None), 5, torch.Size([5]))
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
        return len(self._slots)

    @property
    def items(self) -> Items:
        """What is kept, as batches of one that are made when they are asked for."""
        return self._slots.items

    def batch(self, positions: Sequence[int] | np.ndarray[Any, Any]) -> Batch:
        """The items at these positions in one batch, in this order."""
        return self._slots.batch(positions)

    @property
    def target(self) -> Tensor:
        """The targets of all items, `(M,)` or `(M, D)`."""
        return self._slots.column("target")

    @property
    def node(self) -> Tensor:
        """The identifiers of all items, `(M,)`."""
        return self._slots.column("node")

    @property
    def nbytes(self) -> int:
        """How many bytes the kept items take in the process; see `slots.costs`."""
        return self._slots.nbytes

    def check(self, batch: Batch) -> None:
        """Refuse items that have no labels, or are too large for any slot."""
        if self._rule.labels_only and (batch.target.dim() > 1 or batch.target.is_floating_point()):
            raise ValueError(
                f"{self._rule.name} keeps classes in balance and needs labels, got targets of "
                f"{batch.target.dtype} with shape {tuple(batch.target.shape)}; use Reservoir"
            )
        self._slots.check(batch)

    def add(self, batch: Batch) -> None:
        """Offer new items; some of the old ones may go. Items without a label (-1) do not enter."""
        known = batch.target >= 0
        if batch.target.dim() == 1 and not batch.target.is_floating_point() and not known.all():
            batch = batch.select(known.nonzero().squeeze(1))
        if len(batch):
            self._rule.add(self._slots, batch, self._rng)
            self._slots.settle()

    def rank(self, batch: Batch, keys: np.ndarray[Any, Any], balanced: bool = False) -> None:
        """Offer items with keys of the caller's, in place of the rule: the smallest stay.

        With `balanced`, the class with the most items gives one up.
        """
        self._slots.insert(batch, keys, lambda _: math.inf, lambda *_: None, balanced)
        self._slots.settle()

    @property
    def keys(self) -> np.ndarray[Any, Any]:
        """The keys of all items, `(M,)`."""
        return self._slots.keys

    def swap(self, item: Batch, key: float, leaves: Callable[[], int]) -> None:
        """Store an item with a key of the caller's, as the last; `leaves` says what goes for it."""
        self._slots.put(item, key)
        while self._slots.full:
            self._slots.drop(leaves())
        self._slots.settle()

    def savepoint(self) -> Restore:
        """A function that puts everything back as it is now."""
        rng = self._rng.bit_generator.state
        restore = self._slots.savepoint(), shallow(self._rule)

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
        vars(self._rule).update(copy.deepcopy(rule))


class Smallest:
    """Keep the items with the smallest random keys."""

    name: ClassVar[str] = "Reservoir"
    labels_only: ClassVar[bool] = False

    def __init__(self) -> None:
        self.threshold = math.inf  # the smallest key that was ever evicted

    def add(self, slots: Slots, batch: Batch, rng: np.random.Generator) -> None:
        """See `Rule`."""

        def evicted(_: int, key: float) -> None:
            self.threshold = key

        slots.insert(batch, rng.random(len(batch)), lambda _: self.threshold, evicted)


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

    Example:
        >>> from evergraph import node_continuum
        >>> from evergraph.datasets import Growth, generate
        >>> data = generate(Growth(nodes=60, classes=3, features=20))
        >>> memory = Reservoir(capacity_bytes=10_000)
        >>> for batch in node_continuum(data):
        ...     memory.add(batch)
        >>> memory.nbytes <= 10_000
        True
    """
    return Memory(Smallest(), capacity, capacity_bytes, seed)


class _SmallestOfEach:
    """Keep the items with the smallest random keys, as many of each class."""

    name: ClassVar[str] = "ClassBalanced"
    labels_only: ClassVar[bool] = True

    def __init__(self) -> None:
        self.thresholds: dict[str, float] = {}  # by label, as JSON wants it

    def add(self, slots: Slots, batch: Batch, rng: np.random.Generator) -> None:
        def limit(label: int) -> float:
            return self.thresholds.get(str(label), math.inf)

        def evicted(label: int, key: float) -> None:
            self.thresholds[str(label)] = key

        slots.insert(batch, rng.random(len(batch)), limit, evicted, balanced=True)


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

    Example:
        >>> from evergraph import node_continuum
        >>> from evergraph.datasets import Growth, generate
        >>> data = generate(Growth(nodes=60, classes=3, features=20))
        >>> memory = ClassBalanced(capacity=6)
        >>> for batch in node_continuum(data):
        ...     memory.add(batch)
        >>> memory.target.bincount()
        tensor([2, 2, 2])
    """
    return Memory(_SmallestOfEach(), capacity, capacity_bytes, seed)


class _EqualAges:
    """Keep as many items of each span of age."""

    name: ClassVar[str] = "AgeQuota"
    labels_only: ClassVar[bool] = False

    def __init__(self) -> None:
        self.seen = 0

    def add(self, slots: Slots, batch: Batch, rng: np.random.Generator) -> None:
        arrival = self.seen + np.arange(len(batch))
        slots.extend(batch, arrival)  # the key is the time of arrival
        self.seen += len(batch)
        while slots.full:
            allowed = len(slots) - 1
            if slots.capacity is not None:
                allowed = min(allowed, slots.capacity)
            slots.keep(self._choose(slots.keys, allowed, rng))

    def _choose(
        self, arrived: np.ndarray[Any, Any], allowed: int, rng: np.random.Generator
    ) -> list[int]:
        ages = self.seen - 1 - arrived
        spans = len(ages) - allowed
        span = np.minimum((ages * spans / self.seen).astype(int), spans - 1)
        ends = np.searchsorted(-span, -np.arange(spans), side="right")  # the oldest come first
        kept: list[int] = []
        for index in reversed(range(spans)):
            first = 0 if index == spans - 1 else int(ends[index + 1])
            members = np.arange(first, ends[index])
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

    Example:
        >>> from evergraph import node_continuum
        >>> from evergraph.datasets import Growth, generate
        >>> data = generate(Growth(nodes=60, classes=3, features=20))
        >>> memory = AgeQuota(capacity=6)
        >>> for batch in node_continuum(data, scenario="data"):
        ...     memory.add(batch)
        >>> len(memory)
        6
    """
    return Memory(_EqualAges(), capacity, capacity_bytes, seed)


class _Random:
    """Store new items, evict random ones."""

    name: ClassVar[str] = "UniformEviction"
    labels_only: ClassVar[bool] = False

    def add(self, slots: Slots, batch: Batch, rng: np.random.Generator) -> None:
        slots.extend(batch, np.zeros(len(batch)))
        while slots.full:
            slots.drop(int(rng.integers(len(slots))))


def UniformEviction(  # noqa: N802
    capacity: int | None = None, capacity_bytes: int | None = None, seed: int = 0
) -> Memory:
    """Store new items and evict random ones: forgets the early stream, as the paper points out.

    Args:
        capacity: items at the most.
        capacity_bytes: bytes at the most.
        seed: of the draws.

    Example:
        >>> from evergraph import node_continuum
        >>> from evergraph.datasets import Growth, generate
        >>> data = generate(Growth(nodes=60, classes=3, features=20))
        >>> memory = UniformEviction(capacity=6)
        >>> for batch in node_continuum(data, scenario="data"):
        ...     memory.add(batch)
        >>> len(memory)
        6
    """
    return Memory(_Random(), capacity, capacity_bytes, seed)

"""A batch and a reservoir of which every rank has a part, and knows who has the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.graph.neighbors import Neighbors
from evergraph.learn.memory import Memory, Smallest
from evergraph.learn.ranks import ALONE, Ranks
from evergraph.learn.slots import Slots
from evergraph.learn.transaction import Restore, State
from evergraph.stream.batch import Batch, concatenate

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Part(Batch):
    """What one rank has of a batch.

    Attributes:
        owner: `(B,)`, which rank has each item of the whole batch. The own items of a rank are in
            their order in it.
    """

    owner: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @classmethod
    def of(cls, own: Batch, owner: Ints) -> Part:
        """The own items of a rank, and who has which of all."""
        return cls(own.x, own.neighbors, own.target, own.task, own.node, owner)

    def share(self) -> float:
        """The own items among all."""
        return len(self) / max(len(self.owner), 1)


def targets_only(target: Tensor) -> Batch:
    """Items of which nothing is known but the targets."""
    size = len(target)
    nobody, none = torch.zeros(0, 1, 1), torch.full((size,), -1)
    around = Neighbors(nobody, torch.zeros(0, dtype=torch.int64))
    return Batch(torch.zeros(size, 1, 1), around, target, none, none)


EMPTY = targets_only(torch.zeros(0, dtype=torch.int64))
"""No items, for a rank that has none of a batch."""


class SharedReservoir(Memory):
    """A `Reservoir` of which every rank keeps the items that came to it.

    All ranks draw the keys of all items, so that each knows which are kept and where they are: 16
    bytes an item. Together they hold what a `Reservoir` of the whole stream with this seed holds,
    whatever their number. `len` and positions are those of the whole; `items`, `target`, `node`
    and `nbytes` are of the own items. `state` sends all items to all ranks.

    Args:
        capacity: items at the most, of all ranks together.
        seed: of the keys.
        ranks: who shares it.
    """

    def __init__(self, capacity: int, seed: int = 0, ranks: Ranks = ALONE) -> None:
        super().__init__(Smallest(), capacity, seed=seed)
        self.capacity, self.ranks = capacity, ranks
        self._rule: Smallest
        self._keys = np.zeros(0)
        self._owner = np.zeros(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def _own(self) -> NDArray[np.bool_]:
        """Which of all items are here."""
        mine: NDArray[np.bool_] = self._owner == self.ranks.rank
        return mine

    def batch(self, positions: Sequence[int] | np.ndarray[Any, Any]) -> Part:
        """Those of the items at these positions that are here."""
        positions = np.asarray(positions, dtype=np.int64)
        own, owner = self._own, self._owner[positions]
        mine = (np.cumsum(own) - 1)[positions[own[positions]]]
        return Part.of(self._slots.batch(mine) if len(mine) else EMPTY, owner)

    def add(self, batch: Batch) -> None:
        """Offer the new items of all ranks, of which a part is here."""
        part = batch if isinstance(batch, Part) else Part.of(batch, np.zeros(len(batch), np.int64))
        before = len(self)
        keys = np.concatenate([self._keys, self._rng.random(len(part.owner))])
        owner = np.concatenate([self._owner, part.owner])
        kept = np.ones(len(keys), dtype=np.bool_)
        if len(keys) > self.capacity:
            order = np.argpartition(keys, self.capacity)
            kept[order[self.capacity :]] = False
            self._rule.threshold = min(self._rule.threshold, float(keys[~kept].min()))
        old = kept[:before][self._own]
        new = np.flatnonzero(kept[before:][part.owner == self.ranks.rank])
        if not old.all():
            self._slots.keep(np.flatnonzero(old).tolist())
        if len(new):
            entering = keys[before:][part.owner == self.ranks.rank][new]
            self._slots.extend(part.select(torch.from_numpy(new)), entering)
        self._keys, self._owner = keys[kept], owner[kept]
        self._slots.settle()

    def savepoint(self) -> Restore:
        """A function that puts everything back as it is now."""
        restore, known = super().savepoint(), (self._keys, self._owner)

        def back() -> None:
            restore()
            self._keys, self._owner = known

        return back

    def state(self) -> State:
        """That of a `Reservoir` with the items of all ranks; all have to ask for it."""
        own, values = super().state()
        if self.ranks.size == 1:
            return own, values
        parts = [Batch.from_tensors(p) for p in self.ranks.gather(own) if len(p["keys"])]
        whole = Slots(self.capacity, None)
        if parts:
            order = np.argsort(np.argsort(self._owner, kind="stable"), kind="stable")
            whole.extend(concatenate(parts).select(torch.from_numpy(order)), self._keys)
        return whole.tensors(), values

    def load_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Resume from the state of a `Reservoir`; its items are dealt to the ranks in turn."""
        super().load_state(tensors, values)
        self._keys = self._slots.keys
        self._owner = np.arange(len(self._keys)) % self.ranks.size
        self._slots.keep(np.flatnonzero(self._own).tolist())
        self._slots.settle()

"""A learner in several processes, each of which learns its part of every batch, in step.

The loss is the mean over the items of the whole batch, so that the sum of the ranks' gradients is
that of one learner with the same batch, up to rounding. Batch normalization sees the own items of a
rank only; its running statistics are averaged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.graph.ids import check_ids
from evergraph.learn.checkpoint import read_checkpoint
from evergraph.learn.gate import Outliers
from evergraph.learn.learner import Learner, Method
from evergraph.learn.ranks import Ranks
from evergraph.learn.shared import EMPTY, Ints, Part, SharedReservoir, targets_only
from evergraph.learn.state import configuration, contents
from evergraph.learn.tasks import Task
from evergraph.learn.training import Training
from evergraph.nn.model import Model
from evergraph.noise import draw_from
from evergraph.stream.batch import Batch
from evergraph.stream.continuum import Continuum
from evergraph.stream.source import Source

Layout = tuple[tuple[int, ...] | None, bool | None]
"""The shape of an item, and whether rows are sparse; see `Intake.layout`."""


class ParallelLearner(Learner):
    """A `Learner` on one of several ranks.

    All ranks make one with the same arguments and call the same methods in the same order. A
    checkpoint is that of a `Learner` with a `Reservoir`: any number of ranks resumes it.

    Args:
        model: a network; all ranks begin with that of the first.
        method: one that `spreads`, such as `Replay`.
        memory: a `SharedReservoir`, if the method needs one.
        training: how gradients are used.
        seed: of everything that is drawn.
        task: what is asked of an item.
        outliers: `pass` unless alone: no rank sees all values.
        ranks: who learns together.

    Attributes:
        joint_loss: the mean loss of the whole batch at the last step.
    """

    def __init__(
        self,
        model: Model,
        method: Method,
        memory: SharedReservoir | None = None,
        training: Training = Training(),  # noqa: B008
        seed: int = 0,
        task: Task | None = None,
        outliers: Outliers = "pass",
        ranks: Ranks = Ranks(),  # noqa: B008
    ) -> None:
        if not method.spreads:
            raise ValueError(
                f"ranks learn with a method that spreads, got {type(method).__name__}; use Replay "
                "or Finetune, or a closed form on evergraph.Cluster"
            )
        if memory is not None and not isinstance(memory, SharedReservoir):
            raise ValueError(f"ranks share a SharedReservoir, got {memory!r}")
        if ranks.size > 1 and outliers != "pass":
            raise ValueError(
                f"outliers must be 'pass' on several ranks, none of which sees all values, got "
                f"{outliers!r}; check the data before"
            )
        super().__init__(model, method, memory, training, seed, task, outliers)
        self.ranks = ranks
        told = ranks.gather((configuration(self), seed))
        if told.count(told[0]) < ranks.size:
            raise ValueError(f"all ranks must be made with the same arguments, got {told}")
        self.model.load_state_dict(ranks.gather(self.model.state_dict())[0])
        self.joint_loss = math.nan
        self._share, self._met = 1.0, EMPTY
        self._layout: Layout = (None, None)

    def follow(self, stream: Iterable[Batch]) -> None:
        """Learn a stream of this rank's own; it ends when those of all ranks have ended."""
        items = iter(stream)
        while True:
            mine: list[Batch] = []
            self.ranks.together(lambda: mine.extend(islice(items, 1)), "a stream")  # noqa: B023
            if not any(self.ranks.gather(mine != [])):
                return
            self.observe(mine[0] if mine else EMPTY)

    # -- learning ---------------------------------------------------------------------------

    def _checked(self, batch: Batch) -> Part:
        """The own part of a batch; batches that are no parts follow each other by rank."""
        checked = [batch]

        def check() -> tuple[int, list[int], Layout]:
            if not len(batch):
                return 0, [], (self.intake.width, self.intake.sparse)
            checked[0] = Learner._checked(self, batch)
            labels = self.task.groups(batch.target)
            if min(labels) < 0:
                raise ValueError("ranks learn items that have a label, got -1; leave others out")
            return len(batch), labels, self.intake.layout(checked[0])

        sizes, labels, layouts = zip(
            *self.ranks.together(check, "the check of a batch"), strict=True
        )
        known = {layout for layout in layouts if layout[0] is not None}
        if len(known) != 1:
            raise ValueError(f"a batch must hold items, all of one shape, got {known or 'none'}")
        self._layout = known.pop()
        self._met = targets_only(torch.tensor(sorted(set().union(*labels)), dtype=torch.int64))
        if isinstance(batch, Part):
            return Part.of(checked[0], batch.owner)
        return Part.of(checked[0], np.repeat(np.arange(self.ranks.size), sizes))

    def _learn(self, batch: Batch) -> None:
        self.task.meet(self.model.head, self._met)
        self.intake.width, self.intake.sparse = self._layout
        super()._learn(batch)

    @contextmanager
    def _training(self) -> Iterator[None]:
        """Every rank draws dropout of its own; what ranks draw together stays in step."""
        own = self.generator
        if self.ranks.size > 1:
            number = int(torch.randint(2**62, (), generator=self.generator))
            own = torch.Generator().manual_seed(number + self.ranks.rank)
        with super()._training(), draw_from(own):
            yield

    def loss(self, batch: Batch) -> Tensor:
        """What the own items add to the mean loss of the whole batch."""
        assert isinstance(batch, Part)
        self._share = batch.share()
        if not len(batch):
            return torch.zeros((), requires_grad=True)
        return self._share * super().loss(batch)

    def descend(self, loss: Tensor, adjust: Callable[[], None] | None = None) -> None:
        """One step of the optimizer along the sum of the gradients of all ranks."""
        total = self.ranks.add(loss.detach().double().reshape(1)).item()
        if not math.isfinite(total):
            raise FloatingPointError(self._diverged(f"the loss is {total}"))
        self.joint_loss = total
        super().descend(loss, self._add_up if adjust is None else adjust)

    @torch.no_grad()
    def _add_up(self) -> None:
        """Add up gradients, and average what batch normalization keeps by the items of a rank."""
        parameters = list(self.model.parameters())
        buffers = [b for b in self.model.buffers() if b.is_floating_point()]
        found = [p.grad for p in parameters]
        there = torch.tensor([float(gradient is not None) for gradient in found])
        parts = [
            torch.zeros_like(p) if g is None else g.to_dense() if g.is_sparse else g
            for p, g in zip(parameters, found, strict=True)
        ]
        parts += [self._share * buffer for buffer in buffers]
        flat = self.ranks.add(torch.cat([there, *(part.flatten() for part in parts)]))
        pieces = iter(flat[len(there) :].split([part.numel() for part in parts]))
        for parameter, count in zip(parameters, flat[: len(there)].tolist(), strict=True):
            piece = next(pieces).view_as(parameter).to(parameter.dtype)
            parameter.grad = piece if count else None
        for buffer in buffers:
            buffer.copy_(next(pieces).view_as(buffer))

    # -- checkpoints ------------------------------------------------------------------------

    def save(self, path: Path | str, extra: Mapping[str, Any] | None = None) -> None:
        """Write one checkpoint of all ranks; the first one writes it, and all have to ask."""

        def act() -> None:
            if self.ranks.is_first:
                Learner.save(self, path, extra)
            else:
                contents(self)

        self.ranks.together(act, "saving")

    def _read(self, path: Path | str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        found: list[tuple[dict[str, Tensor], dict[str, Any]]] = []
        self.ranks.together(lambda: found.append(read_checkpoint(path)), "reading a checkpoint")
        return found[0]


@dataclass(frozen=True)
class PartSource:
    """The items of a source that belong to one rank: a hash of their number says so.

    Attributes:
        source: of all items.
        ranks: who learns together.
    """

    source: Source
    ranks: Ranks

    def __len__(self) -> int:
        return len(self.source)

    def batch(self, index: Tensor, task: int = -1, position: int | None = None) -> Batch:
        """Of items to learn, the own part; test items as they are."""
        if task < 0:
            return self.source.batch(index, task, position)
        owner = owners(index, self.ranks.size)
        mine = index[torch.from_numpy(owner == self.ranks.rank)]
        own = self.source.batch(mine, task, position) if len(mine) else EMPTY
        return Part.of(own, owner)


def owners(index: Tensor, size: int) -> Ints:
    """The ranks that items of these numbers belong to.

    Example:
        >>> owners(torch.arange(6), 3).tolist()
        [2, 0, 1, 1, 2, 0]
    """
    if not len(index):
        return np.zeros(0, dtype=np.int64)
    found: Ints = (check_ids(index.tolist())[1] % np.uint64(size)).astype(np.int64)
    return found


def part_of(stream: Continuum, ranks: Ranks) -> Continuum:
    """The own part of every batch of a stream, and of its test items."""
    if ranks.size == 1:
        return stream

    def own(index: Tensor) -> Tensor:
        return index[torch.from_numpy(owners(index, ranks.size) == ranks.rank)]

    groups = [own(group) for group in stream.test_groups]
    source = PartSource(stream.source, ranks)
    return replace(stream, source=source, test_index=own(stream.test_index), test_groups=groups)

"""A learner sees every batch once, keeps a bounded memory, and can be stopped at any moment."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from evergraph.stream.batch import Batch, concatenate
from evergraph.learn.checkpoint import CheckpointError, read_checkpoint, write_checkpoint
from evergraph.learn.memory import Memory, State
from evergraph.learn.training import Training, exchange, follow


class Model(Protocol):
    """What a learner asks of a network: logits of a batch, and room for more classes."""

    hops: int

    @property
    def condensable(self) -> bool:
        """Whether (x, m) may be stored in place of the neighbors."""
        ...

    def __call__(self, x: Any, neighbors: Any) -> Tensor:
        """Logits, `(B, K)`."""
        ...

    def grow(self, num_classes: int) -> None:
        """Make room for more classes."""
        ...


class Method(Protocol):
    """How forgetting is fought: what is done with a new batch."""

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Learn from a new batch."""
        ...

    def state(self) -> State:
        """All that is needed to go on later."""
        ...

    def load_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Go on from a state."""
        ...


class Learner:
    """Learns a stream batch by batch, and predicts at any time.

    Classes need not be known in advance: the output layer grows when a new label comes.

    Args:
        model: a network; see `Model`.
        method: how forgetting is fought; see `evergraph.learn.methods`.
        memory: what is kept of the past, for methods that use it.
        training: how gradients are used.
        seed: of the replay order and of dropout.
        loss: of logits and targets; cross-entropy by default.

    Example:
        >>> from evergraph.stream.continuum import Continuum
        >>> from evergraph.datasets import generate
        >>> from evergraph.learn.memory import Reservoir
        >>> from evergraph.learn.methods import Replay
        >>> from evergraph.nn.fgn import FGN
        >>> stream = Continuum(generate())
        >>> learner = Learner(FGN(500, 0), Replay(), Reservoir(capacity=100))
        >>> for batch in list(stream)[:3]:
        ...     learner.observe(batch)
        >>> learner.classes, learner.predict(batch).shape
        ([0], torch.Size([10]))
    """

    def __init__(
        self,
        model: Model,
        method: Method,
        memory: Memory | None = None,
        training: Training = Training(),  # noqa: B008
        seed: int = 0,
        loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch module, got {type(model).__name__}")
        self.model: Any = model
        self.method, self.memory, self.training = method, memory, training
        self.classes: list[int] = []
        self.position = 0
        self.rng = np.random.default_rng(seed)
        self.noise = torch.Generator().manual_seed(seed).get_state()
        self.optimizer = training.optimizer_of(model)
        self.averaged: dict[str, Tensor] = {}
        self._loss = loss
        self._width: tuple[int, ...] | None = None

    # -- learning ---------------------------------------------------------------------------

    def observe(self, batch: Batch) -> None:
        """Learn from a new batch; nothing changes if it is refused."""
        self._check(batch)
        if self.model.condensable:
            batch = batch.condensed(self.model.hops)
        if self.memory is not None:
            self.memory.check(batch)
        check = getattr(self.method, "check", None)
        if check is not None:
            check(self, batch)
        self._width = batch.width
        self._meet(batch.target)
        self.model.train()
        with self._own_noise():
            self.method.observe(self, batch)
        if self.training.averaging and not self.training.average_steps:
            follow(self.averaged, self.model, self.training.averaging)
        self.position += 1

    def learn_one(self, item: Batch) -> None:
        """The same for a single item."""
        if len(item) != 1:
            raise ValueError(f"learn_one takes one item, got {len(item)}; use observe")
        self.observe(item)

    def loss(self, batch: Batch) -> Tensor:
        """The loss of the current model on a batch."""
        return self.loss_of(self.logits(batch), batch)

    def loss_of(self, logits: Tensor, batch: Batch) -> Tensor:
        """The loss of given logits on a batch."""
        return self._loss(logits, self.columns(batch.target))

    def require_memory(self) -> Memory:
        """The memory, for methods that cannot do without."""
        if self.memory is None:
            raise ValueError(f"{type(self.method).__name__} needs a memory, got None")
        return self.memory

    def descend(self, loss: Tensor, adjust: Callable[[], None] | None = None) -> None:
        """One step of the optimizer; `adjust` may change the gradients before it."""
        if not math.isfinite(loss.item()):
            raise FloatingPointError(
                f"the loss is {loss.item()} at batch {self.position}: training diverged; begin "
                f"again with a lower lr than {self.training.lr}, or load a checkpoint from before"
            )
        self.optimizer.zero_grad()
        loss.backward()
        if adjust is not None:
            adjust()
        self.optimizer.step()
        if self.training.averaging and self.training.average_steps:
            follow(self.averaged, self.model, self.training.averaging)

    def replay(self) -> Iterator[Batch]:
        """Minibatches of memory in random order, as many as the settings say."""
        items, size = self.require_memory().items, self.training.replay_batch_size
        order = self.rng.permutation(len(items)).tolist()
        limit = self.training.replay_batches
        count = -(-len(order) // size) if limit is None else limit
        for i in range(count):
            part = order[i * size : (i + 1) * size]
            if part:
                yield concatenate([items[j] for j in part])

    # -- predicting -------------------------------------------------------------------------

    def logits(self, batch: Batch) -> Tensor:
        """Logits `(B, K)`, one for each class seen, in the order of `classes`."""
        out: Tensor = self.model(batch.x, batch.neighbors)
        return out

    @torch.no_grad()
    def scores(self, batch: Batch) -> Tensor:
        """What the decision is made on: the logits, or the method's own scores."""
        if not self.classes:
            raise RuntimeError("nothing has been learned yet: call observe before predict")
        self._check_width(batch)
        prepare = getattr(self.method, "prepare", None)
        if prepare is not None:
            with torch.enable_grad(), self._own_noise():
                prepare(self)
        own = getattr(self.method, "scores", None)
        if own is not None:
            out: Tensor = own(self, batch)
            return out
        self.model.eval()
        if not self.averaged:
            return self.logits(batch)
        averaged: Tensor = functional_call(
            self.model, self.averaged, (batch.x, batch.neighbors), strict=True
        )
        return averaged

    def predict(self, batch: Batch) -> Tensor:
        """The label of each item, `(B,)`."""
        return torch.tensor(self.classes)[self.scores(batch).argmax(-1)]

    def predict_one(self, item: Batch) -> int:
        """The label of a single item."""
        if len(item) != 1:
            raise ValueError(f"predict_one takes one item, got {len(item)}; use predict")
        return int(self.predict(item))

    def evaluate(self, stream: Iterable[Batch]) -> float:
        """The share of items whose label is found."""
        correct = count = 0
        for batch in stream:
            correct += int((self.predict(batch) == batch.target).sum())
            count += len(batch)
        return correct / count if count else float("nan")

    # -- stopping and going on --------------------------------------------------------------

    def save(self, path: Path | str, extra: Mapping[str, Any] | None = None) -> None:
        """Write all that is needed to go on bit by bit as if nothing had happened.

        `extra` is anything that JSON can hold, such as results so far; `load` gives it back.
        """
        tensors = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        names = {p: name for name, p in self.model.named_parameters()}
        for parameter, state in self.optimizer.state.items():
            for key, value in state.items():
                if isinstance(value, Tensor):
                    tensors[f"optimizer.{names[parameter]}:{key}"] = value
        values: dict[str, Any] = {
            "configuration": self.configuration,
            "classes": self.classes,
            "position": self.position,
            "width": self._width,
            "rng": dict(self.rng.bit_generator.state),
            "extra": dict(extra or {}),
        }
        for part in ("method", "memory"):
            owner = getattr(self, part)
            if owner is not None:
                held, values[part] = owner.state()
                tensors |= {f"{part}.{k}": v for k, v in held.items()}
        tensors |= {f"averaged.{name}": tensor for name, tensor in self.averaged.items()}
        tensors["noise"] = self.noise
        write_checkpoint(path, tensors, values)

    def load(self, path: Path | str) -> dict[str, Any]:
        """Go on from a checkpoint of a learner of the same configuration; returns its extra."""
        tensors, values = read_checkpoint(path)
        mine, theirs = self.configuration, values["configuration"]
        if mine != theirs:
            other = [key for key in mine if mine[key] != theirs.get(key)]
            raise CheckpointError(
                f"checkpoint {path} belongs to another configuration: "
                + "; ".join(f"{key} is {theirs.get(key)} there, {mine[key]} here" for key in other)
                + "; use the same options, or another checkpoint"
            )
        parts: dict[str, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            owner, _, rest = name.partition(".")
            parts.setdefault(owner, {})[rest] = tensor
        self.classes = values["classes"]
        _resize(self.model, parts["model"])
        self.model.load_state_dict(parts["model"])
        self.optimizer = self.training.optimizer_of(self.model)
        named = dict(self.model.named_parameters())
        for name, tensor in parts.get("optimizer", {}).items():
            parameter, _, key = name.rpartition(":")
            self.optimizer.state[named[parameter]][key] = tensor
        self.method.load_state(parts.get("method", {}), values["method"])
        if self.memory is not None:
            self.memory.load_state(parts.get("memory", {}), values["memory"])
        self.averaged = parts.get("averaged", {})
        self.position, self.noise = values["position"], tensors["noise"]
        self.rng.bit_generator.state = values["rng"]
        self._width = None if values["width"] is None else tuple(values["width"])
        extra: dict[str, Any] = values["extra"]
        return extra

    @property
    def configuration(self) -> dict[str, str]:
        """What a checkpoint must have in common with the learner that loads it."""
        shapes = {
            name: tuple(p.shape[:-1] if name.startswith("readout") else p.shape)
            for name, p in self.model.named_parameters()
        }
        memory = self.memory
        return {
            "model": f"{type(self.model).__name__}({self.model.extra_repr()})",
            "parameters": str(shapes),
            "method": repr(self.method),
            "memory": "none" if memory is None else repr(memory),
            "training": repr(self.training),
        }

    # -- growing and checking ---------------------------------------------------------------

    def columns(self, target: Tensor) -> Tensor:
        """The position of each label among `classes`."""
        place = {label: column for column, label in enumerate(self.classes)}
        return torch.tensor([place[label] for label in target.tolist()], dtype=torch.int64)

    def _check(self, batch: Batch) -> None:
        if not len(batch):
            raise ValueError("a batch to learn from must hold at least one item, got none")
        self._check_width(batch)
        check = getattr(self.model, "check", None)
        if check is not None:
            check(batch.x, batch.neighbors)
        else:
            batch.check(self.model.hops)
        if bool((batch.target < 0).any()):
            raise ValueError(
                f"labels must be 0 or more to learn from, got {int(batch.target.min())}"
            )

    def _check_width(self, batch: Batch) -> None:
        if not isinstance(batch, Batch):
            raise TypeError(
                f"a learner takes a Batch, as a Continuum gives them, got {type(batch).__name__}; "
                "loop over a stream, or use evaluate"
            )
        if self._width is not None and batch.width != self._width:
            raise ValueError(
                f"items must keep the shape {self._width} that the stream began with, "
                f"got {batch.width}"
            )

    def _meet(self, target: Tensor) -> None:
        known = set(self.classes)
        fresh = [label for label in target.unique().tolist() if label not in known]
        if fresh:
            self.classes += fresh
            self._grow()

    def _grow(self) -> None:
        """Enlarge the output layer and what the optimizer remembers of it."""
        before = dict(self.model.named_parameters())
        self.model.grow(len(self.classes))
        exchange(self.optimizer, before, dict(self.model.named_parameters()))

    @contextmanager
    def _own_noise(self) -> Iterator[None]:
        """Dropout draws from the learner's own randomness, whatever others do with theirs."""
        outer = torch.get_rng_state()
        torch.set_rng_state(self.noise)
        try:
            yield
        finally:
            self.noise = torch.get_rng_state()
            torch.set_rng_state(outer)


def _resize(model: nn.Module, stored: Mapping[str, Tensor]) -> None:
    """Give parameters the shapes that were stored: outputs come and go with the classes."""
    for name, parameter in list(model.named_parameters()):
        if parameter.shape != stored[name].shape:
            owner, _, own = name.rpartition(".")
            fresh = nn.Parameter(parameter.new_empty(stored[name].shape))
            setattr(model.get_submodule(owner), own, fresh)

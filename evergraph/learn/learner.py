"""A learner sees every batch once, keeps a bounded memory, and can be resumed at any moment."""

from __future__ import annotations

import copy
import json
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from evergraph.learn.checkpoint import (
    CheckpointError,
    contents_digest,
    read_checkpoint,
    require_same,
    write_checkpoint,
)
from evergraph.learn.gate import Outliers
from evergraph.learn.intake import Intake
from evergraph.learn.memory import Memory
from evergraph.learn.state import configuration, contents, savepoint, take
from evergraph.learn.tasks import Classification, Task
from evergraph.learn.training import Optimizer, Training, update_average
from evergraph.learn.transaction import Restore, State, Undo, shallow
from evergraph.nn.model import Model, Requires, device_of, frozen, outputs
from evergraph.noise import draw_from
from evergraph.stream.batch import Batch

Predictor = Callable[[Batch], Tensor]


class Method(Protocol):
    """What is done with a new batch. Subclass it and write `observe`; all else has a default.

    Attributes:
        needs_memory: whether the learner must have a memory.
        lazy: whether a prediction after learning is expensive, because the method has to solve or
            train first; evaluations are then made at the end of tasks only.
        labels_only: whether targets must be labels.
        condenses: whether it reads no more of an item than x and the means of its neighbors,
            whatever the model asks for.
        separates: whether it reads neighbors one by one, also where the model needs no more than
            their mean.
        trains: whether the network, or its random numbers, may change; if not, a transaction keeps
            its head only, which grows with the classes.
        spreads: whether ranks may each have a part of a batch: it uses no more of the learner than
            `memory.add`, `loss`, `descend` and `replay`; see `evergraph.learn.parallel`.

    Example:
        >>> from evergraph import FGN, Learner, Method, node_continuum
        >>> from evergraph.datasets import generate
        >>> class TwoSteps(Method):
        ...     def observe(self, learner, batch):
        ...         for _ in range(2):
        ...             learner.descend(learner.loss(batch))
        >>> learner = Learner(FGN(500), TwoSteps())
        >>> learner.observe(next(iter(node_continuum(generate()))))
        >>> learner.classes
        [0]
    """

    needs_memory: ClassVar[bool] = False
    condenses: ClassVar[bool] = False
    separates: ClassVar[bool] = False
    lazy: ClassVar[bool] = False
    labels_only: ClassVar[bool] = False
    trains: ClassVar[bool] = True
    spreads: ClassVar[bool] = False

    def observe(self, learner: Learner, batch: Batch) -> None:
        """Learn from a new batch."""
        ...

    def check(self, learner: Learner, batch: Batch) -> None:
        """Raise a ValueError if this method cannot learn from a batch; nothing has changed yet."""
        return

    def prepare(self, learner: Learner) -> None:
        """Do what has to be done before a prediction, with gradients if need be."""
        return

    @property
    def ready(self) -> bool:
        """Whether a prediction needs no `prepare` before it."""
        return True

    def predictor(self, learner: Learner) -> Predictor:
        """A function from a batch to its outputs, `(B, K)`, that later learning does not change."""
        return learner.frozen_model()

    def savepoint(self) -> Restore:
        """A function that puts the method back as it is now; see `transaction.shallow`.

        Override it if arrays are changed in place.
        """
        return shallow(self)

    @property
    def nbytes(self) -> int:
        """How many bytes the method keeps beside the memory."""
        return sum(tensor.nbytes for tensor in self.state()[0].values())

    def state(self) -> State:
        """All that is needed to resume: tensors, and what JSON can hold."""
        return {}, {}

    def load_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Resume from a state."""
        return

    def check_state(self, learner: Learner) -> None:
        """Raise a ValueError if a state that was loaded does not go with the learner's model."""
        return


class Learner:
    """Learns a stream batch by batch, and predicts at any time.

    Classes need not be known in advance: the head grows when a new label comes.

    Args:
        model: a network; see `Model`. It may be on another device (`FGN(500).to("cuda")`); items,
            memory, outputs and what is asked of them stay on the CPU.
        method: how forgetting is fought; see `evergraph.learn.methods`.
        memory: what is kept of the past, for methods that use it.
        training: how gradients are used.
        seed: of the replay order and of dropout.
        task: what is asked of an item; its class by default.
        outliers: what is done with feature values absurdly far from all that came before: `clip`,
            `refuse` or `pass`; see `Gate`.

    Example:
        >>> from evergraph import FGN, Replay, Reservoir, node_continuum
        >>> from evergraph.datasets import generate
        >>> learner = Learner(FGN(500), Replay(), Reservoir(capacity=100))
        >>> for batch in list(node_continuum(generate()))[:3]:
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
        task: Task | None = None,
        outliers: Outliers = "clip",
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch module, got {type(model).__name__}")
        for part, meaning in (
            ("head", "the part that reads its features and grows; see evergraph.nn.Readout"),
            ("requires", "what it asks of its items; see evergraph.nn.Requires"),
        ):
            if not hasattr(model, part):
                raise TypeError(
                    f"model must have a {part}, {meaning}; {type(model).__name__} has none"
                )
        self.model: Any = model
        self.device = device_of(model)
        self.method, self.memory, self.training = method, memory, training
        self.task: Task = Classification() if task is None else task
        if method.needs_memory and memory is None:
            raise ValueError(
                f"{type(method).__name__} needs a memory, got None; give one, such as "
                "Reservoir(capacity=500)"
            )
        labels = hasattr(self.task, "classes")
        if method.labels_only and not labels:
            raise ValueError(
                f"{type(method).__name__} needs labels, got {self.task!r}; use Classification()"
            )
        requires: Requires = model.requires
        if method.condenses or method.separates:
            requires = replace(requires, condensable=method.condenses)
        self.intake = Intake(requires, outliers)
        self.position = 0
        self._rng = np.random.default_rng(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.optimizer = Optimizer(training)
        self.average: dict[str, Tensor] = {}
        self._snapshot: Any = None
        self._undo = Undo()
        self._lock, self._writer = threading.Lock(), threading.Lock()

    @property
    def classes(self) -> list[int]:
        """The labels met so far, in the order of the outputs; none if the task has no labels."""
        found: list[int] = getattr(self.task, "classes", [])
        return found

    @property
    def rng(self) -> np.random.Generator:
        """Random numbers for the order of items.

        A transaction keeps their state when they are asked for: ask each time, keep no reference.
        """
        if self.optimizer.undo is not None:
            self.optimizer.undo.keep_random(self._rng)
        return self._rng

    # -- learning ---------------------------------------------------------------------------

    def observe(self, batch: Batch) -> None:
        """Learn from a new batch, all or nothing.

        What can be known is checked first. Any exception, Ctrl-C included, puts everything back
        to the state before, bit by bit; so does a step that makes a number non-finite.
        """
        batch = self._checked(batch)
        if not self._writer.acquire(blocking=False):
            raise RuntimeError(
                "another thread is learning with this learner; let one thread observe, others may "
                "predict"
            )
        try:
            with self._lock:
                self._attempt(lambda: self._learn(batch))
        finally:
            self._writer.release()

    def _checked(self, batch: Batch) -> Batch:
        """A batch that can be learned, as the model reads it; an error if it cannot."""
        self.intake.check_to_learn(batch)
        self.task.check(batch)
        batch = self.intake.condensed(batch)
        if self.memory is not None:
            self.memory.check(batch)
        self.method.check(self, batch)
        return batch

    def _learn(self, batch: Batch) -> None:
        batch = self.intake.admit(batch)
        self.task.meet(self.model.head, batch)
        if self.method.trains or not self.model.training:
            self.model.train()
        with self._training():
            self.method.observe(self, batch)
        if self.training.averaging and not self.training.average_steps:
            update_average(self.average, self.model.state_dict(), self.training.averaging)
        self.position += 1

    @contextmanager
    def _training(self) -> Iterator[None]:
        """Let the model draw the learner's random numbers, and check no item a second time."""
        try:
            vars(self.model)["trusting"] = True
            with draw_from(self.generator):
                yield
        finally:
            vars(self.model)["trusting"] = False

    def _attempt(self, action: Callable[[], None]) -> None:
        """Run an action; put everything back if an exception comes out of it."""
        undo = self._undo
        undo.begin()
        restore = savepoint(self, undo)
        try:
            self.average = dict(self.average)
            self.optimizer.state, self.optimizer.undo = dict(self.optimizer.state), undo
            action()
            name = undo.non_finite()
            if name is not None:
                raise FloatingPointError(self._diverged(f"{name} became non-finite"))
        except BaseException:
            restore()
            self.model.zero_grad(set_to_none=True)
            raise
        finally:
            self.optimizer.undo = None

    def learn_one(self, item: Batch) -> None:
        """The same for a single item."""
        if len(item) != 1:
            raise ValueError(f"learn_one takes one item, got {len(item)}; use observe")
        self.observe(item)

    def outputs(self, batch: Batch) -> Tensor:
        """What the current model makes of a batch, `(B, K)`, with gradients."""
        return outputs(self.model, batch, self.device)

    def loss(self, batch: Batch) -> Tensor:
        """The loss of the current model on a batch."""
        return self.task.loss(self.outputs(batch), batch)

    def descend(self, loss: Tensor, adjust: Callable[[], None] | None = None) -> None:
        """One step of the optimizer; `adjust` may change the gradients before it."""
        if not math.isfinite(loss.item()):
            raise FloatingPointError(self._diverged(f"the loss is {loss.item()}"))
        self.model.zero_grad(set_to_none=True)
        loss.backward()
        if adjust is not None:
            adjust()
        self.optimizer.step(self.model)
        if self.training.averaging and self.training.average_steps:
            update_average(self.average, self.model.state_dict(), self.training.averaging)

    def _diverged(self, what: str) -> str:
        return (
            f"{what} at batch {self.position}, which was not learned: training diverged; start "
            f"again with a lower lr than {self.training.lr}, or scale the features"
        )

    def replay(self) -> Iterator[Batch]:
        """Minibatches of memory in random order, as many as the settings say."""
        assert self.memory is not None
        size = self.training.replay_batch_size
        order = self.rng.permutation(len(self.memory))
        limit = self.training.replay_batches
        count = -(-len(order) // size) if limit is None else limit
        for i in range(count):
            part = order[i * size : (i + 1) * size]
            if len(part):
                yield self.memory.batch(part)

    def sample(self, size: int) -> Batch | None:
        """Random items of memory, or None if it is empty."""
        assert self.memory is not None
        chosen = self.rng.permutation(len(self.memory))[:size]
        return self.memory.batch(chosen) if len(chosen) else None

    # -- predicting -------------------------------------------------------------------------

    def frozen_model(self) -> Predictor:
        """What a copy of the model as it is now makes of a batch; it checks no items."""
        fresh: Any = frozen(self.model)
        vars(fresh)["trusting"] = True
        if self.average:
            fresh.load_state_dict(self.average)
        return partial(outputs, fresh, device=self.device)

    def predictor(self) -> Predictor:
        """What predictions are made with: a snapshot that no learning changes.

        While another thread learns, it is the one from before the batch under way.
        """
        if self._snapshot is not None:
            made: Predictor
            position, method, made = self._snapshot
            fresh = position == self.position and method is self.method
            if fresh or self._lock.locked():
                return made
        with self._lock:
            if not self.method.ready:
                self._attempt(self._prepare)
            made = self.method.predictor(self)
            self._snapshot = (self.position, self.method, made)
            return made

    @torch.no_grad()
    def output(self, batch: Batch) -> Tensor:
        """What the decision is made on, `(B, K)`; for classes in the order of `classes`."""
        if not self.position:
            raise RuntimeError("nothing has been learned yet: call observe before predict")
        self.intake.check(batch)
        return self.predictor()(self.intake.condensed(batch))

    @torch.enable_grad()
    def _prepare(self) -> None:
        with self._training():
            self.method.prepare(self)

    def predict(self, batch: Batch) -> Tensor:
        """What each item is: its label `(B,)`, numbers `(B, D)` or the probability of a link."""
        return self.task.decode(self.output(batch))

    def predict_one(self, item: Batch) -> Any:
        """The same of a single item."""
        if len(item) != 1:
            raise ValueError(f"predict_one takes one item, got {len(item)}; use predict")
        return self.predict(item)[0].tolist()

    def evaluate(self, stream: Iterable[Batch]) -> float:
        """How well items are predicted: accuracy, R² or the area under ROC, as the task has it."""
        pairs = [(self.output(batch), batch.target) for batch in stream]
        if not pairs:
            return float("nan")
        outputs, targets = zip(*pairs, strict=True)
        return self.task.measure(torch.cat(outputs), torch.cat(targets))

    # -- checkpoints ------------------------------------------------------------------------

    def save(self, path: Path | str, extra: Mapping[str, Any] | None = None) -> None:
        """Write all that is needed to resume bit by bit as if nothing had happened.

        `extra` is anything that JSON can hold, such as results so far; `load` gives it back.
        """
        with self._lock:  # not in the middle of a batch
            tensors, values = contents(self)
            write_checkpoint(path, tensors, {**values, "extra": dict(extra or {})})

    def digest(self) -> str:
        """A hash of the whole state: equal digests learn and predict alike, to the last bit."""
        tensors, values = contents(self)
        return contents_digest(tensors, json.dumps(values, sort_keys=True))

    def load(self, path: Path | str) -> dict[str, Any]:
        """Resume from a checkpoint of a learner of the same configuration; returns its extra.

        Everything is checked on a copy first: a checkpoint that cannot be used changes nothing.
        If it is damaged, the one before it is used, with a CheckpointWarning.
        """
        tensors, values = self._read(path)
        require_same(path, configuration(self), values.get("configuration", {}))
        try:
            extra = dict(values["extra"])
            trial = copy.deepcopy(self)
            take(trial, tensors, values)
            trial.method.check_state(trial)
        except (AssertionError, AttributeError, IndexError, KeyError, OverflowError) as error:
            raise CheckpointError(f"{path} lacks what a learner needs: {error!r}") from error
        except (RuntimeError, TypeError, ValueError) as error:
            raise CheckpointError(f"{path} holds no state of this learner: {error}") from error
        with self._lock:
            before = copy.deepcopy(contents(self))
            self._snapshot = None
            try:
                take(self, tensors, values)
            except BaseException:  # an interrupt, since all else was tried on the copy
                take(self, *before)
                raise
        return extra

    def _read(self, path: Path | str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return read_checkpoint(path)

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles have a lock of their own and no snapshot."""
        own = ("_lock", "_writer", "_snapshot", "_undo")
        return {k: v for k, v in vars(self).items() if k not in own}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """The opposite of `__getstate__`."""
        vars(self).update(state)
        self._lock, self._writer = threading.Lock(), threading.Lock()
        self._snapshot, self._undo = None, Undo()

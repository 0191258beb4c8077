"""The whole state of a learner: to put back after a fault, to save, and to load."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from evergraph.learn.checkpoint import whole
from evergraph.learn.intake import Intake
from evergraph.learn.memory import Memory
from evergraph.learn.pool import layers_of
from evergraph.learn.tasks import Task
from evergraph.learn.training import Optimizer, Training
from evergraph.learn.transaction import Restore, Stateful, Undo

OWNERS = ("intake", "method", "memory")  # of states of their own


class Owner(Stateful, Protocol):
    """A method, with a state of its own."""

    trains: ClassVar[bool]


class Parts(Protocol):
    """What a learner consists of."""

    model: Any
    task: Task
    training: Training
    optimizer: Optimizer
    intake: Intake
    memory: Memory | None
    average: dict[str, Tensor]
    position: int
    device: torch.device
    generator: torch.Generator

    @property
    def rng(self) -> np.random.Generator:
        """Random numbers for the order of items."""
        ...

    @property
    def method(self) -> Owner:
        """How forgetting is fought."""
        ...


def configuration(parts: Parts) -> dict[str, str]:
    """What a checkpoint must have in common with the learner that loads it."""
    names = ("method", "memory", "training", "task")
    own = {name: description(getattr(parts, name)) for name in names}
    return {**model_description(parts.model), **own, "outliers": parts.intake.gate.rule}


def savepoint(parts: Parts, undo: Undo) -> Restore:
    """A function that puts everything back as it is now; `undo` gets what changes in place."""
    growing = layers_of(parts.model.head)
    tensors: list[dict[str, Any]] = []
    if parts.method.trains:
        undo.keep_model(parts.model)  # with what is registered in its layers
        undo.keep_noise(parts.generator)
    else:
        undo.keep_buffers(growing)
        tensors = [held for layer in growing for held in (layer._parameters, layer._buffers)]
    task = {
        name: list(value) if type(value) is list else copy.copy(value)
        for name, value in parts.task.state().items()
    }
    plain = (parts, parts.optimizer, parts.intake, parts.intake.gate, *growing)
    attributes = [*map(vars, plain)]
    values, registered = [*map(dict.copy, attributes)], [*map(dict.copy, tensors)]
    method = parts.method.savepoint()
    memory = None if parts.memory is None else parts.memory.savepoint()

    def restore() -> None:
        undo.restore()
        for held, before in zip(tensors, registered, strict=True):
            held.clear()  # of what has come since
            held.update(before)
        for own, known in zip(attributes, values, strict=True):
            own.update(known)  # never without one of them: others may be predicting
        method()
        if memory is not None:
            memory()
        parts.task.load_state(task)

    return restore


def contents(parts: Parts) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """All that is needed to resume: tensors, and what JSON can hold."""
    tensors = {f"model.{k}": v for k, v in parts.model.state_dict().items()}
    tensors |= {f"optimizer.{k}": v for k, v in parts.optimizer.state.items()}
    tensors |= {f"average.{k}": v for k, v in parts.average.items()}
    tensors["rng_state"] = parts.generator.get_state()
    values: dict[str, Any] = {
        "configuration": configuration(parts),
        "task": parts.task.state(),
        "position": parts.position,
        "steps": parts.optimizer.count,
        "rng": dict(parts.rng.bit_generator.state),
    }
    for name, owner in _owners(parts):
        held, values[name] = owner.state()
        tensors |= {f"{name}.{k}": v for k, v in held.items()}
    return {name: tensor.cpu() for name, tensor in tensors.items()}, values


def take(parts: Parts, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
    """Take over the contents of a checkpoint, piece by piece, checking each."""
    known = {"model", "optimizer", "average", "rng_state", *OWNERS}
    given: dict[str, dict[str, Tensor]] = {name: {} for name in known}
    for name, tensor in tensors.items():
        owner, _, rest = name.partition(".")
        if owner not in known:
            raise ValueError(f"parts must be {', '.join(sorted(known))}, got {owner!r}")
        trained = owner in ("optimizer", "average")  # the model copies what it gets
        given[owner][rest] = tensor.to(parts.device) if trained else tensor
    parts.task.load_state(values["task"])
    resize_head(parts.model, given["model"])
    wanted = parts.model.state_dict()
    require_like("the model", given["model"], wanted)
    classes = getattr(parts.task, "classes", [])
    if classes and parts.model.head.outputs != len(classes):
        raise ValueError(
            f"{len(classes)} classes need as many outputs, got {parts.model.head.outputs}"
        )
    require_like("the average", given["average"], wanted, some=True)
    _require_known_labels(given, classes)
    require_optimizer(given["optimizer"], wanted)
    parts.model.load_state_dict(given["model"])
    parts.optimizer.state, parts.optimizer.count = given["optimizer"], whole(values["steps"])
    for name, part in _owners(parts):
        part.load_state(given[name], values[name])
    parts.average = given["average"]
    parts.generator.set_state(tensors["rng_state"])  # refuses anything else
    parts.rng.bit_generator.state = values["rng"]
    parts.position = whole(values["position"])


def _require_known_labels(given: Mapping[str, Mapping[str, Tensor]], classes: list[int]) -> None:
    """Refuse stored items of classes that the task has never met."""
    for name in OWNERS:
        target = given[name].get("target")
        if classes and target is not None:
            unknown = set(target.flatten().tolist()) - {*classes, -1}
            if unknown:
                raise ValueError(f"items of {name} must be of known classes, got {unknown}")


def _owners(parts: Parts) -> list[tuple[str, Stateful]]:
    owners = ((name, getattr(parts, name)) for name in OWNERS)
    return [(name, owner) for name, owner in owners if owner is not None]


def description(part: object) -> str:
    """How a part describes itself; its class if it does not, since an address means nothing."""
    plain = type(part).__repr__ is object.__repr__
    return type(part).__name__ if plain else repr(part)


def model_description(model: Any) -> dict[str, str]:
    """A model's settings and the shapes of its parameters, apart from those that grow."""
    growing = {id(p) for p in model.head.parameters()}
    shapes = {
        name: "of the head" if id(p) in growing else tuple(p.shape)
        for name, p in model.named_parameters()
    }
    name = f"{type(model).__name__}({model.extra_repr()})"
    return {"model": name, "parameters": str(shapes)}


def resize_head(model: Any, stored: Mapping[str, Tensor]) -> None:
    """Give the head's parameters the shapes that were stored: outputs come with the classes."""
    growing = {id(p) for p in model.head.parameters()}
    for name, parameter in list(model.named_parameters()):
        if id(parameter) in growing and parameter.shape != stored[name].shape:
            old, new = tuple(parameter.shape), tuple(stored[name].shape)
            if len(old) != len(new) or sum(a != b for a, b in zip(old, new, strict=True)) > 1:
                raise ValueError(f"{name} must be of shape {old} but for its outputs, got {new}")
            owner, _, own = name.rpartition(".")
            fresh = nn.Parameter(parameter.new_empty(stored[name].shape))
            setattr(model.get_submodule(owner), own, fresh)


def require_like(
    what: str, found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], some: bool = False
) -> None:
    """Refuse tensors of other names, types or shapes than wanted, or with non-finite numbers.

    Args:
        what: whose tensors they are, for the message.
        found: what was read.
        wanted: what it must be like.
        some: whether none at all are fine too, and shapes may be smaller (an average lags behind).
    """
    if some and not found:
        return
    if found.keys() != wanted.keys():
        differ = sorted(found.keys() ^ wanted.keys())
        raise ValueError(
            f"the tensors of {what} must be those of its parts, got {differ[:3]} more or less"
        )
    for name, tensor in found.items():
        other = wanted[name]
        smaller = tensor.dim() == other.dim() and all(
            n <= m for n, m in zip(tensor.shape, other.shape, strict=True)
        )
        if tensor.dtype != other.dtype or not (smaller if some else tensor.shape == other.shape):
            raise ValueError(
                f"{name} of {what} must be {other.dtype} of shape {tuple(other.shape)}, got "
                f"{tensor.dtype} of shape {tuple(tensor.shape)}"
            )
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise ValueError(f"{name} of {what} must be finite")
        if name.endswith("running_var") and bool((tensor < 0).any()):
            raise ValueError(f"{name} of {what} must not be negative")


def require_optimizer(state: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> None:
    """Refuse the state of an optimizer that belongs to other parameters."""
    for name, tensor in state.items():
        owner, _, key = name.rpartition(":")
        if owner not in parameters or key not in ("velocity", "mean", "square", "count"):
            raise ValueError(f"the optimizer keeps nothing called {name!r}")
        like = torch.zeros(()) if key == "count" else parameters[owner]
        require_like("the optimizer", {name: tensor}, {name: like}, some=True)
        if key in ("square", "count") and bool((tensor < 0).any()):
            raise ValueError(f"{name} of the optimizer must not be negative")

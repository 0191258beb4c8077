"""The whole state of a learner: to put back after a fault, to save, and to load."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from evergraph.learn.checkpoint import (
    description,
    model_description,
    require_like,
    require_optimizer,
    resize_head,
    whole,
)
from evergraph.learn.intake import Intake
from evergraph.learn.memory import Memory
from evergraph.learn.tasks import Task
from evergraph.learn.training import Optimizer, Training
from evergraph.learn.transaction import Restore, Stateful, Undo

OWNERS = ("intake", "method", "memory")  # of states of their own


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
    rng: np.random.Generator
    generator: torch.Generator

    @property
    def method(self) -> Stateful:
        """How forgetting is fought."""
        ...


def configuration(parts: Parts) -> dict[str, str]:
    """What a checkpoint must have in common with the learner that loads it."""
    names = ("method", "memory", "training", "task")
    own = {name: description(getattr(parts, name)) for name in names}
    return {**model_description(parts.model), **own, "outliers": parts.intake.gate.rule}


def savepoint(parts: Parts, undo: Undo) -> Restore:
    """A function that puts everything back as it is now; `undo` gets what changes in place."""
    for name, buffer in parts.model.named_buffers():
        undo.keep(f"buffer {name}", buffer)
    position, average = parts.position, parts.average
    rng, noise = parts.rng.bit_generator.state, parts.generator.get_state()
    optimizer = dict(vars(parts.optimizer))
    task = copy.deepcopy(parts.task.state())
    modules = [(part, dict(part._parameters)) for part in parts.model.head.modules()]
    restores = [owner.savepoint() for _, owner in _owners(parts)]

    def restore() -> None:
        undo.restore()
        for part, parameters in modules:
            part._parameters.clear()
            part._parameters.update(parameters)
        for each in restores:
            each()
        parts.task.load_state(task)
        vars(parts.optimizer).update(optimizer)
        parts.rng.bit_generator.state = rng
        parts.generator.set_state(noise)
        parts.position, parts.average = position, average

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
    return tensors, values


def take(parts: Parts, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
    """Take over the contents of a checkpoint, piece by piece, checking each."""
    known = {"model", "optimizer", "average", "rng_state", *OWNERS}
    given: dict[str, dict[str, Tensor]] = {name: {} for name in known}
    for name, tensor in tensors.items():
        owner, _, rest = name.partition(".")
        if owner not in known:
            raise ValueError(f"parts must be {', '.join(sorted(known))}, got {owner!r}")
        given[owner][rest] = tensor
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
    require_optimizer(given["optimizer"], wanted)
    parts.model.load_state_dict(given["model"])
    parts.optimizer.state, parts.optimizer.count = given["optimizer"], whole(values["steps"])
    for name, part in _owners(parts):
        part.load_state(given[name], values[name])
    parts.average = given["average"]
    parts.generator.set_state(tensors["rng_state"])  # refuses anything else
    parts.rng.bit_generator.state = values["rng"]
    parts.position = whole(values["position"])


def _owners(parts: Parts) -> list[tuple[str, Stateful]]:
    owners = ((name, getattr(parts, name)) for name in OWNERS)
    return [(name, owner) for name, owner in owners if owner is not None]

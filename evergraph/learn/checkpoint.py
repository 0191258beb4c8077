"""One file that holds everything: tensors and JSON, no pickle, never half written."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn


class CheckpointError(ValueError):
    """A checkpoint that cannot be used, with the reason and the way out."""


def write_checkpoint(
    path: Path | str, tensors: Mapping[str, Tensor], values: Mapping[str, Any]
) -> None:
    """Write tensors and JSON values to a file, all or nothing.

    A crash leaves the file that was there before: the new one is written beside it, flushed to
    disk, and then takes its place.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(values, sort_keys=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file(whole, beside, metadata={"values": text, "digest": _digest(whole, text)})
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def read_checkpoint(path: Path | str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `write_checkpoint` wrote, and make sure that nothing is missing or changed."""
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"no checkpoint at {path}; save one first")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(_damaged(path, str(error))) from error
    if "values" not in metadata or "digest" not in metadata:
        raise CheckpointError(f"{path} is a safetensors file but not a checkpoint of this program")
    if _digest(tensors, metadata["values"]) != metadata["digest"]:
        raise CheckpointError(_damaged(path, "its content does not match its checksum"))
    return tensors, json.loads(metadata["values"])


def _digest(tensors: Mapping[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _damaged(path: Path, reason: str) -> str:
    return (
        f"checkpoint {path} is truncated or damaged ({reason}); restore it from a copy, or "
        "start anew"
    )


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


def require_same(path: Path | str, mine: Mapping[str, str], theirs: Mapping[str, str]) -> None:
    """Refuse a checkpoint of another configuration, and say in what it differs."""
    other = [key for key in mine if mine[key] != theirs.get(key)]
    if other:
        raise CheckpointError(
            f"checkpoint {path} belongs to another configuration: "
            + "; ".join(f"{key} is {theirs.get(key)} there, {mine[key]} here" for key in other)
            + "; use the same options, or another checkpoint"
        )


def resize_head(model: Any, stored: Mapping[str, Tensor]) -> None:
    """Give the head's parameters the shapes that were stored: outputs come with the classes."""
    growing = {id(p) for p in model.head.parameters()}
    for name, parameter in list(model.named_parameters()):
        if id(parameter) in growing and parameter.shape != stored[name].shape:
            owner, _, own = name.rpartition(".")
            fresh = nn.Parameter(parameter.new_empty(stored[name].shape))
            setattr(model.get_submodule(owner), own, fresh)

"""One file that holds everything: tensors and JSON, no pickle, never half written.

The newest checkpoint is FILE, the one before it FILE.previous. A writer holds a lock while it
works; readers get tensors that own their memory, so that nothing happens to them when the file
changes.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

KEY = "evergraph"  # of the one entry in the file's metadata
_number = count()


class CheckpointError(ValueError):
    """A checkpoint that cannot be used, with the reason and the way out."""


def previous(path: Path | str) -> Path:
    """Where the generation before the newest is kept."""
    path = Path(path)
    return path.with_name(f"{path.name}.previous")


def write_checkpoint(
    path: Path | str, tensors: Mapping[str, Tensor], values: Mapping[str, Any]
) -> None:
    """Write tensors and JSON values to a file, all or nothing.

    The bytes are a function of what is written. A crash leaves the file that was there before:
    the new one is written beside it, flushed to disk, and then takes its place. A file that is
    no checkpoint is never overwritten.
    """
    path = Path(path)
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(values, sort_keys=True)
    metadata = {KEY: json.dumps({"values": text, "digest": contents_digest(whole, text)})}
    refuse_foreign(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}-{next(_number)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path)
        _write(beside, save(whole, metadata))
        if path.exists():
            kept = beside.with_name(f"{beside.name}-previous")
            os.link(path, kept)
            kept.replace(previous(path))
        beside.replace(path)
        _flush_folder(path.parent)
    except OSError as error:
        raise CheckpointError(
            f"checkpoint {path} could not be written ({error.strerror or error}); what was there "
            "before is still there; make room, or choose another path"
        ) from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sweep(path: Path) -> None:
    """Remove what writers that were killed have left beside a checkpoint."""
    for left in path.parent.glob(f".{path.name}.*-*-*"):
        writer = left.name.removeprefix(f".{path.name}.").partition("-")[0]
        if writer.isdecimal() and int(writer) != os.getpid() and not _alive(int(writer)):
            left.unlink(missing_ok=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def refuse_foreign(path: Path) -> None:
    """Raise a CheckpointError if a path holds something that this program did not write."""
    if not path.exists():
        return
    if path.is_file():
        with suppress(CheckpointError), path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if size < 2**28 and KEY in json.loads(file.read(size)).get("__metadata__", {}):
                return
        with suppress(ValueError, OSError):
            read_checkpoint(path)
            return
    raise CheckpointError(
        f"{path} is there and is no checkpoint of this program: it is left alone; move it, or "
        "choose another path"
    )


@contextmanager
def locked(path: Path | str) -> Iterator[None]:
    """Hold a checkpoint for one writer; a second one gets a CheckpointError at once."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f".{path.name}.lock")
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise CheckpointError(
                f"checkpoint {path} is in use by another process; wait for it, or choose another "
                "path"
            ) from error
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def read_checkpoint(path: Path | str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `write_checkpoint` wrote, and make sure that nothing is missing or changed."""
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"no checkpoint at {path}; save one first")
    try:
        content = path.read_bytes()
        tensors = load(content)
        size = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + size]).get("__metadata__", {})
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(_damaged(path, str(error))) from error
    if KEY not in metadata:
        raise CheckpointError(f"{path} is a safetensors file but not a checkpoint of this program")
    try:
        stored = json.loads(metadata[KEY])
        text, digest = str(stored["values"]), stored["digest"]
        values = json.loads(text)
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(_damaged(path, str(error))) from error
    if contents_digest(tensors, text) != digest or not isinstance(values, dict):
        raise CheckpointError(_damaged(path, "its content does not match its checksum"))
    return tensors, values


def contents_digest(tensors: Mapping[str, Tensor], text: str) -> str:
    """A hash of tensors, their names and types, and a text."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _damaged(path: Path, reason: str) -> str:
    other = previous(path)
    way = f"use the one before it, {other}" if other.is_file() else "restore it from a copy"
    return f"checkpoint {path} is truncated or damaged ({reason}); {way}, or start anew"


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


def require_same(path: Path | str, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
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


def whole(value: Any) -> int:
    """A number of a checkpoint that must be an integer of 0 or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"expected a whole number of 0 or more, got {value!r}")
    return value

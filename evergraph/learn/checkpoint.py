"""One file that holds everything: tensors and JSON, no pickle, never half written.

The newest checkpoint is FILE, the one before it FILE.previous, which is read if FILE is damaged. A
writer holds a lock while it works; readers get tensors that own their memory, so that nothing
happens to them when the file changes.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from glob import escape
from itertools import count
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

KEY = "evergraph"  # of the one entry in the file's metadata
HEADER_LIMIT = 2**28  # bytes; safetensors takes less
UNREADABLE = (
    SafetensorError, AttributeError, LookupError, RecursionError, TypeError, ValueError
)  # fmt: skip
_number = count()
_under_way: set[Path] = set()  # files that threads of this process are writing


class CheckpointError(ValueError):
    """A checkpoint that cannot be used, with the reason and the way out."""


class DamagedCheckpointError(CheckpointError):
    """A checkpoint that was once whole: the generation before it may be."""


class CheckpointWarning(UserWarning):
    """A checkpoint was damaged, and the generation before it is used."""


def previous(path: Path | str) -> Path:
    """Where the generation before the newest is kept."""
    path = Path(path)
    return path.with_name(f"{path.name}.previous")


def damaged(path: Path | str) -> Path:
    """Where a damaged checkpoint is kept when a new one takes its place."""
    path = Path(path)
    return path.with_name(f"{path.name}.damaged")


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
    beside = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}-{next(_number)}")
    kept = beside.with_name(f"{beside.name}-kept")
    now = "what was there before is still there"
    _under_way.update((beside, kept))
    try:
        state = _condition(path)
        if state == "foreign":
            raise CheckpointError(
                f"{path} is there and is no checkpoint of this program: it is left alone; move "
                "it, or choose another path"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path)
        _write(beside, save(whole, metadata))
        if state != "absent":
            _link(path, kept)
        beside.replace(path)  # first, so that one whole generation is there at any moment
        now = "the new one is in place, but may not survive a power failure"
        if state != "absent":
            kept.replace(previous(path) if state == "whole" else damaged(path))
        _flush_folder(path.parent)
    except OSError as error:
        raise CheckpointError(
            f"checkpoint {path} could not be written ({error.strerror or error}); {now}; make "
            "room, or choose another path"
        ) from error
    finally:
        for left in (beside, kept):
            with suppress(OSError):
                left.unlink(missing_ok=True)
        _under_way.difference_update((beside, kept))


def write_file(path: Path, content: bytes) -> None:
    """Write a file as a whole: after a power failure too, it is the old one or the new one."""
    fresh = path.with_name(f".{path.name}")
    try:
        _write(fresh, content)
        fresh.replace(path)
        _flush_folder(path.parent)
    except OSError as error:
        raise OSError(
            f"{path} could not be written ({error.strerror}); make room, and repeat what failed"
        ) from error


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _link(path: Path, other: Path) -> None:
    try:
        os.link(path, other)
    except OSError:  # some file systems have no links
        _write(other, path.read_bytes())


def _flush_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sweep(path: Path) -> None:
    """Remove what writers that were killed or interrupted have left beside a checkpoint."""
    for left in path.parent.glob(f".{escape(path.name)}.*-*-*"):
        writer = left.name.removeprefix(f".{path.name}.").partition("-")[0]
        if not writer.isdecimal():
            continue
        mine = int(writer) == os.getpid()
        if (mine and left not in _under_way) or (not mine and not _alive(int(writer))):
            left.unlink(missing_ok=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _condition(path: Path) -> Literal["absent", "whole", "damaged", "foreign"]:
    """What is at a path, by its header and size; the content is not read."""
    if not os.path.lexists(path):
        return "absent"
    found = _header(path) if path.is_file() else None
    if found is not None:
        return "whole" if found else "damaged"
    ours = path.is_file() and previous(path).is_file() and _header(previous(path)) is not None
    return "damaged" if ours else "foreign"


def _header(path: Path) -> bool | None:
    """Whether a checkpoint is as long as its header says; None if the header is not ours."""
    with path.open("rb") as file, suppress(*UNREADABLE):
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size)) if size < HEADER_LIMIT else {}
        if KEY in header.pop("__metadata__", {}):
            ends = [entry["data_offsets"][1] for entry in header.values()]
            return path.stat().st_size == 8 + size + max(ends, default=0)
    return None


@contextmanager
def locked(path: Path | str) -> Iterator[None]:
    """Hold a checkpoint for one writer; a second one gets a CheckpointError at once."""
    path = Path(path)
    lock = path.with_name(f".{path.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("w")
    except OSError as error:
        raise CheckpointError(
            f"checkpoint {path} cannot be written ({error.strerror or error}); choose another path"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(file.fileno()), lock.stat()):
                raise BlockingIOError  # its holder removed it, and a third was faster
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
    """Read what `write_checkpoint` wrote, and make sure that nothing is missing or changed.

    If the newest generation is damaged and the one before it is whole, that one is read, with a
    CheckpointWarning.
    """
    path = Path(path)
    try:
        return read_generation(path)
    except DamagedCheckpointError as error:
        older = previous(path)
        try:
            found = read_generation(older)
        except CheckpointError:
            raise error from None
        warnings.warn(  # at this very line, so that it is told once
            f"{error}; the one before it, {older}, is used", CheckpointWarning, stacklevel=1
        )
        return found


def read_generation(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read this very file, or raise a CheckpointError."""
    try:
        if not path.is_file():
            raise CheckpointError(f"no checkpoint at {path}; save one first")
        content = path.read_bytes()
    except OSError as error:
        raise DamagedCheckpointError(
            f"checkpoint {path} could not be read ({error.strerror or error})"
        ) from error
    try:
        tensors = load(content)
        size = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + size]).get("__metadata__", {})
        if KEY not in metadata:
            raise CheckpointError(f"{path} is a safetensors file but no checkpoint of this program")
        stored = json.loads(metadata[KEY])
        text, digest = str(stored["values"]), stored["digest"]
        values = json.loads(text)
    except CheckpointError:
        raise
    except UNREADABLE as error:
        raise DamagedCheckpointError(_damage(path, str(error))) from error
    if contents_digest(tensors, text) != digest or not isinstance(values, dict):
        raise DamagedCheckpointError(_damage(path, "its content does not match its checksum"))
    return tensors, values


def _damage(path: Path, reason: str) -> str:
    return f"checkpoint {path} is truncated or damaged ({reason}); restore it from a copy"


def contents_digest(tensors: Mapping[str, Tensor], text: str) -> str:
    """A hash of tensors, their names and types, and a text."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def require_same(path: Path | str, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    """Refuse a checkpoint of another configuration, and say in what it differs."""
    other = [key for key in mine if mine[key] != theirs.get(key)]
    if other:
        raise CheckpointError(
            f"checkpoint {path} belongs to another configuration: "
            + "; ".join(f"{key} is {theirs.get(key)} there, {mine[key]} here" for key in other)
            + "; use the same options, or another checkpoint"
        )


def whole(value: Any) -> int:
    """A number of a checkpoint that must be an integer of 0 or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"expected a whole number of 0 or more, got {value!r}")
    return value

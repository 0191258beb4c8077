"""All or nothing: what has to be put back if a batch cannot be learned.

Only what a step touches is kept: a parameter is copied before its first change, rows of it if the
gradient is sparse. References suffice for what is replaced and never changed in place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

Restore = Callable[[], None]
State = tuple[dict[str, Tensor], dict[str, Any]]

SMALL = 1000  # tensors with fewer numbers are checked together


class Stateful(Protocol):
    """What can be put back, saved and loaded."""

    def savepoint(self) -> Restore:
        """A function that puts everything back as it is now."""
        ...

    def state(self) -> State:
        """All that is needed to resume: tensors, and what JSON can hold."""
        ...

    def load_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Resume from a state."""
        ...


class Undo:
    """The state of tensors before a transaction.

    A tensor that is written as a whole gets new memory, and the old one is what is put back: no
    copy is made.

    Attributes:
        spare: memory by name, which is used again and again.
    """

    def __init__(self, spare: dict[str, Tensor]) -> None:
        self.spare = spare
        self._whole: dict[str, tuple[Tensor, Tensor]] = {}  # a tensor, and its memory before
        self._rows: list[tuple[Tensor, Tensor, Tensor]] = []

    def renew(self, name: str, tensor: Tensor) -> Tensor:
        """Give a tensor other memory if it has not been kept yet; returns what it held."""
        old = tensor.data
        if name not in self._whole:
            fresh = self._memory(name, old)
            self._whole[name] = (tensor, old)
            tensor.data = fresh
        return old

    def keep(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy tensors that others are about to change in place."""
        if tensors:
            copies = [self._memory(name, tensor) for name, tensor in tensors.items()]
            torch._foreach_copy_(copies, list(tensors.values()))
            kept = zip(tensors.values(), copies, strict=True)
            self._whole.update(zip(tensors, kept, strict=True))

    @torch.no_grad()
    def keep_rows(self, tensor: Tensor, index: Tensor) -> None:
        """Copy the rows of a tensor that are about to change."""
        self._rows.append((tensor, index, tensor[index].clone()))

    @torch.no_grad()
    def restore(self) -> None:
        """Put everything back."""
        for tensor, index, rows in reversed(self._rows):
            tensor[index] = rows
        for tensor, before in self._whole.values():
            tensor.data = before
        self.spare.clear()

    def commit(self) -> None:
        """Let go of the state before; its memory serves the next transaction."""
        for tensor, _, _ in self._rows:
            tensor.grad = None
        for name, (tensor, before) in self._whole.items():
            tensor.grad = None
            self.spare[name] = before

    def non_finite(self) -> str | None:
        """The name of a tensor that was kept and has become NaN or infinite, or None."""
        whole = self._whole.items()
        changed = [(n, t.data) for n, (t, _) in whole if t.is_floating_point()]
        changed += [("a weight", tensor.data[index]) for tensor, index, _ in self._rows]
        parts = [t for _, t in changed if t.numel() >= SMALL]
        small = [t for _, t in changed if t.numel() < SMALL]
        if small:
            parts.append(torch._C._nn.flatten_dense_tensors(small))
        if math.isfinite(sum([part.sum().item() for part in parts])):
            return None
        return next((n for n, t in changed if not bool(t.isfinite().all())), None)

    def _memory(self, name: str, like: Tensor) -> Tensor:
        found = self.spare.pop(name, None)
        if found is None or found.shape != like.shape or found.dtype != like.dtype:
            return torch.empty_like(like, requires_grad=False)
        return found


def shallow(owner: Any) -> Restore:
    """A function that gives an object its attributes of now back.

    Dictionaries, lists and objects with attributes are copied one level deep; tensors and arrays
    in them must be replaced by their owner, not changed in place.
    """
    kept: dict[str, Any] = dict(vars(owner))
    inner = {
        name: value.copy() if isinstance(value, dict | list) else shallow(value)
        for name, value in kept.items()
        if isinstance(value, dict | list) or hasattr(value, "__dict__")
    }

    def restore() -> None:
        vars(owner).clear()
        vars(owner).update(kept)
        for name, value in inner.items():
            if callable(value):
                value()
            elif isinstance(value, dict):
                _refill(kept[name], value)
            else:
                kept[name][:] = value

    return restore


def _refill(mapping: dict[Any, Any], content: Mapping[Any, Any]) -> None:
    mapping.clear()
    mapping.update(content)

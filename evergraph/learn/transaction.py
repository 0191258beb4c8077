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

    Attributes:
        spare: memory for copies, by name, which is used again and again.
    """

    def __init__(self, spare: dict[str, Tensor]) -> None:
        self.spare = spare
        self._whole: dict[str, tuple[Tensor, Tensor]] = {}
        self._rows: list[tuple[Tensor, Tensor, Tensor]] = []

    @torch.no_grad()
    def keep(self, name: str, tensor: Tensor) -> None:
        """Copy a tensor that is about to change in place, if it has not been copied yet."""
        if name not in self._whole:
            copy = self.spare.get(name)
            if copy is None or copy.shape != tensor.shape or copy.dtype != tensor.dtype:
                copy = self.spare[name] = torch.empty_like(tensor, requires_grad=False)
            copy.copy_(tensor)
            self._whole[name] = (tensor, copy)

    @torch.no_grad()
    def keep_rows(self, tensor: Tensor, index: Tensor) -> None:
        """Copy the rows of a tensor that are about to change."""
        self._rows.append((tensor, index, tensor[index].clone()))

    @torch.no_grad()
    def restore(self) -> None:
        """Put everything back."""
        for tensor, index, rows in reversed(self._rows):
            tensor[index] = rows
        for tensor, copy in self._whole.values():
            tensor.copy_(copy)

    def non_finite(self) -> str | None:
        """The name of a tensor that was kept and has become NaN or infinite, or None."""
        changed: list[tuple[str, Tensor]] = [(n, t) for n, (t, _) in self._whole.items()]
        changed += [("a weight", tensor[index]) for tensor, index, _ in self._rows]
        wrong = (n for n, t in changed if t.is_floating_point() and not finite(t))
        return next(wrong, None)


def finite(tensor: Tensor) -> bool:
    """Whether all numbers are finite: one pass, and a closer look only where the sum overflows."""
    tensor = tensor.detach()
    return math.isfinite(float(tensor.sum())) or bool(tensor.isfinite().all())


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

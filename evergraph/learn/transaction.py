"""All or nothing: what has to be put back if a batch cannot be learned.

Only what a step touches is kept: a parameter is copied before its first change, rows of it if the
gradient is sparse. References suffice for what is replaced and never changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

Restore = Callable[[], None]
State = tuple[dict[str, Tensor], dict[str, Any]]

LARGE = 50_000  # numbers of a tensor from which on its sum is faster to check


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
    """The state of tensors and random numbers before a transaction.

    A tensor that is written as a whole gets other memory, and the old one is what is put back: no
    copy is made. One object serves one transaction after another: what a tensor held before the
    last one is the memory that it gets in the next.
    """

    def __init__(self) -> None:
        self._whole: dict[str, tuple[Tensor, Tensor]] = {}  # a tensor, and its memory before
        self._flag, self._one = torch.zeros(()), torch.ones(())
        self.begin()

    def begin(self) -> None:
        """Start a transaction, with nothing kept."""
        self._spare, self._whole = self._whole, {}
        self._layers: list[nn.Module] = []
        self._copied: list[tuple[Tensor, Tensor]] = []
        self._rows: list[tuple[Tensor, Tensor, Tensor]] = []
        self._drawn: tuple[np.random.Generator, Any] | None = None

    def renew(self, name: str, tensor: Tensor) -> Tensor:
        """Give a tensor other memory if it has not been kept yet; returns what it held."""
        old = tensor.data
        if name not in self._whole:
            _, fresh = self._spare.get(name, (tensor, old[:0]))
            if not fresh.is_contiguous() or _kind(fresh) != _kind(old):
                fresh = torch.empty_like(old, memory_format=torch.contiguous_format)
            self._whole[name] = (tensor, old)
            tensor.data = fresh
        return old

    def keep_buffers(self, layers: list[nn.Module]) -> None:
        """Copy what layers may change in place."""
        self._layers = layers
        self._copied = [(buffer, buffer.data.clone()) for _, buffer in self._buffers()]

    def _buffers(self) -> list[tuple[str, Tensor]]:
        """The buffers of all layers as they are now, with their names in their layers."""
        found = [
            item for layer in self._layers if layer._buffers for item in layer._buffers.items()
        ]
        return [(name, buffer) for name, buffer in found if buffer is not None]

    @torch.no_grad()
    def keep_rows(self, tensor: Tensor, index: Tensor) -> None:
        """Copy the rows of a tensor that are about to change."""
        self._rows.append((tensor, index, tensor[index].clone()))

    def keep_random(self, rng: np.random.Generator) -> None:
        """Keep the state of random numbers, if this is the first time that they are drawn."""
        if self._drawn is None:
            self._drawn = (rng, rng.bit_generator.state)

    @torch.no_grad()
    def restore(self) -> None:
        """Put everything back."""
        for tensor, index, rows in reversed(self._rows):
            tensor[index] = rows
        for tensor, before in self._whole.values():
            tensor.data = before
        for tensor, before in self._copied:
            tensor.data = before
        if self._drawn is not None:
            rng, state = self._drawn
            rng.bit_generator.state = state
        self._whole = {}  # its memory is in use again

    def non_finite(self) -> str | None:
        """The name of a tensor that has changed and become NaN or infinite, or None."""
        buffers = [(name, buffer) for name, buffer in self._buffers() if buffer.is_floating_point()]
        tensors = [tensor.data for tensor, _ in self._whole.values()]
        tensors += [buffer for _, buffer in buffers]
        tensors += [tensor.data[index] for tensor, index, _ in self._rows]
        if not tensors:
            return None
        flag, one = self._flag, self._one
        if not tensors[0].is_cpu:
            flag, one = flag.to(tensors[0].device), one.to(tensors[0].device)
        small, total = [], 0.0
        for tensor in tensors:
            if tensor.numel() < LARGE:
                small.append(tensor)
            else:
                total += tensor.sum().item()
        try:  # multiplies by 1 and looks at every number on the way: one call for all of them
            torch._amp_foreach_non_finite_check_and_unscale_(small, flag, one)
        except RuntimeError:  # one that cannot be written to, such as an expanded buffer
            flag.fill_(1)
        if not flag.item() and isfinite(total):
            return None
        flag.zero_()
        names = [*self._whole, *(name for name, _ in buffers), *["a weight"] * len(self._rows)]
        named = zip(names, tensors, strict=True)
        return next((name for name, tensor in named if not bool(tensor.isfinite().all())), None)


def _kind(tensor: Tensor) -> tuple[torch.Size, torch.dtype, torch.device]:
    return tensor.shape, tensor.dtype, tensor.device


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

"""All or nothing: what has to be put back if a batch cannot be learned.

Only what a step touches is kept: a large parameter gets other memory at its first change, of a
sparse gradient rows are copied, and so are small tensors, all at once. References suffice for what
is replaced and never changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from evergraph.learn.pool import Contents, Pool

Restore = Callable[[], None]
State = tuple[dict[str, Tensor], dict[str, Any]]

WHOLE = {bool, int, float, str, tuple, type(None), Tensor, np.ndarray}  # that are only replaced


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
    copy is made. Small tensors of a model share a `Pool` and are copied together. One object
    serves one transaction after another: what a large tensor held before the last one is the
    memory that it gets in the next.
    """

    def __init__(self) -> None:
        self._whole: dict[str, tuple[Tensor, Tensor]] = {}  # a tensor, and its memory before
        self._pool: Pool | None = None
        self.begin()

    def begin(self) -> None:
        """Start a transaction, with nothing kept."""
        self._spare, self._whole = self._whole, {}
        self._model: tuple[Pool, Contents] | None = None
        self.pooled: set[int] = set()  # the tensors that are kept with the model
        self._buffers: list[tuple[str, Tensor, Tensor]] = []
        self._rows: list[tuple[Tensor, Tensor, Tensor]] = []
        self._drawn: tuple[np.random.Generator, Any] | None = None
        self._noise: tuple[torch.Generator, Tensor] | None = None

    def keep_model(self, model: nn.Module) -> None:
        """Keep what is registered in a model, its buffers and its small parameters."""
        pool, self._pool = self._pool, None
        if pool is None or not pool.fits(model):
            pool = Pool(model)
        self._model, self.pooled, self._pool = (pool, pool.contents()), pool.numbers, pool

    def parameters(self, model: nn.Module) -> Iterable[tuple[str, nn.Parameter]]:
        """The parameters of a model by name; a pool that knows them saves a walk for each step."""
        pool = self._pool
        if pool is not None and pool.knows(model):
            return pool.parameters
        return model.named_parameters()

    def keep_buffers(self, layers: list[nn.Module]) -> None:
        """Copy what layers may change in place."""
        held = [item for layer in layers if layer._buffers for item in layer._buffers.items()]
        self._buffers = [(name, t, t.data.clone()) for name, t in held if t is not None]

    def keep_noise(self, generator: torch.Generator) -> None:
        """Keep the state of the random numbers of a model."""
        self._noise = (generator, generator.get_state())

    def keep_random(self, rng: np.random.Generator) -> None:
        """Keep the state of random numbers, if this is the first time that they are drawn."""
        if self._drawn is None:
            self._drawn = (rng, rng.bit_generator.state)

    def renew(self, name: str, tensor: Tensor) -> Tensor:
        """Give a tensor that is not pooled other memory, once; returns what it held."""
        old = tensor.data
        if name not in self._whole:
            _, fresh = self._spare.get(name, (tensor, old[:0]))
            if not fresh.is_contiguous() or _kind(fresh) != _kind(old):
                fresh = torch.empty_like(old, memory_format=torch.contiguous_format)
            self._whole[name] = (tensor, old)
            tensor.data = fresh
        return old

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
        for _, tensor, before in self._buffers:
            tensor.data = before
        if self._model is not None:
            pool, contents = self._model
            pool.put_back(contents)
        if self._drawn is not None:
            rng, state = self._drawn
            rng.bit_generator.state = state
        if self._noise is not None:
            generator, noise = self._noise
            generator.set_state(noise)
        self._whole = {}  # its memory is in use again

    def non_finite(self) -> str | None:
        """The name of a tensor that has changed and become NaN or infinite, or None."""
        named = [(name, tensor.data) for name, (tensor, _) in self._whole.items()]
        named += [("a weight", tensor.data[index]) for tensor, index, _ in self._rows]
        named += [(name, t.data) for name, t, _ in self._buffers if t.is_floating_point()]
        together = []
        if self._model is not None:
            pool, contents = self._model
            named += pool.others()
            together = [pool.flat]
        tensors = [*together, *(tensor for _, tensor in named)]
        if all(isfinite(tensor.sum().item()) for tensor in tensors):
            return None  # no sum with NaN or infinity in it is finite; others may overflow
        if self._model is not None:
            named += pool.changed(contents)
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
        if type(value) not in WHOLE
        and (isinstance(value, dict | list) or hasattr(value, "__dict__"))
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

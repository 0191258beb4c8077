"""The small tensors of a model side by side in memory, so that one copy keeps all of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from operator import is_
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

SMALL = 4096  # numbers of a tensor that is copied, not given other memory
LINE = 64  # bytes at which torch's own memory begins: the bits of products may depend on it
Held = dict[str, Any]


@dataclass(eq=False)
class Contents:
    """What a model held at some time: the numbers of its pool, and copies of other buffers."""

    flat: np.ndarray[Any, Any]
    copied: list[tuple[Tensor, Tensor]]


class Pool:
    """Small parameters and buffers of a model in one piece of memory, and a list of all it has.

    One copy keeps all of them, one look checks them. A pool serves as long as the model has the
    same layers and tensors in the same places.

    Attributes:
        flat: the memory; zeros where no tensor is.
        numbers: `id` of each tensor in it.
        parameters: all of the model's, with their full names.
    """

    def __init__(self, model: nn.Module) -> None:
        self._layers = layers_of(model)
        self._modules: list[Held] = [layer._modules for layer in self._layers]
        self._held: list[Held] = [
            held for layer in self._layers for held in (layer._parameters, layer._buffers)
        ]
        self._buffers = self._held[1::2]
        self._registered = [*map(dict.copy, self._held)]
        self._inside, self._tensors = _values(self._modules), _values(self._held)
        self._buffered, self._names = _values(self._buffers), [*chain.from_iterable(self._held)]
        self.parameters = [*model.named_parameters()]
        there = {
            id(tensor): (name, tensor)
            for name, tensor in zip(self._names, self._tensors, strict=True)
            if tensor is not None
        }
        alone = _apart([tensor for _, tensor in there.values()])
        small = [pair for key, pair in there.items() if key in alone and _is_small(pair[1])]
        dtype = small[0][1].dtype if small else torch.float32
        self._named = [(name, tensor) for name, tensor in small if tensor.dtype == dtype]
        self._small = [tensor for _, tensor in self._named]
        self.numbers = set(map(id, self._small))
        self.flat, self._parts = _side_by_side(self._small, dtype)
        self._array = self.flat.numpy()
        self._places = [*map(Tensor.data_ptr, self._small)]
        self._copied = [
            buffer
            for layer in self._layers
            for buffer in layer._buffers.values()
            if buffer is not None and id(buffer) not in self.numbers
        ]

    def fits(self, model: nn.Module) -> bool:
        """Whether this is still the pool of a model."""
        return self.knows(model) and [*map(Tensor.data_ptr, self._small)] == self._places

    def knows(self, model: nn.Module) -> bool:
        """Whether a model has the layers, parameters and buffers of this pool, and no others."""
        return (
            self._layers[0] is model
            and _same(self._inside, _values(self._modules))
            and _same(self._tensors, _values(self._held))
            and [*chain.from_iterable(self._held)] == self._names
        )

    def contents(self) -> Contents:
        """All that a step may change, apart from large parameters."""
        copied = [(buffer, buffer.data.clone()) for buffer in self._copied]
        return Contents(self._array.copy(), copied)

    def put_back(self, contents: Contents) -> None:
        """Give the model back what it held."""
        for held, before in zip(self._held, self._registered, strict=True):
            held.clear()  # of what has come since
            held.update(before)
        for tensor, part in zip(self._small, self._parts, strict=True):
            tensor.data = part
        self._array[:] = contents.flat
        for tensor, copied in contents.copied:
            tensor.data = copied

    def others(self) -> list[tuple[str, Tensor]]:
        """The buffers, and tensors that have left the pool, as they are now, with their names."""
        inside = [*map(Tensor.data_ptr, self._small)] == self._places
        if inside and not self._copied and _same(self._buffered, _values(self._buffers)):
            return []
        held = [item for layer in self._layers for item in layer._buffers.items()]
        places = dict(zip(map(id, self._small), self._places, strict=True))
        found = [
            (name, buffer.data)
            for name, buffer in [*held, *self._named]
            if buffer is not None and buffer.data_ptr() != places.get(id(buffer))
        ]
        return [(name, tensor) for name, tensor in found if tensor.is_floating_point()]

    def changed(self, contents: Contents) -> list[tuple[str, Tensor]]:
        """The buffers in the pool, and the parameters in it whose bits have changed."""
        start, found = 0, []
        for (name, tensor), part in zip(self._named, self._parts, strict=True):
            before = contents.flat[start : start + part.numel()]
            if not isinstance(tensor, nn.Parameter) or part.numpy().tobytes() != before.tobytes():
                found.append((name, part))
            start += _lines(part)
        return found


def layers_of(model: nn.Module) -> list[nn.Module]:
    """A module and all inside it; `modules` does the same in three times the time."""
    found = [model]
    for layer in found:  # grows on the way
        if layer._modules:
            found += [inner for inner in layer._modules.values() if inner is not None]
    return found


def _values(held: list[Held]) -> list[Any]:
    return [*chain.from_iterable(map(dict.values, held))]


def _same(some: list[Any], others: list[Any]) -> bool:
    return len(some) == len(others) and all(map(is_, some, others))


def _is_small(tensor: Tensor) -> bool:
    """Whether a tensor may move to a pool."""
    return (
        type(tensor) in (Tensor, nn.Parameter)
        and 0 < tensor.numel() < SMALL
        and tensor.is_cpu
        and tensor.dtype in (torch.float32, torch.float64)
        and tensor.is_contiguous()
        and not (tensor.is_inference() or tensor.is_shared())
    )


def _apart(tensors: list[Tensor]) -> set[int]:
    """`id` of the tensors that share memory with none of the others."""
    spans, reach, last = [], 0, 0
    for tensor in tensors:
        if tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            begin, size = storage.data_ptr(), storage.nbytes()
            if tensor.is_contiguous():
                begin, size = tensor.data_ptr(), tensor.nbytes
            spans.append((begin, begin + size, id(tensor)))
    found = {number for _, _, number in spans}
    for begin, end, number in sorted(spans):
        if begin < reach:
            found -= {number, last}
        if end > reach:
            reach, last = end, number
    return found


def _lines(tensor: Tensor) -> int:
    """How many numbers a tensor takes in a pool."""
    per = LINE // tensor.element_size()
    return -(-tensor.numel() // per) * per


def _side_by_side(tensors: list[Tensor], dtype: torch.dtype) -> tuple[Tensor, list[Tensor]]:
    """Move tensors to one piece of memory: it, and the part of each."""
    flat, parts, start = torch.zeros(sum(map(_lines, tensors)), dtype=dtype), [], 0
    for tensor in tensors:
        part = flat[start : start + tensor.numel()].view(tensor.shape)
        parts.append(part.copy_(tensor.data))
        start += _lines(tensor)
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.data = part
    return flat, parts

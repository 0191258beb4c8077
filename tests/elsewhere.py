"""A second device for tests on a machine that has none: its numbers stay here, its rules hold.

Inside `Elsewhere`, tensors on the device "meta" hold numbers. As on a GPU, an operation does not
mix them with tensors of the CPU (an index may be there, and copying is the way across), and numpy
cannot read them.
"""

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

NAME = "meta"
ACROSS = {"_to_copy", "copy_", "index", "index_put", "_index_put_impl_", "index_put_"}


class There(Tensor):
    """A tensor that says it is elsewhere."""

    @staticmethod
    def __new__(cls, held):
        about = {"dtype": held.dtype, "layout": held.layout, "device": NAME}
        size = {"strides": held.stride(), "storage_offset": held.storage_offset()}
        return Tensor._make_wrapper_subclass(cls, held.size(), **size, **about)

    def __init__(self, held):
        self.held = held

    def __repr__(self):
        return f"There({self.held})"

    def numpy(self, *_, **__):
        raise TypeError("numpy cannot read a tensor that is elsewhere; copy it to the CPU")

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), named=None):
        return call(function, arguments, named or {})


def call(function, arguments, named):
    """Do an operation on the numbers that are here, as the device would."""
    name = function.overloadpacket.__name__
    flat, _ = pytree.tree_flatten((arguments, named))
    there = [part for part in flat if isinstance(part, There)]
    here = [p for p in flat if isinstance(p, Tensor) and not isinstance(p, There) and p.dim()]
    if there and here and name not in ACROSS:
        raise RuntimeError(f"{name}: tensors are on two devices")
    wanted = named.get("device")
    if wanted is not None and torch.device(wanted).type == NAME:
        named = {**named, "device": torch.device("cpu")}
        lands = True
    else:
        lands = bool(there) and wanted is None
    if name == "copy_":
        lands = isinstance(arguments[0], There)
    own = {id(part.held): part for part in there}
    inside = lambda part: part.held if isinstance(part, There) else part  # noqa: E731
    found = function(*pytree.tree_map(inside, arguments), **pytree.tree_map(inside, named))

    def outside(part):
        if not isinstance(part, Tensor) or not lands:
            return part
        return own.get(id(part)) if id(part) in own else There(part)

    return pytree.tree_map(outside, found)


class Elsewhere(TorchDispatchMode):
    """Lets the device "meta" hold numbers."""

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        return call(function, arguments, named or {})

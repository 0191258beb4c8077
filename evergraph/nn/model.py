"""What a model is to a learner: a body, a head that grows, and what it asks of its items."""

from __future__ import annotations

import copy
from collections import OrderedDict
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from evergraph.feature_graph.embedding import largest_feature
from evergraph.graph.neighbors import Features, check_items
from evergraph.graph.rows import SparseRows
from evergraph.nn.heads import Head
from evergraph.stream.batch import Batch

ATOMS = {bool, int, float, str, type(None)}  # that nobody can change
CONTAINERS = {OrderedDict, dict, set, list}


@dataclass(frozen=True)
class Requires:
    """What a model asks of its items; what is None may be anything.

    Attributes:
        hops: K, how many hops of neighbors it looks at.
        condensable: whether (x, m) may be stored in place of x and its neighbors.
        shape: C and F.
        nodes: S, the nodes of an item; 0 stands for any number of them.
        edge_components: W, the length of a vector edge weight.

    Example:
        >>> from evergraph import FGN
        >>> model = FGN(500)
        >>> model.requires.hops, model.requires.shape
        (1, (1, 500))
    """

    hops: int = 1
    condensable: bool = False
    shape: tuple[int, int] | None = None
    nodes: int | None = None
    edge_components: int | None = None

    def check(self, batch: Batch) -> float | None:
        """Raise a ValueError that names the item, or the shape, that the model cannot read.

        A batch that has not changed is checked once.

        Returns:
            the size of its largest feature, if that is known.
        """
        mark = self, batch.versions
        known, size = vars(batch).get("checked", (None, None))
        if known != mark:
            size = self._check(batch)
            vars(batch)["checked"] = mark, size
        found: float | None = size
        return found

    def _check(self, batch: Batch) -> float | None:
        size = largest_feature(batch.x, batch.neighbors, self.hops)
        if size is None:
            check_items(batch.x, batch.neighbors, self.hops)
        given = (len(batch), *batch.width)
        if self.shape is not None and given[-2:] != self.shape:
            raise ValueError(
                f"x must have shape {self._leading}, {self.shape[0]}, {self.shape[1]}) for this "
                f"model, got {given}"
            )
        if self.nodes is not None:
            several = len(given) == 4
            if several != (self.nodes != 1) or (self.nodes > 1 and given[1] != self.nodes):
                raise ValueError(
                    f"items must have {self.nodes or 'several'} nodes each, x of shape "
                    f"{self._leading}, C, F), for this model, got {given}"
                )
            if isinstance(batch.x, SparseRows) and self.nodes not in (1, 2):
                raise ValueError(f"sub-graphs must be dense, got sparse rows of shape {given}")
        components = batch.neighbors.edge_components
        if self.edge_components not in (None, components):
            raise ValueError(
                f"edge weights must have {self.edge_components} components for this model, got "
                f"{components}; set edge_components"
            )
        return size

    @property
    def _leading(self) -> str:
        return "(B" if self.nodes in (None, 1) else f"(B, {self.nodes or 'S'}"


class Encoder(Protocol):
    """From the features of an item as they come to the nodes that layers see.

    One that changes the number of nodes says how many it takes in a further attribute, `in_nodes`.
    """

    in_shape: tuple[int, int]  # C and F of what it takes

    def __call__(self, features: Features) -> Tensor:
        """Map `(*, C, F)`, or sparse rows, to dense nodes `(*, D, G)` of the network's type."""
        ...


class Model(Protocol):
    """What a learner asks of a network: a body and a head, of which only the head grows."""

    @property
    def requires(self) -> Requires:
        """What it asks of its items."""
        ...

    head: Head

    def __call__(self, batch: Batch) -> Tensor:
        """Outputs, `(B, K)`."""
        ...


def device_of(model: Any) -> torch.device:
    """Where the parameters of a model are; one that has none computes on the CPU."""
    first = next(model.parameters(), None)
    return torch.device("cpu") if first is None else first.device


def outputs(model: Model, batch: Batch, device: torch.device) -> Tensor:
    """What a model makes of a batch, `(B, K)`, on the CPU: the items go to the model's device."""
    return model(batch) if device.type == "cpu" else model(batch.to(device)).cpu()


def frozen(module: nn.Module, known: dict[int, Any] | None = None) -> Any:
    """A copy of a module in evaluation mode, whose parameters want no gradients.

    What `copy.deepcopy` makes, in a fraction of its time: most of what a module holds are empty
    dictionaries of hooks.

    Args:
        module: what is copied.
        known: what has been copied already, by id, as `copy.deepcopy` keeps it.
    """
    known = {} if known is None else known
    if id(module) in known:
        return known[id(module)]
    own: Any = type(module)
    if not _plain(own):
        return copy.deepcopy(module, known).requires_grad_(False).eval()
    fresh = known[id(module)] = object.__new__(own)
    held = vars(fresh)
    for name, value in vars(module).items():
        kind = type(value)
        if kind in ATOMS:
            held[name] = value
        elif kind in CONTAINERS and not value:
            held[name] = kind()
        elif name == "_modules":
            held[name] = {k: None if m is None else frozen(m, known) for k, m in value.items()}
        elif name in ("_parameters", "_buffers"):
            held[name] = {k: None if t is None else _copied(t, known) for k, t in value.items()}
        elif kind is tuple and ATOMS.issuperset(map(type, value)):
            held[name] = value
        else:
            held[name] = copy.deepcopy(value, known)
    held["training"] = False
    return fresh


@cache
def _plain(kind: type[nn.Module]) -> bool:
    """Whether modules of a class are copied attribute by attribute."""
    names = ("__reduce_ex__", "__reduce__", "__getstate__", "__setstate__")
    usual = all(getattr(kind, name) is getattr(nn.Module, name) for name in names)
    return usual and not hasattr(kind, "__deepcopy__")


def _copied(tensor: Tensor, known: dict[int, Any]) -> Tensor:
    found: Tensor | None = known.get(id(tensor))
    if found is None:
        if type(tensor) is nn.Parameter:
            found = nn.Parameter(tensor.detach().clone(), requires_grad=False)
        elif type(tensor) is Tensor and not tensor.requires_grad:
            found = tensor.clone()
        else:
            found = copy.deepcopy(tensor, known).requires_grad_(False)
        known[id(tensor)] = found
    return found

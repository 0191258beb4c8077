"""Graphs of other libraries: PyG `Data` and `TemporalData` objects and NetworkX graphs.

Both are read through their attributes, so neither library is imported or needed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.datasets.formats import sketch
from evergraph.graph.dataset import (
    Dataset,
    encode_labels,
    sparse_rows,
    split_by_class,
    split_by_name,
)
from evergraph.graph.graph import Graph
from evergraph.graph.rows import SparseRows

Owners = Sequence[tuple[str, Mapping[str, Any]]]
"""The name of each node (or edge) in error messages, and its attributes."""


def from_pyg(
    data: Any, *, name: str = "pyg", directed: bool | None = None, seed: int = 0
) -> Dataset:
    """Convert a PyG `Data` or `TemporalData` object.

    Of `Data` it reads `x` (dense or sparse), `edge_index`, `y`, `edge_weight` or `edge_attr`,
    `time` or `node_year`, `train_mask` and `test_mask`; all but the first two may be missing.
    Without masks, 60 % of each class are drawn for training and 20 % for testing.

    Of `TemporalData` it reads `src`, `dst` and `t` as edges in time, which count both ways; a node
    arrives with its first event. Without `x`, its features are a sketch of the neighbors of that
    moment (`sketch`), followed by the mean of the messages (`msg`) of that moment; later events
    are not used. `y` is read if it has one class number for each node, and not for each event.

    Args:
        data: the object.
        name: what to call it.
        directed: by default, what `data.is_directed()` says.
        seed: of the split.

    Raises:
        ValueError: if `edge_index` or `y` are not integers, or a mask is not a bool mask.
    """
    if all(hasattr(data, needed) for needed in ("src", "dst", "t")):
        return _from_events(data, name, bool(directed), seed)
    for needed in ("x", "edge_index"):
        if getattr(data, needed, None) is None:
            keys = data.keys() if callable(data.keys) else data.keys
            got = ", ".join(sorted(keys)) or "nothing"
            raise ValueError(f"a PyG graph must have {needed!r}, got only {got}")
    weight, labels = _first(data, "edge_weight", "edge_attr"), _first(data, "y")
    graph = Graph(
        features=_pyg_features(data.x),
        edges=_integers("edge_index", data.edge_index, "node numbers"),
        labels=None if labels is None else _integers("y", _flat(labels), "class numbers"),
        weight=None if weight is None else weight.float(),
        time=_flat(_first(data, "time", "node_year")),
        directed=bool(data.is_directed()) if directed is None else directed,
        name=name,
    )
    parts = ("train_mask", "test_mask")
    masks = {part: mask for part in parts if (mask := _first(data, part)) is not None}
    if len(masks) == 1:
        raise ValueError(
            f"train_mask and test_mask must come together, got only {', '.join(masks)}; set the "
            "other one, or delete this one to have a split drawn"
        )
    if not masks:
        train, test = split_by_class(graph.labels, seed=seed)
    else:
        train, test = (_nodes_of(part, masks[part], graph.num_nodes) for part in parts)
    return Dataset(graph, train, test, name, "a PyG graph")


def _from_events(data: Any, name: str, directed: bool, seed: int) -> Dataset:
    """A `TemporalData`: nodes and their features follow from the events."""
    ends = [_integers(end, getattr(data, end), "node numbers") for end in ("src", "dst")]
    edges, when, x = torch.stack(ends), data.t, _first(data, "x")
    if not edges.numel():
        raise ValueError("a TemporalData object must have events, got none")
    count = int(edges.max()) + 1 if x is None else len(x)
    time = torch.full((count,), when.max() + 1, dtype=when.dtype)  # of nodes that never come
    time.scatter_reduce_(0, edges.flatten(), when.repeat(2), "amin")
    if x is None:
        x = torch.from_numpy(sketch(edges.numpy(), when.numpy(), time.numpy()))
        if (message := _first(data, "msg")) is not None:
            owner, event = edges.flatten(), torch.arange(len(when)).repeat(2)
            first = when[event] == time[owner]
            message = message.reshape(len(when), -1).to(x)
            sums = x.new_zeros(count, message.shape[1])
            sums.index_add_(0, owner[first], message[event[first]])
            often = torch.bincount(owner[first], minlength=count).clamp(min=1)
            x = torch.cat([x, sums / often.unsqueeze(1)], dim=1)
    y = _first(data, "y")
    of_nodes = y is not None and len(y) == count != len(when)
    labels = _integers("y", _flat(y), "class numbers") if of_nodes else None
    graph = Graph(
        features=_pyg_features(x),
        edges=edges,
        labels=labels,
        time=time,
        edge_time=when,
        directed=directed,
        name=name,
    )
    return Dataset(graph, *split_by_class(labels, seed=seed), name, "events of PyG")


def _first(data: Any, *names: str) -> Any:
    return next((value for name in names if (value := getattr(data, name, None)) is not None), None)


def _flat(values: Any) -> Any:
    return values[:, 0] if values is not None and values.shape[1:] == (1,) else values


def _integers(name: str, values: Tensor, meaning: str) -> Tensor:
    """As int64; numbers that would be truncated are refused."""
    if values.is_floating_point() or values.is_complex():
        raise ValueError(
            f"{name} must be integers, {meaning}, got {values.dtype}; if they are, call "
            f"data.{name} = data.{name}.long()"
        )
    return values.long()


def _pyg_features(x: Tensor) -> Tensor | SparseRows:
    if x.layout == torch.strided:
        return x if x.is_floating_point() else x.float()
    entries = x.to_sparse_coo().coalesce()
    row, column = entries.indices().cpu().numpy()
    return sparse_rows(row, column, entries.values().cpu().numpy(), (x.shape[0], x.shape[1]))


def _nodes_of(name: str, mask: Any, num_nodes: int) -> Tensor:
    """The nodes of a bool mask; node numbers, zeros and ones, or several masks are refused."""
    if not isinstance(mask, Tensor):
        got = str(mask)
    elif mask.dim() == 2:
        raise ValueError(
            f"{name} must have shape (N,), got {tuple(mask.shape)}; choose one split, as in "
            f"data.{name}[:, 0]"
        )
    elif mask.dtype == torch.bool and mask.shape == (num_nodes,):
        return mask.nonzero().flatten()
    else:
        got = f"{mask.dtype} of shape {tuple(mask.shape)}"
    raise ValueError(
        f"{name} must be a bool mask of shape ({num_nodes},), got {got}; turn node numbers into a "
        "mask with torch_geometric.utils.index_to_mask, zeros and ones with .bool()"
    )


def from_networkx(graph: Any, *, name: str = "networkx", seed: int = 0) -> Dataset:
    """Convert a NetworkX graph, directed or not; nodes are numbered in its order.

    Reads the node attributes `x` (a number or a sequence of them; needed), `label`, `time` and
    `split` (train or test), and the edge attribute `weight` (a number or a sequence of them). An
    attribute other than `label` and `split` must be on all nodes (edges) or on none.

    Example:
        >>> import networkx
        >>> ring = networkx.cycle_graph(5)
        >>> for node in ring:
        ...     ring.nodes[node].update(x=[1.0, node], label="even" if node % 2 == 0 else "odd")
        >>> from_networkx(ring).graph.class_names
        ('even', 'odd')
    """
    number = {node: index for index, node in enumerate(graph.nodes)}
    nodes = [(f"node {node!r}", values) for node, values in graph.nodes(data=True)]
    edges = list(graph.edges(data=True))
    owner: Callable[[int], str] = lambda row: nodes[row][0]  # noqa: E731
    features = _stack(nodes, "x")
    if features is None:
        raise ValueError("a NetworkX graph must have the node attribute 'x', the features")
    labels: Tensor | None = None
    class_names: tuple[str, ...] = ()
    if any("label" in values for _, values in nodes):
        labels, class_names = encode_labels([values.get("label") for _, values in nodes], owner)
    pairs = [(number[source], number[target]) for source, target, _ in edges]
    weight = _stack([(f"edge {edge[:2]!r}", edge[2]) for edge in edges], "weight")
    built = Graph(
        features=(features.unsqueeze(1) if features.dim() == 1 else features).float(),
        edges=torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T.contiguous(),
        labels=labels,
        weight=None if weight is None else weight.float(),
        time=_stack(nodes, "time"),
        directed=graph.is_directed(),
        class_names=class_names,
        name=name,
    )
    parts = [values.get("split") for _, values in nodes]
    train, test = split_by_class(labels, seed=seed)
    if any(parts):
        train, test = split_by_name(parts, owner)
    return Dataset(built, train, test, name, "a NetworkX graph")


def _stack(owners: Owners, attribute: str) -> Tensor | None:
    """One float64 row per owner; None if no owner has the attribute."""
    if not any(attribute in values for _, values in owners):
        return None
    rows: list[NDArray[np.float64]] = []
    for owner, values in owners:
        if attribute not in values:
            raise ValueError(f"{owner} must have {attribute!r}, as others have it")
        try:
            row = np.asarray(values[attribute], dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                f"{attribute!r} must be a number or a sequence of numbers, but that of {owner} is "
                f"{values[attribute]!r}"
            ) from None
        if rows and row.shape != rows[0].shape:
            raise ValueError(
                f"{attribute!r} must have the same shape everywhere, but {owner} has {row.shape} "
                f"and the first has {rows[0].shape}"
            )
        rows.append(row)
    return torch.from_numpy(np.stack(rows))

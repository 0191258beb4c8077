"""Graphs in memory as a table of nodes and a table of edges: data sets, PyG and NetworkX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from evergraph.datasets.columns import Chunk, from_arrow, from_rows
from evergraph.datasets.convert import from_pyg
from evergraph.datasets.report import Report
from evergraph.graph.dataset import Dataset
from evergraph.graph.rows import SparseRows


def dataset_tables(dataset: Dataset) -> tuple[Chunk, Chunk]:
    """The nodes and the edges of a data set.

    Ids are node numbers, and the features are one column `x` of sparse vectors.

    Example:
        >>> from evergraph.datasets.generate import generate
        >>> nodes, edges = dataset_tables(generate("citation"))
        >>> nodes.table.column_names, edges.table.column_names
        (['id', 'x', 'label', 'split', 'time'], ['source', 'target'])
    """
    graph = dataset.graph
    nodes: dict[str, Any] = {"id": np.arange(graph.num_nodes), "x": _features(graph.features)}
    if graph.labels is not None:
        names, labels = graph.class_names, graph.labels.tolist()
        nodes["label"] = pa.array(
            [None if label < 0 else names[label] if names else str(label) for label in labels],
            pa.string(),
        )
        splits = np.full(graph.num_nodes, None, dtype=object)
        splits[dataset.train.numpy()], splits[dataset.test.numpy()] = "train", "test"
        nodes["split"] = pa.array(splits, pa.string())
    if graph.time is not None:
        nodes["time"] = graph.time.double().numpy()
    source, target = graph.edges.numpy()
    edges: dict[str, Any] = {"source": source, "target": target}
    if graph.weight is not None:
        edges["weight"] = graph.weight.double().tolist()
    if graph.edge_time is not None:
        edges["time"] = graph.edge_time.double().numpy()
    report = Report()
    tables = [
        from_arrow(pa.table(columns), report, file=f"{part} of {dataset.name}")
        for part, columns in (("nodes", nodes), ("edges", edges))
    ]
    report.check()
    return tables[0], tables[1]


def _features(features: Any) -> pa.Array:
    rows = features if isinstance(features, SparseRows) else SparseRows.from_dense(features)
    offsets = pa.array(rows.indptr.numpy().astype(np.int32))
    index = pa.ListArray.from_arrays(offsets, pa.array(rows.indices.numpy()))
    value = pa.ListArray.from_arrays(offsets, pa.array(rows.values.double().numpy()))
    return pa.StructArray.from_arrays([index, value], ["index", "value"])


def pyg_tables(data: Any) -> tuple[Chunk, Chunk]:
    """The nodes and the edges of a PyG `Data` object; `from_pyg` says what is read."""
    return dataset_tables(from_pyg(data))


def networkx_tables(graph: Any) -> tuple[Chunk, Chunk]:
    """The nodes and the edges of a NetworkX graph.

    All attributes of nodes become columns; of those of edges, `weight` and `time`.

    Example:
        >>> import networkx
        >>> pair = networkx.Graph([("ann", "bob", {"weight": 0.5})])
        >>> pair.nodes["ann"].update(age=31, label="editor")
        >>> nodes, edges = networkx_tables(pair)
        >>> nodes.table.to_pylist()[0], edges.table.to_pylist()[0]
        ({'id': 'ann', 'age': 31, 'label': 'editor'},
         {'source': 'ann', 'target': 'bob', 'weight': 0.5})
    """
    report = Report()
    rows = [
        {"id": node, **_plain(values, values.keys() - {"id"})}
        for node, values in graph.nodes(data=True)
    ]
    nodes = from_rows(rows, report, file="nodes of the NetworkX graph")
    rows = [
        {"source": source, "target": target, **_plain(values, values.keys() & {"weight", "time"})}
        for source, target, values in graph.edges(data=True)
    ]
    edges = from_rows(rows, report, file="edges of the NetworkX graph")
    report.check()
    return nodes, edges


def _plain(values: Mapping[Any, Any], names: Any) -> dict[str, Any]:
    """Attributes by the text of their names, with arrays and tensors as lists."""
    return {
        str(name): value.tolist() if hasattr(value, "tolist") else value
        for name, value in values.items()
        if name in names
    }

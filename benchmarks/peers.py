"""FGN with replay beside PyG's GCN: the same items, memory, steps and batch sizes, in turns.

The GCN is one `GCNConv` of 256 channels and a linear classifier on the same items. Its linear map
looks at the words that are there only. Each side stores features as sparse rows or dense, whichever
a few batches show to be faster.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Annotated, Any

import torch
import typer
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding_bag

from benchmarks.closed_form import clocks
from evergraph.cli.console import AsJson, DataRoot, Out, progress, publish, table_of, use_threads
from evergraph.datasets import load
from evergraph.evaluate.config import Config, build
from evergraph.evaluate.evidence import provenance
from evergraph.extras import require
from evergraph.graph import Dataset
from evergraph.graph.neighbors import Features, Neighbors, as_dense
from evergraph.graph.rows import SparseRows
from evergraph.learn import Learner
from evergraph.nn.heads import Head, Readout
from evergraph.nn.model import Requires
from evergraph.stream.batch import Batch

DATASETS = (
    "cora", "citeseer", "pubmed", "coauthor-physics", "amazon-computers", "acm", "cora_ml", "uai",
    "flickr", "squirrel-filtered", "tolokers", "minesweeper", "citation-domains",
)  # fmt: skip
HIDDEN = 256
WARM, BLOCK = 60, 5  # batches before anything is timed, so that memories are full; and in a turn
PILOT = 5  # batches that choose a storage
LARGEST = 3e8  # numbers of features that are tried dense


class GCN(nn.Module):
    """`GCNConv` from the neighbors of an item to the item, ReLU, dropout, a classifier."""

    def __init__(self, num_features: int, hops: int, rate: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_features, HIDDEN))
        nn.init.xavier_uniform_(self.weight)
        self.conv = require("torch_geometric", "pyg").nn.GCNConv(HIDDEN, HIDDEN)
        self.conv.lin = nn.Identity()  # done before, see `_mapped`
        self.head: Head = Readout(HIDDEN, 1, 0, centered=False)
        self.requires, self.rate = Requires(hops, condensable=True), rate

    def forward(self, batch: Batch) -> Tensor:
        """Outputs, `(B, K)`."""
        neighbors = batch.neighbors
        assert isinstance(neighbors, Neighbors)
        h = torch.cat([self._mapped(batch.x), self._mapped(neighbors.features)])
        sender = torch.arange(len(batch), len(h))
        found = self.conv(h, torch.stack([sender, neighbors.owner]))[: len(batch)]
        found = dropout(found.relu(), self.rate, self.training)
        out: Tensor = self.head(found.unsqueeze(-1), found.new_zeros(HIDDEN))
        return out

    def _mapped(self, x: Features) -> Tensor:
        if isinstance(x, Tensor):
            return x.flatten(1) @ self.weight
        index, start = x.indices.long(), x.indptr[:-1]
        return embedding_bag(index, self.weight, start, mode="sum", per_sample_weights=x.values)


Side = tuple[Iterator[Batch], Learner]


def side(name: str, dataset: Dataset, seed: int) -> Side:
    """A stream class by class and the learner of a model, with the settings chosen for FGN."""
    config = Config(dataset=dataset.name, model="fgn", method="replay")
    stream, learner = build(config, dataset, seed)
    if name == "gcn":
        graph, s = dataset.graph, config.settings
        torch.manual_seed(seed)
        model = GCN(graph.num_features, s["hops"], s["dropout"])
        learner = Learner(model, learner.method, learner.memory, learner.training, seed)
    return stream.batches(0), learner


def learn(learner: Learner, batches: Iterable[Batch]) -> None:
    """Observe some batches."""
    for batch in batches:
        learner.observe(batch)


def storages(dataset: Dataset) -> list[Dataset]:
    """The data set with sparse rows and with dense features, if both are possible."""
    graph, x = dataset.graph, dataset.graph.features
    dense = as_dense(x) if graph.num_nodes * graph.num_features < LARGEST else None
    rows = x if isinstance(x, SparseRows) else SparseRows.from_dense(x.flatten(1))
    return [
        replace(dataset, graph=replace(graph, features=f)) for f in (rows, dense) if f is not None
    ]


def best(name: str, dataset: Dataset) -> tuple[str, Dataset]:
    """The storage in which a model learns faster."""
    took = []
    for stored in storages(dataset):
        stream, learner = side(name, stored, 0)
        learn(learner, islice(stream, PILOT))
        cpu, _ = clocks(partial(learn, learner, list(islice(stream, PILOT))))
        took.append(
            (cpu, "dense" if isinstance(stored.graph.features, Tensor) else "sparse", stored)
        )
    return min(took, key=lambda each: each[0])[1:]


def compare(dataset: Dataset, turns: int) -> dict[str, Any]:
    """Cost per item of both sides; the ratio is the median over turns."""
    chosen = {name: best(name, dataset) for name in ("fgn", "gcn")}
    sides = {name: side(name, stored, 0) for name, (_, stored) in chosen.items()}
    for stream, learner in sides.values():
        learn(learner, islice(stream, WARM))
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    items = 0
    for _ in range(turns):
        for name, (stream, learner) in sides.items():
            batches = list(islice(stream, BLOCK))
            times[name].append(clocks(partial(learn, learner, batches)))
            items += sum(map(len, batches)) * (name == "fgn")
    row: dict[str, Any] = {"dataset": dataset.name, "items": items}
    for k, clock in enumerate(("cpu", "wall")):
        ratios = [f[k] / g[k] for f, g in zip(times["fgn"], times["gcn"], strict=True)]
        row[f"fgn_over_gcn_{clock}"] = statistics.median(ratios)
        for name in sides:
            row[f"{name}_ms_per_item_{clock}"] = sum(t[k] for t in times[name]) / items * 1e3
    for name, (storage, _) in chosen.items():
        row[f"{name}_storage"] = storage
    return {**row, "load": os.getloadavg()[0]}


def command(
    datasets: str = ",".join(DATASETS),
    turns: Annotated[int, typer.Option(min=1, help="Of five batches, for each side.")] = 8,
    data: DataRoot = None,
    as_json: AsJson = False,
    out: Out = None,
) -> None:
    """Time FGN with replay beside a GCN with the same replay."""
    use_threads(1)
    evidence, rows, names = provenance(), [], datasets.split(",")
    with progress(as_json) as shown:
        task = shown.add_task("FGN and GCN in turns", total=len(names))
        for name in names:
            shown.update(task, description=f"FGN and GCN in turns, {name}")
            rows.append(compare(load(name, data), turns))
            shown.advance(task)
    columns = ("dataset", "fgn_over_gcn_cpu", "fgn_over_gcn_wall", "fgn_storage", "gcn_storage")
    cells = [[r[c] if isinstance(r[c], str) else f"{r[c]:.2f}" for c in columns] for r in rows]
    publish(
        {**evidence, "cases": rows}, as_json, out,
        lambda: table_of("FGN over GCN, with the same replay", columns, cells),
    )  # fmt: skip


if __name__ == "__main__":
    typer.run(command)

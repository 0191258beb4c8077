"""How hash and a streaming partitioner share a power-law graph out: cut edges, ghosts, skew."""

from __future__ import annotations

import os
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.table import Table

from evergraph.cli.console import AsJson, Out, publish, table_of
from evergraph.cluster.partition import homes, keys_of
from evergraph.datasets.generate import Growth, generate
from evergraph.evaluate.evidence import provenance

SKEW = 0.7
Ints = NDArray[np.int64]
Row = dict[str, Any]


def cut(nodes: int, citations: float, shards: list[int]) -> list[Row]:
    """How hash and a streaming partitioner share a power-law graph out."""
    growth = Growth(nodes=nodes, citations=citations, features=32, words=6.0, skew=SKEW)
    source, target = generate(growth).graph.edges.numpy()
    ends = np.concatenate([source, target]), np.concatenate([target, source])
    order = np.argsort(ends[0], kind="stable")
    indptr = np.r_[0, np.cumsum(np.bincount(ends[0], minlength=nodes))]
    rows = []
    for number in shards:
        hashed = homes(keys_of(range(nodes)), number)
        for name, owner in (
            ("hash", hashed), ("streaming", streamed(indptr, ends[1][order], number))
        ):  # fmt: skip
            rows.append({"partition": name, "shards": number, **loads(owner, source, target)})
    degrees = np.sort(np.diff(indptr))[::-1]
    for row in rows:
        row["nodes"], row["edges"] = nodes, len(source)
        row["largest_degree"], row["median_degree"] = int(degrees[0]), int(np.median(degrees))
    return rows


def streamed(indptr: Ints, neighbors: Ints, shards: int, gamma: float = 1.5) -> Ints:
    """Shards by one pass over the nodes in their order (Fennel, Tsourakakis et al. 2014).

    A node goes where most of its neighbors are that came before it, minus a price of large parts,
    `α γ |P|^(γ - 1)` with `α = m k^(γ - 1) / n^γ`. Parts may be a tenth larger than the mean.
    """
    nodes, edges = len(indptr) - 1, len(neighbors) / 2
    alpha = edges * shards ** (gamma - 1) / nodes**gamma
    owner = np.full(nodes, -1, dtype=np.int64)
    sizes, most = np.zeros(shards), 1.1 * nodes / shards
    for node in range(nodes):
        near = owner[neighbors[indptr[node] : indptr[node + 1]]]
        gain = np.bincount(near[near >= 0], minlength=shards) - alpha * gamma * np.sqrt(sizes)
        gain[sizes >= most] = -np.inf
        owner[node] = int(gain.argmax())
        sizes[owner[node]] += 1
    return owner


def loads(owner: Ints, source: Ints, target: Ints) -> Row:
    """Shares of cut edges, ghosts of a node, and the largest part over the mean."""
    shards = int(owner.max()) + 1
    one, other = owner[source], owner[target]
    crossing = one != other
    # a node is a ghost once in each foreign shard that it has a neighbor in
    pairs = np.concatenate([
        source[crossing] * shards + other[crossing], target[crossing] * shards + one[crossing]
    ])  # fmt: skip
    ghosts = np.unique(pairs)
    own = np.bincount(owner, minlength=shards)
    held = own + np.bincount(ghosts % shards, minlength=shards)
    edges = np.bincount(one, minlength=shards) + np.bincount(other[crossing], minlength=shards)
    return {
        "cut": float(crossing.mean()),
        "ghosts_per_node": len(ghosts) / len(owner),
        "nodes_skew": float(own.max() / own.mean()),
        "held_skew": float(held.max() / held.mean()),
        "edges_skew": float(edges.max() / edges.mean()),
    }


def main(
    nodes: Annotated[int, typer.Option(help="Of the generated graph.")] = 200_000,
    citations: Annotated[float, typer.Option(help="Edges of a node.")] = 4.0,
    shards: Annotated[str, typer.Option(help="Numbers of shards.")] = "2,4,16,64",
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Simulate partitions of a graph whose degrees follow a power law."""
    rows = cut(nodes, citations, [int(one) for one in shards.split(",")])
    config = {"nodes": nodes, "citations": citations, "skew": SKEW, "cores": os.cpu_count()}
    found = {**provenance(), "config": config, "rows": rows}

    def table() -> Table:
        names = [name for name in rows[0] if name not in ("nodes", "edges")]
        text = [
            [f"{row[n]:.3f}" if isinstance(row[n], float) else str(row[n]) for n in names]
            for row in rows
        ]
        return table_of(f"partitions of {nodes:,} nodes", tuple(names), text)

    publish(found, as_json, out, table)


if __name__ == "__main__":
    typer.run(main)

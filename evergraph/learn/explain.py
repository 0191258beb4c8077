"""Which neighbors and features spoke for a class: parts of a score that sum to it exactly.

A score is linear in the row of a node, and the row is made of the node's features x and the means
m of its hops. Linear blocks give each feature its own part. A kernel value is `g(t)`, where t is a
sum of products: `g(t) - g(0)` is divided in proportion to the parts of t, half of a product x m
to each factor, and `g(0)` is a part of the bias. The part of a mean goes to the nodes in
proportion to what they brought into it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from evergraph.feature_graph.fixed_point import ONE, Embedding, Floats, Ints, Rows, root, unit
from evergraph.graph.growing import GrowingGraph
from evergraph.learn.exact import feature_rows, hop_means, rows_of, steps_of
from evergraph.learn.solution import Solution


@dataclass(frozen=True)
class Parts:
    """Parts of a score.

    Attributes:
        score: of a class.
        bias: what every node has.
        slots: of the nodes that have parts.
        nodes: their parts, `(n,)`; with `bias` they sum to the score.
        features: parts of features, `(F,)`; with `bias` they sum to the score.
    """

    score: float
    bias: float
    slots: Ints
    nodes: Floats
    features: Floats


def explain(
    solution: Solution, embedding: Embedding, graph: GrowingGraph, slot: int, label: str
) -> Parts:
    """The parts of a node's score for a class."""
    own = np.array([slot], dtype=np.int64)
    weight = solution.weights(label)
    x, means = feature_rows(graph, own), hop_means(graph, own, graph.hops)
    row = rows_of(embedding, graph, own)[0] / ONE
    parts = [np.zeros(graph.num_features) for _ in range(1 + graph.hops)]  # of x, of each mean
    _linear_parts(embedding, row * weight, parts)
    bias = float(weight[-1]) + _kernel_parts(embedding, weight, x, means, parts)
    slots, nodes, features = [own], [np.array([parts[0].sum()])], parts[0].copy()
    for (members, share), part in zip(steps_of(graph, own, graph.hops), parts[1:], strict=True):
        slots.append(members)
        nodes.append(_divided(graph, members, share, part, slot))
        features += part
    distinct, which = np.unique(np.concatenate(slots), return_inverse=True)
    summed = np.zeros(len(distinct))
    np.add.at(summed, which, np.concatenate(nodes))
    return Parts(float(row @ weight), bias, distinct, summed, features)


def _linear_parts(embedding: Embedding, found: Floats, parts: list[Floats]) -> None:
    """Add the parts of linear blocks; those of Âx count as the node's own."""
    width, hop = embedding.block_width, {"mean": 0, "root mean": 0}
    for number, name in enumerate(embedding.names):
        block = found[number * width : (number + 1) * width]
        if name in hop:
            hop[name] += 1
            parts[hop[name]] += block
        else:
            parts[0] += block


def _kernel_parts(
    embedding: Embedding, weight: Floats, x: Rows, means: list[Rows], parts: list[Floats]
) -> float:
    """Add the parts of the kernel block; returns what belongs to the bias."""
    weight = weight[embedding.parts["kernel"]]
    if not len(weight):
        return 0.0
    plain, rooted = embedding.points
    x, means = unit(x), [unit(root(mean)) for mean in means]
    own = (x @ plain).toarray()[0] / ONE**2
    others = [(mean @ rooted).toarray()[0] / ONE**2 for mean in means]
    total, around = own + (1 + own) * sum(others), sum(others)
    value, zero = (embedding.kernel_of(t) / ONE for t in (total, np.zeros_like(total)))
    some = np.abs(total) > 1e-12
    slope = np.divide((value - zero) * weight, total, out=np.zeros_like(total), where=some)
    parts[0] += _dense(x) * (plain @ (slope * (1 + around / 2))) / ONE**2
    for part, mean in zip(parts[1:], means, strict=True):
        part += _dense(mean) * (rooted @ (slope * (1 + own / 2))) / ONE**2
    return float(zero @ weight + ((value - zero) * weight)[~some].sum())


def _dense(row: Rows) -> Floats:
    return np.asarray(row.toarray()[0], dtype=np.float64)


def _divided(graph: GrowingGraph, members: Ints, share: Floats, part: Floats, slot: int) -> Floats:
    """What each node brought into the part of a mean; what nobody brought is the node's own."""
    brought = sparse.diags_array(share) @ feature_rows(graph, members)
    total = np.asarray(brought.sum(0)).ravel()
    some = np.abs(total) > 1e-9
    found = np.asarray(brought @ np.divide(part, total, out=np.zeros_like(part), where=some))
    found[np.searchsorted(members, slot)] += part[~some].sum()
    return found
